"""Kernel tests need torch; what one test registers is forgotten before the next."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="kernels need the extra `kernels` (torch)")

from kernels import list_ops  # noqa: E402 -- needs torch
from kernels.ops import registry_restorer  # noqa: E402

# The tensors are small: more threads than one only wait for one another, here and in workers.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def forget_what_a_test_registers() -> Iterator[None]:
    list_ops()
    restore = registry_restorer()
    yield
    restore()
