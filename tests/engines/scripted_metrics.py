"""What the scripted server tells about itself: counters as vLLM names them, and its settings."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Counts:
    """What has happened so far; times are in seconds."""

    requests: int = 0
    streams: int = 0
    generated: int = 0
    prompted: int = 0
    ttft: list[float] = field(default_factory=list)
    itl: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)


def server_info(model: str, flags: argparse.Namespace) -> dict[str, Any]:
    """The resolved configuration; what --ignore-flag names keeps vLLM's default."""

    def resolved(name: str, default: Any) -> Any:
        value = getattr(flags, name.replace("-", "_"))
        return default if value is None or name in flags.ignore_flag else value

    return {
        "vllm_config": {
            "model_config": {
                "model": flags.model or flags.model_path,
                "served_model_name": model,
                "seed": resolved("seed", 0),
                "dtype": f"torch.{resolved('dtype', 'bfloat16')}",
                "max_model_len": flags.max_model_len,
                "enforce_eager": resolved("enforce-eager", False),
                "quantization": resolved("quantization", None),
            },
            "cache_config": {
                "enable_prefix_caching": resolved("enable-prefix-caching", True),
                "cache_dtype": resolved("kv-cache-dtype", "auto"),
                "block_size": resolved("block-size", 128),
            },
            "scheduler_config": {
                "max_num_seqs": flags.max_num_seqs,
                "async_scheduling": resolved("async-scheduling", True),
                "max_num_batched_tokens": resolved("max-num-batched-tokens", 2048),
            },
            "parallel_config": {"tensor_parallel_size": resolved("tensor-parallel-size", 1)},
            "speculative_config": resolved("speculative-config", None),
            "compilation_config": resolved("compilation-config", {}),
        },
        "vllm_env": {name: value for name, value in os.environ.items() if name.startswith("VLLM_")},
        "system_env": {"python": sys.version.split()[0]},
    }


def metrics_text(model: str, flags: argparse.Namespace, counts: Counts) -> str:
    """Prometheus text under vLLM's names."""
    label = f'{{engine="0",model_name="{model}"}}'
    counters = {
        "generation_tokens_total": counts.generated,
        "prompt_tokens_total": counts.prompted,
        "prompt_tokens_cached_total": flags.cached_tokens * counts.requests,
        "prefix_cache_queries_total": counts.prompted,
        "prefix_cache_hits_total": flags.cached_tokens * counts.requests,
    }
    if flags.spec_drafts or flags.speculative_config:
        counters |= {
            "spec_decode_num_drafts_total": flags.spec_drafts,
            "spec_decode_num_draft_tokens_total": flags.spec_drafts,
            "spec_decode_num_accepted_tokens_total": flags.spec_accepted,
        }
    lines = []
    for name, value in counters.items():
        lines += [
            f"# TYPE vllm:{name.removesuffix('_total')} counter",
            f"vllm:{name}{label} {float(value)}",
        ]
    gauges = {
        "num_requests_running": counts.streams,
        "num_requests_waiting": 0,
        "kv_cache_usage_perc": 0.0,
    }
    for name, gauge in gauges.items():
        lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{label} {float(gauge)}"]
    histograms = {
        "time_to_first_token_seconds": counts.ttft,
        "inter_token_latency_seconds": counts.itl,
        "request_time_per_output_token_seconds": counts.itl,
        "e2e_request_latency_seconds": counts.e2e,
        "request_prefill_time_seconds": counts.ttft,
        "request_decode_time_seconds": [
            whole - first for whole, first in zip(counts.e2e, counts.ttft, strict=False)
        ],
        "request_queue_time_seconds": [0.0] * len(counts.e2e),
        "request_inference_time_seconds": counts.e2e,
    }
    for name, values in histograms.items():
        lines.append(f"# TYPE vllm:{name} histogram")
        for bound in (0.001, 0.01, 0.1, 1.0, 10.0, float("inf")):
            edge = "+Inf" if bound == float("inf") else bound
            count = sum(v <= bound for v in values)
            lines.append(
                f'vllm:{name}_bucket{{engine="0",le="{edge}",model_name="{model}"}} {float(count)}'
            )
        lines += [
            f"vllm:{name}_sum{label} {sum(values)}",
            f"vllm:{name}_count{label} {float(len(values))}",
        ]
    return "\n".join(lines) + "\n"
