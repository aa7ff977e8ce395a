"""Token sequences side by side."""

from __future__ import annotations


def parting(said: tuple[int, ...], reference: tuple[int, ...]) -> int:
    """The first 0-based index at which two token sequences differ, or the shorter one's length."""
    for index, (a, b) in enumerate(zip(said, reference, strict=False)):
        if a != b:
            return index
    return min(len(said), len(reference))
