"""The document, the order of gates, the depth of canaries, and what a result may say."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from objectives import (
    CATALOG,
    GateHistory,
    GateKind,
    GateResult,
    GateStatus,
    Objective,
    PlannedGate,
    deep_repeats,
    order_gates,
)
from objectives.prompt_suite import SUITE
from objectives.quality_cases import Quality, QualityCase
from tuner.document import load


def result(gate: str, *, failed: bool, seconds: float = 1.0, rung: str = "smoke") -> GateResult:
    return GateResult(
        gate=gate,
        kind=GateKind(gate.split(".")[0]),
        rung=rung,
        status=GateStatus.FAILED if failed else GateStatus.PASSED,
        reason="r",
        constraint=0.5 if failed else 0.0,
        seconds=seconds,
    )


@pytest.mark.parametrize("path", sorted(CATALOG.glob("*.yaml")), ids=lambda path: path.stem)
def test_objectives_of_the_catalog_load_and_reach_the_deep_rung(path: object) -> None:
    objective = load(path, Objective)  # type: ignore[arg-type]
    names = set(objective.gate_names(objective.deepest))
    assert {"speed", "parity", "ab", "canary.json", "canary.colours"} <= names
    assert {"quality.arithmetic", "quality.long_context", "quality.repeat"} <= names
    depths = [rung.canary_repeats for rung in objective.ladder]
    assert depths == sorted(depths)


def test_the_suite_is_varied_and_names_no_prompt_twice() -> None:
    assert len(SUITE) >= 12
    assert len({prompt.name for prompt in SUITE}) == len(SUITE)
    sentences = [
        sentence
        for prompt in SUITE
        for sentence in prompt.passage.split(". ")
        if len(sentence) > 20
    ]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ladder": [{"rung": "deep"}, {"rung": "smoke"}]}, "from cheap to dear"),
        ({"metric": "ttft_ms"}, "direction: minimize"),
        ({"metric": "goodput_rps"}, "streams > 1"),
        ({"canaries": [{"name": "a", "prompt": "p"}, {"name": "a", "prompt": "q"}]}, "same name"),
        ({"speed": 3}, "Extra inputs"),
    ],
)
def test_an_objective_that_contradicts_itself_is_refused(
    objective: Objective, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Objective.model_validate({**objective.model_dump(), **change})


def test_the_words_of_the_suite_are_part_of_a_workloads_identity(objective: Objective) -> None:
    workload = objective.workload
    assert len(workload.identity()["suite_sha256"]) == 64
    drawn = workload.model_copy(update={"prompts": "random"})
    assert "suite_sha256" not in drawn.identity()


def test_two_quality_cases_cannot_share_a_name() -> None:
    with pytest.raises(ValidationError, match="arithmetic"):
        Quality(cases=(QualityCase(name="arithmetic", prompt="p"),))


def test_the_likelier_and_cheaper_killer_runs_first() -> None:
    planned = [PlannedGate(gate="canary.json", seconds=30), PlannedGate(gate="speed", seconds=10)]
    assert [gate.gate for gate in order_gates(planned, GateHistory())] == ["speed", "canary.json"]
    seen = [result("canary.json", failed=True, seconds=2.0) for _ in range(20)]
    seen += [result("speed", failed=False, seconds=10.0) for _ in range(20)]
    history = GateHistory.of(seen)
    assert [gate.gate for gate in order_gates(planned, history)] == ["canary.json", "speed"]


@given(st.lists(st.tuples(st.floats(0.01, 0.99), st.floats(0.1, 100)), min_size=2, max_size=5))
def test_no_other_order_decides_at_less_expected_cost(gates: list[tuple[float, float]]) -> None:
    trials = 10_000
    names = [f"canary.c{index}" for index in range(len(gates))]
    history = GateHistory(
        ran=dict.fromkeys(names, trials),
        failed={name: int(p * trials) for name, (p, _) in zip(names, gates, strict=True)},
        seconds={name: s * trials for name, (_, s) in zip(names, gates, strict=True)},
    )

    def cost(order: list[str]) -> float:
        alive, total = 1.0, 0.0
        for name in order:
            total += alive * history.seconds[name] / trials
            alive *= 1 - history.failing(name)
        return total

    planned = [PlannedGate(gate=name, seconds=1) for name in names]
    best = min(cost(list(order)) for order in itertools.permutations(names))
    assert cost([gate.gate for gate in order_gates(planned, history)]) <= best * 1.000001


def test_history_can_be_of_one_rung_and_ignores_what_is_missing() -> None:
    missing = result("speed", failed=False).model_copy(update={"status": GateStatus.MISSING})
    seen = [result("speed", failed=True), result("speed", failed=False, rung="deep"), missing]
    assert GateHistory.of(seen).ran == {"speed": 2}
    assert GateHistory.of(seen, rung="deep").failed == {"speed": 0}


def test_canaries_go_past_every_failure_the_lane_has_seen() -> None:
    seen = [3, 27, 42, 49, 88, 99, 138]
    assert deep_repeats(24, seen) > 138 * 1.1
    assert deep_repeats(750, seen) == 750
    assert deep_repeats(24, []) == 24


@given(st.integers(1, 1000), st.lists(st.integers(1, 2000), max_size=8), st.integers(1, 2000))
def test_seeing_more_failures_never_makes_canaries_shallower(
    configured: int, seen: list[int], another: int
) -> None:
    assert deep_repeats(configured, [*seen, another]) >= deep_repeats(configured, seen)
    assert deep_repeats(configured, [*seen, another]) >= another


@pytest.mark.parametrize("constraint", [-1.01, 1.01, float("nan")])
def test_a_constraint_outside_its_range_is_refused(constraint: float) -> None:
    with pytest.raises(ValidationError):
        GateResult(
            gate="speed",
            kind=GateKind.SPEED,
            rung="smoke",
            status=GateStatus.PASSED,
            reason="r",
            constraint=constraint,
        )
