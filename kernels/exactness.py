"""The proof that a candidate computes what the reference computes.

Each repeat draws fresh random inputs, runs the reference on them, fills the outputs with values
that are wrong in every element, runs the candidate, and compares. It does so twice over: eagerly,
on new tensors each time, and by replaying a recorded call whose input buffers are overwritten
after recording. Bytes around each output are guarded, so a write past the end is found too.

Passing here is necessary for a kernel to be offered to an endpoint trial, and never sufficient:
the endpoint's own canaries and parity still decide.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.difference import Difference, compare
from kernels.ops import Candidate, Case, Op, Tensors, describe_error
from kernels.replay import copy_into, graph_kind, record, synchronize
from kernels.space import Config

if TYPE_CHECKING:
    import torch

GUARD_BYTES = 512
GUARD_VALUE = 0xA5


@dataclass(frozen=True)
class ModeReport:
    """Eager or replayed runs. `repeats` ran; the last one failed when `passed` is False."""

    mode: str
    repeats: int
    passed: bool
    reason: str
    differences: tuple[Difference, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "mode": self.mode,
            "repeats": self.repeats,
            "passed": self.passed,
            "reason": self.reason,
            "differences": [difference.to_json() for difference in self.differences],
        }


@dataclass(frozen=True)
class CheckReport:
    """All modes of one candidate on one case."""

    op: str
    case: str
    candidate: str
    config: dict[str, Any]
    rule: str
    modes: tuple[ModeReport, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Every mode ran and passed."""
        return bool(self.modes) and all(mode.passed for mode in self.modes)

    @property
    def reason(self) -> str:
        """The first failure, or what the proof consisted of."""
        for mode in self.modes:
            if not mode.passed:
                return f"{mode.mode}, repeat {mode.repeats}: {mode.reason}"
        return f"{self.rule.split(':')[0]} over {', '.join(self.mode_counts())}"

    def mode_counts(self) -> list[str]:
        """Repeats per mode, such as `200 x eager`."""
        return [f"{mode.repeats} x {mode.mode}" for mode in self.modes]

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "op": self.op,
            "case": self.case,
            "candidate": self.candidate,
            "config": self.config,
            "rule": self.rule,
            "passed": self.passed,
            "reason": self.reason,
            "modes": [mode.to_json() for mode in self.modes],
            "seconds": self.seconds,
        }


@dataclass
class GuardedOutputs:
    """Output tensors that lie between guard bytes; `poison` makes every element wrong."""

    tensors: Tensors
    buffers: dict[str, torch.Tensor]

    @staticmethod
    def like(templates: Tensors) -> GuardedOutputs:
        """Buffers of the templates' shapes, uninitialised but for their guards."""
        import torch

        tensors: Tensors = {}
        buffers: dict[str, torch.Tensor] = {}
        for name, template in templates.items():
            size = template.numel() * template.element_size()
            buffer = torch.full(
                (size + 2 * GUARD_BYTES,), GUARD_VALUE, dtype=torch.uint8, device=template.device
            )
            inside = buffer[GUARD_BYTES : GUARD_BYTES + size].view(template.dtype)
            tensors[name] = inside.view(template.shape)
            buffers[name] = buffer
        return GuardedOutputs(tensors, buffers)

    def poison(self, expected: Tensors) -> None:
        """NaN in floating outputs, the complement of the right answer in integer ones."""
        import torch

        for name, tensor in self.tensors.items():
            if tensor.is_floating_point():
                tensor.fill_(float("nan"))
            else:
                torch.bitwise_not(expected[name], out=tensor)

    def broken_guard(self) -> str | None:
        """Which output was written past its ends, or None."""
        for name, buffer in self.buffers.items():
            edges = (buffer[:GUARD_BYTES], buffer[-GUARD_BYTES:])
            if any(bool((edge != GUARD_VALUE).any().item()) for edge in edges):
                return f"wrote outside output {name!r}"
        return None


