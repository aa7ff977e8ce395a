"""Statistics of rates and of failure counts, each with the source of its formula.

Rates are compared on the log scale: noise of a rate is multiplicative (a slow host scales every
token), and the difference of two means of logs is the log of a ratio, which is what is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy import special  # type: ignore[import-untyped]  # scipy ships no annotations


class Summary(BaseModel):
    """A sample in a few numbers, in the unit of the sample.

    `low` and `high` bound the mean at `confidence` (two-sided, Student's t); both are None for a
    sample of one, which says nothing about its own spread. `p10` is the 10th percentile.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int
    mean: float
    median: float
    p10: float
    min: float
    max: float
    low: float | None
    high: float | None
    confidence: float


class Percentiles(BaseModel):
    """Percentiles of a latency sample, in the unit of the sample."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def summarize(values: Sequence[float], *, confidence: float = 0.95) -> Summary:
    """Describe a sample; raises ValueError when it is empty.

    The interval is mean ± t(n - 1) · s / √n (Student 1908).
    """
    if not values:
        raise ValueError("an empty sample has no summary; measure at least one repeat.")
    sample = np.asarray(values, dtype=float)
    low = high = None
    mean = float(sample.mean())
    if sample.size > 1:
        half = t_quantile((1 + confidence) / 2, sample.size - 1) * standard_error(values)
        low, high = mean - half, mean + half
    return Summary(
        n=int(sample.size),
        mean=mean,
        median=float(np.median(sample)),
        p10=float(np.percentile(sample, 10)),
        min=float(sample.min()),
        max=float(sample.max()),
        low=low,
        high=high,
        confidence=confidence,
    )


def percentiles(values: Sequence[float]) -> Percentiles:
    """Percentiles by linear interpolation (Hyndman & Fan 1996, type 7)."""
    if not values:
        raise ValueError("an empty sample has no percentiles; measure at least one request.")
    sample = np.asarray(values, dtype=float)
    p50, p90, p95, p99 = (float(x) for x in np.percentile(sample, [50, 90, 95, 99]))
    return Percentiles(
        n=int(sample.size),
        mean=float(sample.mean()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=float(sample.max()),
    )


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean of at least two values."""
    return float(np.std(np.asarray(values, dtype=float), ddof=1)) / math.sqrt(len(values))


def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t; `degrees` of freedom may be fractional or infinite."""
    if math.isinf(degrees):
        return normal_quantile(probability)
    return float(special.stdtrit(degrees, probability))


def t_cdf(value: float, degrees: float) -> float:
    """Distribution function of Student's t."""
    if math.isinf(degrees):
        return float(special.ndtr(value))
    return float(special.stdtr(degrees, value))


def normal_quantile(probability: float) -> float:
    """Quantile of the standard normal distribution."""
    return float(special.ndtri(probability))


def corruption_bound(repeats: int, failures: int = 0, *, confidence: float = 0.95) -> float:
    """Upper bound of a failure rate after `failures` in `repeats`, one-sided at `confidence`.

    Clopper & Pearson 1934: the rate at which so few failures have probability 1 - confidence.
    Without failures it is 1 - (1 - confidence)^(1 / repeats), near 3 / repeats at 95 %.
    """
    if failures >= repeats:
        return 1.0
    return float(special.betaincinv(failures + 1, repeats - failures, confidence))


def is_excess(variance: float, expected: float, degrees: float) -> bool:
    """Whether a variance of so many degrees of freedom is beyond what is expected, at 99 %.

    The chi-square test of a variance (Helmert 1876).
    """
    return variance > expected * float(special.chdtri(degrees, 0.01)) / degrees


class Noise(BaseModel):
    """How far the log of a session's mean rate strays, and how well that is known.

    `sd` is the standard deviation between sessions of `repeats` repeats each; a session with fewer
    strays more, as `repeat_sd`, the standard deviation of single repeats within a session, says.
    `dof` counts the degrees of freedom behind `sd`, as if it had been estimated from that many
    differences; infinite means known for certain.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sd: float
    dof: float
    repeat_sd: float
    repeats: int

    def of_session(self, repeats: int, *, repeat_sd: float | None = None) -> Noise:
        """The noise of sessions with another number of repeats."""
        single = self.repeat_sd if repeat_sd is None else repeat_sd
        missing = max(1 / repeats - 1 / self.repeats, 0.0)
        return self.model_copy(update={"sd": math.sqrt(self.sd**2 + missing * single**2)})

    def moderated(self, sum_of_squares: float, degrees: float) -> Noise:
        """This prior and new residuals as one estimate (moderated variance, Smyth 2004).

        s² = (d0 · s0² + SS) / (d0 + d), with d0 + d degrees of freedom. It is what makes an
        interval of three server sessions honest: the lane's history stands in for the spread that
        three numbers cannot show, and the three numbers widen it where they stray more.
        """
        if math.isinf(self.dof):
            return self
        total = self.dof + degrees
        sd = math.sqrt((self.dof * self.sd**2 + sum_of_squares) / total)
        return self.model_copy(update={"sd": sd, "dof": total})

    def confronted(self, sum_of_squares: float, degrees: float) -> Noise:
        """This prior moderated by new residuals, unless they put it out of force.

        Residuals that it makes very unlikely (one time in a hundred) say that it no longer holds.
        Then they stand alone, with no more freedom than they have.
        """
        if degrees > 0 and is_excess(sum_of_squares / degrees, self.sd**2, degrees):
            alone = math.sqrt(sum_of_squares / degrees)
            return self.model_copy(update={"sd": alone, "dof": degrees})
        return self.moderated(sum_of_squares, degrees)


def first_repeat_is_slow(
    values: Sequence[float], *, sigmas: float = 4.0, least: float = 0.01
) -> bool:
    """Whether the first of several rates is a warm-up: low by far more than the others spread.

    It must lie `sigmas` standard deviations of the rest, and at least the share `least`, under the
    rest's mean. With fewer than four values the rest's spread means too little, and the answer is
    no. The lab's first repeats were up to 5 % slow, which moves a mean of four by 1.2 %.
    """
    if len(values) < 4:
        return False
    logs = np.log(np.asarray(values, dtype=float))
    rest = logs[1:]
    gap = float(rest.mean() - logs[0])
    return gap > least and gap > sigmas * max(float(rest.std(ddof=1)), 1e-9)
