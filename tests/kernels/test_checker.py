"""The checker catches what it must and refuses nothing sound."""

from __future__ import annotations

import pytest

import kernels
from kernels import FaultOutcome


@pytest.fixture(scope="module")
def outcomes() -> list[FaultOutcome]:
    return kernels.self_test(repeats=40)


def test_every_planted_fault_is_caught(outcomes: list[FaultOutcome]) -> None:
    through = [o.name for o in outcomes if o.expected == "caught" and not o.as_expected]
    assert through == []


def test_the_faults_that_a_checker_must_know_are_planted(outcomes: list[FaultOutcome]) -> None:
    planted = {o.what for o in outcomes if o.expected == "caught"}
    assert {
        "a stale captured input",
        "an off-by-one offset",
        "an unwritten tile",
        "no BF16 rounding between the steps",
    } <= planted


def test_no_sound_candidate_is_refused(outcomes: list[FaultOutcome]) -> None:
    refused = [o.reason for o in outcomes if o.expected == "passes" and not o.as_expected]
    assert refused == []


def test_a_race_of_one_run_in_37_is_missed_by_few_repeats_and_found_by_enough() -> None:
    few = {o.name: o for o in kernels.self_test(repeats=10)}
    assert not few["rare_race"].as_expected


def test_a_stale_input_is_found_by_replaying_over_changed_buffers(
    outcomes: list[FaultOutcome],
) -> None:
    stale = next(o for o in outcomes if o.name == "stale_input")
    assert "elements differ" in stale.reason
