"""A search space: what it configures, what it draws, what it refuses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from search_spaces import BadValue, SearchSpace, UnknownKnob

DOCUMENT: dict[str, Any] = {
    "name": "example",
    "base": {"args": {"--max-model-len": 2048}, "env": {"VLLM_CPU_KVCACHE_SPACE": 1}},
    "knobs": {
        "eager": {"arg": "--enforce-eager", "choices": [True, False]},
        "level": {"arg": "-O.level", "range": [0, 3], "default": 2, "when": "not eager"},
        "bind": {"env": "VLLM_CPU_OMP_THREADS_BIND", "choices": ["auto", "0-1"]},
        "spec": {
            "choices": ["none", "ngram"],
            "sets": {"ngram": {"args": {"speculative-config": {"method": "ngram"}}}},
        },
        "k": {
            "arg": "--speculative-config.num_speculative_tokens",
            "range": [1, 4],
            "when": "spec == 'ngram'",
        },
        "window": {"arg": "--speculative-config.window", "choices": [2, 4], "when": "k > 2"},
        "block": {"arg": "--block-size", "choices": [None, 16, 64]},
        "risky": {"env": "RISKY", "choices": [0, 1]},
        "allow": {"env": "ALLOW", "choices": [0, 1]},
        "held": {"env": "HELD", "choices": ["a", "b"], "default": "b", "frozen": True},
    },
    "guards": [{"if": "risky == 1", "require": "allow == 1", "why": "experimental path"}],
    "constraints": ["k <= 3"],
    "rejected": [
        {
            "where": "block == 16",
            "code": "startup_crash",
            "why": "no common block size",
            "evidence": "trial 4",
            "reopen_if": "engine.version > '0.32.0'",
        }
    ],
}


def space(**changes: Any) -> SearchSpace:
    return SearchSpace.model_validate({**DOCUMENT, **changes})


class First:
    """Takes the first of everything it is asked for, and remembers what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def _answer(self, name: str, value: Any) -> Any:
        self.asked.append(name)
        return self.answers.get(name, value)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self._answer(name, choices[0])

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        return int(self._answer(name, low))

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        return float(self._answer(name, low))


def mistakes(document: dict[str, Any]) -> dict[tuple[Any, ...], str]:
    with pytest.raises(ValidationError) as caught:
        SearchSpace.model_validate(document)
    return {error["loc"]: error["msg"] for error in caught.value.errors()}


def test_the_control_is_every_default_over_the_base() -> None:
    control = space().control()
    assert control.assignment == {
        "eager": True, "bind": "auto", "spec": "none", "block": None,
        "risky": 0, "allow": 0, "held": "b",
    }  # fmt: skip
    assert control.args == {"max-model-len": 2048, "enforce-eager": True}
    assert control.env == {
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "auto",
        "RISKY": "0", "ALLOW": "0", "HELD": "b",
    }  # fmt: skip


def test_meta_and_nested_knobs_meet_in_one_json_argument() -> None:
    configured = space().configure({"spec": "ngram", "k": 3})
    assert configured.args["speculative-config"] == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "window": 2,
    }


def test_chained_conditions_activate_one_another() -> None:
    assert "window" not in space().configure({"spec": "ngram", "k": 2}).assignment
    assert space().configure({"eager": False}).assignment["level"] == 2


def test_null_leaves_a_setting_to_the_engine() -> None:
    base = {"args": {"block-size": 32}}
    assert "block-size" not in space(base=base).control().args


def test_a_later_null_unsets_what_a_choice_nested() -> None:
    knobs = {
        "spec": {"choices": ["on"], "sets": {"on": {"args": {"speculative-config.method": "x"}}}},
        "method": {"arg": "--speculative-config.method", "choices": [None, "y"]},
    }
    assert space(knobs=knobs, guards=[], constraints=[], rejected=[]).control().args == {
        "max-model-len": 2048
    }


def test_draw_asks_active_knobs_only_and_frozen_ones_never() -> None:
    first = First()
    drawn = space().draw(first)
    assert first.asked == ["eager", "bind", "spec", "block", "risky", "allow"]
    assert drawn == space().control().assignment
    deeper = First(spec="ngram", k=4)
    assert space().draw(deeper)["window"] == 2
    assert deeper.asked.index("spec") < deeper.asked.index("k") < deeper.asked.index("window")


