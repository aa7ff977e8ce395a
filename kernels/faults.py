# ruff: noqa: ARG001 -- a faulty candidate takes what every candidate takes
"""Does the checker catch what it must? Candidates with planted faults, and sound ones that pass.

Each fault is one that real kernels have had. `self_test` fails when a single fault gets through,
and also when a sound candidate is refused, because a checker that refuses everything proves
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels import catalog
from kernels.catalog import steps
from kernels.exactness import CheckReport, check_candidate
from kernels.ops import REGISTRY, Candidate, Run, Tensors
from kernels.space import Config

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Fault:
    """A planted fault: which op and case show it, and how to make the faulty candidate."""

    name: str
    what: str
    op: str
    case: str
    make: Callable[[Run], Run]


@dataclass(frozen=True)
class FaultOutcome:
    """One line of the self-test. For a sound candidate `expected` is "passes", else "caught"."""

    name: str
    what: str
    op: str
    case: str
    expected: str
    as_expected: bool
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(self.__dict__)


SOUND = {
    "silu_mul_quant_int8": "torch_steps",
    "per_token_quant_int8": "torch_steps",
    "grouped_gemm_w8a8": "torch_gathered",
    "expert_offsets": "torch_cumsum",
    "greedy_top1": "torch_argmax",
    "rms_norm": "torch_steps",
}


def stale_input(run: Run) -> Run:
    """Keeps a copy of what an input buffer held when it was first seen."""
    seen: dict[tuple[int, int], torch.Tensor] = {}

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        kept = {
            name: seen.setdefault((tensor.data_ptr(), tensor.numel()), tensor.clone())
            for name, tensor in inputs.items()
        }
        run(kept, outputs, config)

    return faulty


def shifted_offset(run: Run) -> Run:
    """Every inner offset is one too large: a boundary row meets its neighbour's weights."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        shifted = inputs["offsets"].clone()
        shifted[1:-1] = (shifted[1:-1] + 1).clamp(max=inputs["a"].shape[0])
        run({**inputs, "offsets": shifted}, outputs, config)

    return faulty


def unwritten_tile(run: Run) -> Run:
    """The last 16 columns of the last row are never written."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        whole = {name: tensor.clone() for name, tensor in outputs.items()}
        run(inputs, whole, config)
        for name, tensor in outputs.items():
            tensor[:-1] = whole[name][:-1]
            tensor[-1, :-16] = whole[name][-1, :-16]

    return faulty


def no_rounding_between(run: Run) -> Run:
    """SiLU and the product stay in float32, as a fused kernel does when nobody looks."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        q, scale = steps.quantize_per_token(steps.silu_and_mul(inputs["gate_up"].float()))
        outputs["q"].copy_(q)
        outputs["scale"].copy_(scale)

    return faulty


def truncation(run: Run) -> Run:
    """Rounds towards zero instead of to the nearest."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        import torch

        run(inputs, outputs, config)
        outputs["q"].copy_(torch.trunc(inputs["x"].float() / outputs["scale"]))

    return faulty


def ties_away(run: Run) -> Run:
    """Rounds ties away from zero instead of to even."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        import torch

        run(inputs, outputs, config)
        steps_away = inputs["x"].float() / outputs["scale"]
        outputs["q"].copy_(torch.trunc(steps_away + 0.5 * torch.sign(steps_away)))

    return faulty


def no_leading_zero(run: Run) -> Run:
    """The first offset is left as it was found."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        first = outputs["offsets"][:1].clone()
        run(inputs, outputs, config)
        outputs["offsets"][:1] = first

    return faulty


def empty_experts_forgotten(run: Run) -> Run:
    """Counts only experts that have rows, as if every expert had some."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        import torch

        counts = inputs["rows_per_expert"]
        # A stable sort of "is empty" moves the experts with rows to the front.
        order = torch.sort((counts == 0).to(torch.int8), stable=True).indices
        run({"rows_per_expert": counts[order]}, outputs, config)

    return faulty


def rare_race(run: Run) -> Run:
    """One run in 37 loses an element, as an unlucky interleaving would."""
    runs = 0

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        nonlocal runs
        runs += 1
        run(inputs, outputs, config)
        if runs % 37 == 0:
            outputs["q"][-1, -1] ^= 1

    return faulty


