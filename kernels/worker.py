# ruff: noqa: ARG001 -- every verb takes (session, request)
"""The process in which candidates run. One JSON request a line on stdin, one reply on stdout.

It may be crashed, hung or have its device context ruined by a candidate: nothing outside it is
harmed, and whoever started it starts another. It needs the standard library and torch (Triton for
Triton candidates) and travels as one file, see `bundle`.

    {"id": 1, "verb": "check", "op": "rms_norm", "case": {...}, "candidate": "...", "config": {}}
    {"id": 1, "ok": true, "result": {...}}
    {"id": 1, "ok": false, "error": "...", "context_lost": true}
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from kernels import catalog
from kernels.ceilings import measure_ceilings
from kernels.device import default_device, identify, limits
from kernels.exactness import check_candidate
from kernels.faults import self_test
from kernels.ops import REGISTRY, Candidate, Case, KernelError, Op, describe_error, load_file
from kernels.replay import synchronize
from kernels.timing import InputSets, time_candidate
from kernels.torch_ops import torch_op_candidate

PR_SET_PDEATHSIG = 1


class Session:
    """What a worker keeps between requests: its device, and one case's inputs."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.inputs: InputSets | None = None

    def find(self, request: Mapping[str, Any]) -> tuple[Op, Case, Candidate, dict[str, Any]]:
        """The op, case, candidate and legal configuration a request names."""
        name = request["op"]
        if name not in REGISTRY:
            raise KernelError(f"no op {name!r}; known are {', '.join(sorted(REGISTRY))}")
        op = REGISTRY[name]
        given = request["case"]
        case = op.case(given) if isinstance(given, str) else Case.from_json(given)
        candidate = op.pick(request["candidate"])
        missing = candidate.missing(self.device.split(":")[0])
        if missing:
            raise KernelError(f"candidate {candidate.name!r} of {name}: {missing}")
        config = dict(request.get("config") or {})
        if not config and candidate.space.choices:
            started = candidate.space.start(case.params, limits(self.device))
            if started is None:
                raise KernelError(
                    f"candidate {candidate.name!r} of {name} has no legal configuration for "
                    f"case {case.name} on this device"
                )
            config = started
        refusal = candidate.space.refusal(config, case.params, limits(self.device))
        if refusal:
            raise KernelError(
                f"candidate {candidate.name!r} of {name}, case {case.name}: {refusal}"
            )
        return op, case, candidate, config

    def sets(self, op: Op, case: Case, seed: int) -> InputSets:
        """The case's inputs, kept while requests stay with the case."""
        kept = self.inputs
        if kept is None or kept.op is not op or kept.case != case or kept.seed != seed:
            self.inputs = None  # frees the old sets before the new ones are made
            kept = self.inputs = InputSets(op, case, self.device, seed)
        return kept


def describe(session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
    """Identity, limits, and why candidates cannot run here."""
    kind = session.device.split(":")[0]
    return {
        "identity": identify(session.device).to_json(),
        "limits": limits(session.device).to_json(),
        "candidates": {
            op.name: {c.name: c.missing(kind) or "" for c in op.candidates.values()}
            for op in REGISTRY.values()
        },
    }


def check(session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
    """Check one configuration of one candidate on one case."""
    op, case, candidate, config = session.find(request)
    report = check_candidate(
        op,
        case,
        candidate,
        config,
        session.device,
        repeats=int(request["repeats"]),
        seed=int(request["seed"]),
    )
    return report.to_json()


def time_one(session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
    """Time one configuration, without checking it."""
    op, case, candidate, config = session.find(request)
    sets = session.sets(op, case, int(request["seed"]))
    return time_candidate(sets, candidate, config, samples=int(request["samples"])).to_json()


def trial(session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
    """Exact first, then fast: an inexact candidate is not timed."""
    checked = check(session, request)
    timed = time_one(session, request) if checked["passed"] else None
    return {"check": checked, "timing": timed}


def warm(session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run once, so that what must be compiled lies in the compiler's cache on disk."""
    op, case, candidate, config = session.find(request)
    kept = session.inputs
    if kept is None or kept.op is not op or kept.case != case:
        session.inputs = kept = InputSets(op, case, session.device, 0, sets=1)
    candidate.run(kept.sets[0], kept.outputs[0], config)
    synchronize(session.device.split(":")[0])
    return {}


def ceilings(session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the device's ceilings."""
    return measure_ceilings(session.device).to_json()


def test_checker(session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the checker's self-test."""
    outcomes = self_test(session.device, repeats=int(request["repeats"]), seed=int(request["seed"]))
    return {"outcomes": [outcome.to_json() for outcome in outcomes]}


def add_torch_op(session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
    """Register a user's torch op as a candidate."""
    name = torch_op_candidate(request["op"], request["torch_op"], loads=request.get("loads", ()))
    return {"candidate": name}


VERBS: dict[str, Callable[[Session, Mapping[str, Any]], dict[str, Any]]] = {
    "describe": describe,
    "check": check,
    "time": time_one,
    "trial": trial,
    "warm": warm,
    "ceilings": ceilings,
    "self_test": test_checker,
    "add_torch_op": add_torch_op,
}


def context_lost(device: str) -> bool:
    """Whether the device no longer computes: a small sum with a known answer fails or is wrong."""
    import torch

    try:
        probe = torch.arange(4096, device=device, dtype=torch.int64)
        return int(probe.sum().item()) != 4096 * 4095 // 2
    except Exception:  # noqa: BLE001 -- whatever it is, the device did not compute
        return True


def answer(session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a request asks; any exception becomes a reply."""
    verb = request.get("verb")
    if verb not in VERBS:
        return {"ok": False, "error": f"no verb {verb!r}; known are {', '.join(VERBS)}"}
    try:
        return {"ok": True, "result": VERBS[verb](session, request)}
    except KernelError as error:
        return {"ok": False, "error": str(error), "refused": True}
    except Exception as error:  # noqa: BLE001 -- a candidate may raise anything
        return {"ok": False, "error": describe_error(error)}


def die_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def take_stdout() -> TextIO:
    """Keep the real stdout for replies; whatever a candidate prints goes to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return replies


def serve() -> None:
    """Read the opening line {"device": ..., "op_files": [...]}, then answer until stdin ends."""
    die_with_parent()
    replies = take_stdout()

    def send(message: Mapping[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    opening = json.loads(sys.stdin.readline())
    session = Session("")
    try:
        session.device = opening.get("device") or default_device()
        catalog.load()
        for path in opening.get("op_files", ()):
            load_file(path)
    except Exception as error:  # noqa: BLE001 -- told to the parent, whatever it is
        send({"id": 0, "ok": False, "error": str(error), "refused": isinstance(error, KernelError)})
        return
    send({"id": 0, "ok": True, "result": {"device": session.device}})
    for line in sys.stdin:
        request = json.loads(line)
        reply = answer(session, request)
        lost = not sound(reply) and context_lost(session.device)
        send({"id": request.get("id"), **reply, "context_lost": lost})
        if lost:
            # Nothing that ran in this process after this could be trusted.
            os._exit(3)


def sound(reply: Mapping[str, Any]) -> bool:
    """Whether the request ran and found nothing wrong, so the context needs no probing."""
    result = reply.get("result") or {}
    checked = result.get("check", result)
    return bool(reply["ok"]) and bool(checked.get("passed", True))


if __name__ == "__main__":
    serve()
