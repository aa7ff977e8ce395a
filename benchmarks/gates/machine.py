"""The simulated machine: how long everything takes, and how far the same thing strays.

Time is counted in engine-seconds and passes only here. The figures are those of the laboratory's
lane (one stream, 512 prompt and 512 output tokens, near 93.5 tokens per second).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.gates.population import Truth
from objectives import Percentiles, Rate, Repeat, Workload
from objectives.prompt_suite import SUITE
from objectives.statistics import summarize

TOK_S = 93.5
TTFT_S = 0.19
CANARY_S = 0.17
"""One canary: a short prompt and about ten tokens."""


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the log rate, and the host's drift.

    `session`: between server sessions of one identity. `repeat`: within a session. `walk`: of a
    random walk over ten minutes, and `slope` the largest steady drift per hour, both only while the
    host drifts.
    """

    session: float = 0.003
    repeat: float = 0.006
    walk: float = 0.003
    slope: float = 0.03

    def times(self, factor: float) -> Noise:
        """A host that is less quiet, between sessions and within them."""
        return replace(self, session=self.session * factor, repeat=self.repeat * factor)


@dataclass
class Machine:
    """A clock, a host that may drift, and a source of chance."""

    generator: np.random.Generator
    noise: Noise
    launch_s: float
    clock_s: float = 0.0
    drift: float = 0.0
    slope: float = 0.0
    is_drifting: bool = False
    spent_s: dict[str, float] = field(default_factory=dict)

    def behave(self, host: str) -> None:
        """Let the host drift from now on, or hold still where it is."""
        self.is_drifting = host == "drifting"
        self.slope = self.generator.uniform(-self.noise.slope, self.noise.slope) / 3600

    def spend(self, seconds: float, what: str) -> None:
        """Let engine time pass."""
        self.clock_s += seconds
        self.spent_s[what] = self.spent_s.get(what, 0.0) + seconds
        if self.is_drifting:
            self.drift += self.slope * seconds
            self.drift += self.generator.normal(0, self.noise.walk * math.sqrt(seconds / 600))

    def launch(self, why: str = "candidate") -> float:
        """Start a server; the log of how lucky this session is."""
        self.spend(self.launch_s, f"launch: {why}")
        return float(self.generator.normal(0, self.noise.session))

    def measure(
        self,
        luck: float,
        truth: Truth | None,
        repeats: int,
        workload: Workload,
        earlier: Rate | None = None,
    ) -> Rate:
        """A session measured with `repeats` repeats in all; the control without a truth.

        Those that were measured `earlier` in the same session are kept; a session that begins is
        warmed up first.
        """
        gain = 0.0 if truth is None else math.log1p(truth.gain)
        rows = [] if earlier is None else list(earlier.repeats)
        if not rows:
            self.spend(workload.warmup_tokens / (TOK_S * math.exp(gain)) + TTFT_S, "speed")
        started_at = self.clock_s
        for index in range(len(rows), repeats):
            log = gain + luck + self.drift + self.generator.normal(0, self.noise.repeat)
            if truth is not None and index == 0:
                log += math.log1p(-truth.first_slow)
            rows.append(_row(SUITE[index % len(SUITE)].name, TOK_S * math.exp(log)))
            self.spend(rows[-1].total_s, "speed")
        return _rate(rows, workload, started_at)

    def canary(self, truth: Truth | None, repeats: int, already: int = 0) -> int | None:
        """Run a canary; the 1-based repeat at which it failed, None if all were clean.

        The first `already` repeats were clean on an earlier rung of the session.
        """
        failed = None
        if truth is not None and truth.corrupt_probability:
            failed = already + int(self.generator.geometric(truth.corrupt_probability))
        elif truth is not None and truth.corrupt_from:
            failed = truth.corrupt_from
        if failed is not None and failed > repeats:
            failed = None
        self.spend(CANARY_S * ((failed or repeats) - already), "canary")
        return failed


def _row(prompt: str, tok_s: float) -> Repeat:
    decode_s = 511 / tok_s
    return Repeat(
        prompt=prompt,
        prompt_tokens=512,
        output_tokens=512,
        cached_tokens=0,
        ttft_ms=1000 * TTFT_S,
        decode_s=decode_s,
        total_s=decode_s + TTFT_S,
        tok_s=tok_s,
        tok_s_99=tok_s,
        tok_s_end_to_end=512 / (decode_s + TTFT_S),
        output_sha="",
        started_at_s=0.0,
    )


_FLAT = Percentiles(n=1, mean=1.0, p50=1.0, p90=1.0, p95=1.0, p99=1.0, max=1.0)


def _rate(rows: list[Repeat], workload: Workload, started_at: float) -> Rate:
    return Rate(
        tok_s=summarize([row.tok_s for row in rows]),
        tok_s_99=None,
        tok_s_end_to_end=summarize([row.tok_s_end_to_end for row in rows]),
        ttft_ms=summarize([row.ttft_ms for row in rows]),
        itl_ms=_FLAT,
        e2e_ms=_FLAT,
        ttft_percentiles_ms=_FLAT,
        repeats=tuple(rows),
        engine=None,
        workload=workload,
        started_at=started_at,
    )
