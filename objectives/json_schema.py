"""The part of JSON Schema that answers of a model are checked with.

Kept small on purpose: `type`, `enum`, `const`, `required`, `properties`, `additionalProperties`,
`items`, `minItems`, `maxItems`, `minimum`, `maximum`, `minLength`, `maxLength` and `pattern`. Any
other keyword raises, as a check that silently checks nothing would count as passed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_KNOWN = frozenset(
    {"type", "enum", "const", "required", "properties", "additionalProperties", "items"}
    | {"minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern"}
    | {"title", "description", "$schema"}
)
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def schema_problem(value: Any, schema: Mapping[str, Any], where: str = "the answer") -> str | None:
    """What is wrong with `value` under `schema`, as one clause, or None when it conforms.

    Raises ValueError for a schema that uses a keyword this checker does not know.
    """
    unknown = sorted(set(schema) - _KNOWN)
    if unknown:
        raise ValueError(f"the JSON schema keyword '{unknown[0]}' is not supported.")
    if "const" in schema and value != schema["const"]:
        return f"{where} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of {schema['enum']}"
    return (
        _type_problem(value, schema, where)
        or _object_problem(value, schema, where)
        or _array_problem(value, schema, where)
        or _scalar_problem(value, schema, where)
    )


def _type_problem(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    if "type" not in schema:
        return None
    names = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
    for name in names:
        if name not in _TYPES:
            raise ValueError(f"the JSON schema type '{name}' is not known.")
        # In Python True is an int; in JSON it is not a number.
        if isinstance(value, _TYPES[name]) and (isinstance(value, bool) == (name == "boolean")):
            return None
    return f"{where} is not of type {' or '.join(names)}"


def _object_problem(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    if not isinstance(value, dict):
        return None
    for key in schema.get("required", ()):
        if key not in value:
            return f"{where} lacks the key '{key}'"
    properties: Mapping[str, Any] = schema.get("properties", {})
    extra: Any = schema.get("additionalProperties", True)
    for key, item in value.items():
        inner = properties.get(key, extra)
        if inner is False:
            return f"{where} has the unexpected key '{key}'"
        if isinstance(inner, Mapping):
            problem = schema_problem(item, inner, f"{where}['{key}']")
            if problem:
                return problem
    return None


def _array_problem(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    if not isinstance(value, list):
        return None
    if len(value) < schema.get("minItems", 0):
        return f"{where} has fewer than {schema['minItems']} items"
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        return f"{where} has more than {schema['maxItems']} items"
    if "items" in schema:
        for index, item in enumerate(value):
            problem = schema_problem(item, schema["items"], f"{where}[{index}]")
            if problem:
                return problem
    return None


def _scalar_problem(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            return f"{where} is under {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            return f"{where} is over {schema['maximum']}"
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            return f"{where} is shorter than {schema['minLength']} characters"
        if "maxLength" in schema and len(value) > schema["maxLength"]:
            return f"{where} is longer than {schema['maxLength']} characters"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return f"{where} does not match the pattern {schema['pattern']!r}"
    return None
