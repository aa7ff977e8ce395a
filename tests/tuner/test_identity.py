"""Identity: equal things have equal hashes, different things differ, and the diff says where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.identity import ABSENT, Identity, canonical_json, lane_of, sha256_of

SCALARS = st.none() | st.booleans() | st.integers() | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def shuffled(data: Any) -> Any:
    """The same data with the keys of every mapping in the opposite order."""
    if isinstance(data, dict):
        return {key: shuffled(data[key]) for key in reversed(data)}
    return [shuffled(item) for item in data] if isinstance(data, list) else data


def identity(**changes: Any) -> Identity:
    parts: dict[str, Any] = {
        "configuration": {"args": {"dtype": "bfloat16"}, "env": {"OMP": "auto"}},
        "engine": {"name": "vllm", "version": "0.32.0"},
        "model": {"files": {"model.safetensors": "ab"}},
        "topology": {"kind": "cpu", "count": 1},
        "workload": {"prompt_tokens": 128},
    }
    return Identity(**{**parts, **changes})


@given(JSON)
def test_the_hash_does_not_depend_on_the_order_of_keys(data: Any) -> None:
    assert sha256_of(data) == sha256_of(shuffled(data))


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, "1"), (None, "null")])
def test_values_that_an_engine_tells_apart_have_different_hashes(one: Any, other: Any) -> None:
    assert sha256_of({"value": one}) != sha256_of({"value": other})


def test_a_number_that_json_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"rate": float("nan")})


def test_the_diff_names_each_leaf_that_differs_with_both_values() -> None:
    base = identity()
    other = identity(configuration={"args": {"dtype": "float32"}, "env": {}})
    assert base.diff(other) == {
        "configuration.args.dtype": ("bfloat16", "float32"),
        "configuration.env": (ABSENT, {}),
        "configuration.env.OMP": ("auto", ABSENT),
    }


def test_a_round_trip_through_json_keeps_the_hash() -> None:
    base = identity()
    assert Identity.model_validate_json(base.model_dump_json()).sha == base.sha


def test_a_lane_holds_whatever_serves_the_same_model_on_the_same_devices() -> None:
    base = identity()
    bar = {"canaries": ["json"]}
    assert lane_of(base, bar) == lane_of(identity(configuration={"args": {}, "env": {}}), bar)
    assert lane_of(base, bar) == lane_of(identity(engine={"version": "0.33.0"}), bar)
    assert lane_of(base, bar) != lane_of(identity(model={"files": {}}), bar)
    assert lane_of(base, bar) != lane_of(base, {"canaries": []})
