"""What a tune stands on: one op, case and candidate on one device, and all that decides a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.bundle import build_worker
from kernels.checking import candidate_or_default, described
from kernels.isolation import KernelWorker, WorkerSettings
from kernels.listing import pick_ops
from kernels.ops import Candidate, Case, KernelError, Op
from kernels.space import Config, DeviceLimits, Value


@dataclass(frozen=True)
class Ground:
    """`identity` is the device with its driver and versions, `limits` what one of its units holds.

    `sources_sha` is the SHA-256 of this package and of the op files: other code, other results.
    """

    op: Op
    case: Case
    candidate: Candidate
    identity: dict[str, Any]
    limits: DeviceLimits
    sources_sha: str

    def refusal(self, config: Config) -> str | None:
        """Why a configuration may not run here, or None when it is legal."""
        return self.candidate.space.refusal(config, self.case.params, self.limits)

    def legal(self, only: Mapping[str, Sequence[Value]] | None = None) -> list[dict[str, Value]]:
        """Every legal configuration whose values are among those that `only` names.

        Raises KernelError when there is none.
        """
        configs = [
            config
            for config in self.candidate.space.legal(self.case.params, self.limits)
            if all(config.get(name) in values for name, values in (only or {}).items())
        ]
        if not configs:
            raise KernelError(
                f"no configuration of {self.candidate.name!r} is legal for {self.case.name}"
            )
        return configs

    def start(self, only: Mapping[str, Sequence[Value]] | None = None) -> dict[str, Value]:
        """The candidate's default configuration where `legal` has it, else the first legal one."""
        configs = self.legal(only)
        default = dict(self.candidate.space.default)
        return default if default in configs else configs[0]


def ground_of(
    op_name: str,
    case: str | Case,
    *,
    candidate: str | None = None,
    settings: WorkerSettings | None = None,
) -> Ground:
    """Start a worker for long enough to learn on what a tune with these settings would stand.

    Raises KernelError for names that do not exist and for a candidate that cannot run there.
    """
    with KernelWorker(settings or WorkerSettings()) as worker:
        return ground_on(worker, op_name, case, candidate)


def ground_on(
    worker: KernelWorker, op_name: str, case: str | Case, candidate: str | None
) -> Ground:
    """The same, by a worker that is there; names are looked up before it is asked anything."""
    op_files = worker.settings.op_files
    op = pick_ops([op_name], op_files)[0]
    chosen = op.case(case) if isinstance(case, str) else case
    picked = candidate_or_default(op, candidate)
    seen = described(worker)
    missing = seen["candidates"][op.name][picked.name]
    if missing:
        raise KernelError(f"candidate {picked.name!r} of {op.name} cannot be tuned: {missing}")
    return Ground(
        op,
        chosen,
        picked,
        seen["identity"],
        DeviceLimits.from_json(seen["limits"]),
        sources_sha(op_files),
    )


def sources_sha(op_files: Iterable[str]) -> str:
    """SHA-256 over the worker, whose name holds the hash of its contents, and the op files."""
    digest = hashlib.sha256(build_worker().name.encode())
    for path in op_files:
        digest.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return digest.hexdigest()