def check_candidate(
    op: Op,
    case: Case,
    candidate: Candidate,
    config: Config,
    device: str,
    *,
    repeats: int,
    seed: int,
) -> CheckReport:
    """Run `repeats` eager and as many replayed comparisons; a mode stops at its first failure."""
    started = time.perf_counter()
    modes = [check_eager(op, case, candidate, config, device, repeats=repeats, seed=seed)]
    if candidate.graph_safe:
        modes.append(
            check_replay(op, case, candidate, config, device, repeats=repeats, seed=seed + 500_000)
        )
    return CheckReport(
        op=op.name,
        case=case.name,
        candidate=candidate.name,
        config=dict(config),
        rule=op.exactness.describe(),
        modes=tuple(modes),
        seconds=time.perf_counter() - started,
    )


def fresh_inputs(op: Op, case: Case, device: str, seed: int) -> Tensors:
    """The op's random inputs for one seed."""
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    return op.make_inputs(case, generator, device)


def check_eager(
    op: Op,
    case: Case,
    candidate: Candidate,
    config: Config,
    device: str,
    *,
    repeats: int,
    seed: int,
) -> ModeReport:
    """New tensors each time, called directly."""
    device_type = device.split(":")[0]
    differences: list[Difference] = []
    for repeat in range(1, repeats + 1):
        inputs = fresh_inputs(op, case, device, seed + repeat)
        kept = {n: t.clone() for n, t in inputs.items()} if repeat == 1 else None
        expected = op.reference(inputs)
        outputs = GuardedOutputs.like(op.make_outputs(case, inputs))
        outputs.poison(expected)
        try:
            candidate.run(inputs, outputs.tensors, config)
            synchronize(device_type)
        except Exception as error:  # noqa: BLE001 -- a candidate may raise anything
            return ModeReport("eager", repeat, False, describe_error(error), ())
        differences = compare(expected, outputs.tensors, op.exactness)
        reason = complaint(differences, outputs, kept, inputs)
        if reason:
            return ModeReport("eager", repeat, False, reason, tuple(differences))
    return ModeReport("eager", repeats, True, "", tuple(differences))


def check_replay(
    op: Op,
    case: Case,
    candidate: Candidate,
    config: Config,
    device: str,
    *,
    repeats: int,
    seed: int,
) -> ModeReport:
    """One recorded call, its buffers overwritten before each replay."""
    device_type = device.split(":")[0]
    mode = graph_kind(device_type)
    static = {n: t.clone() for n, t in fresh_inputs(op, case, device, seed).items()}
    outputs = GuardedOutputs.like(op.make_outputs(case, static))

    def call() -> None:
        candidate.run(static, outputs.tensors, config)

    try:
        recording = record(call, device_type)
    except Exception as error:  # noqa: BLE001 -- a candidate may raise anything
        return ModeReport(mode, 0, False, f"cannot be captured: {describe_error(error)}", ())
    differences: list[Difference] = []
    for repeat in range(1, repeats + 1):
        inputs = fresh_inputs(op, case, device, seed + repeat)
        expected = op.reference(inputs)
        copy_into(static, inputs)
        outputs.poison(expected)
        try:
            recording.replay()
            synchronize(device_type)
        except Exception as error:  # noqa: BLE001 -- a candidate may raise anything
            return ModeReport(mode, repeat, False, describe_error(error), ())
        differences = compare(expected, outputs.tensors, op.exactness)
        reason = complaint(differences, outputs, inputs if repeat == 1 else None, static)
        if reason:
            return ModeReport(mode, repeat, False, reason, tuple(differences))
    return ModeReport(mode, repeats, True, "", tuple(differences))


def complaint(
    differences: list[Difference],
    outputs: GuardedOutputs,
    inputs_before: Tensors | None,
    inputs_after: Tensors,
) -> str | None:
    """The first thing wrong with a run, or None."""
    for difference in differences:
        if not difference.passed:
            return difference.sentence()
    guard = outputs.broken_guard()
    if guard:
        return guard
    if inputs_before is not None:
        for name, tensor in inputs_before.items():
            if not same_bits(tensor, inputs_after[name]):
                return f"changed its input {name!r}"
    return None


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equality that tells -0 from 0 and lets NaN equal itself."""
    import torch

    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
