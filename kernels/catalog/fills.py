"""Random data for inputs: the ordinary, and the awkward that quantisation trips over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FILLS = ("normal", "zero_rows", "outlier", "ties", "tiny")


def fill(shape: tuple[int, ...], kind: str, rng: torch.Generator, device: str) -> torch.Tensor:
    """BF16 values of one kind.

    `normal`; with all-zero rows; with one huge value per row; with values that lie exactly
    between two INT8 steps; so small that the scale's lower limit matters.
    """
    import torch

    x = torch.randn(shape, generator=rng, device=device)
    if kind == "zero_rows":
        dead = torch.rand((shape[0], 1), generator=rng, device=device) < 0.5
        x = torch.where(dead, torch.zeros_like(x), x)
    elif kind == "outlier":
        x[:, 0] = 3000.0
    elif kind == "ties":
        x = torch.randint(-253, 254, shape, generator=rng, device=device).float() / 4
        x[:, 0] = TIE_ROW_MAX
    elif kind == "tiny":
        x = x * 1e-12
    elif kind != "normal":
        raise ValueError(f"no fill {kind!r}; known are {', '.join(FILLS)}")
    return x.to(torch.bfloat16)


TIE_ROW_MAX = 63.5
"""With this row maximum one INT8 step is 0.5, so every odd multiple of 0.25 is a tie, and BF16
holds all of those exactly."""


def int8(shape: tuple[int, ...], rng: torch.Generator, device: str) -> torch.Tensor:
    """Uniform INT8 in -127..127 (symmetric quantisation never makes -128)."""
    import torch

    return torch.randint(-127, 128, shape, generator=rng, device=device, dtype=torch.int8)


def scales(shape: tuple[int, ...], about: float, rng: torch.Generator, device: str) -> torch.Tensor:
    """Positive float32 scales between half and one and a half times `about`."""
    import torch

    return about * (0.5 + torch.rand(shape, generator=rng, device=device))
