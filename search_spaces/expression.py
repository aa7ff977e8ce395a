"""The small language of conditions, guards and constraints: parsed, never evaluated by Python.

Grammar (lowest binding first)::

    or_      := and_ ("or" and_)*
    and_     := not_ ("and" not_)*
    not_     := "not" not_ | compare
    compare  := sum (("=="|"!="|"<"|"<="|">"|">="|"in"|"not" "in") sum)*     chained as in Python
    sum      := product (("+"|"-") product)*
    product  := unary (("*"|"/"|"//"|"%") unary)*
    unary    := "-" unary | atom
    atom     := number | 'string' | true | false | none | name | "(" or_ ")" | list
    list     := "[" or_ ("," or_)* "]"

A name is a knob (``spec_k``) or a fact (``engine.version``). Logic is three-valued: a fact that
nobody stated is *unknown*, and what depends on it is unknown too, so that a rule never fires on a
guess. A knob that is not active, or left to the engine, has the value ``none``. Only ``== none``,
``!= none`` and ``in [..., none]`` decide something about it; every other comparison is unknown.

Strings that look like versions (``0.32.0``) are ordered by their numbers, so ``'0.9' < '0.40'``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

Value = bool | int | float | str | None


class Unknown:
    """The third truth value: nobody has said, so no rule may conclude from it."""

    def __repr__(self) -> str:
        return "unknown"

    def __bool__(self) -> bool:
        raise TypeError("unknown is neither true nor false: ask `is True` or `is False`")


UNKNOWN: Final = Unknown()
Result = Value | Unknown | tuple[Any, ...]
_Evaluate = Callable[[Mapping[str, Value]], Result]


class ExpressionError(ValueError):
    """A text that is not an expression; `column` counts from 1 within the expression."""

    def __init__(self, text: str, column: int, problem: str) -> None:
        self.text = text
        self.column = column
        self.problem = problem
        super().__init__(f"column {column}: {problem} in expression {text!r}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`name == literal` (or `in [...]`) as written: lets a space check literals against choices."""

    name: str
    literal: Value
    column: int


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "number" | "string" | "name" | "operator" | "end"
    text: str
    column: int


_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"
    r"|(?P<operator>==|!=|<=|>=|//|[<>+\-*/%()\[\],])"
)
_KEYWORDS: Final = frozenset({"and", "or", "not", "in"})
_CONSTANTS: Final[dict[str, Value]] = {
    "true": True, "True": True, "false": False, "False": False,
    "none": None, "None": None, "null": None,
}  # fmt: skip
_COMPARISONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
_VERSION = re.compile(r"\d+(\.\d+)+([.+-]?[A-Za-z0-9]+)*")
# Deeper nesting than this is a mistake or an attack; it would exhaust Python's stack.
_MAX_DEPTH: Final = 100


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            character = text[at]
            if character == "=":
                raise ExpressionError(text, at + 1, "'=' is not an operator, write '=='")
            if character in "'\"":
                raise ExpressionError(text, at + 1, "the string is not closed")
            raise ExpressionError(text, at + 1, f"unexpected character {character!r}")
        kind = str(match.lastgroup)
        if kind != "space":
            yield _Token(kind, match.group(), at + 1)
        at = match.end()
    yield _Token("end", "", len(text) + 1)


def version_key(text: str) -> tuple[tuple[int, str], ...]:
    """Orders ``0.9`` < ``0.32.0rc1`` < ``0.32.0`` < ``0.40``.

    Trailing zeros do not count, nor does what follows a plus: a build is no newer version.
    """
    parts: list[tuple[int, str]] = []
    for part in re.split(r"[.-]", text.partition("+")[0]):
        number = re.match(r"\d+", part)
        if number is None:
            parts.append((-1, part))
        elif number.end() == len(part):
            parts.append((int(number.group()), "~"))
        else:  # 0rc1 comes before 0
            parts.append((int(number.group()), part[number.end() :]))
    while len(parts) > 1 and parts[-1] == (0, "~"):
        parts.pop()
    return (*parts, (0, "~"))  # the end lies after a release candidate and before a patch


def _number(value: Result) -> int | float | None:
    return value if isinstance(value, (int, float)) else None


def _order(left: Result, right: Result) -> int | Unknown:
    """-1, 0 or 1; unknown where the two have no order (none, a text that is no version, lists)."""
    a, b = _number(left), _number(right)
    if a is not None and b is not None:
        return (a > b) - (a < b)
    if isinstance(left, str) and isinstance(right, str):
        if _VERSION.fullmatch(left) and _VERSION.fullmatch(right):
            x, y = version_key(left), version_key(right)
            return (x > y) - (x < y)
        return (left > right) - (left < right)
    return UNKNOWN


def _equal(left: Result, right: Result) -> bool:
    # A flag of 1 and a flag of true are the same setting; a text never equals a number.
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left == right
    return type(left) is type(right) and left == right


