"""How the next trial is chosen: guided by models, stacked as in the lab, ablated at the end."""

from __future__ import annotations

from typing import Any

import pytest
from optuna.storages import InMemoryStorage

from search_spaces import SearchSpace, Value
from tuner.ablation import Ablation
from tuner.search import Outcome, Search

KNOBS: dict[str, Any] = {
    "a": {"env": "A", "choices": [0, 1], "group": "g"},
    "b": {"env": "B", "choices": [0, 1, 2], "group": "h"},
    "c": {"env": "C", "choices": [0, 1], "group": "g"},
    "d": {"env": "D", "choices": [0, 1]},
    "e": {"env": "E", "choices": [0, 1]},
    "f": {"env": "F", "choices": [0, 1]},
}
OK = {"startup": 0.0, "parity": 0.0}


def space(**document: Any) -> SearchSpace:
    return SearchSpace.model_validate({"name": "x", "knobs": KNOBS, **document})


def outcome(values: dict[str, Value]) -> Outcome:
    """d is fast and says something else, e crashes; a, b = 2 and c pay, a and b together more."""
    if values["e"]:
        return Outcome(None, {"startup": 1.0, "parity": 0.001})
    gain = 2.0 * bool(values["a"]) + 3.0 * (values["b"] == 2) + 1.0 * bool(values["c"])
    rate = 30.0 + gain + 4.0 * bool(values["a"] and values["b"] == 2) + 20.0 * bool(values["d"])
    return Outcome(rate, {"startup": 0.0, "parity": 0.5 if values["d"] else 0.0})


def play(search: Search, trials: int) -> list[dict[str, Value]]:
    asked = []
    while len(asked) < trials and (proposal := search.ask()) is not None:
        told = outcome(proposal.assignment)
        search.tell(proposal.number, told.value, told.constraints)
        asked.append(proposal.assignment)
    return asked


def search(sampler: str, **options: Any) -> Search:
    settings: dict[str, Any] = {"seed": 3, "name": "s", "space": space(), **options}
    return Search(
        settings.pop("space"), storage=InMemoryStorage(), sampler=sampler, **settings
    )  # fmt: skip


def test_stack_tries_single_changes_group_by_group_and_then_pairs_of_winners() -> None:
    asked = play(search("stack"), 12)
    control = space().control().assignment
    changes = [{k: v for k, v in one.items() if v != control[k]} for one in asked]
    assert changes[:8] == [
        {}, {"a": 1}, {"c": 1}, {"b": 1}, {"b": 2}, {"d": 1}, {"e": 1}, {"f": 1},
    ]  # fmt: skip
    assert changes[8:11] == [{"a": 1, "b": 2}, {"c": 1, "b": 2}, {"a": 1, "c": 1}]
    # The best pair is the next base, and single changes are tried on it.
    assert changes[11].items() >= {"a": 1, "b": 2}.items()


def test_stack_ends_with_the_stack_of_winners() -> None:
    study = search("stack")
    asked = play(study, 20)
    best = study.best()[0]
    assert {"a": 1, "b": 2, "c": 1}.items() <= best.params.items()
    assert best.params["d"] == best.params["e"] == 0
    assert asked.index(space().complete(best.params)) <= 15


@pytest.mark.parametrize("seed", range(5))
def test_guided_finds_the_best_and_leaves_what_fails(seed: int) -> None:
    study = search("guided", seed=seed)
    asked = play(study, 24)
    best = study.best()[0].params
    assert (best["a"], best["b"], best["c"], best["d"], best["e"]) == (1, 2, 1, 0, 0)
    # Half of all configurations crash; few are spent on learning so.
    assert sum(bool(one["e"]) for one in asked) <= 8


def test_guided_starts_with_the_control() -> None:
    assert play(search("guided"), 1) == [space().control().assignment]


def test_guided_spreads_a_batch() -> None:
    study = search("guided")
    play(study, 4)
    batch = study.ask_batch(6)
    assert len({str(one.assignment) for one in batch}) == 6


def test_guided_works_on_ranges() -> None:
    ranged = space(
        knobs={"x": {"env": "X", "range": [0.0, 10.0]}, "n": {"env": "N", "range": [1, 64]}}
    )
    study = search("guided", space=ranged)
    for _ in range(40):
        proposal = study.ask()
        assert proposal is not None
        x, n = float(proposal.assignment["x"] or 0), int(proposal.assignment["n"] or 0)
        study.tell(proposal.number, 30.0 + x + n / 8, OK)
    assert study.best()[0].value > 44.0


def test_guided_covers_the_front_of_two_objectives() -> None:
    study = search("guided", direction=["maximize", "minimize"])
    for _ in range(30):
        proposal = study.ask()
        assert proposal is not None
        told = outcome(proposal.assignment)
        latency = 100.0 + 30.0 * (proposal.assignment["b"] == 2)
        study.tell(
            proposal.number,
            None if told.value is None else [float(told.value), latency],  # type: ignore[arg-type]  # one rate
            told.constraints,
        )
    front = {(trial.params["b"] == 2, trial.params["a"]) for trial in study.best()}
    assert {(True, 1), (False, 1)} <= front


def test_a_warm_start_is_learned_from_and_not_repeated() -> None:
    cold, warm = search("guided"), search("guided")
    for values in list(space().enumerate())[:20]:
        warm.learn(values, outcome(values))
    known = [space().complete(trial.params) for trial in warm.study.trials]
    assert len(known) == 20
    assert not [one for one in play(warm, 8) if one in known]
    assert warm.best()[0].value >= cold_best(cold, 8)


def cold_best(study: Search, trials: int) -> float:
    play(study, trials)
    return float(study.best()[0].value or 0.0)


def test_ablation_keeps_what_the_gain_needs_and_nothing_else() -> None:
    winner = {"a": 1, "b": 2, "c": 1, "f": 1}
    ablation = Ablation(space(), winner, effects={"a": 2.0, "b": 3.0, "c": 1.0, "f": 0.0})
    full = float(outcome(space().complete(winner)).value or 0.0)  # type: ignore[arg-type]  # one rate
    asked = []
    while (candidate := ablation.ask()) is not None:
        asked.append(candidate)
        rate = float(outcome(candidate).value or 0.0)  # type: ignore[arg-type]  # one rate
        ablation.tell(keeps_gain=rate >= full * 0.99)
    assert ablation.smallest == space().complete({"a": 1, "b": 2, "c": 1})
    assert ablation.dropped == ["f"]
    assert ablation.changes == ["a", "b", "c"]
    assert len(asked) == 4


def test_ablation_never_asks_for_what_a_guard_refuses() -> None:
    guarded = space(guards=[{"if": "a == 1", "require": "f == 1"}])
    ablation = Ablation(guarded, {"a": 1, "f": 1})
    first = ablation.ask()
    assert first is not None
    assert (first["a"], first["f"]) == (0, 1)
    ablation.tell(keeps_gain=False)
    assert ablation.ask() is None
    assert ablation.changes == ["a", "f"]