@pytest.mark.parametrize(
    ("assignment", "error", "message"),
    [
        ({"blok": 16}, UnknownKnob, "no knob 'blok'; did you mean 'block'?"),
        ({"block": 17}, BadValue, "block = 17 is not one of null, 16, 64"),
        ({"k": 9, "spec": "ngram"}, BadValue, "not a whole number from 1 to 4"),
        ({"k": True, "spec": "ngram"}, BadValue, "k = true is not"),
        ({"eager": 1}, BadValue, "eager = 1 is not one of true, false"),
        ({"k": 2}, BadValue, "active only when spec == 'ngram'"),
        ({"held": "a"}, BadValue, "frozen at b"),
    ],
)
def test_a_wrong_assignment_says_what_to_do(
    assignment: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message.replace("?", r"\?")):
        space().configure(assignment)


def test_a_guard_fails_closed() -> None:
    refusals = space().refusals(space().configure({"risky": 1}))
    assert [one.code for one in refusals] == ["guard"]
    assert refusals[0].reason == (
        "risky == 1 is allowed only with allow == 1 (allow = 0): experimental path."
    )
    assert space().refusals(space().configure({"risky": 1, "allow": 1})) == []


def test_a_guard_on_an_unknown_fact_stays_closed() -> None:
    guarded = space(guards=[{"if": "risky == 1", "require": "device.kind == 'xpu'"}])
    risky = guarded.configure({"risky": 1})
    assert guarded.refusals(risky)[0].code == "guard"
    assert guarded.refusals(risky, {"device.kind": "xpu"}) == []


def test_a_constraint_asks_about_active_knobs_only() -> None:
    refusals = space().refusals(space().configure({"spec": "ngram", "k": 4}))
    assert [one.reason for one in refusals] == ["k <= 3 does not hold (k = 4)."]
    assert space().refusals(space().control()) == []


def test_a_dead_end_reopens_when_its_evidence_says_so() -> None:
    dead = space().configure({"block": 16})
    (refusal,) = space().refusals(dead)
    assert (refusal.code, refusal.source_code) == ("known_rejected", "startup_crash")
    assert refusal.reason == (
        "no common block size (seen in trial 4); it reopens when engine.version > '0.32.0'."
    )
    assert space().refusals(dead, {"engine.version": "0.32.0"}) == [refusal]
    assert space().refusals(dead, {"engine.version": "0.33.1"}) == []


def test_configurations_differ_by_knobs_and_by_settings() -> None:
    here, there = space().configure({"spec": "ngram", "k": 2}), space().control()
    assert here.diff(there) == {"spec": ("ngram", "none"), "k": (2, None)}
    assert here.settings_diff(there) == {
        "--speculative-config.method": ("ngram", None),
        "--speculative-config.num_speculative_tokens": (2, None),
    }
    assert here.diff(here) == {}


def test_a_kernel_knob_names_the_implementation_and_puts_it_in_force() -> None:
    knobs = {
        "moe": {
            "kernel": "fused_moe",
            "choices": ["triton", "cutlass"],
            "sets": {"cutlass": {"env": {"VLLM_USE_CUTLASS": True}}},
        }
    }
    configured = space(knobs=knobs, guards=[], constraints=[], rejected=[]).configure(
        {"moe": "cutlass"}
    )
    assert configured.kernels == {"fused_moe": "cutlass"}
    assert configured.env["VLLM_USE_CUTLASS"] == "1"


def test_named_bases_are_starting_points() -> None:
    named = space(bases={"fast": {"values": {"spec": "ngram", "k": 2}}})
    assert named.starting_point("fast").assignment["k"] == 2
    with pytest.raises(UnknownKnob, match="did you mean 'fast'"):
        named.starting_point("fasst")


def test_every_mistake_in_a_document_is_reported_with_its_place() -> None:
    knobs = {
        **DOCUMENT["knobs"],
        "twice": {"env": "RISKY", "choices": [0, 1]},
        "odd": {"arg": "--odd", "choices": [1], "when": "spek == 'ngram'"},
    }
    found = mistakes(
        {
            **DOCUMENT,
            "knobs": knobs,
            "constraints": ["spec == 'ngran'"],
            "guards": [{"if": "risky", "require": "engin.version > '1'"}],
            "bases": {},
        }
    )
    assert "did you mean 'spec'" in found["knobs", "odd", "when"]
    assert "already set by the knob 'risky'" in found["knobs", "twice", "env"]
    assert "did you mean 'ngram'" in found["constraints", 0]
    assert "no facts about 'engin'" in found["guards", 0, "require"]
    assert len(found) == 4