def _compare(operator: str, left: Result, right: Result, *, asks_for_none: bool) -> bool | Unknown:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if operator in ("==", "!="):
        if (left is None) != (right is None) and not asks_for_none:
            return UNKNOWN
        return _equal(left, right) == (operator == "==")
    if operator in ("in", "not in"):
        if isinstance(right, tuple):
            found = any(_equal(left, item) for item in right)
            if left is None and not found:
                return UNKNOWN
        elif isinstance(right, str) and isinstance(left, str):
            found = left in right
        else:
            return UNKNOWN
        return found if operator == "in" else not found
    order = _order(left, right)
    if isinstance(order, Unknown):
        return UNKNOWN
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator]


def _calculate(operator: str, left: Result, right: Result) -> Result:
    if operator == "+" and isinstance(left, str) and isinstance(right, str):
        return left + right
    a, b = _number(left), _number(right)
    if a is None or b is None:
        return UNKNOWN
    if operator == "+":
        return a + b
    if operator == "-":
        return a - b
    if operator == "*":
        return a * b
    if b == 0:
        return UNKNOWN
    return a / b if operator == "/" else a // b if operator == "//" else a % b


def _truth(value: Result) -> bool | Unknown:
    return value if isinstance(value, Unknown) else bool(value)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0
        self.names: dict[str, int] = {}
        self.comparisons: list[Comparison] = []

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def fail(self, problem: str, token: _Token | None = None) -> ExpressionError:
        return ExpressionError(self.text, (token or self.token).column, problem)

    def take(self, *texts: str) -> _Token | None:
        token = self.token
        if token.kind in ("operator", "name") and token.text in texts:
            self.at += 1
            return token
        return None

    def parse(self) -> _Evaluate:
        if self.token.kind == "end":
            raise self.fail("an expression is expected, found nothing")
        evaluate = self.or_()
        if self.token.kind != "end":
            raise self.fail(f"unexpected {self.token.text!r} after a complete expression")
        return evaluate

    def or_(self) -> _Evaluate:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.fail(f"more than {_MAX_DEPTH} levels of nesting")
        left = self.and_()
        while self.take("or"):
            left = _either(left, self.and_())
        self.depth -= 1
        return left

    def and_(self) -> _Evaluate:
        left = self.not_()
        while self.take("and"):
            left = _both(left, self.not_())
        return left

    def not_(self) -> _Evaluate:
        negations = 0
        while self.take("not"):
            negations += 1
        inner = self.compare()
        return _negated(inner) if negations % 2 else _as_truth(inner) if negations else inner

    def compare(self) -> _Evaluate:
        start = self.at
        left = self.sum()
        links: list[tuple[str, _Evaluate]] = []
        while True:
            operator = self.comparison_operator()
            if operator is None:
                break
            middle = self.at
            right = self.sum()
            if operator in ("==", "!=", "in", "not in"):
                self.note_literals(start, middle, self.at)
            links.append((operator, right))
            start = middle
        return _chained(left, links) if links else left

    def comparison_operator(self) -> str | None:
        token = self.token
        if token.kind == "operator" and token.text in _COMPARISONS:
            self.at += 1
            return token.text
        if token.kind == "name" and token.text == "in":
            self.at += 1
            return "in"
        if token.kind == "name" and token.text == "not":
            following = self.tokens[self.at + 1]
            if following.text == "in":
                self.at += 2
                return "not in"
        return None

    def note_literals(self, start: int, middle: int, end: int) -> None:
        """Remember `name == literal` and `name in [literals]`, in either order for equality."""
        left, right = self.tokens[start : middle - 1], self.tokens[middle:end]
        if left and left[-1].text == "not":  # the first word of `not in`
            left = left[:-1]
        for one, other in ((left, right), (right, left)):
            if len(one) == 1 and one[0].kind == "name" and one[0].text not in _CONSTANTS:
                bracketed = len(other) > 1 and other[0].text in "[("
                for token in other[1:-1] if bracketed else other:
                    literal = self.literal(token)
                    if isinstance(literal, (Unknown, tuple)):
                        continue
                    if bracketed or len(other) == 1:
                        self.comparisons.append(Comparison(one[0].text, literal, token.column))

    def literal(self, token: _Token) -> Result:
        if token.kind == "number":
            return float(token.text) if re.search(r"[.eE]", token.text) else int(token.text)
        if token.kind == "string":
            return re.sub(r"\\(.)", r"\1", token.text[1:-1])
        if token.kind == "name" and token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        return UNKNOWN

    def sum(self) -> _Evaluate:
        left = self.product()
        while token := self.take("+", "-"):
            left = _calculated(token.text, left, self.product())
        return left

    def product(self) -> _Evaluate:
        left = self.unary()
        while token := self.take("*", "/", "//", "%"):
            left = _calculated(token.text, left, self.unary())
        return left

    def unary(self) -> _Evaluate:
        minus = 0
        while self.take("-"):
            minus += 1
        inner = self.atom()
        return _calculated("-", _constant(0), inner) if minus % 2 else inner

    def atom(self) -> _Evaluate:
        token = self.token
        literal = self.literal(token)
        if literal is not UNKNOWN:
            self.at += 1
            return _constant(literal)
        if token.kind == "name" and token.text not in _KEYWORDS:
            self.at += 1
            if self.token.text == "(":
                raise self.fail(f"{token.text!r} is called, but expressions have no functions")
            self.names.setdefault(token.text, token.column)
            return _named(token.text)
        if self.take("("):
            items = self.items(")", token)
            return items[0] if len(items) == 1 else _sequence(items)
        if self.take("["):
            return _sequence(self.items("]", token))
        if token.kind == "end":
            raise self.fail("the expression ends where a value is expected")
        raise self.fail(f"a value is expected, found {token.text!r}")

    def items(self, closing: str, opened: _Token) -> list[_Evaluate]:
        items = [self.or_()]
        while self.take(","):
            if self.token.text == closing:
                break
            items.append(self.or_())
        if not self.take(closing):
            raise self.fail(f"{closing!r} is expected to close column {opened.column}")
        return items


