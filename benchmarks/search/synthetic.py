"""Synthetic tables: landscapes with the traps of real engines, drawn from a seed and not by hand.

Each is a base rate times one factor per knob value, times factors for some pairs of values, as
independent optimisations multiply. Onto that come regions that crash and values that are fast and
say something else. The seed draws which; the shape says how many.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from benchmarks.search.tables import Outcome, Table
from search_spaces import SearchSpace, Value

BASE_TOK_S = 30.0


@dataclass(frozen=True)
class Shape:
    """How a landscape is drawn."""

    spread: float  # standard deviation of the logarithm of a value's factor
    pairs: int  # pairs of values with a factor of their own
    crash_values: int  # single values that crash by themselves
    crash_pairs: int  # pairs of values that crash together
    corrupt_values: int  # single values that are fast and change the tokens
    corrupt_pairs: int  # pairs of values that change the tokens together
    lure: float  # how much faster a corrupt value is
    memory_limit: float = math.inf  # each value needs 0 to 1 of memory; above this sum it crashes


def conditional(seed: int) -> Table:
    """Speculation with knobs of its own under conditions, 7,560 configurations."""
    knobs: dict[str, Any] = {
        "eager": {"env": "A", "choices": [True, False]},
        "level": {"env": "B", "choices": [0, 1, 2, 3], "when": "not eager"},
        "threads": {"env": "C", "choices": ["auto", "all", "unbound"]},
        "spec": {"choices": ["none", "ngram", "draft"]},
        "k": {"env": "D", "range": [1, 5], "when": "spec != 'none'"},
        "lookup": {"env": "E", "choices": [2, 4, 8], "when": "spec == 'ngram'"},
        "block": {"env": "F", "choices": [128, 16, 32, 64]},
        "batched": {"env": "G", "choices": [2048, 64, 256]},
        "prefix": {"env": "H", "choices": [True, False]},
    }
    shape = Shape(
        0.14, 14, crash_values=1, crash_pairs=6, corrupt_values=1, corrupt_pairs=6, lure=1.5
    )
    return _table("conditional", knobs, shape, seed)


def cliff(seed: int) -> Table:
    """No conditions; much of it crashes, and the best lies beside what crashes; 15,552."""
    knobs: dict[str, Any] = {
        "graph": {"env": "A", "choices": ["none", "piecewise", "full"]},
        "capture": {"env": "B", "choices": [1, 4, 16, 128]},
        "workspace": {"env": "C", "choices": ["plain", "mixed", "persistent"]},
        "prologue": {"env": "D", "choices": [0, 1]},
        "stream": {"env": "E", "choices": [0, 1]},
        "fallback": {"env": "F", "choices": ["all", "prefill", "none"]},
        "sampler": {"env": "G", "choices": ["torch", "topk", "fused"]},
        "memory": {"env": "H", "choices": [0.9, 0.95, 0.85]},
        "asynchronous": {"env": "I", "choices": [0, 1]},
        "tp": {"env": "J", "choices": [4, 2]},
    }
    shape = Shape(
        0.12,
        16,
        crash_values=1,
        crash_pairs=3,
        corrupt_values=1,
        corrupt_pairs=4,
        lure=1.3,
        memory_limit=4.0,
    )
    return _table("cliff", knobs, shape, seed)


def wide(seed: int) -> Table:
    """Sixteen knobs, most of little effect; a few matter, some of these corrupt; 65,536."""
    knobs: dict[str, Any] = {
        f"knob_{index}": {"env": f"K{index}", "choices": [0, 1]} for index in range(16)
    }
    shape = Shape(
        0.09, 20, crash_values=0, crash_pairs=4, corrupt_values=1, corrupt_pairs=4, lure=1.4
    )
    return _table("wide", knobs, shape, seed)


ALL = (conditional, cliff, wide)


def _table(name: str, knobs: dict[str, Any], shape: Shape, seed: int) -> Table:
    space = SearchSpace.model_validate({"name": name, "knobs": knobs})
    landscape = _Landscape(space, shape, random.Random(seed))
    identity = {"generator": "benchmarks/search/synthetic.py", "shape": str(shape), "seed": seed}
    return Table(name, space, landscape.outcome, identity)


class _Landscape:
    def __init__(self, space: SearchSpace, shape: Shape, chance: random.Random) -> None:
        self.control = space.control().assignment
        items = [
            (name, value)
            for name, knob in space.knobs.items()
            for value in knob.values or ()
            if self.control.get(name) != value or name not in self.control
        ]
        pairs = [pair for pair in combinations(items, 2) if pair[0][0] != pair[1][0]]
        self.log_factor = {item: chance.gauss(0.0, shape.spread) for item in items}
        self.pair_factor = {
            pair: chance.gauss(0.0, shape.spread) for pair in chance.sample(pairs, shape.pairs)
        }
        taken = chance.sample(items, shape.crash_values + shape.corrupt_values)
        self.crash = set(taken[: shape.crash_values])
        self.corrupt = set(taken[shape.crash_values :])
        for item in self.corrupt:  # the trap: what breaks the answer is what is fast
            self.log_factor[item] = abs(self.log_factor[item]) + math.log(shape.lure)
        self.memory = {item: chance.random() for item in items}
        self.memory_limit = shape.memory_limit
        bad = chance.sample(pairs, shape.crash_pairs + shape.corrupt_pairs)
        self.crash_pairs = set(bad[: shape.crash_pairs])
        self.corrupt_pairs = set(bad[shape.crash_pairs :])

    def outcome(self, assignment: Mapping[str, Value]) -> Outcome:
        items = [item for item in assignment.items() if item in self.log_factor]
        present = set(items)
        if self.crash & present or _any_pair(self.crash_pairs, present):
            return Outcome(None, same_tokens=False)
        if sum(self.memory[item] for item in items) > self.memory_limit:
            return Outcome(None, same_tokens=False)
        log_rate = sum(self.log_factor[item] for item in items)
        log_rate += sum(
            factor
            for (one, other), factor in self.pair_factor.items()
            if one in present and other in present
        )
        same = not (self.corrupt & present or _any_pair(self.corrupt_pairs, present))
        return Outcome(round(BASE_TOK_S * math.exp(log_rate), 3), same)


def _any_pair(pairs: Sequence[Any] | set[Any], present: set[Any]) -> bool:
    return any(one in present and other in present for one, other in pairs)
