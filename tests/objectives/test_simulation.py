"""The simulated ladder decides as the real one does, and errs as rarely as it says."""

from __future__ import annotations

import numpy as np

from benchmarks.gates.fixed_ladder import LADDERS
from benchmarks.gates.machine import Noise
from benchmarks.gates.population import Truth, draw_truth
from benchmarks.gates.run import simulate_fixed, simulate_tuner, summary
from objectives import CATALOG, Objective
from tuner.document import load

OBJECTIVE = load(CATALOG / "no-quality-loss.yaml", Objective)


def truth(gain: float = 0.05, **more: object) -> Truth:
    plain = {"health": "clean", "host": "steady", "corrupt_probability": 0.0, "corrupt_from": 0}
    return Truth(gain=gain, first_slow=0.0, **{**plain, **more})  # type: ignore[arg-type]


def promoted(*truths: Truth) -> list[bool]:
    outcome = simulate_tuner(truths, OBJECTIVE, noise=Noise(), launch_s=100, seed=4)
    return [case.promoted for case in outcome.cases]


def test_a_clean_gain_of_five_percent_is_promoted_and_a_loss_is_not() -> None:
    assert promoted(truth(0.05), truth(-0.05), truth(0.0)) == [True, False, False]


def test_no_speed_makes_up_for_a_corrupt_answer() -> None:
    windows = [truth(0.05, corrupt_from=repeat) for repeat in (3, 49, 138)]
    often = truth(0.05, corrupt_probability=0.05)
    assert promoted(*windows, often) == [False] * 4


def test_a_population_is_judged_at_less_cost_and_with_fewer_errors_than_in_the_lab() -> None:
    generator = np.random.default_rng(3)
    truths = [draw_truth(generator) for _ in range(100)]
    settings = {"noise": Noise(), "launch_s": 120.0, "seed": 5}
    ours = summary(simulate_tuner(truths, OBJECTIVE, **settings), OBJECTIVE)  # type: ignore[arg-type]
    lab = simulate_fixed(LADDERS[0], truths, OBJECTIVE, **settings)  # type: ignore[arg-type]
    theirs = summary(lab, OBJECTIVE)
    assert ours["false_promotions"] < theirs["false_promotions"]
    assert 2 * ours["engine_seconds_per_verdict"] < theirs["engine_seconds_per_verdict"]


def test_equal_seeds_give_equal_figures() -> None:
    generator = np.random.default_rng(3)
    truths = [draw_truth(generator) for _ in range(20)]
    runs = [
        simulate_tuner(truths, OBJECTIVE, noise=Noise(), launch_s=120, seed=5) for _ in range(2)
    ]
    assert runs[0] == runs[1]