def _none(_values: Mapping[str, Value]) -> Result:
    """The word none, which asks whether something is set; one function, to be recognised by."""
    return None


def _constant(value: Result) -> _Evaluate:
    return _none if value is None else lambda _: value


def _named(name: str) -> _Evaluate:
    def look_up(values: Mapping[str, Value]) -> Result:
        return values.get(name, UNKNOWN)

    return look_up


def _sequence(items: list[_Evaluate]) -> _Evaluate:
    return lambda values: tuple(item(values) for item in items)


def _as_truth(inner: _Evaluate) -> _Evaluate:
    return lambda values: _truth(inner(values))


def _negated(inner: _Evaluate) -> _Evaluate:
    def evaluate(values: Mapping[str, Value]) -> Result:
        truth = _truth(inner(values))
        return UNKNOWN if isinstance(truth, Unknown) else not truth

    return evaluate


def _both(left: _Evaluate, right: _Evaluate) -> _Evaluate:
    def evaluate(values: Mapping[str, Value]) -> Result:
        a = _truth(left(values))
        if a is False:
            return False
        b = _truth(right(values))
        return False if b is False else UNKNOWN if UNKNOWN in (a, b) else True

    return evaluate


def _either(left: _Evaluate, right: _Evaluate) -> _Evaluate:
    def evaluate(values: Mapping[str, Value]) -> Result:
        a = _truth(left(values))
        if a is True:
            return True
        b = _truth(right(values))
        return True if b is True else UNKNOWN if UNKNOWN in (a, b) else False

    return evaluate


def _chained(first: _Evaluate, links: list[tuple[str, _Evaluate]]) -> _Evaluate:
    def evaluate(values: Mapping[str, Value]) -> Result:
        left, asked, truth = first(values), first is _none, True
        for operator, operand in links:
            right, asks = operand(values), operand is _none
            outcome = _compare(operator, left, right, asks_for_none=asked or asks)
            if outcome is False:
                return False
            truth = truth and outcome is True
            left, asked = right, asks
        return True if truth else UNKNOWN

    return evaluate


def _calculated(operator: str, left: _Evaluate, right: _Evaluate) -> _Evaluate:
    return lambda values: _calculate(operator, left(values), right(values))


class Expression:
    """A parsed expression; equal, hashed and written to JSON by its text.

    Raises `ExpressionError` (a ValueError with `column`) when the text does not parse.
    """

    __slots__ = ("_evaluate", "comparisons", "names", "text")

    def __init__(self, text: str) -> None:
        parser = _Parser(text)
        self.text = text
        self._evaluate = parser.parse()
        self.names: Mapping[str, int] = parser.names
        """Every name used, with the column where it first stands."""
        self.comparisons: tuple[Comparison, ...] = tuple(parser.comparisons)

    def value(self, values: Mapping[str, Value]) -> Result:
        """The expression's value; a name that `values` lacks is unknown."""
        return self._evaluate(values)

    def holds(self, values: Mapping[str, Value]) -> bool | None:
        """True, False, or None where the values given do not decide it."""
        truth = _truth(self._evaluate(values))
        return None if isinstance(truth, Unknown) else truth

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[type[Expression], tuple[str]]:
        return Expression, (self.text,)

    @classmethod
    def _validate(cls, value: object) -> Expression:
        if isinstance(value, Expression):
            return value
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, str):
            raise PydanticCustomError(
                "expression", "an expression is a text such as \"spec == 'ngram'\", not {value}",
                {"value": repr(value)},
            )  # fmt: skip
        try:
            return cls(value)
        except ExpressionError as error:
            raise PydanticCustomError(
                "expression",
                "column {column} of the expression: {problem}",
                {"column": error.column, "problem": error.problem},
            ) from None

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "type": "string",
            "description": "An expression over knob names and facts, e.g. spec == 'ngram'",
            "examples": ["spec == 'ngram'", "max_num_batched_tokens >= max_num_seqs"],
        }
