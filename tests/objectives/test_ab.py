"""The A/B gate: when a gain is proven, when it is hopeless, and what is measured in between."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives import (
    GateStatus,
    Noise,
    Objective,
    Session,
    ab_gate,
    ab_plan,
    learn_noise,
)
from objectives.comparison import effect, stated_noise
from tests.objectives.rates import rate_of

QUIET = Noise(sd=0.003, dof=20, repeat_sd=0.005, repeats=4)


def session(role: Literal["control", "candidate"], log: float, repeats: int = 4) -> Session:
    return Session(role=role, logs=(log,) * repeats, prompts=tuple(f"p{i}" for i in range(repeats)))


def alternation(*logs: float) -> list[Session]:
    return [session("candidate" if index % 2 else "control", log) for index, log in enumerate(logs)]


def test_a_clear_gain_between_two_controls_is_accepted(objective: Objective) -> None:
    plan = ab_plan(alternation(0.0, 0.05, 0.001), objective, noise=QUIET)
    assert plan.decision == "accept"
    assert plan.low is not None
    assert plan.low > 1 + objective.minimal_effect


def test_no_gain_is_accepted_before_the_control_has_run_again(objective: Objective) -> None:
    plan = ab_plan(alternation(0.0, 0.5), objective, noise=QUIET)
    assert plan.decision == "measure_control"
    first = ab_plan([session("candidate", 0.5), session("control", 0.0)], objective, noise=QUIET)
    assert first.decision == "measure_control"


def test_servers_that_took_turns_need_no_closing_control(objective: Objective) -> None:
    pair = [
        each.model_copy(update={"interleaved": True})
        for each in (session("control", 0.0), session("candidate", 0.05))
    ]
    assert ab_plan(pair, objective, noise=QUIET).decision == "accept"
    doubtful = [*pair[:1], pair[1].model_copy(update={"logs": (0.013,) * 4})]
    assert ab_plan(doubtful, objective, noise=QUIET).decision == "measure_control"


def test_what_equals_the_control_is_futile(objective: Objective) -> None:
    assert ab_plan(alternation(0.0, 0.0, 0.0), objective, noise=QUIET).decision == "futile"


def test_an_interval_that_straddles_the_bound_asks_for_another_session(
    objective: Objective,
) -> None:
    plan = ab_plan(alternation(0.0, 0.014, 0.0), objective, noise=QUIET)
    assert plan.decision == "measure_candidate"


def test_the_plan_ends_after_the_sessions_it_may_use(objective: Objective) -> None:
    logs = [0.0, 0.013] * objective.ab.max_candidate_sessions + [0.0]
    plan = ab_plan(alternation(*logs), objective, noise=QUIET.model_copy(update={"sd": 0.006}))
    assert plan.decision == "futile"


@given(slope=st.floats(-0.02, 0.02), gain=st.floats(-0.05, 0.05))
def test_a_steady_drift_of_the_host_cancels(slope: float, gain: float) -> None:
    logs = [slope * place + (gain if place % 2 else 0.0) for place in range(5)]
    found = effect(alternation(*logs), QUIET)
    assert found.log_ratio == pytest.approx(gain, abs=1e-9)
    assert found.drift == pytest.approx(4 * slope, abs=1e-9)


def test_controls_that_disagree_widen_the_interval(objective: Objective) -> None:
    calm = ab_plan(alternation(0.0, 0.03, 0.0), objective, noise=QUIET)
    torn = ab_plan(alternation(-0.02, 0.03, 0.02), objective, noise=QUIET)
    assert calm.effect is not None
    assert torn.effect is not None
    assert torn.effect.ratio == pytest.approx(calm.effect.ratio)
    assert torn.effect.se > 1.3 * calm.effect.se
    assert "drifted" in torn.reason


def test_a_host_less_quiet_than_the_lane_knew_is_believed_less(objective: Objective) -> None:
    prompts = tuple("abcdef")

    def control(*logs: float) -> Session:
        return Session(role="control", logs=logs, prompts=prompts)

    candidate = Session(role="candidate", logs=(0.03,) * 6, prompts=prompts)
    calm = effect([control(*[0.0] * 6), candidate, control(*[0.0] * 6)], QUIET)
    restless = (0.05, -0.05, 0.04, -0.04, 0.06, -0.06)
    shaken = effect([control(*restless), candidate, control(*(-log for log in restless))], QUIET)
    assert shaken.log_ratio == pytest.approx(calm.log_ratio)
    assert shaken.se > 5 * calm.se


def test_sessions_count_not_repeats(objective: Objective) -> None:
    few = effect([session("control", 0.0, 4), session("candidate", 0.02, 4)], QUIET)
    many = effect([session("control", 0.0, 400), session("candidate", 0.02, 400)], QUIET)
    assert many.se == pytest.approx(few.se)


def test_a_warm_up_is_left_out_on_both_sides() -> None:
    def logs(first: float, rest: float) -> tuple[float, ...]:
        return (first, rest, rest + 0.0005, rest - 0.0005)

    prompts = ("a", "b", "c", "d")
    sessions = [
        Session(role="control", logs=logs(0.0, 0.0), prompts=prompts),
        Session(role="candidate", logs=logs(-0.05, 0.02), prompts=prompts),
        Session(role="control", logs=logs(0.0, 0.0), prompts=prompts),
    ]
    found = effect(sessions, QUIET)
    assert found.warm_up
    assert found.log_ratio == pytest.approx(0.02)


def test_only_prompts_that_both_sides_answered_are_compared() -> None:
    control = Session(role="control", logs=(0.0, 1.0), prompts=("easy", "hard"))
    candidate = Session(role="candidate", logs=(0.1,), prompts=("easy",))
    assert effect([control, candidate], QUIET).log_ratio == pytest.approx(0.1)


def test_a_lane_learns_its_noise_from_its_controls(objective: Objective) -> None:
    generator = np.random.default_rng(1)
    workload = objective.workload
    controls = [
        rate_of(100 * np.exp(luck + generator.normal(0, 0.004, 4)), workload=workload)
        for luck in generator.normal(0, 0.002, 60)
    ]
    prior, learned = stated_noise(objective), learn_noise(controls, objective)
    assert learned.sd == pytest.approx(math.sqrt(0.002**2 + 0.004**2 / 4), rel=0.3)
    assert learned.repeat_sd == pytest.approx(0.004, rel=0.15)
    assert learned.dof > prior.dof
    assert learn_noise(controls[:1], objective) == prior


def test_a_slow_drift_of_the_host_is_not_mistaken_for_noise(objective: Objective) -> None:
    drifting = [
        rate_of([100 * math.exp(0.001 * k)] * 4, workload=objective.workload) for k in range(40)
    ]
    assert learn_noise(drifting, objective).sd < 0.5 * stated_noise(objective).sd


def test_where_less_is_better_a_fall_is_a_gain(objective: Objective) -> None:
    latency = objective.model_copy(update={"metric": "ttft_ms", "direction": "minimize"})
    slow, fast = rate_of([10.0] * 4, ttft_ms=100), rate_of([10.0] * 4, ttft_ms=50)
    gate = ab_gate(slow, fast, slow, latency, "deep", noise=QUIET)
    assert gate.status is GateStatus.PASSED
    assert gate.evidence["ratio"] == pytest.approx(2.0)


def test_an_undecided_gate_fails_and_says_what_could_decide_it(objective: Objective) -> None:
    control, candidate = rate_of([100.0] * 4), rate_of([101.4] * 4)
    gate = ab_gate(control, candidate, control, objective, "deep", noise=QUIET)
    assert (gate.status, gate.code) == (GateStatus.FAILED, "gain_unproven")
    assert gate.evidence["decision"] == "measure_candidate"
    more = [("candidate", candidate), ("control", control)] * 2
    gate = ab_gate(control, candidate, control, objective, "deep", more=more, noise=QUIET)
    assert gate.evidence["candidates"] == 3


@settings(max_examples=50)
@given(st.lists(st.floats(-0.1, 0.1), min_size=3, max_size=3), st.floats(0.001, 0.1))
def test_more_gain_never_turns_acceptance_into_doubt(logs: list[float], more: float) -> None:
    objective = _objective()
    better = [logs[0], logs[1] + more, logs[2]]
    if ab_plan(alternation(*logs), objective, noise=QUIET).decision == "accept":
        assert ab_plan(alternation(*better), objective, noise=QUIET).decision == "accept"


def test_the_control_against_itself_is_hardly_ever_promoted() -> None:
    objective = _objective()
    generator = np.random.default_rng(7)
    promoted = 0
    for _ in range(400):
        sessions: list[Session] = []
        roles = ["control", "candidate"] * objective.ab.max_candidate_sessions + ["control"]
        for role in roles:
            sessions.append(session(role, float(generator.normal(0, QUIET.sd))))  # type: ignore[arg-type]
            decision = ab_plan(sessions, objective, noise=QUIET).decision
            if len(sessions) > 2 and decision in ("accept", "futile"):
                promoted += decision == "accept"
                break
    assert promoted <= 2


def _objective() -> Objective:
    from objectives import Rung
    from tests.objectives.rates import WORKLOAD

    return Objective(name="o", workload=WORKLOAD, ladder=(Rung(rung="deep", repeats=4, ab=True),))
