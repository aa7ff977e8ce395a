"""What one launch costs that only reads the layerlet's bytes: the practical floor of its shape.

    python benchmarks/kernels/read_floor.py --bytes 6400000

The bandwidth floor (bytes over the large-copy bandwidth) leaves out the launch and the one trip to
memory that even a perfect kernel makes. This reads that many bytes, cold, in a CUDA graph, and
prints the best of several shapes of launch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
import triton.language as tl

from kernels.timing import replayed


@triton.jit
def read_kernel(source, sums, PER_PROGRAM: tl.constexpr):  # noqa: N803 -- a constant to Triton
    """Sum PER_PROGRAM int32 values."""
    start = tl.program_id(0).to(tl.int64) * PER_PROGRAM
    value = tl.load(source + start + tl.arange(0, PER_PROGRAM))
    tl.store(sums + tl.program_id(0), tl.sum(value))


MOST_VALUES_PER_THREAD = 128


def calls(
    data: torch.Tensor, programs: int, per_program: int, warps: int
) -> list[Callable[[], None]]:
    """One call per row of `data`, so that consecutive calls find their bytes in memory."""
    sums = torch.zeros(programs, device="cuda", dtype=torch.int32)

    def bound(row: torch.Tensor) -> Callable[[], None]:
        return lambda: read_kernel[(programs,)](row, sums, per_program, num_warps=warps)

    return [bound(row) for row in data]


def main() -> None:
    """Print the fastest shape of launch as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bytes", type=int, default=6_400_000)
    parser.add_argument("--sets", type=int, default=40)
    arguments = parser.parse_args()
    best: dict[str, float | int] = {}
    for per_program in (1024, 2048, 4096, 8192, 16384):
        programs = -(-arguments.bytes // (4 * per_program))
        shape = (arguments.sets, programs * per_program)
        data = torch.randint(-9, 9, shape, device="cuda", dtype=torch.int32)
        for warps in (1, 2, 4, 8):
            if per_program // (32 * warps) > MOST_VALUES_PER_THREAD:
                continue
            cold, _ = replayed(calls(data, programs, per_program, warps), "cuda", 40)
            if not best or cold.median_us < best["us"]:
                best = {"us": cold.median_us, "programs": programs, "num_warps": warps}
    print(json.dumps({"bytes": arguments.bytes, **best, "device": torch.cuda.get_device_name()}))


if __name__ == "__main__":
    main()
