"""Changing a space's document in place: comments, order and quoting stay as they were."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from search_spaces.space import SearchSpace


class SpaceDocument:
    """A space's YAML with its comments, to be edited by a program and read by people.

    >>> document = SpaceDocument.read(Path("my-space.yaml"))
    >>> document.set(("knobs", "dtype", "choices"), ["bfloat16", "float16"])
    >>> document.write(Path("my-space.yaml"))
    """

    def __init__(self, text: str) -> None:
        self._yaml = YAML(typ="rt")
        self._yaml.preserve_quotes = True
        self._yaml.width = 100
        offset = _list_offset(text)
        self._yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
        # Without this, ruamel writes an empty scalar where the document says null.
        self._yaml.representer.add_representer(
            type(None),
            lambda dumper, _: dumper.represent_scalar("tag:yaml.org,2002:null", "null"),
        )
        root = self._yaml.load(text)
        if not isinstance(root, CommentedMap):
            raise ValueError("a search space is a mapping of keys to values")
        self._root = root

    @classmethod
    def read(cls, path: Path) -> SpaceDocument:
        """The document in a file; raises OSError when it cannot be read."""
        return cls(path.read_text(encoding="utf-8"))

    def set(self, path: Sequence[str | int], value: Any) -> None:
        """Put `value` at `path`; raises KeyError when what should hold it is missing."""
        holder = self._at(path[:-1])
        holder[path[-1]] = value

    def add(self, path: Sequence[str | int], value: Any) -> None:
        """Append `value` to the list at `path`, which is made if it is missing."""
        holder = self._at(path[:-1])
        if path[-1] not in holder:
            holder[path[-1]] = []
        holder[path[-1]].append(value)

    def _at(self, path: Sequence[str | int]) -> Any:
        node: Any = self._root
        for part in path:
            node = node[part]
        return node

    def space(self) -> SearchSpace:
        """The space as it is now; raises pydantic's ValidationError."""
        plain: Mapping[str, Any] = YAML(typ="safe", pure=True).load(self.text())
        return SearchSpace.model_validate(plain)

    def text(self) -> str:
        """The document's YAML."""
        out = io.StringIO()
        self._yaml.dump(self._root, out)
        return out.getvalue()

    def write(self, path: Path) -> None:
        """Write the document, as a whole or not at all; a space that is wrong is not written."""
        self.space()
        half = path.with_name(path.name + ".tmp")
        half.write_text(self.text(), encoding="utf-8")
        half.replace(path)


def _list_offset(text: str) -> int:
    """How far the document indents the dashes of a list below its key."""
    key_indent = 0
    for line in text.splitlines():
        body = line.lstrip()
        indent = len(line) - len(body)
        if body.startswith("- "):
            return max(indent - key_indent, 0)
        if body and not body.startswith("#"):
            key_indent = indent
    return 2
