"""The size of a space: exact where it is finite, and never by listing."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces import SearchSpace


def space(**document: Any) -> SearchSpace:
    return SearchSpace.model_validate({"name": "x", **document})


def by_listing(one: SearchSpace) -> tuple[int, int]:
    everything = list(one.enumerate())
    allowed = [values for values in everything if not one.refusals(one.configure(values))]
    return len(everything), len(allowed)


CONDITIONAL = {
    "knobs": {
        "spec": {"choices": ["none", "ngram", "eagle"]},
        "k": {"env": "K", "range": [1, 5], "when": "spec != 'none'"},
        "deep": {"env": "D", "choices": [0, 1], "when": "k > 3"},
        "a": {"env": "A", "choices": [0, 1]},
        "b": {"env": "B", "choices": [0, 1]},
        "held": {"env": "H", "choices": [0, 1], "frozen": True},
        "free": {"env": "F", "range": [0.0, 1.0], "step": 0.1},
    },
    "guards": [{"if": "a == 1", "require": "b == 1"}],
    "constraints": ["k <= 4"],
    "rejected": [{"where": "spec == 'eagle' and deep == 1 and a == 0", "code": "c"}],
}


def test_counts_what_listing_would_count() -> None:
    one = space(**CONDITIONAL)
    size = one.size()
    assert size.exact
    assert (size.configurations, size.allowed) == by_listing(one)


def test_rules_that_wait_for_facts_stay_closed_in_the_count() -> None:
    one = space(
        knobs={"a": {"env": "A", "choices": [0, 1]}},
        rejected=[{"where": "a == 1", "code": "c", "reopen_if": "engine.version > '9'"}],
    )
    assert one.size().ruled_out == 1


def test_a_space_too_large_to_list_is_counted_exactly() -> None:
    knobs = {f"k{i}": {"env": f"K{i}", "choices": [0, 1, 2]} for i in range(100)}
    rules = [f"k{i} + k{i + 1} != 4" for i in range(0, 100, 2)]
    size = space(knobs=knobs, constraints=rules).size()
    assert size.configurations == 3**100
    assert size.allowed == 8**50
    assert size.exact


def test_a_continuous_range_has_an_estimated_share() -> None:
    size = space(knobs={"x": {"env": "X", "range": [0.0, 1.0]}}, constraints=["x <= 0.25"]).size()
    assert size.configurations is None
    assert not size.exact
    assert size.ruled_out_share == pytest.approx(0.75, abs=0.03)
    assert str(size).startswith("infinitely many configurations, about 7")


def test_rules_over_too_many_knobs_at_once_are_estimated() -> None:
    names = [f"k{i}" for i in range(14)]
    knobs = {name: {"env": name.upper(), "choices": [0, 1, 2]} for name in names}
    size = space(knobs=knobs, constraints=[f"{' + '.join(names)} >= 14"]).size()
    assert size.configurations == 3**14
    assert not size.exact
    assert size.ruled_out_share == pytest.approx(0.43, abs=0.04)
