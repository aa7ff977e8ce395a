"""Simulate the ladder on candidates whose truth is known, and count its errors and its cost.

python -m benchmarks.gates.run [--candidates 2000] [--seed 1] [--launch-s 120] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gates.climb import Study
from benchmarks.gates.fixed_ladder import LADDERS, FixedLadder, same_gates
from benchmarks.gates.machine import TOK_S, Machine, Noise
from benchmarks.gates.population import GAINS, HEALTH, HOSTS, Truth, draw_truth
from objectives import CATALOG, Objective
from tuner.document import load
from tuner.verdict import Verdict

CANDIDATES_A_STUDY = 50
"""Candidates that share one control and one history, as in a night's study."""


@dataclass(frozen=True)
class Case:
    """One candidate, and what became of it."""

    truth: Truth
    promoted: bool
    code: str | None

    def is_false(self, minimal_effect: float) -> bool:
        """Whether promoting it was wrong: it is corrupt, or gains no more than the least."""
        return self.promoted and (self.truth.is_corrupt or self.truth.gain <= minimal_effect)


@dataclass(frozen=True)
class Outcome:
    """All cases of one way of deciding, with the engine-seconds they took."""

    name: str
    cases: tuple[Case, ...]
    seconds: float
    spent_s: dict[str, float]


def simulate_tuner(
    truths: Sequence[Truth],
    objective: Objective,
    *,
    noise: Noise,
    launch_s: float,
    seed: int,
    unrest: float = 1.0,
) -> Outcome:
    """Judge every candidate with the tuner's own decisions, in studies of fifty.

    In the second half of each study the host is `unrest` times as noisy as in the first.
    """
    generator = np.random.default_rng(seed)
    cases: list[Case] = []
    spent: dict[str, float] = {}
    seconds = 0.0
    for start in range(0, len(truths), CANDIDATES_A_STUDY):
        study = Study(Machine(generator, noise, launch_s), objective)
        study.begin()
        for index, truth in enumerate(truths[start : start + CANDIDATES_A_STUDY]):
            if index == CANDIDATES_A_STUDY // 2:
                study.machine.noise = noise.times(unrest)
            judgement = study.judge(truth)
            code = judgement.rejection.code.value if judgement.rejection else None
            cases.append(Case(truth, judgement.verdict is Verdict.ACCEPTED, code))
        seconds += study.machine.clock_s
        for what, value in study.machine.spent_s.items():
            spent[what] = spent.get(what, 0.0) + value
    return Outcome("tuner", tuple(cases), seconds, spent)


def simulate_fixed(
    ladder: FixedLadder,
    truths: Sequence[Truth],
    objective: Objective,
    *,
    noise: Noise,
    launch_s: float,
    seed: int,
) -> Outcome:
    """Judge every candidate with the laboratory's fixed ladder."""
    machine = Machine(np.random.default_rng(seed), noise, launch_s)
    cases = tuple(
        Case(truth, ladder.promotes(truth, machine, objective.workload, TOK_S), None)
        for truth in truths
    )
    return Outcome(ladder.name, cases, machine.clock_s, machine.spent_s)


def summary(outcome: Outcome, objective: Objective) -> dict[str, Any]:
    """The figures of one way of deciding."""
    effect = objective.minimal_effect
    cases = outcome.cases
    promoted = [case for case in cases if case.promoted]
    false = [case for case in cases if case.is_false(effect)]
    good = [case for case in cases if not case.truth.is_corrupt and case.truth.gain >= 0.02]
    two = [case for case in good if case.truth.gain == 0.02]
    return {
        "name": outcome.name,
        "candidates": len(cases),
        "promoted": len(promoted),
        "false_promotions": len(false),
        "false_share_of_candidates": len(false) / len(cases),
        "false_share_of_promotions": len(false) / max(len(promoted), 1),
        "gains_of_2_percent_found": sum(case.promoted for case in two) / max(len(two), 1),
        "gains_of_2_percent": len(two),
        "gains_of_5_percent_found": sum(c.promoted for c in good if c.truth.gain == 0.05)
        / max(sum(c.truth.gain == 0.05 for c in good), 1),
        "engine_seconds_per_verdict": outcome.seconds / len(cases),
        "seconds_by_part": {k: round(v / len(cases), 1) for k, v in outcome.spent_s.items()},
    }


def by_class(outcome: Outcome) -> list[tuple[str, int, int]]:
    """Promotions by class of candidate: (class, promoted, candidates)."""
    rows = []
    for gain in GAINS:
        for host in HOSTS:
            own = [
                case
                for case in outcome.cases
                if (case.truth.gain, case.truth.host) == (gain, host) and not case.truth.is_corrupt
            ]
            rows.append((f"clean, {gain:+.1%}, {host}", sum(c.promoted for c in own), len(own)))
    for health in list(HEALTH)[1:]:
        own = [case for case in outcome.cases if case.truth.health == health]
        rows.append((f"corrupt {health}", sum(c.promoted for c in own), len(own)))
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Run the simulation and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--candidates", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--launch-s", type=float, default=120.0)
    parser.add_argument("--session-sd", type=float, default=Noise.session)
    parser.add_argument("--repeat-sd", type=float, default=Noise.repeat)
    parser.add_argument(
        "--unrest", type=float, default=1.0, help="how much noisier the second half of a study is"
    )
    parser.add_argument("--objective", type=Path, default=CATALOG / "no-quality-loss.yaml")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    flags = parser.parse_args(argv)
    objective = load(flags.objective, Objective)
    noise = Noise(session=flags.session_sd, repeat=flags.repeat_sd)
    generator = np.random.default_rng(flags.seed)
    truths = [draw_truth(generator) for _ in range(flags.candidates)]
    settings = {"noise": noise, "launch_s": flags.launch_s, "seed": flags.seed + 1}
    ours = simulate_tuner(truths, objective, unrest=flags.unrest, **settings)
    ladders = [same_gates(objective), *LADDERS]
    outcomes = [ours, *(simulate_fixed(each, truths, objective, **settings) for each in ladders)]
    figures = [summary(outcome, objective) for outcome in outcomes]
    for row in figures:
        ratio = row["engine_seconds_per_verdict"] / figures[0]["engine_seconds_per_verdict"]
        print(
            f"{row['name']:45s} false {row['false_promotions']:4d}"
            f" ({row['false_share_of_candidates']:.2%} of candidates,"
            f" {row['false_share_of_promotions']:.1%} of {row['promoted']} promotions)"
            f"  +2 % found {row['gains_of_2_percent_found']:.1%} of {row['gains_of_2_percent']}"
            f"  +5 % {row['gains_of_5_percent_found']:.1%}"
            f"  {row['engine_seconds_per_verdict']:.0f} s a verdict ({ratio:.2f} x)"
        )
    print("\nengine-seconds per verdict by part:", figures[0]["seconds_by_part"])
    print("\npromoted by class:")
    for name, promoted, count in by_class(ours):
        print(f"  {name:40s} {promoted:4d} of {count}")
    if flags.json:
        flags.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
