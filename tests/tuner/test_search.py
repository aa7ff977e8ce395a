"""What a search promises: it repeats nothing, refuses nothing twice, and survives its process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from optuna.storages import InMemoryStorage

from search_spaces import SearchSpace
from tuner.search import Outcome, Proposal, Search

SPACE: dict[str, Any] = {
    "name": "small",
    "knobs": {
        "eager": {"arg": "--enforce-eager", "choices": [True, False]},
        "spec": {"choices": ["none", "ngram"]},
        "spec_k": {"arg": "--k", "range": [1, 3], "when": "spec == 'ngram'"},
        "block": {"arg": "--block-size", "choices": [None, 16, 64]},
        "held": {"env": "HELD", "choices": [0, 1], "frozen": True},
    },
    "rejected": [{"where": "block == 16", "code": "startup_crash"}],
}
OK = {"startup": 0.0, "parity": 0.0}


def space(**changes: Any) -> SearchSpace:
    return SearchSpace.model_validate({**SPACE, **changes})


def search(storage: Any = None, **options: Any) -> Search:
    settings: dict[str, Any] = {"name": "s", "seed": 7, **options}
    return Search(settings.pop("space", space()), storage=storage or InMemoryStorage(), **settings)


def rate(proposal: Proposal) -> float:
    values = proposal.assignment
    return 30.0 + 4 * (not values["eager"]) + 9 * values.get("spec_k", 0) + (values["block"] == 64)


def run(study: Search, trials: int) -> list[Proposal]:
    proposals = []
    while len(proposals) < trials and (proposal := study.ask()) is not None:
        study.tell(proposal.number, rate(proposal), OK)
        proposals.append(proposal)
    return proposals


@pytest.mark.parametrize(
    "sampler", ["tpe", "gp", "nsga2", "nsga3", "random", "exhaustive", "guided"]
)
def test_every_sampler_asks_each_allowed_configuration_once_and_then_stops(sampler: str) -> None:
    asked = [str(p.assignment) for p in run(search(sampler=sampler), 99)]
    # 2 (eager) * 4 (no speculation, or three depths) * 2 (the third block size is a dead end)
    assert len(asked) == len(set(asked)) == 16
    assert not any("'block': 16" in one for one in asked)


def test_what_the_user_names_comes_first_and_in_order() -> None:
    named = [{"spec": "ngram", "spec_k": 2}, {"block": 64}]
    first, second, third = run(search(enqueue=named), 3)
    assert (first.assignment["spec_k"], second.assignment["block"]) == (2, 64)
    assert first.hypothesis == "Named by the user: spec none → ngram, spec_k = 2."
    assert third.hypothesis.startswith("Chosen by tpe after 2 finished trials: ")


def test_a_named_configuration_is_asked_even_if_the_space_refuses_it() -> None:
    study = search(enqueue=[{"block": 16}])
    proposal = study.ask()
    assert proposal is not None
    assert proposal.assignment["block"] == 16


def test_the_control_can_be_asked_before_what_is_queued_and_keeps_the_first_number() -> None:
    study = search(enqueue=[{"block": 64}])
    control = study.again({})
    assert control.number == 0
    assert control.assignment == study.space.control().assignment
    following = study.ask()
    assert following is not None
    assert following.assignment["block"] == 64


def test_again_does_not_lose_what_waits_in_the_queue() -> None:
    study = search(enqueue=[{"block": 64}, {"eager": False}])
    study.ask()
    assert study.again({}).assignment["eager"] is True
    following = study.ask()
    assert following is not None
    assert following.assignment["eager"] is False


def test_a_batch_holds_no_duplicates() -> None:
    batch = search().ask_batch(10)
    assert len({str(p.assignment) for p in batch}) == 10


def test_an_interrupted_search_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = run(search(str(tmp_path / "whole.journal")), 12)
    parts = run(search(str(tmp_path / "parts.journal")), 5)
    parts += run(search(str(tmp_path / "parts.journal")), 7)
    assert parts == whole


def test_open_trials_survive_the_process_and_are_told_or_queued_again(tmp_path: Path) -> None:
    journal = str(tmp_path / "optuna.journal")
    done, lost = search(journal).ask_batch(2)
    successor = search(journal)
    assert successor.pending() == [done, lost]
    assert successor.reconcile({done.number: Outcome(31.0, OK)}) == [lost]
    assert successor.study.trials[done.number].value == 31.0
    again = successor.ask()
    assert again is not None
    assert again.assignment == lost.assignment
    assert again.number != lost.number


def test_an_invalid_trial_teaches_nothing_and_comes_back_only_when_asked_for() -> None:
    study = search()
    proposal = study.ask()
    assert proposal is not None
    study.tell_invalid(proposal.number)
    rest = [str(p.assignment) for p in run(study, 99)]
    assert str(proposal.assignment) not in rest
    study.requeue(proposal.assignment)
    again = study.ask()
    assert again is not None
    assert again.assignment == proposal.assignment


def test_a_crash_without_a_value_is_told_as_the_worst_seen_and_infeasible() -> None:
    study = search()
    good, crashed = study.ask_batch(2)
    study.tell(good.number, 30.0, OK)
    study.tell(crashed.number, None, {"startup": 1.0, "parity": 0.001})
    assert study.study.trials[crashed.number].value == 30.0
    assert [trial.number for trial in study.best()] == [good.number]


def test_telling_twice_changes_nothing() -> None:
    study = search()
    proposal = study.ask()
    assert proposal is not None
    study.tell(proposal.number, 30.0, OK)
    study.tell(proposal.number, 99.0, {"other": 1.0})
    assert study.study.trials[0].value == 30.0


def test_constraints_must_be_the_same_for_every_trial() -> None:
    study = search()
    first, second = study.ask_batch(2)
    study.tell(first.number, 30.0, OK)
    with pytest.raises(ValueError, match="parity are told of some trials"):
        study.tell(second.number, 30.0, {"startup": 0.0})


def test_new_evidence_reopens_a_dead_end_for_the_search() -> None:
    reopening = [{**SPACE["rejected"][0], "reopen_if": "engine.version > '0.32'"}]
    newer = search(space=space(rejected=reopening), facts={"engine.version": "0.33.0"})
    assert len(run(newer, 99)) == 24


def test_several_objectives_give_the_trials_that_no_other_dominates() -> None:
    study = search(direction=["maximize", "minimize"], sampler="nsga2")
    for tok_s, ttft_ms in ((30.0, 200.0), (40.0, 300.0), (29.0, 250.0)):
        proposal = study.ask()
        assert proposal is not None
        study.tell(proposal.number, [tok_s, ttft_ms], OK)
    assert sorted(trial.number for trial in study.best()) == [0, 1]


def test_a_continuous_range_never_runs_out() -> None:
    continuous = space(knobs={"x": {"arg": "--x", "range": [0.5, 1.0]}}, rejected=[])
    study = search(space=continuous)
    asked = []
    for _ in range(20):
        proposal = study.ask()
        assert proposal is not None
        study.tell(proposal.number, float(proposal.assignment["x"] or 0), OK)
        asked.append(proposal.assignment["x"])
    assert len(set(asked)) == 20
