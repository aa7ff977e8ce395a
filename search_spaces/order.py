"""The order in which knobs are asked: a knob after those its condition names."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from search_spaces.knob import Knob


def in_order(knobs: Mapping[str, Knob]) -> tuple[str, ...]:
    """Names in the order to ask them: by depth of conditions, then as the document has them.

    Raises graphlib.CycleError when conditions go round in a circle.
    """
    sorter = TopologicalSorter(
        {
            name: [asked for asked in knob.when.names if asked in knobs] if knob.when else []
            for name, knob in knobs.items()
        }
    )
    sorter.prepare()
    place = {name: at for at, name in enumerate(knobs)}
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        ordered += ready
        sorter.done(*ready)
    return tuple(ordered)


def cycle(knobs: Mapping[str, Knob]) -> tuple[str, ...]:
    """Knobs whose conditions go round in a circle, first and last the same; empty if none do."""
    try:
        in_order(knobs)
    except CycleError as error:
        return tuple(error.args[1])
    return ()
