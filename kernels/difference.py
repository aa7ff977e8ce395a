"""How two tensors differ: by how much, in how many elements, where first. NaN never passes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kernels.ops import BitExact, Exactness, Tensors

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Difference:
    """One output of one run against the reference's.

    `first_index` is 0-based and row-major; `expected` and `got` are the values there.
    `max_ulp` counts representable values between the two and is 0 for integer outputs.
    """

    output: str
    elements: int
    mismatching: int
    max_difference: float
    max_ulp: int
    nan: int
    first_index: tuple[int, ...] | None
    expected: float | None
    got: float | None
    passed: bool

    def sentence(self) -> str:
        """What differs, how much, and where first."""
        if self.passed:
            return f"{self.output}: {self.elements} elements agree"
        at = "" if self.first_index is None else f", first at {list(self.first_index)}"
        values = "" if self.expected is None else f" ({self.got} instead of {self.expected})"
        nan = f", {self.nan} NaN" if self.nan else ""
        return (
            f"{self.output}: {self.mismatching} of {self.elements} elements differ{nan}, "
            f"by up to {self.max_difference:.6g}{at}{values}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON; what is not finite becomes text."""
        data = asdict(self)
        for key in ("max_difference", "expected", "got"):
            value = data[key]
            if value is not None and not math.isfinite(value):
                data[key] = str(value)
        return data


def compare(expected: Tensors, got: Tensors, rule: Exactness) -> list[Difference]:
    """Compare every output; the list has the reference's order."""
    return [compare_one(name, want, got[name], rule) for name, want in expected.items()]


def compare_one(name: str, want: torch.Tensor, have: torch.Tensor, rule: Exactness) -> Difference:
    """Compare one output under the op's rule. A shape or dtype that differs fails as a whole."""
    import torch

    if want.shape != have.shape or want.dtype != have.dtype:
        return Difference(name, want.numel(), want.numel(), math.inf, 0, 0, None, None, None, False)
    if not want.is_floating_point():
        return finish(name, want, have, want != have, torch.zeros((), dtype=torch.int64), 0)
    want_bits, have_bits = ordered_bits(want), ordered_bits(have)
    ulp = (want_bits - have_bits).abs()
    nan = torch.isnan(have) | torch.isnan(want)
    if isinstance(rule, BitExact):
        wrong = (bits(want) != bits(have)) | nan
    else:
        wrong = (ulp > rule.max_ulp) | nan
    counted = torch.where(nan, torch.zeros_like(ulp), ulp)
    largest_ulp = counted.max() if counted.numel() else counted.sum()
    return finish(name, want, have, wrong, largest_ulp, int(nan.sum().item()))


def finish(
    name: str,
    want: torch.Tensor,
    have: torch.Tensor,
    wrong: torch.Tensor,
    largest_ulp: torch.Tensor,
    nan: int,
) -> Difference:
    """Count, measure and locate the elements marked wrong."""
    import torch

    mismatching = int(wrong.sum().item())
    # Bits may differ where no element is counted wrong (a bound), so the size is always reported.
    gap = (want.double() - have.double()).abs()
    gap = torch.where(torch.isnan(gap), torch.zeros_like(gap), gap)
    largest = float(gap.max().item()) if gap.numel() else 0.0
    first: tuple[int, ...] | None = None
    want_there = have_there = None
    if mismatching:
        flat = int(wrong.flatten().to(torch.uint8).argmax().item())
        first = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), want.shape))
        want_there = float(want[first].item())
        have_there = float(have[first].item())
    return Difference(
        output=name,
        elements=want.numel(),
        mismatching=mismatching,
        max_difference=largest,
        max_ulp=int(largest_ulp.item()),
        nan=nan,
        first_index=first,
        expected=want_there,
        got=have_there,
        passed=mismatching == 0,
    )


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bit patterns of a floating tensor as signed integers of the same width."""
    import torch

    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(width)


def ordered_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Integers in which neighbouring representable values are neighbours, -0 and +0 both 0."""
    import torch

    pattern = bits(tensor).to(torch.int64)
    magnitude_mask = (1 << (8 * tensor.element_size() - 1)) - 1
    return torch.where(pattern < 0, -(pattern & magnitude_mask), pattern)
