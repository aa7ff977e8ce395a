"""Kernel tests need torch; what an op file of one test registers is forgotten before the next."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="kernels need the extra `kernels` (torch)")

from kernels import REGISTRY, list_ops  # noqa: E402 -- needs torch

# The tensors are small: more threads than one only wait for one another, here and in workers.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def forget_op_files() -> Iterator[None]:
    list_ops()
    ops = dict(REGISTRY)
    modules = set(sys.modules)
    candidates = {name: dict(op.candidates) for name, op in ops.items()}
    yield
    REGISTRY.clear()
    REGISTRY.update(ops)
    for name, op in ops.items():
        op.candidates = candidates[name]
    for module in set(sys.modules) - modules:
        if module.startswith("kernel_op_file_"):
            del sys.modules[module]
