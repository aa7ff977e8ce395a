"""What counts as better: decode rate, canaries, quality, parity, and how sure one can be."""

from objectives.ab import ABPlan, ab_gate, ab_plan, gate_of_plan
from objectives.canary import CanaryBaseline, canary_gate, learn_canary
from objectives.comparison import Effect, Session, learn_noise
from objectives.depth import deep_repeats
from objectives.endpoint import Endpoint, EndpointError
from objectives.engine_view import EngineView
from objectives.gate import GateKind, GateResult, GateStatus, Progress
from objectives.measure import measure_interleaved, measure_rate
from objectives.objective import (
    CATALOG,
    Attribution,
    Canary,
    Objective,
    ParityPolicy,
    Rung,
    Slo,
)
from objectives.oracle import Oracle, SelfParity, record_oracle, self_parity, self_parity_gate
from objectives.ordering import GateHistory, PlannedGate, order_gates
from objectives.parity import parity_gate
from objectives.providers import ProviderError, read_guidellm, read_vllm_bench
from objectives.quality import QualityBaseline, quality_gates, record_quality
from objectives.rate import Rate, Repeat
from objectives.speed import slo_gates, speed_gate
from objectives.statistics import Noise, Percentiles, Summary, corruption_bound
from objectives.workload import Workload

__all__ = [
    "CATALOG",
    "ABPlan",
    "Attribution",
    "Canary",
    "CanaryBaseline",
    "Effect",
    "Endpoint",
    "EndpointError",
    "EngineView",
    "GateHistory",
    "GateKind",
    "GateResult",
    "GateStatus",
    "Noise",
    "Objective",
    "Oracle",
    "ParityPolicy",
    "Percentiles",
    "PlannedGate",
    "Progress",
    "ProviderError",
    "QualityBaseline",
    "Rate",
    "Repeat",
    "Rung",
    "SelfParity",
    "Session",
    "Slo",
    "Summary",
    "Workload",
    "ab_gate",
    "ab_plan",
    "canary_gate",
    "corruption_bound",
    "deep_repeats",
    "gate_of_plan",
    "learn_canary",
    "learn_noise",
    "measure_interleaved",
    "measure_rate",
    "order_gates",
    "parity_gate",
    "quality_gates",
    "read_guidellm",
    "read_vllm_bench",
    "record_oracle",
    "record_quality",
    "self_parity",
    "self_parity_gate",
    "slo_gates",
    "speed_gate",
]