def test_conditions_in_a_circle_are_refused() -> None:
    knobs = {
        "a": {"env": "A", "choices": [0, 1], "when": "b == 1"},
        "b": {"env": "B", "choices": [0, 1], "when": "a == 1"},
    }
    message = mistakes({"name": "x", "knobs": knobs})["knobs", "a", "when"]
    assert "go round in a circle" in message


def test_two_active_knobs_on_one_setting_are_refused() -> None:
    knobs = {
        "mode": {"choices": ["x", "y"]},
        "a": {"env": "SAME", "choices": [0, 1], "when": "mode == 'x'"},
        "b": {"env": "SAME", "choices": [2, 3], "when": "mode in ['x', 'y']"},
    }
    with pytest.raises(ValueError, match="a and b are both active and both set SAME"):
        SearchSpace.model_validate({"name": "x", "knobs": knobs}).control()


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ({"env": "A", "arg": "--a", "choices": [1]}, "names env and arg"),
        ({"env": "A"}, "either choices or a range"),
        ({"env": "A", "choices": []}, "choices is empty"),
        ({"env": "A", "choices": [1, 1]}, "stands twice"),
        ({"env": "A", "choices": [1, True]}, "1 and true"),
        ({"env": "A", "choices": [[1]]}, "not a plain value"),
        ({"env": "A", "choices": [1], "default": 2}, "default 2 is not one of 1"),
        ({"env": "A", "choices": [1], "step": 2}, "step belongs to a range"),
        ({"env": "A", "range": [4, 1]}, "from low to high"),
        ({"env": "A", "range": [0, 4], "log": True}, "starts above 0"),
        ({"env": "A", "range": [1, 4], "log": True, "step": 1}, "logarithmic range has no step"),
        ({"env": "A", "range": [1, 4], "step": 0.5}, "whole step"),
        ({"choices": ["a"], "sets": {"b": {}}}, "not among the choices"),
        ({"kernel": "op", "choices": ["a"]}, "needs sets"),
    ],
)
def test_a_knob_that_makes_no_sense_is_refused(knob: dict[str, Any], message: str) -> None:
    found = mistakes({"name": "x", "knobs": {"a": knob}})
    assert any(message in text for text in found.values()), found


def test_a_stepped_range_has_its_values_and_no_others() -> None:
    knobs = {"x": {"env": "X", "range": [0.5, 1.0], "step": 0.25}}
    stepped = SearchSpace.model_validate({"name": "x", "knobs": knobs})
    assert stepped.knobs["x"].values == (0.5, 0.75, 1.0)
    with pytest.raises(BadValue):
        stepped.configure({"x": 0.6})


def test_the_space_survives_json() -> None:
    whole = space()
    text = whole.model_dump_json(by_alias=True, exclude_unset=True)
    assert SearchSpace.model_validate_json(text) == whole


def test_a_static_refusal_takes_under_five_milliseconds() -> None:
    knobs = {f"k{i}": {"env": f"K{i}", "choices": [0, 1, 2]} for i in range(300)}
    rules = [f"k{i} + k{i + 1} <= 4" for i in range(299)]
    big = SearchSpace.model_validate({"name": "big", "knobs": knobs, "constraints": rules})
    configured = big.configure({"k0": 2, "k1": 2})
    began = time.perf_counter()
    for _ in range(20):
        big.refusals(configured)
    assert (time.perf_counter() - began) / 20 < 0.005


def test_a_space_of_300_knobs_is_validated_in_under_100_milliseconds() -> None:
    knobs = {
        f"k{i}": {"env": f"K{i}", "choices": [0, 1, 2], **({"when": f"k{i - 1} > 0"} if i else {})}
        for i in range(300)
    }
    rules = [f"k{i} + k{i + 1} <= 4" for i in range(299)]
    document = {"name": "big", "knobs": knobs, "constraints": rules}
    SearchSpace.model_validate(document)  # pydantic builds its validators on first use
    began = time.perf_counter()
    SearchSpace.model_validate(document)
    assert time.perf_counter() - began < 0.1
