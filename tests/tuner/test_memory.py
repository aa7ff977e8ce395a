"""The rejected-path memory: what it knows, what it supposes, and when it stops believing."""

from __future__ import annotations

from typing import Any

from search_spaces import SearchSpace
from tuner.identity import sha256_of
from tuner.memory import Evidence, Kind, Memory
from tuner.verdict import Code, Verdict

SPACE = SearchSpace.model_validate(
    {
        "name": "x",
        "knobs": {
            "graph": {"env": "G", "choices": ["none", "piecewise"]},
            "stream": {"env": "S", "choices": [0, 1]},
            "sampler": {"env": "P", "choices": ["torch", "topk"]},
            "k": {"env": "K", "choices": [0, 1, 2]},
        },
    }
)
TODAY = {"engine.version": "0.32.0", "engine.binaries._C.so": "aaaa"}


def trial(number: int, code: Code | None = None, **values: Any) -> Evidence:
    configuration = SPACE.configure(values)
    return Evidence(
        trial=number,
        study="lab",
        assignment=configuration.assignment,
        settings_sha=sha256_of({"args": configuration.args, "env": configuration.env}),
        verdict=Verdict.REJECTED if code else Verdict.PROMISING,
        code=code,
        reason="It was seen.",
        ground=TODAY,
    )


def sentences(memory: Memory, **values: Any) -> dict[Kind, list[str]]:
    found: dict[Kind, list[str]] = {}
    for finding in memory.why(SPACE.configure(values)).findings:
        found.setdefault(finding.kind, []).append(finding.sentence)
    return found


def test_the_same_configuration_is_recognised() -> None:
    memory = Memory(SPACE, [trial(4, Code.GRAPH_EVENT_WAIT, stream=1)], TODAY)
    assert sentences(memory, stream=1)[Kind.SAME] == [
        "Trial 4 of lab tried exactly this: rejected, graph_event_wait (It was seen)."
    ]
    assert Kind.SAME not in sentences(memory, stream=1, k=1)


def test_a_failure_is_found_within_a_larger_configuration() -> None:
    memory = Memory(SPACE, [trial(4, Code.GRAPH_EVENT_WAIT, stream=1)], TODAY)
    assert sentences(memory, stream=1, k=1)[Kind.CONTAINS_REJECTED] == [
        (
            "It holds stream = 1, which failed in trial 4 of lab:"
            " rejected, graph_event_wait (It was seen)."
        )
    ]


def test_a_success_that_holds_the_same_contradicts_it() -> None:
    evidence = [trial(4, Code.DEVICE_LOST, stream=1), trial(5, stream=1, k=2)]
    assert Kind.CONTAINS_REJECTED not in sentences(Memory(SPACE, evidence, TODAY), stream=1, k=1)


def test_being_slow_is_not_inherited() -> None:
    memory = Memory(SPACE, [trial(4, Code.TOO_SLOW, stream=1)], TODAY)
    assert sentences(memory, stream=1, k=1) == {}


def test_only_the_smallest_contained_failure_is_named() -> None:
    evidence = [
        trial(4, Code.CANARY_MISMATCH, stream=1, sampler="topk"),
        trial(5, Code.CANARY_MISMATCH, stream=1),
    ]
    found = sentences(Memory(SPACE, evidence, TODAY), stream=1, sampler="topk", k=1)
    assert len(found[Kind.CONTAINS_REJECTED]) == 1
    assert "trial 5" in found[Kind.CONTAINS_REJECTED][0]


def test_failures_that_share_a_change_make_it_a_suspect() -> None:
    evidence = [
        trial(1, Code.PARITY_MISMATCH, sampler="topk", k=1),
        trial(2, Code.PARITY_MISMATCH, sampler="topk", k=2),
        trial(3, Code.PARITY_MISMATCH, sampler="topk", graph="piecewise"),
        trial(4, k=1),
        trial(5, k=2, graph="piecewise"),
    ]
    memory = Memory(SPACE, evidence, TODAY)
    assert memory.risk(SPACE.configure({"sampler": "topk"}).assignment) > 0.6
    assert memory.risk(SPACE.configure({"k": 2}).assignment) < 0.1
    likely = sentences(memory, sampler="topk", stream=1)[Kind.LIKELY_TO_FAIL]
    assert likely[0].startswith("sampler = topk breaks it with a probability of")
    assert likely[0].endswith("3 trials that held it failed, and none passed.")


def test_doubt_states_its_probability_and_is_not_final() -> None:
    evidence = [trial(n, Code.STARTUP_CRASH, sampler="topk", k=n % 3) for n in range(9)]
    evidence.append(trial(10, k=1, graph="piecewise"))
    memory = Memory(SPACE, evidence, TODAY)
    doubt = memory.doubt(SPACE.configure({"sampler": "topk", "stream": 1}), above=0.8)
    assert doubt is not None
    assert doubt.probability is not None
    assert memory.doubt(SPACE.configure({"k": 1}), above=0.8) is None
    cleared = Memory(SPACE, [*evidence, trial(11, sampler="topk")], TODAY)
    assert cleared.doubt(SPACE.configure({"sampler": "topk", "stream": 1}), above=0.8) is None


def test_evidence_of_another_engine_expires_and_says_so() -> None:
    newer = {**TODAY, "engine.version": "0.33.0", "engine.binaries._C.so": "bbbb"}
    memory = Memory(SPACE, [trial(4, Code.GRAPH_EVENT_WAIT, stream=1)], newer)
    assert sentences(memory, stream=1) == {
        Kind.EXPIRED: [
            (
                "Trial 4 of lab with stream = 1 (rejected, graph_event_wait (It was seen))"
                " no longer counts: engine.version was 0.32.0 and is 0.33.0, and 1 more."
            )
        ]
    }
    assert memory.risk(SPACE.configure({"stream": 1}).assignment) < 0.2


def test_a_rebuilt_binary_is_another_engine() -> None:
    rebuilt = {**TODAY, "engine.binaries._C.so": "bbbb"}
    memory = Memory(SPACE, [trial(4, Code.DEVICE_LOST, stream=1)], rebuilt)
    assert not memory.valid
    assert "engine.binaries._C.so was aaaa and is bbbb" in memory.expiry(memory.expired[0])


def test_evidence_on_knobs_that_the_space_lacks_is_left_out() -> None:
    other = SearchSpace.model_validate(
        {"name": "y", "knobs": {"k": {"env": "K", "choices": [0, 1]}}}
    )
    memory = Memory(other, [trial(4, Code.DEVICE_LOST, stream=1)], TODAY)
    assert memory.valid == memory.expired == ()
