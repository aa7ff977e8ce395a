"""The laboratory's ladder, run as it was run there: everything in order, whatever came out.

Per rung: metrics, JSON canary, colour canary, and in the deep rung the quality suite. A canary
stops at its own first mismatch, and nothing else stops anything. Promoted when all canaries are
clean and the deep rung's mean rate is above the control's, as last measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gates.machine import TOK_S, Machine
from benchmarks.gates.population import Truth
from objectives import Objective, Workload


@dataclass(frozen=True)
class Tier:
    """A rung as the laboratory used it."""

    repeats: int
    json: int
    colour: int
    quality: bool = False
    parity: int = 0


SMOKE, MEDIUM, DEEP = Tier(2, 32, 32), Tier(2, 64, 128), Tier(4, 128, 256, quality=True)


@dataclass(frozen=True)
class FixedLadder:
    """A way of running the tiers: a launch for each or one for all, with so many control runs."""

    name: str
    tiers: tuple[Tier, ...]
    launch_each: bool
    controls: int

    def promotes(self, truth: Truth, machine: Machine, workload: Workload, control: float) -> bool:
        """Run the ladder on one candidate; `control` is the last mean rate known of the control."""
        machine.behave(truth.host)
        clean = True
        rate = 0.0
        luck = 0.0
        for index, tier in enumerate(self.tiers):
            if index == 0 or self.launch_each:
                luck = machine.launch()
            machine.spend(tier.parity * (128 / TOK_S + 0.06), "parity")
            rate = machine.measure(luck, truth, tier.repeats, workload).tok_s.mean
            for repeats in (tier.json, tier.colour):
                clean = machine.canary(truth, repeats) is None and clean
            if tier.quality:
                machine.spend(8 * 128 / TOK_S + 5.0, "quality")
        beside = []
        for _ in range(self.controls):
            luck = machine.launch("adjacent control")
            repeats = self.tiers[-1].repeats
            beside.append(machine.measure(luck, None, repeats, workload).tok_s.mean)
        return clean and rate > (sum(beside) / len(beside) if beside else control)


def same_gates(objective: Objective) -> FixedLadder:
    """The objective's own gates, every one of them to its full depth, whatever came out."""
    tiers = tuple(
        Tier(
            rung.repeats,
            rung.canary_repeats,
            rung.canary_repeats,
            quality=rung.quality,
            parity=rung.parity_prompts,
        )
        for rung in objective.ladder
    )
    return FixedLadder("our gates, all to the end, A-B-A", tiers, launch_each=False, controls=2)


LADDERS = (
    FixedLadder("laboratory, control before and after", (SMOKE, MEDIUM, DEEP), True, 2),
    FixedLadder("laboratory, one adjacent control", (SMOKE, MEDIUM, DEEP), True, 1),
    FixedLadder("laboratory, no control", (SMOKE, MEDIUM, DEEP), True, 0),
    FixedLadder("laboratory, one launch, one control", (SMOKE, MEDIUM, DEEP), False, 1),
    FixedLadder("laboratory, deep rung alone, no control", (DEEP,), False, 0),
)
