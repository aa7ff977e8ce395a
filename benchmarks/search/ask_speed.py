"""How long the search takes to ask with many finished trials behind it (processor time).

python -m benchmarks.search.ask_speed --trials 10000
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import time
import warnings
from typing import get_args

import optuna
from optuna.storages import InMemoryStorage

from search_spaces import CATALOG, SpaceDocument
from tuner.search import Outcome, SamplerName, Search
from tuner.steering import Territory


def main() -> None:
    """Fill a study with random trials of `vllm-cpu`, then ask and tell."""
    parser = argparse.ArgumentParser(description="Time to ask")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--asks", type=int, default=15)
    parser.add_argument("--samplers", default="guided,tpe")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(logging.ERROR)
    space = SpaceDocument.read(CATALOG / "vllm-cpu.yaml").space()
    for sampler in options.samplers.split(","):
        assert sampler in get_args(SamplerName)
        search = Search(space, storage=InMemoryStorage(), name="x", seed=1, sampler=sampler)
        walk, chance, values = Territory(space, {}), random.Random(0), space.control().assignment
        learned = 0
        while learned < options.trials:
            values = walk.step(values, chance)
            if not walk.is_new(values) or not walk.allows(values):
                continue
            walk.take(values)
            crashed = chance.random() < 0.4
            rate = None if crashed else 30 + 10 * chance.random()
            search.learn(values, Outcome(rate, {"startup": float(crashed), "parity": 0.0}))
            learned += 1
        seconds = []
        for _ in range(options.asks):
            began = time.thread_time()
            proposal = search.ask()
            seconds.append(time.thread_time() - began)
            assert proposal is not None
            search.tell(proposal.number, 33.0, {"startup": 0.0, "parity": 0.0})
        first, *rest = (1000 * one for one in seconds)
        print(
            f"{sampler}: first ask {first:.0f} ms, then median {statistics.median(rest):.0f} ms,"
            f" worst {max(rest):.0f} ms, after {options.trials} trials"
        )


if __name__ == "__main__":
    main()
