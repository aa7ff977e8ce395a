"""`list_ops`: which ops there are, how each is judged, and what can compute it here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernels import catalog
from kernels.ops import REGISTRY, KernelError, Op, load_file, registry_restorer


@dataclass(frozen=True)
class CandidateInfo:
    """`configurations` counts combinations of meta-parameters before constraints."""

    name: str
    summary: str
    needs: tuple[str, ...]
    devices: tuple[str, ...]
    configurations: int
    graph_safe: bool
    separate: bool


@dataclass(frozen=True)
class OpInfo:
    """What `list_ops` says of one op."""

    name: str
    summary: str
    exactness: str
    cases: tuple[str, ...]
    candidates: tuple[CandidateInfo, ...]


def list_ops(op_files: Iterable[str] = ()) -> list[OpInfo]:
    """Shipped ops and those of `op_files`, by name."""
    return [describe_op(op) for op in registered(op_files).values()]


def registered(op_files: Iterable[str] = ()) -> dict[str, Op]:
    """All ops by name: the catalog's, what this process registered, and those of the given files.

    The files register nothing for longer than this call, since what they hold is run in workers:
    a candidate that crashes must not be met here by whoever looks into the registry next.
    """
    catalog.load()
    restore = registry_restorer()
    try:
        for path in op_files:
            load_file(path)
        return {
            name: replace(op, candidates=dict(op.candidates))
            for name, op in sorted(REGISTRY.items())
        }
    finally:
        restore()


def pick_ops(names: Iterable[str] | None, op_files: Iterable[str] = ()) -> list[Op]:
    """The named ops, or all. Raises KernelError for a name that is not registered."""
    known = registered(op_files)
    if names is None:
        return list(known.values())
    for name in (wanted := list(names)):
        if name not in known:
            raise KernelError(f"no op {name!r}; known are {', '.join(known)}")
    return [known[name] for name in wanted]


def describe_op(op: Op) -> OpInfo:
    """Describe one op and its candidates."""
    return OpInfo(
        name=op.name,
        summary=op.summary,
        exactness=op.exactness.describe(),
        cases=tuple(case.name for case in op.cases),
        candidates=tuple(
            CandidateInfo(
                name=candidate.name,
                summary=candidate.summary,
                needs=candidate.needs,
                devices=candidate.devices,
                configurations=candidate.space.size(),
                graph_safe=candidate.graph_safe,
                separate=candidate.separate,
            )
            for candidate in op.candidates.values()
        ),
    )
