"""The speed gate stops the hopeless and nobody else."""

from __future__ import annotations

from objectives import GateStatus, Noise, Objective, Slo, slo_gates, speed_gate
from tests.objectives.rates import rate_of

QUIET = Noise(sd=0.003, dof=20, repeat_sd=0.005, repeats=4)
CONTROL = rate_of([100.0, 100.2, 99.8, 100.0])


def test_what_cannot_reach_the_control_is_too_slow(objective: Objective) -> None:
    gate = speed_gate(rate_of([95.0]), CONTROL, objective, "smoke", noise=QUIET)
    assert gate.code == "too_slow"
    assert 0 < gate.constraint <= 1
    assert gate.evidence["high"] < 1


def test_a_loss_within_the_drift_of_sessions_is_not_called_slow(objective: Objective) -> None:
    noisy = objective.model_copy(update={"session_drift": 0.08})
    assert speed_gate(rate_of([95.0]), CONTROL, noisy, "smoke").code != "too_slow"
    assert speed_gate(rate_of([95.0]), CONTROL, objective, "smoke", noise=QUIET).code == "too_slow"


def test_a_gain_that_can_hardly_be_proven_is_not_pursued(objective: Objective) -> None:
    gate = speed_gate(rate_of([100.0] * 4), CONTROL, objective, "deep", noise=QUIET)
    assert gate.code == "gain_unproven"
    assert gate.evidence["chance"] < objective.ab.prospect


def test_a_clear_gain_goes_on(objective: Objective) -> None:
    gate = speed_gate(rate_of([103.0] * 2), CONTROL, objective, "smoke", noise=QUIET)
    assert gate.status is GateStatus.PASSED
    assert gate.constraint < 0


def test_a_slow_first_repeat_gets_the_benefit_of_the_doubt(objective: Objective) -> None:
    gate = speed_gate(rate_of([96.0, 102.0]), CONTROL, objective, "smoke", noise=QUIET)
    assert gate.status is GateStatus.PASSED


def test_uneven_gains_over_few_prompts_are_known_less_well(objective: Objective) -> None:
    even = speed_gate(rate_of([99.0, 99.0]), CONTROL, objective, "smoke", noise=QUIET)
    uneven = speed_gate(rate_of([120.0, 80.0]), CONTROL, objective, "smoke", noise=QUIET)
    assert even.code == "gain_unproven"
    assert uneven.status is GateStatus.PASSED


def test_the_floor_holds_whatever_the_control_does(objective: Objective) -> None:
    floored = objective.model_copy(update={"speed_floor": 98.0})
    gate = speed_gate(rate_of([97.0]), rate_of([50.0]), floored, "smoke")
    assert gate.code == "below_floor"
    assert "98" in gate.reason


def test_a_repeat_that_gave_nothing_is_too_slow_rather_than_a_crash(objective: Objective) -> None:
    rate = rate_of([100.0])
    idle = rate.model_copy(update={"repeats": (rate.repeats[0].model_copy(update={"tok_s": 0.0}),)})
    assert speed_gate(idle, CONTROL, objective, "smoke").code == "too_slow"


def test_without_a_control_there_is_nothing_to_compare(objective: Objective) -> None:
    assert speed_gate(rate_of([1.0]), None, objective, "smoke").status is GateStatus.PASSED


def test_several_controls_are_known_better_than_one(objective: Objective) -> None:
    one = speed_gate(rate_of([100.9] * 4), CONTROL, objective, "deep", noise=QUIET)
    many = speed_gate(rate_of([100.9] * 4), [CONTROL] * 4, objective, "deep", noise=QUIET)
    width = {id(g): g.evidence["high"] - g.evidence["low"] for g in (one, many)}
    assert width[id(many)] < width[id(one)]


def test_each_service_level_objective_is_a_gate_of_its_own(objective: Objective) -> None:
    slos = (
        Slo(metric="ttft_ms", statistic="p95", at_most=150),
        Slo(metric="itl_ms", statistic="max", at_most=5),
    )
    strict = objective.model_copy(update={"slos": slos})
    gates = slo_gates(rate_of([100.0] * 4, ttft_ms=100), strict, "smoke")
    assert [gate.gate for gate in gates] == ["slo.ttft_ms.p95", "slo.itl_ms.max"]
    assert [gate.status for gate in gates] == [GateStatus.PASSED, GateStatus.FAILED]
    assert gates[1].code == "slo_missed"
