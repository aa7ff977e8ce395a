"""The JSON Schema of a space's document, for editors that complete and check while one types."""

from __future__ import annotations

from typing import Any

from search_spaces.space import SearchSpace

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a search space."""
    whole = SearchSpace.model_json_schema(by_alias=True)
    # A constraint may be written as its expression alone.
    constraint = whole["$defs"]["Constraint"]
    whole["$defs"]["Constraint"] = {"anyOf": [{"type": "string"}, constraint]}
    return {"$schema": DIALECT, **whole, "title": "Search space"}
