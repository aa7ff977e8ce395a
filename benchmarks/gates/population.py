"""Candidates whose truth is known: how fast they are, and whether they say what they should."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GAINS = (-0.05, -0.02, -0.01, -0.005, 0.0, 0.005, 0.01, 0.02, 0.05)
"""True gain over the control, as a share; each is equally frequent."""

WINDOWS = (3, 27, 42, 49, 88, 99, 138)
"""Repeats from which on a candidate is wrong: where the laboratory's canaries failed."""

HEALTH = {"clean": 0.4, "0.2 %": 0.15, "1 %": 0.15, "5 %": 0.15, "from a repeat on": 0.15}
"""Share of candidates by what is wrong with them: a corrupt answer with that probability each
repeat, or always from one of `WINDOWS` on. More than half are corrupt, as in the laboratory, where
canaries failed in 28 of the 42 endpoint trials that it rejected in so many words."""

HOSTS = {"steady": 0.6, "first repeat slow": 0.2, "drifting": 0.2}
"""Share of candidates by what the host does while they run."""


@dataclass(frozen=True)
class Truth:
    """What a candidate is. `corrupt_from` is the first wrong repeat, 0 for never."""

    gain: float
    health: str
    host: str
    corrupt_probability: float
    corrupt_from: int
    first_slow: float

    @property
    def is_corrupt(self) -> bool:
        """Whether it must not be promoted, however fast it is."""
        return self.corrupt_probability > 0 or self.corrupt_from > 0


def draw_truth(generator: np.random.Generator) -> Truth:
    """One candidate, its properties drawn independently of each other."""
    health = str(generator.choice(list(HEALTH), p=list(HEALTH.values())))
    host = str(generator.choice(list(HOSTS), p=list(HOSTS.values())))
    return Truth(
        gain=float(generator.choice(GAINS)),
        health=health,
        host=host,
        corrupt_probability={"0.2 %": 0.002, "1 %": 0.01, "5 %": 0.05}.get(health, 0.0),
        corrupt_from=int(generator.choice(WINDOWS)) if health == "from a repeat on" else 0,
        first_slow=float(generator.uniform(0.01, 0.05)) if host == "first repeat slow" else 0.0,
    )
