"""The objective: a document that says what counts as better, and how hard it is to prove.

Every part has the default that suits an accelerator with one stream; `catalog/` holds whole ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from objectives.quality_cases import Expected, Quality
from objectives.workload import Workload

CATALOG = Path(__file__).parent / "catalog"

RungName = Literal["startup", "smoke", "medium", "deep"]
RUNGS: tuple[RungName, ...] = ("startup", "smoke", "medium", "deep")

Metric = Literal[
    "decode_tok_s", "tok_s_99", "end_to_end_tok_s", "output_tok_s", "goodput_rps", "ttft_ms"
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Canary(_Part):
    """A fixed prompt that is decoded greedily many times; every repeat must say the same.

    `expected: control` takes the answer that the control gives, which suits models too small to
    be right. `api` is how it is asked: as a chat turn or as a raw completion.
    """

    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    prompt: str
    api: Literal["chat", "completion"] = "chat"
    max_tokens: int = Field(default=32, ge=1)
    expected: Expected | Literal["control"] = "control"
    json_schema: dict[str, Any] | None = None


class ParityPolicy(_Part):
    """How token-for-token equality with the oracle is asked for.

    `exact`: every token. `known-drift`: exactly `expected_mismatches` mismatches, of these `roles`.
    `bounded`: up to the first place where the reference itself was undecided (its top two tokens
    closer than what self-parity has shown to flip).
    """

    mode: Literal["exact", "known-drift", "bounded"] = "exact"
    output_tokens: int = Field(default=128, ge=1)
    prompts: int = Field(default=12, ge=1, le=16)
    prompt_tokens: int = Field(default=128, ge=1)
    top: int = Field(default=5, ge=2, le=20)
    expected_mismatches: int = Field(default=0, ge=0)
    roles: tuple[str, ...] = ()


class Rung(_Part):
    """One rung of the ladder: how much of each gate it asks for.

    `canary_repeats` 0, `parity_prompts` 0 or `repeats` 0 leaves that gate out of the rung.
    """

    rung: RungName
    repeats: int = Field(default=0, ge=0)
    canary_repeats: int = Field(default=0, ge=0)
    parity_prompts: int = Field(default=0, ge=0)
    quality: bool = False
    ab: bool = False


class Slo(_Part):
    """A service-level objective: `statistic` of `metric`, in ms, is `at_most` that much."""

    metric: Literal["ttft_ms", "itl_ms", "e2e_ms"]
    statistic: Literal["mean", "p50", "p90", "p95", "p99", "max"] = "p95"
    at_most: float = Field(gt=0)

    @property
    def name(self) -> str:
        """What the gate of this objective is called."""
        return f"slo.{self.metric}.{self.statistic}"


class AdjacentControl(_Part):
    """How the gain over the control is proven.

    A control session stands before and after each candidate session. While the interval straddles
    the bound, another candidate and control session may follow, up to `max_candidate_sessions`.
    `prospect`: with less than this chance of ever proving the gain, the trial stops as futile.
    `prior_sessions`: how many sessions the stated `session_drift` is worth as evidence.
    """

    max_candidate_sessions: int = Field(default=3, ge=1, le=10)
    prospect: float = Field(default=0.08, ge=0, lt=1)
    prior_sessions: float = Field(default=4, gt=0)


class Attribution(_Part):
    """When the control counts as adjacent, and how deep it has to follow a failing candidate."""

    control_max_age_s: float = Field(default=3600.0, gt=0)


class Objective(_Part):
    """What counts as better.

    `minimal_effect`: the gain below which a change is not worth having, as a share.
    `session_drift`: how far, as a share, two server sessions of one identity lie apart; about 19
    in 20 pairs stay within it. `speed_floor`: a rate that nothing may fall below, in the metric's
    unit.
    """

    name: str
    description: str = ""
    metric: Metric = "decode_tok_s"
    direction: Literal["maximize", "minimize"] = "maximize"
    workload: Workload
    minimal_effect: float = Field(default=0.005, ge=0)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    session_drift: float = Field(default=0.02, ge=0)
    speed_floor: float | None = Field(default=None, gt=0)
    slos: tuple[Slo, ...] = ()
    canaries: tuple[Canary, ...] = ()
    quality: Quality = Quality()
    parity: ParityPolicy = ParityPolicy()
    ladder: tuple[Rung, ...]
    ab: AdjacentControl = AdjacentControl()
    attribution: Attribution = Attribution()

    @model_validator(mode="after")
    def _consistent(self) -> Objective:
        places = [RUNGS.index(rung.rung) for rung in self.ladder]
        if not places or places != sorted(set(places)):
            raise ValueError("the ladder lists rungs from cheap to dear, each at most once")
        names = [canary.name for canary in self.canaries]
        if len(names) != len(set(names)):
            raise ValueError("two canaries have the same name")
        if self.metric == "ttft_ms" and self.direction != "minimize":
            raise ValueError("metric ttft_ms needs direction: minimize")
        if self.metric != "ttft_ms" and self.direction != "maximize":
            raise ValueError(f"metric {self.metric} needs direction: maximize")
        if self.metric in ("output_tok_s", "goodput_rps") and not self.workload.is_concurrent:
            raise ValueError(f"metric {self.metric} needs a workload with streams > 1 or a rate")
        if self.metric == "goodput_rps" and not self.slos:
            raise ValueError("metric goodput_rps needs slos: it counts the requests within them")
        return self

    def rung(self, name: str) -> Rung | None:
        """The rung of that name, or None where the ladder has none."""
        return next((rung for rung in self.ladder if rung.rung == name), None)

    @property
    def deepest(self) -> Rung:
        """The last rung, whose gates acceptance needs."""
        return self.ladder[-1]

    def gate_names(self, rung: Rung) -> tuple[str, ...]:
        """Names of the gates that a rung asks for, in the order of the document."""
        names: list[str] = []
        if rung.repeats:
            names += ["speed", *(slo.name for slo in self.slos)]
        if rung.parity_prompts:
            names.append("parity")
        if rung.canary_repeats:
            names += [f"canary.{canary.name}" for canary in self.canaries]
        if rung.quality:
            names += [f"quality.{name}" for name in self.quality_names()]
        if rung.ab:
            names.append("ab")
        return tuple(names)

    def quality_names(self) -> tuple[str, ...]:
        """Names of the cases of the quality suite, without their prefix."""
        return self.quality.names()
