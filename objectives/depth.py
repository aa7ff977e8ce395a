"""How deep canaries must go: past every repeat at which the lane has ever seen one fail."""

from __future__ import annotations

import math
from collections.abc import Sequence

MARGIN = 1.15
"""Depth past the latest failure seen: failures of one cause strayed by a tenth (90, 91, 99)."""


def deep_repeats(configured: int, failure_repeats: Sequence[int]) -> int:
    """Repeats of the deep rung: as configured, or more where the lane's ledger has seen later ones.

    `failure_repeats` are the 1-based repeats at which canaries have failed in this lane. The lab's
    went up to 138, which asks for 159.
    """
    return max(configured, math.ceil(MARGIN * max(failure_repeats, default=0)))
