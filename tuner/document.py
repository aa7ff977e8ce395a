"""Documents: YAML files read with their positions and checked against a pydantic model.

Every mistake in a file is reported, each with file, line and column, in one sentence that says what
is wrong and, for an unknown key, which known key is nearest.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, Union

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[int | str, ...]


@dataclass(frozen=True)
class Problem:
    """One mistake in a document; line and column count from 1, and are None for the whole file."""

    path: Path
    message: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f":{self.line}:{self.column}"
        return f"{self.path}{place}: {self.message}"


class DocumentError(Exception):
    """A document cannot be used; `problems` holds every mistake that was found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class Document:
    """A YAML file as data, with the position of every key and item."""

    def __init__(self, path: Path) -> None:
        """Read `path`. Raises DocumentError if it is missing, not YAML, or not a mapping."""
        self.path = path
        try:
            # Round-trip mode never builds objects from tags, and it remembers lines and columns.
            self.root = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
        except OSError as error:
            reason = f"cannot read this file ({error.strerror}); check the path."
            raise DocumentError([Problem(path, reason)]) from None
        except UnicodeDecodeError:
            raise DocumentError([Problem(path, "is not UTF-8 text; save it as UTF-8.")]) from None
        except MarkedYAMLError as error:
            mark = error.problem_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
            message = f"is not valid YAML: {error.problem}."
            raise DocumentError([Problem(path, message, line, column)]) from None
        except YAMLError as error:
            raise DocumentError([Problem(path, f"is not valid YAML: {error}.")]) from None
        if not isinstance(self.root, CommentedMap):
            raise DocumentError([Problem(path, "must be a mapping of keys to values.", 1, 1)])

    @property
    def data(self) -> dict[str, Any]:
        """The content as plain dicts, lists and scalars."""
        plain: dict[str, Any] = _plain(self.root)
        return plain

    def problem(self, location: Location, message: str) -> Problem:
        """A problem at `location`, the path of keys and indices that leads to it."""
        line, column = self._position(location)
        return Problem(self.path, message, line, column)

    def validate(self, model: type[Model]) -> Model:
        """The document as an instance of `model`; raises DocumentError with every mistake."""
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            problems = [
                self.problem(tuple(entry["loc"]), _sentence(model, dict(entry)))
                for entry in error.errors()
            ]
            raise DocumentError(problems) from None

    def _position(self, location: Location) -> tuple[int, int]:
        """Line and column, from 1, of the deepest part of `location` that the file has."""
        node: Any = self.root
        line, column = 0, 0
        for part in location:
            if isinstance(node, CommentedMap) and part in node:
                line, column = node.lc.key(part)
            elif isinstance(node, CommentedSeq) and isinstance(part, int) and part < len(node):
                line, column = node.lc.item(part)
            else:
                # pydantic puts the name of a union's member into the path; the file has none.
                continue
            node = node[part]
        return line + 1, column + 1


def load(path: Path, model: type[Model]) -> Model:
    """Read `path` and check it against `model`. Raises DocumentError with every mistake in it."""
    return Document(path).validate(model)


def nearest(word: str, known: Sequence[str]) -> str:
    """A clause such as `; did you mean 'dtype'?`, or all that is known if nothing is near."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(sorted(known))}." if known else "."


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {_plain(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(item) for item in node]
    # ruamel keeps how a scalar was written in subclasses of the plain types.
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _sentence(model: type[BaseModel], entry: dict[str, Any]) -> str:
    location: Location = tuple(entry["loc"])
    name = ".".join(str(part) for part in location)
    if entry["type"] == "extra_forbidden":
        return f"unknown key '{location[-1]}'{nearest(str(location[-1]), _keys(model, location))}"
    if entry["type"] == "missing":
        return f"the key '{name}' is missing; add it."
    message = str(entry["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    given = entry.get("input")
    shown = "" if isinstance(given, (dict, list)) else f" (given: {given!r})"
    return f"{name}: {message[:1].lower()}{message[1:].rstrip('.')}{shown}."


def _keys(model: type[BaseModel], location: Location) -> list[str]:
    """The keys that the model knows at the place where the unknown key stands."""
    places: list[type[BaseModel]] = [model]
    for part in location[:-1]:
        deeper: list[type[BaseModel]] = []
        for place in places:
            field = next((f for n, f in place.model_fields.items() if part in (n, f.alias)), None)
            # An index, a free key or a union's member name: stay among the same models.
            deeper += _models(field.annotation) if field is not None else [place]
        places = deeper or places
    return [field.alias or name for place in places for name, field in place.model_fields.items()]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The pydantic models named anywhere in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (Union, types.UnionType, list, dict, tuple) or (
        typing.get_args(annotation)
    ):
        return [found for part in typing.get_args(annotation) for found in _models(part)]
    return []
