"""Kernels: prove a configuration of an op exact, measure its speed, search its meta-parameters.

`list_ops`, `check`, `bench` and `tune` are the verbs. `op` registers a new op by decorating its
reference; candidates are added to it by `@my_op.candidate(...)`.
"""

from kernels.benching import BenchRow, BenchTable, bench
from kernels.ceilings import Ceilings
from kernels.checking import CheckRow, CheckTable, check, self_test
from kernels.faults import FaultOutcome
from kernels.ground import Ground, ground_of
from kernels.isolation import KernelWorker, Reply, WorkerSettings
from kernels.listing import CandidateInfo, OpInfo, list_ops
from kernels.ops import REGISTRY, BitExact, Bound, Candidate, Case, Cost, KernelError, Op, op
from kernels.records import TrialTable, read_table, write_table
from kernels.routing import MoeShape, captured_cases
from kernels.space import Constraint, DeviceLimits, Space
from kernels.tuning import Exhaustive, KernelTrial, Proposer, TuneResult, legal_configs, tune
from kernels.vllm_config import endpoint_knob, write_fused_moe_config

__all__ = [
    "REGISTRY",
    "BenchRow",
    "BenchTable",
    "BitExact",
    "Bound",
    "Candidate",
    "CandidateInfo",
    "Case",
    "Ceilings",
    "CheckRow",
    "CheckTable",
    "Constraint",
    "Cost",
    "DeviceLimits",
    "Exhaustive",
    "FaultOutcome",
    "Ground",
    "KernelError",
    "KernelTrial",
    "KernelWorker",
    "MoeShape",
    "Op",
    "OpInfo",
    "Proposer",
    "Reply",
    "Space",
    "TrialTable",
    "TuneResult",
    "WorkerSettings",
    "bench",
    "captured_cases",
    "check",
    "endpoint_knob",
    "ground_of",
    "legal_configs",
    "list_ops",
    "op",
    "read_table",
    "self_test",
    "tune",
    "write_fused_moe_config",
    "write_table",
]
