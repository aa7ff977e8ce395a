"""The nearest known names to a mistyped one, for messages that end in "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


def nearest(name: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """At most `limit` of the `known` names, most alike first; empty when none is alike."""
    names = list(known)
    folded: dict[str, str] = {}
    for candidate in names:
        folded.setdefault(_fold(candidate), candidate)
    close = get_close_matches(_fold(name), folded, n=limit, cutoff=0.6)
    found = [folded[key] for key in close]
    if len(found) < limit:  # a part of a long flag is how people remember it
        part = _fold(name)
        holding = [one for key, one in folded.items() if len(part) > 3 and part in key]
        holding.sort(key=lambda one: -SequenceMatcher(None, part, _fold(one)).ratio())
        found += [one for one in holding if one not in found]
    return tuple(found[:limit])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'a' or 'b'?"``, or ``""`` when nothing is alike."""
    close = [repr(one) for one in nearest(name, known)]
    if not close:
        return ""
    listed = close[0] if len(close) == 1 else ", ".join(close[:-1]) + " or " + close[-1]
    return f"; did you mean {listed}?"


def _fold(name: str) -> str:
    return name.lower().replace("-", "_").strip("_")