def not_a_number(run: Run) -> Run:
    """One element is NaN; a comparison that asks `difference > bound` would let it through."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        run(inputs, outputs, config)
        outputs["y"][-1, -1] = float("nan")

    return faulty


def write_past_the_end(run: Run) -> Run:
    """Writes one element behind an output; every element of the output itself is right."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        run(inputs, outputs, config)
        q = outputs["q"]
        q.as_strided((1,), (1,), q.storage_offset() + q.numel()).fill_(3)

    return faulty


def input_overwritten(run: Run) -> Run:
    """Uses an input as scratch space."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        run(inputs, outputs, config)
        inputs["gate_up"][:1].mul_(2)

    return faulty


def last_of_ties(run: Run) -> Run:
    """Of equal logits the highest token number wins."""

    def faulty(inputs: Tensors, outputs: Tensors, config: Config) -> None:
        logits = inputs["logits"]
        run({"logits": logits.flip(1)}, outputs, config)
        outputs["token"].neg_().add_(logits.shape[1] - 1)

    return faulty


FAULTS = (
    Fault("stale_input", "a stale captured input", "silu_mul_quant_int8", "r8_i128_normal",
          stale_input),
    Fault("stale_routes", "stale captured offsets and weights", "grouped_gemm_w8a8",
          "decode_like_sparse_gemm1", stale_input),
    Fault("shifted_offset", "an off-by-one offset", "grouped_gemm_w8a8", "dense_small_gemm1",
          shifted_offset),
    Fault("unwritten_tile", "an unwritten tile", "grouped_gemm_w8a8", "tiny_sparse_gemm2",
          unwritten_tile),
    Fault("no_rounding_between", "no BF16 rounding between the steps", "silu_mul_quant_int8",
          "r64_i128_normal", no_rounding_between),
    Fault("truncation", "rounding towards zero", "per_token_quant_int8", "r8_w128_normal",
          truncation),
    Fault("ties_away", "ties rounded away from zero", "per_token_quant_int8", "r16_w256_ties",
          ties_away),
    Fault("no_leading_zero", "the leading 0 is not written", "expert_offsets", "tiny_sparse",
          no_leading_zero),
    Fault("empty_experts_forgotten", "experts without rows are skipped", "expert_offsets",
          "decode_like_sparse", empty_experts_forgotten),
    Fault("rare_race", "one wrong run in 37", "silu_mul_quant_int8", "r1_i128_normal", rare_race),
    Fault("not_a_number", "one NaN", "rms_norm", "r3_h576", not_a_number),
    Fault("write_past_the_end", "a write behind the output", "silu_mul_quant_int8",
          "r5_i33_normal", write_past_the_end),
    Fault("input_overwritten", "an input used as scratch", "silu_mul_quant_int8",
          "r8_i128_normal", input_overwritten),
    Fault("last_of_ties", "a tie goes to the highest index", "greedy_top1", "t3_small",
          last_of_ties),
)  # fmt: skip


def self_test(device: str, *, repeats: int, seed: int) -> list[FaultOutcome]:
    """Run every fault and every sound candidate; `repeats` must reach the rare race (37)."""
    catalog.load()
    outcomes = []
    for fault in FAULTS:
        sound = REGISTRY[fault.op].pick(SOUND[fault.op])
        faulty = Candidate(fault.name, fault.make(sound.run), graph_safe=sound.graph_safe)
        report = run_check(fault, faulty, device, repeats, seed)
        outcomes.append(judge(fault, "caught", report, not report.passed))
    for fault in {(f.op, f.case): f for f in FAULTS}.values():
        report = run_check(fault, REGISTRY[fault.op].pick(SOUND[fault.op]), device, repeats, seed)
        outcomes.append(judge(fault, "passes", report, report.passed))
    return outcomes


def run_check(
    fault: Fault, candidate: Candidate, device: str, repeats: int, seed: int
) -> CheckReport:
    """Check one candidate on the fault's op and case."""
    op = REGISTRY[fault.op]
    case = op.case(fault.case)
    return check_candidate(op, case, candidate, {}, device, repeats=repeats, seed=seed)


def judge(fault: Fault, expected: str, report: CheckReport, as_expected: bool) -> FaultOutcome:
    """The outcome of a check as a line of the self-test."""
    sound = expected == "passes"
    return FaultOutcome(
        name=report.candidate if sound else fault.name,
        what="a sound candidate" if sound else fault.what,
        op=fault.op,
        case=fault.case,
        expected=expected,
        as_expected=as_expected,
        reason=report.reason,
    )
