"""Finds why an engine failed in what it wrote and how it ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from runners.failure import EXCERPT_LINES, Blame, Failure, Phase
from runners.redaction import plain
from runners.signatures import Signature, load_signatures
from runners.stack import Stack, find_stacks, parse_line

LINE_LENGTH = 300
CONTEXT_LINES = 400
NEAR_LINES = 20

_CRASH_CODE: dict[Phase, str] = {
    "launch": "startup_crash",
    "startup": "startup_crash",
    "first_request": "first_request_failed",
    "serving": "engine_died",
    "teardown": "engine_died",
}


@dataclass(frozen=True)
class Ending:
    """How the engine stood when it failed.

    `returncode` is None while it runs (negative: the signal that ended it). `timed_out_s` is set
    when a phase took too long, `stage` then says how far it had come. `request_error` is what a
    request met, `log_error` why the log could not be written.
    """

    phase: Phase
    returncode: int | None = None
    timed_out_s: float | None = None
    stage: str | None = None
    request_error: str | None = None
    answers: bool | None = None
    log_error: str | None = None


@dataclass(frozen=True)
class _Hit:
    signature: Signature
    index: int
    reason: str


def diagnose(
    lines: Sequence[str], ending: Ending, signatures: Sequence[Signature] | None = None
) -> Failure:
    """The failure that the log and the ending tell of. Pure.

    The first line that matches a root signature is the cause: vLLM wraps every late failure in
    later ones, up to `Engine core initialization failed`. Without one, the first traceback is the
    cause, and without a traceback the way it ended.
    """
    signatures = load_signatures() if signatures is None else signatures
    root = _first_hit(lines, [s for s in signatures if s.kind == "root"])
    if root is not None:
        return _known(root, lines, ending)
    if ending.log_error is not None:
        reason = f"The engine's log could not be written: {ending.log_error}."
        return _failure("host_fault", "host", True, reason, ending)
    symptoms = [s for s in signatures if s.kind in ("symptom", "silent")]
    symptom = _first_hit(lines, symptoms)
    stack = _first_cause(find_stacks(lines), symptoms)
    if stack is not None:
        return _unknown_crash(stack, lines, ending)
    if symptom is not None and symptom.signature.kind == "symptom":
        return _known(symptom, lines, ending)
    return _by_ending(symptom, lines, ending)


def ignored_settings(
    lines: Sequence[str], signatures: Sequence[Signature] | None = None
) -> list[str]:
    """What the log admits that the engine ignored, one sentence each."""
    signatures = load_signatures() if signatures is None else signatures
    found = []
    for line in lines:
        for signature in signatures:
            match = signature.search(line) if signature.kind == "ignored" else None
            if match:
                found.append(signature.sentence(match))
    return list(dict.fromkeys(found))


def _first_hit(lines: Sequence[str], signatures: Sequence[Signature]) -> _Hit | None:
    for index, raw in enumerate(lines):
        line = parse_line(raw)
        if line.level in ("DEBUG", "INFO", "WARNING"):  # what is merely said kills nobody
            continue
        if line.text.lstrip().startswith("raise "):  # a line of code in a traceback
            continue
        for signature in signatures:
            match = signature.search(line.text)
            if match and _applies(signature, lines, index):
                return _Hit(signature, index, signature.sentence(match, _around(lines, index)))
    return None


def _around(lines: Sequence[str], index: int) -> list[str]:
    """The lines near this one without their prefixes, the closest first."""
    near = [i for i in range(index - NEAR_LINES, index + NEAR_LINES + 1) if 0 <= i < len(lines)]
    near.sort(key=lambda i: abs(i - index))
    return [parse_line(lines[i]).text for i in near if i != index]


def _applies(signature: Signature, lines: Sequence[str], index: int) -> bool:
    """Whether what must come before, if anything, was the last such thing before this line."""
    if signature.during is None:
        return True
    before = lines[max(0, index - CONTEXT_LINES) : index + 1]
    started = [i for i, line in enumerate(before) if re.search(signature.during, line)]
    done = [i for i, line in enumerate(before) if "Graph capturing finished" in line]
    return bool(started) and (not done or done[-1] < started[-1])


def _first_cause(stacks: Sequence[Stack], symptoms: Sequence[Signature]) -> Stack | None:
    """The first traceback that is not itself only a symptom of another."""

    def is_symptom(stack: Stack) -> bool:
        text = f"{stack.exception}: {stack.message}"
        return any(symptom.search(text) for symptom in symptoms)

    return next((stack for stack in stacks if not is_symptom(stack)), None)


def _known(hit: _Hit, lines: Sequence[str], ending: Ending) -> Failure:
    signature = hit.signature
    return Failure(
        code=signature.code,
        phase=signature.phase or ending.phase,
        blame=signature.blame,
        retry=signature.retry,
        reason=hit.reason,
        root_line=_shorten(lines[hit.index]),
        excerpt=_excerpt(lines, hit.index),
        returncode=ending.returncode,
        signature=signature.id,
        fix=signature.fix,
    )


def _unknown_crash(stack: Stack, lines: Sequence[str], ending: Ending) -> Failure:
    where = f" in {stack.frames[-1][1]} ({stack.frames[-1][0]})" if stack.frames else ""
    what = f"{stack.exception}: {stack.message}" if stack.message else stack.exception
    return Failure(
        code=_CRASH_CODE[ending.phase],
        phase=ending.phase,
        blame="candidate",
        retry=False,
        reason=f"The engine failed with {_shorten(what)}{where}.",
        root_line=_shorten(lines[stack.index]),
        excerpt=_excerpt(lines, stack.index),
        returncode=ending.returncode,
        cluster=stack.cluster,
    )


def _by_ending(symptom: _Hit | None, lines: Sequence[str], ending: Ending) -> Failure:
    """What is left to go by when the log names no cause."""
    code = ending.returncode
    excerpt = (
        _excerpt(lines, symptom.index) if symptom is not None else _excerpt(lines, len(lines) - 1)
    )
    if code is not None and code < 0:
        return _by_signal(-code, ending, excerpt)
    if symptom is not None:
        # A process that raises writes a traceback; one that is killed writes nothing at all.
        reason = (
            "A process of the engine ended without a word, as one does that is killed from outside "
            "(by the kernel for lack of memory, or by a person)."
        )
        return _failure("host_fault", "host", True, reason, ending, excerpt, symptom.signature.id)
    if code is not None:
        verb = "before it was ready" if ending.phase in ("launch", "startup") else "while it served"
        error = next((t for t in map(parse_line, lines) if t.level in ("ERROR", "CRITICAL")), None)
        said = (
            f"; its log says: {_shorten(error.text)}" if error else " and left no error in its log"
        )
        reason = f"The engine ended with status {code} {verb}{said}."
        return _failure(_CRASH_CODE[ending.phase], "candidate", False, reason, ending, excerpt)
    if ending.timed_out_s is not None:
        return _by_timeout(ending, excerpt)
    if ending.request_error is not None and ending.answers:
        name = "first_request_failed" if ending.phase == "first_request" else "request_failed"
        reason = f"A request failed while the engine lived on: {_shorten(ending.request_error)}."
        return _failure(name, "candidate", False, reason, ending, excerpt)
    reason = "The engine runs but does not answer any more."
    return _failure("engine_hung", "candidate", False, reason, ending, excerpt)


def _by_signal(number: int, ending: Ending, excerpt: tuple[str, ...]) -> Failure:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        reason = f"The engine was ended from outside by {name}."
        return _failure("host_fault", "host", True, reason, ending, excerpt)
    reason = f"The engine crashed in native code ({name})."
    return _failure(_CRASH_CODE[ending.phase], "candidate", False, reason, ending, excerpt)


def _by_timeout(ending: Ending, excerpt: tuple[str, ...]) -> Failure:
    seconds = f"{ending.timed_out_s:g} s"
    at = f"; it was {ending.stage}" if ending.stage else ""
    if ending.phase in ("launch", "startup"):
        reason = f"The engine was not ready within {seconds}{at}."
        return _failure("readiness_timeout", "candidate", False, reason, ending, excerpt)
    if ending.phase == "first_request":
        reason = f"The engine said that it was ready, and gave no first token within {seconds}."
        return _failure("first_request_failed", "candidate", False, reason, ending, excerpt)
    reason = f"The engine gave no answer within {seconds}."
    return _failure("engine_hung", "candidate", False, reason, ending, excerpt)


def _failure(
    code: str,
    blame: Blame,
    retry: bool,
    reason: str,
    ending: Ending,
    excerpt: tuple[str, ...] = (),
    signature: str | None = None,
) -> Failure:
    return Failure(
        code=code,
        phase=ending.phase,
        blame=blame,
        retry=retry,
        reason=reason,
        excerpt=excerpt,
        returncode=ending.returncode,
        signature=signature,
    )


def _excerpt(lines: Sequence[str], index: int) -> tuple[str, ...]:
    """At most ten lines: the way to the root line, the line itself, and the first that follow."""
    if not lines:
        return ()
    before = [line for line in lines[max(0, index - 60) : index] if _tells(line)]
    after = [line for line in lines[index + 1 : index + 60] if _tells(line)]
    kept = [*before[-(EXCERPT_LINES - 4) :], lines[index], *after[:3]]
    return tuple(_shorten(line) for line in kept if line.strip())[:EXCERPT_LINES]


def _tells(line: str) -> bool:
    """Whether a line says something: not blank, no carets of a traceback, no help on usage."""
    text = parse_line(line).text.strip()
    return bool(text.strip("^~ ")) and not text.startswith("[-")


def _shorten(line: str) -> str:
    """Without escapes, folders of the installation, and whatever makes a line too long to read."""
    text = re.sub(r'"[^"]*/site-packages/', '"', plain(line)).strip()
    return text if len(text) <= LINE_LENGTH else text[: LINE_LENGTH - 1] + "…"
