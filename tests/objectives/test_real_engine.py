"""The gates on the real engine (vLLM-CPU): they say what a comparison by hand says.

Every session is a server of its own. Run with `pytest -m engine tests/objectives`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from objectives import (
    CATALOG,
    Endpoint,
    GateStatus,
    Objective,
    Oracle,
    Rate,
    Session,
    ab_plan,
    canary_gate,
    learn_canary,
    learn_noise,
    measure_rate,
    parity_gate,
    quality_gates,
    record_oracle,
    record_quality,
    self_parity,
)
from objectives.client import Ask, Client
from runners import Device, Lease, Runner, open_engine
from tuner.document import load

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]
EAGER: dict[str, Any] = {"enforce-eager": True, "dtype": "bfloat16"}
SPECULATIVE = {**EAGER, "speculative-config": {"method": "ngram", "num_speculative_tokens": 3}}
SPECULATIVE["speculative-config"] |= {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
COMPILED: dict[str, Any] = {"dtype": "bfloat16"}


@pytest.fixture(scope="module")
def objective() -> Objective:
    return load(CATALOG / "quick.yaml", Objective)


@contextmanager
def serving(engine: Path, model: Path, folder: Path, args: Mapping[str, Any]) -> Iterator[Endpoint]:
    """A server with these arguments for as long as the block lasts."""
    runner = Runner.model_validate(
        {
            "name": "gates",
            "engine": "vllm",
            "python": str(engine),
            "model": str(model),
            "devices": {"kind": "cpu", "count": 1},
            "args": {"max-model-len": 2048},
            "env": {"VLLM_CPU_KVCACHE_SPACE": "1"},
            "harness_env": {"HF_HUB_OFFLINE": "1"},
        }
    )
    lease = _lease()
    server, _ = open_engine(
        runner, args=args, env={}, lease=lease, directory=folder, marker="gates/0/0"
    )
    with server:
        yield Endpoint(server.base_url, server.model)


def tokens_by_hand(endpoint: Endpoint, oracle: Oracle, output_tokens: int) -> bool:
    """Whether every prompt of the oracle gets the oracle's tokens, compared one by one."""
    import asyncio

    async def ask() -> bool:
        async with Client(endpoint) as client:
            for trace in oracle.traces:
                said = await client.complete(Ask(prompt=trace.prompt_ids, max_tokens=output_tokens))
                if list(said.ids) != list(trace.ids):
                    return False
        return True

    return asyncio.run(ask())


def test_client_and_engine_agree_within_one_percent_and_the_control_passes_its_own_gates(
    embedded_engine: Path, embedded_model: Path, tmp_path: Path, objective: Objective
) -> None:
    with serving(embedded_engine, embedded_model, tmp_path / "1", EAGER) as control:
        workload = objective.workload.model_copy(update={"output_tokens": 128})
        rate = measure_rate(control, workload, repeats=4, seed=0)
        assert rate.engine is not None
        assert rate.engine.decode_tok_s is not None
        client = sum(r.output_tokens - 1 for r in rate.repeats) / sum(
            r.decode_s for r in rate.repeats
        )
        assert client == pytest.approx(rate.engine.decode_tok_s, rel=0.01)
        assert rate.engine.cached_tokens == 0
        oracle = record_oracle(control, objective, identity_sha="control")
        canaries = {c.name: learn_canary(control, c) for c in objective.canaries}
        quality = record_quality(control, objective)
    with serving(embedded_engine, embedded_model, tmp_path / "2", EAGER) as again:
        assert self_parity(oracle, record_oracle(again, objective, identity_sha="control")).exact
        for canary in objective.canaries:
            baseline = canaries[canary.name]
            assert baseline.problem is None
            gate = canary_gate(again, canary, repeats=24, rung="deep", baseline=baseline)
            assert gate.status is GateStatus.PASSED, gate.reason
        for gate in quality_gates(again, objective, baseline=quality, rung="deep"):
            assert gate.status is GateStatus.PASSED, gate.reason


def test_eager_compiled_and_speculative_get_the_verdict_of_a_comparison_by_hand(
    embedded_engine: Path, embedded_model: Path, tmp_path: Path, objective: Objective
) -> None:
    policy = objective.parity.model_copy(update={"output_tokens": 96, "prompts": 12})
    strict = objective.model_copy(update={"parity": policy})
    with serving(embedded_engine, embedded_model, tmp_path / "eager", EAGER) as control:
        oracle = record_oracle(control, strict, identity_sha="control")
    for name, args in (("ngram", SPECULATIVE), ("compiled", COMPILED)):
        with serving(embedded_engine, embedded_model, tmp_path / name, args) as candidate:
            gate = parity_gate(candidate, oracle, strict, rung="deep", prompts=None)
            same = tokens_by_hand(candidate, oracle, policy.output_tokens)
        assert (gate.status is GateStatus.PASSED) == same, f"{name}: {gate.reason}"
        print(f"{name}: {gate.status}, {gate.reason}")
        if name == "ngram":
            assert gate.evidence["drafts"] > 0


def test_the_control_against_itself_is_never_promoted_in_ten_tries(
    embedded_engine: Path, embedded_model: Path, tmp_path: Path, objective: Objective
) -> None:
    rates: list[Rate] = []

    def measured() -> Rate:
        folder = tmp_path / str(len(rates))
        with serving(embedded_engine, embedded_model, folder, EAGER) as endpoint:
            repeats = objective.deepest.repeats
            rates.append(measure_rate(endpoint, objective.workload, repeats=repeats, seed=0))
        return rates[-1]

    controls = [measured(), measured()]
    decisions = []
    for _ in range(10):
        sessions = [
            Session.of("control", controls[-1], objective),
            Session.of("candidate", measured(), objective),
        ]
        while True:
            noise = learn_noise(controls, objective)
            plan = ab_plan(sessions, objective, noise=noise)
            if plan.decision in ("accept", "futile"):
                break
            rate = measured()
            role = "control" if plan.decision == "measure_control" else "candidate"
            if role == "control":
                controls.append(rate)
            sessions.append(Session.of(role, rate, objective))  # type: ignore[arg-type]
        decisions.append(plan.decision)
        print(plan.decision, plan.reason, f"(session sd {noise.sd:.4f})")
    assert "accept" not in decisions


def _lease() -> Lease:
    device = Device(kind="cpu", index=0, name="cpu", host="127.0.0.1")
    return Lease(devices=(device,), host="127.0.0.1", env={}, id="gates")
