"""Which expert gets which token: random patterns, and routes read from a JSONL capture.

A route table is `tokens` lists of `top_k` distinct expert numbers, 0-based and local to the device.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.ops import Case, KernelError

if TYPE_CHECKING:
    import torch

PATTERNS = ("uniform", "one_hot", "sparse", "dense")


@dataclass(frozen=True)
class MoeShape:
    """Sizes of one mixture-of-experts layer as one device of a split model sees it."""

    experts: int
    hidden: int
    intermediate: int
    top_k: int


def moe_case(name: str, shape: MoeShape, tokens: int, pattern: str) -> Case:
    """A case of a MoE op; raises KernelError for an unknown pattern."""
    if pattern not in PATTERNS:
        raise KernelError(f"no routing pattern {pattern!r}; known are {', '.join(PATTERNS)}")
    return Case(
        name,
        {
            "experts": shape.experts,
            "hidden": shape.hidden,
            "intermediate": shape.intermediate,
            "top_k": shape.top_k,
            "tokens": tokens,
            "pattern": pattern,
        },
    )


DECODE_SHAPE = MoeShape(experts=256, hidden=2048, intermediate=128, top_k=8)
"""One decode step of a model split four ways: 256 experts, 8 selected, all others zero rows."""

SMALL_CASES = (
    moe_case("tiny_sparse", MoeShape(8, 64, 32, 2), 2, "uniform"),
    moe_case("one_hot_expert", MoeShape(8, 128, 64, 1), 19, "one_hot"),
    moe_case("decode_like_sparse", MoeShape(64, 256, 64, 4), 4, "sparse"),
    moe_case("dense_small", MoeShape(4, 128, 64, 2), 33, "dense"),
)

DECODE_CASES = tuple(
    moe_case(f"decode_tp4_t{tokens}", DECODE_SHAPE, tokens, "uniform")
    for tokens in (1, 2, 4, 8, 16, 32, 64)
)

MOE_CASES = SMALL_CASES + DECODE_CASES


def draw_routes(case: Case, rng: torch.Generator, device: str) -> torch.Tensor:
    """Expert numbers, int32 [tokens, top_k]: fresh by the case's pattern, or one captured table."""
    import torch

    captured = case.get("routes", None)
    if captured:
        pick = int(torch.randint(len(captured), (), generator=rng, device=device).item())
        return torch.tensor(captured[pick], dtype=torch.int32, device=device)
    experts, tokens, top_k = case["experts"], case["tokens"], case["top_k"]
    pattern = case["pattern"]
    if pattern == "one_hot":
        hot = torch.randint(experts, (1,), generator=rng, device=device)
        return hot.expand(tokens, top_k).to(torch.int32).contiguous()
    score = torch.rand((tokens, experts), generator=rng, device=device)
    if pattern == "sparse":
        favoured = torch.rand((1, experts), generator=rng, device=device)
        score = score * 0.1 + favoured
    if pattern == "dense":
        # Token i is sure to visit expert i mod experts, so no expert is left without rows.
        turn = torch.arange(tokens, device=device) % experts
        score[torch.arange(tokens, device=device), turn] += 1.0
    return score.topk(top_k, dim=1).indices.to(torch.int32)


def offsets_of(routes: torch.Tensor, experts: int) -> torch.Tensor:
    """int64 [experts + 1]: leading 0, then the inclusive prefix of rows per expert."""
    import torch

    counts = torch.bincount(routes.flatten().long(), minlength=experts)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def read_routes(
    path: str | Path, *, layer: str | None = None, limit: int = 256
) -> dict[int, list[list[list[int]]]]:
    """Route tables of a capture by number of tokens.

    Each line is a JSON object with `topk_ids` (tokens x top_k integers) and optionally `layer`;
    `layer` keeps only the lines whose layer contains that text. Raises KernelError naming the
    line when one cannot be read.
    """
    tables: dict[int, list[list[list[int]]]] = {}
    kept = 0
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip() or kept >= limit:
                continue
            record = parse_route_line(path, number, line)
            if layer is not None and layer not in str(record.get("layer", "")):
                continue
            table = record["topk_ids"]
            tables.setdefault(len(table), []).append(table)
            kept += 1
    if not tables:
        raise KernelError(f"{path} holds no routes" + (f" of layer {layer!r}" if layer else ""))
    return tables


def parse_route_line(path: str | Path, number: int, line: str) -> Mapping[str, Any]:
    """One line of a capture; raises KernelError naming file and line."""
    try:
        record = json.loads(line)
        table = record["topk_ids"]
        widths = {len(row) for row in table}
        whole = all(isinstance(i, int) and i >= 0 for row in table for i in row)
    except (ValueError, KeyError, TypeError) as error:
        raise KernelError(
            f"{path}, line {number}: not a route ({error}); "
            'a line is {"topk_ids": [[3, 7], [1, 3]]}'
        ) from error
    if len(widths) != 1 or not whole:
        raise KernelError(
            f"{path}, line {number}: topk_ids must be lists of equally many expert numbers"
        )
    return dict(record)


def captured_cases(path: str | Path, shape: MoeShape, *, layer: str | None = None) -> list[Case]:
    """One case per number of tokens in a capture; each repeat draws one of its route tables."""
    cases = []
    for tokens, tables in sorted(read_routes(path, layer=layer).items()):
        check_tables(path, tables, shape)
        base = moe_case(f"captured_t{tokens}", shape, tokens, "uniform")
        cases.append(Case(base.name, {**base.params, "routes": tables}))
    return cases


def check_tables(path: str | Path, tables: Iterable[list[list[int]]], shape: MoeShape) -> None:
    """Raise KernelError when a route does not fit the layer's shape."""
    for table in tables:
        for row in table:
            if len(row) != shape.top_k or max(row) >= shape.experts:
                raise KernelError(
                    f"{path} holds a token routed to {row}, which does not fit "
                    f"{shape.experts} experts with {shape.top_k} selected"
                )
