"""Median with a distribution-free confidence interval, on the standard library alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Microseconds:
    """Median of `samples` measurements and the interval that covers it with 95 % confidence."""

    median_us: float
    low_us: float
    high_us: float
    samples: int

    def __str__(self) -> str:
        return f"{self.median_us:.2f} us [{self.low_us:.2f}, {self.high_us:.2f}]"

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def summarise(samples_us: Sequence[float], confidence: float = 0.95) -> Microseconds:
    """Median, and an interval between order statistics.

    The number of samples under the median is binomial with probability one half (W. J. Conover,
    Practical Nonparametric Statistics, section 3.2).
    """
    ordered = sorted(samples_us)
    count = len(ordered)
    rank = 0
    tail = 0.0
    for below in range(count // 2):
        tail += math.comb(count, below) * 0.5**count
        if 2 * tail > 1 - confidence:
            break
        rank = below + 1
    low = ordered[max(rank - 1, 0)]
    high = ordered[min(count - rank, count - 1)]
    return Microseconds(statistics.median(ordered), low, high, count)
