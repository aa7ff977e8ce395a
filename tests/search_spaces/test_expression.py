"""The expression language: what it means, what it refuses, and where it points."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import Expression, ExpressionError
from search_spaces.expression import version_key


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("spec == 'ngram'", {"spec": "ngram"}, True),
        ("spec == 'ngram' and k > 2", {"spec": "ngram", "k": 2}, False),
        ("not a or b", {"a": True, "b": False}, False),
        ("a or b and c", {"a": True, "b": False, "c": False}, True),
        ("1 <= k <= 4", {"k": 4}, True),
        ("1 <= k <= 4", {"k": 5}, False),
        ("k in [1, 2, 4]", {"k": 3}, False),
        ("k not in (1, 2)", {"k": 3}, True),
        ("'ngram' in spec", {"spec": "ngram_gpu"}, True),
        ("a + 2 * b == 7", {"a": 1, "b": 3}, True),
        ("-(a - 1) < 0", {"a": 2}, True),
        ("tokens // block % 2 == 0", {"tokens": 512, "block": 128}, True),
        ("tokens / block == 1.5", {"tokens": 3, "block": 2}, True),
        ("flag == 1", {"flag": True}, True),
        ("flag == 1", {"flag": "1"}, False),
        ("dtype == none", {"dtype": None}, True),
        ("dtype == none", {"dtype": "float16"}, False),
        ("dtype != none", {"dtype": "float16"}, True),
        ("dtype != none", {"dtype": None}, False),
        ('name == "it\\"s"', {"name": 'it"s'}, True),
        ("engine.version > '0.40'", {"engine.version": "0.9.1"}, False),
        ("engine.version >= '0.32'", {"engine.version": "0.32.0"}, True),
        ("engine.version < '0.32.0'", {"engine.version": "0.32.0rc1"}, True),
        ("engine.version > '0.32.0'", {"engine.version": "0.32.0+cpu"}, False),
        ("engine.version > '0.32.0'", {"engine.version": "0.32.0.1"}, True),
        ("engine.version > '0.40'", {"engine.version": "0.40.dev12"}, False),
    ],
)
def test_means_what_it_says(text: str, values: dict[str, Any], expected: bool) -> None:
    assert Expression(text).holds(values) is expected


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("engine.version > '0.40'", {}, None),
        ("engine.version > '0.40' or a", {"a": True}, True),
        ("engine.version > '0.40' and a", {"a": False}, False),
        ("not engine.version > '0.40'", {}, None),
        ("k > 2", {"k": None}, None),
        ("k == 2", {"k": None}, None),
        ("k != 2", {"k": None}, None),
        ("k in [1, 2]", {"k": None}, None),
        ("k in [1, none]", {"k": None}, True),
        ("k + 1 == 2", {"k": None}, None),
        ("a / b > 1", {"a": 1, "b": 0}, None),
        ("a < b", {"a": 1, "b": "text"}, None),
    ],
)
def test_what_nobody_said_decides_nothing(
    text: str, values: dict[str, Any], expected: bool | None
) -> None:
    assert Expression(text).holds(values) is expected


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("", 1, "found nothing"),
        ("a = 1", 3, "write '=='"),
        ("a == 'open", 6, "not closed"),
        ("a == 1 b", 8, "unexpected 'b'"),
        ("(a == 1", 8, "to close column 1"),
        ("a and", 6, "ends where a value is expected"),
        ("a == [1, 2", 11, "']' is expected"),
        ("len(a) > 1", 4, "no functions"),
        ("a & b", 3, "unexpected character '&'"),
        ("a.__class__()", 12, "no functions"),
        ("__import__('os')", 11, "no functions"),
        ("(" * 500 + "a" + ")" * 500, 101, "levels of nesting"),
    ],
)
def test_a_mistake_is_shown_at_its_column(text: str, column: int, problem: str) -> None:
    with pytest.raises(ExpressionError, match="column") as caught:
        Expression(text)
    assert caught.value.column == column
    assert problem in caught.value.problem


def test_knows_its_names_and_where_they_stand() -> None:
    assert dict(Expression("a == 1 and not bb > a").names) == {"a": 1, "bb": 16}


def test_knows_the_literals_that_names_are_compared_with() -> None:
    expression = Expression("a == 'x' and b in [1, 2] and 3 != c and d not in ['y'] and e < 5")
    found = [(one.name, one.literal) for one in expression.comparisons]
    assert found == [("a", "x"), ("b", 1), ("b", 2), ("c", 3), ("d", "y")]


def test_is_a_value() -> None:
    assert Expression("a == 1") == Expression("a == 1")
    assert pickle.loads(pickle.dumps(Expression("a == 1"))).holds({"a": 1}) is True


@given(st.lists(st.sampled_from(["0.9", "0.32.0", "0.32.0rc1", "0.40", "1.0", "0.32.1"])))
def test_versions_are_ordered_by_their_numbers(versions: list[str]) -> None:
    right = ["0.9", "0.32.0rc1", "0.32.0", "0.32.1", "0.40", "1.0"]
    assert sorted(versions, key=version_key) == sorted(versions, key=right.index)


SUMS = st.recursive(
    st.sampled_from(["a", "b", "1", "2"]),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
        lambda parts: f"({' '.join(parts)})"
    ),
    max_leaves=4,
)
COMPARISONS = st.tuples(SUMS, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), SUMS)
LOGIC = st.recursive(
    COMPARISONS.map(" ".join),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
        inner.map(lambda part: f"not ({part})"),
    ),
    max_leaves=6,
)


@given(LOGIC, st.integers(-2, 2), st.integers(-2, 2))
def test_agrees_with_python_where_python_knows_the_answer(text: str, a: int, b: int) -> None:
    assert Expression(text).holds({"a": a, "b": b}) is eval(text, {}, {"a": a, "b": b})
