# ruff: noqa: ARG001 -- a candidate takes (inputs, outputs, config)
"""A user's own compiled op, named as in `torch.ops.<namespace>.<op>`, as a candidate."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kernels.ops import REGISTRY, KernelError, Tensors
from kernels.space import Config


def torch_op_candidate(op_name: str, qualified: str, *, loads: Iterable[str] = ()) -> str:
    """Register `namespace::name` as a candidate of an op and return the candidate's name.

    The op is called with the inputs and then the outputs, in the order the op declares them, and
    must write the outputs; a user's op file adapts any other signature. `loads` are shared
    libraries (paths) or Python modules to import first.
    """
    if op_name not in REGISTRY:
        raise KernelError(f"no op {op_name!r}; known are {', '.join(sorted(REGISTRY))}")
    for item in loads:
        load(item)
    target = resolve(qualified)
    name = qualified.replace("::", "_")

    def call_torch_op(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        target(*inputs.values(), *outputs.values())

    call_torch_op.__doc__ = f"torch.ops {qualified}"
    REGISTRY[op_name].candidate(name=name)(call_torch_op)
    return name


def load(item: str) -> None:
    """Load a shared library by path or import a module by name."""
    import torch

    try:
        if Path(item).suffix in (".so", ".dll", ".dylib"):
            torch.ops.load_library(item)  # type: ignore[no-untyped-call] # torch has no types here
        else:
            importlib.import_module(item)
    except (OSError, ImportError) as error:
        raise KernelError(f"cannot load {item!r} for a torch op: {error}") from error


def resolve(qualified: str) -> Callable[..., Any]:
    """The callable behind `namespace::name`."""
    import torch

    namespace, _, name = qualified.partition("::")
    try:
        found: Callable[..., Any] = getattr(getattr(torch.ops, namespace), name)
    except (AttributeError, RuntimeError) as error:
        raise KernelError(
            f"torch.ops has no {qualified!r}; give NAMESPACE::NAME and the library that has it"
        ) from error
    return found
