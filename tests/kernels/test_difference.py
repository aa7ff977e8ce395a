"""What counts as the same answer."""

from __future__ import annotations

import torch

from kernels import BitExact, Bound
from kernels.difference import Difference, compare_one

EXACT = BitExact("test")


def differ(want: torch.Tensor, have: torch.Tensor, rule: BitExact | Bound = EXACT) -> Difference:
    return compare_one("y", want, have, rule)


def test_nan_never_passes_not_even_where_the_reference_is_nan() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    for rule in (EXACT, Bound(10**9, "test")):
        assert not differ(nan, nan.clone(), rule).passed
        assert not differ(torch.ones(2), nan, rule).passed


def test_the_first_differing_index_is_row_major_and_carries_both_values() -> None:
    want = torch.zeros((3, 4), dtype=torch.int8)
    have = want.clone()
    have[1, 2], have[2, 0] = 5, -7
    found = differ(want, have)
    assert (found.first_index, found.expected, found.got) == ((1, 2), 0.0, 5.0)
    assert (found.mismatching, found.max_difference) == (2, 7.0)


def test_a_negative_zero_is_not_bit_exact_but_within_any_bound() -> None:
    zero, negative = torch.tensor([0.0]), torch.tensor([-0.0])
    assert not differ(zero, negative).passed
    assert differ(zero, negative, Bound(0, "test")).passed


def test_a_bound_counts_representable_values_also_across_zero() -> None:
    one = torch.tensor([1.0, 1.0], dtype=torch.bfloat16)
    next_up = torch.tensor([1.0, 1.0 + 2**-7], dtype=torch.bfloat16)
    assert differ(one, next_up, Bound(1, "test")).max_ulp == 1
    assert not differ(one, next_up, Bound(0, "test")).passed
    tiny = torch.tensor([2**-149], dtype=torch.float32)
    assert differ(tiny, -tiny, Bound(2, "test")).passed
    assert not differ(tiny, -tiny, Bound(1, "test")).passed


def test_another_shape_or_dtype_fails_as_a_whole() -> None:
    assert not differ(torch.ones(2), torch.ones(3)).passed
    assert not differ(torch.ones(2), torch.ones(2, dtype=torch.float64)).passed
