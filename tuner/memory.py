"""The rejected-path memory: what earlier trials say about a configuration before it is tried.

Four things can be known. The same identity was judged before. A trial that failed made only changes
that this configuration makes too. The failures so far, taken together, make it likely to fail. Or a
trial says nothing any more, because the engine or its driver is another one now. Nothing here is
final: a probability orders and may postpone, and every finding names the trials that it rests on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import numpy as np

from search_spaces import Configuration, SearchSpace, Value
from search_spaces.knob import spelt
from tuner.changes import Changes
from tuner.failure_model import FailureModel, Suspect
from tuner.identity import Identity, sha256_of
from tuner.ledger import TrialRecord
from tuner.verdict import Code, Verdict

BROKEN: Final = frozenset(
    {
        Code.ARGUMENT_REFUSED, Code.STARTUP_CRASH, Code.READINESS_TIMEOUT, Code.OUT_OF_MEMORY,
        Code.COMPILE_ERROR, Code.GRAPH_CAPTURE_FAILED, Code.GRAPH_EVENT_WAIT,
        Code.FIRST_REQUEST_FAILED, Code.DEVICE_LOST, Code.ENGINE_DIED, Code.ENGINE_HUNG,
        Code.RPC_TIMEOUT, Code.REQUEST_FAILED, Code.PARITY_MISMATCH, Code.CANARY_MISMATCH,
        Code.QUALITY_FAILED,
    }
)  # fmt: skip
"""Rejections that a larger configuration inherits: it crashes or says something else, too. Being
slow is not inherited, since another change may make it fast."""

_JUDGED: Final = frozenset({Verdict.ACCEPTED, Verdict.PROMISING, Verdict.REJECTED})
_LISTED: Final = 5


class Kind(StrEnum):
    """What a finding is."""

    SAME = "same"
    CONTAINS_REJECTED = "contains_rejected"
    LIKELY_TO_FAIL = "likely_to_fail"
    EXPIRED = "expired"


@dataclass(frozen=True)
class Evidence:
    """What the memory keeps of one judged trial.

    `ground` holds what must not change for it to count: the engine with its binaries, the driver.
    """

    trial: int
    study: str
    assignment: Mapping[str, Value]
    settings_sha: str
    verdict: Verdict
    code: Code | None
    reason: str
    ground: Mapping[str, Any]

    @property
    def broken(self) -> bool:
        """It crashed, or said something else."""
        return self.verdict is Verdict.REJECTED and self.code in BROKEN

    @property
    def worked(self) -> bool:
        """It served and passed what ran, even if it was too slow."""
        return self.verdict is not Verdict.REJECTED or (
            self.code in (Code.TOO_SLOW, Code.GAIN_UNPROVEN, Code.BELOW_FLOOR, Code.SLO_MISSED)
        )


@dataclass(frozen=True)
class Finding:
    """One thing that is known about a configuration: a sentence and the trials it rests on."""

    kind: Kind
    sentence: str
    trials: tuple[int, ...]
    probability: float | None = None


@dataclass(frozen=True)
class Explanation:
    """All that is known about a configuration; `risk` is the probability that it fails a gate."""

    findings: tuple[Finding, ...]
    risk: float
    trials: int

    def __str__(self) -> str:
        lines = [finding.sentence for finding in self.findings]
        lines.append(f"It fails with a probability of {self.risk:.0%}, from {self.trials} trials.")
        return "\n".join(lines)


def ground_of(identity: Identity) -> dict[str, Any]:
    """The leaves of an identity that end the validity of evidence when they change."""
    engine = {f"engine.{name}": value for name, value in _leaves(identity.engine)}
    driver = {
        f"topology.{name}": value
        for name, value in _leaves(identity.topology)
        if any(word in name for word in ("driver", "runtime", "firmware"))
    }
    return engine | driver


def evidence_of(record: TrialRecord) -> Evidence | None:
    """The evidence of a trial; None when it says nothing about its candidate, or never started."""
    if record.verdict not in _JUDGED or record.rung == "static":
        return None
    return Evidence(
        trial=record.number,
        study=record.study,
        assignment=record.assignment,
        settings_sha=sha256_of(record.identity.configuration),
        verdict=record.verdict,
        code=record.rejection.code if record.rejection else None,
        reason=record.rejection.reason if record.rejection else "It passed what ran.",
        ground=ground_of(record.identity),
    )


class Memory:
    """What a ledger says about the configurations of a space, on the ground of today.

    Args:
        space: the space whose configurations are asked about; evidence on other knobs is left out.
        evidence: judged trials, in the order in which they ran.
        ground: `ground_of` today's identity.
    """

    def __init__(
        self, space: SearchSpace, evidence: Iterable[Evidence], ground: Mapping[str, Any]
    ) -> None:
        self._space = space
        self._ground = dict(ground)
        self._control = space.control().assignment
        self._changes = Changes(space)
        placed = [one for one in evidence if self._is_of_space(one)]
        self.valid = tuple(one for one in placed if not self.expiry(one))
        self.expired = tuple(one for one in placed if self.expiry(one))

    @classmethod
    def of(cls, space: SearchSpace, records: Iterable[TrialRecord], today: Identity) -> Memory:
        """The memory of a ledger's records."""
        found = (evidence_of(record) for record in records)
        return cls(space, [one for one in found if one is not None], ground_of(today))

    def expiry(self, evidence: Evidence) -> str:
        """Why the evidence no longer counts, e.g. "engine.version was 0.31.0 and is 0.32.0"."""
        names = sorted(evidence.ground.keys() | self._ground.keys())
        changed = [name for name in names if evidence.ground.get(name) != self._ground.get(name)]
        if not changed:
            return ""
        # The version says more than the hundred files that changed with it.
        name = next((one for one in changed if one.endswith("version")), changed[0])
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        before, now = evidence.ground.get(name), self._ground.get(name)
        return f"{name} was {_short(before)} and is {_short(now)}{more}"

    def risk(self, assignment: Mapping[str, Value]) -> float:
        """The probability that it crashes or says something else."""
        return float(self._failures.risk(self._changes.matrix([assignment]))[0])

    def why(self, configuration: Configuration) -> Explanation:
        """Everything that is known about `configuration`."""
        findings = [
            *self._same(configuration),
            *self._contained(configuration.assignment),
            *self._likely(configuration.assignment),
            *self._no_longer(configuration.assignment),
        ]
        risk = self.risk(configuration.assignment)
        return Explanation(tuple(findings), risk, len(self.valid))

    def doubt(self, configuration: Configuration, above: float = 0.9) -> Finding | None:
        """A reason to postpone it: a probability of failing of at least `above`, which it states.

        Postponed, not rejected: the caller tries it when nothing better is left.
        """
        risk = self.risk(configuration.assignment)
        if risk < above:
            return None
        likely = self._likely(configuration.assignment)
        if likely:
            return likely[0]
        contained = self._contained(configuration.assignment)
        return contained[0] if contained else None

    # The four kinds of findings.

    def _same(self, configuration: Configuration) -> list[Finding]:
        sha = sha256_of({"args": configuration.args, "env": configuration.env})
        same = [
            one
            for one in self.valid
            if one.settings_sha == sha or dict(one.assignment) == configuration.assignment
        ]
        return [
            Finding(
                Kind.SAME,
                f"Trial {one.trial} of {one.study} tried exactly this: {_judgement(one)}.",
                (one.trial,),
            )
            for one in same
        ]

    def _contained(self, assignment: Mapping[str, Value]) -> list[Finding]:
        """Failures whose changes are all made here too, and that no success contradicts."""
        mine = self._changed(assignment)
        found: list[Finding] = []
        kept: list[set[tuple[str, str]]] = []
        for one in sorted(self.valid, key=lambda one: len(self._changed(one.assignment))):
            theirs = self._changed(one.assignment)
            if not (one.broken and theirs and theirs < mine):
                continue
            if any(known <= theirs for known in kept):
                continue
            if any(
                other.worked and theirs <= self._changed(other.assignment) for other in self.valid
            ):
                continue
            kept.append(theirs)
            found.append(
                Finding(
                    Kind.CONTAINS_REJECTED,
                    f"It holds {_listed(theirs)}, which failed in trial {one.trial} of {one.study}:"
                    f" {_judgement(one)}.",
                    (one.trial,),
                )
            )
        return found[:_LISTED]

    def _likely(self, assignment: Mapping[str, Value]) -> list[Finding]:
        row = self._changes.of(assignment)
        return [self._suspicion(suspect) for suspect in self._failures.suspects(row)]

    def _suspicion(self, suspect: Suspect) -> Finding:
        trials = f"{suspect.failures} trial{'' if suspect.failures == 1 else 's'}"
        return Finding(
            Kind.LIKELY_TO_FAIL,
            f"{suspect.name} breaks it with a probability of {suspect.probability:.0%}: {trials}"
            " that held it failed, and none passed.",
            (),
            suspect.probability,
        )

    def _no_longer(self, assignment: Mapping[str, Value]) -> list[Finding]:
        mine = self._changed(assignment)
        return [
            Finding(
                Kind.EXPIRED,
                f"Trial {one.trial} of {one.study} with {_listed(self._changed(one.assignment))}"
                f" ({_judgement(one)}) no longer counts: {self.expiry(one)}.",
                (one.trial,),
            )
            for one in self.expired
            if one.broken and self._changed(one.assignment) <= mine
        ][:_LISTED]

    @cached_property
    def _failures(self) -> FailureModel:
        judged = [one for one in self.valid if one.broken or one.worked]
        items = self._changes.matrix([one.assignment for one in judged])
        failed = np.array([one.broken for one in judged], dtype=bool)
        return FailureModel(self._changes, items, failed)

    def _is_of_space(self, evidence: Evidence) -> bool:
        knobs = self._space.knobs
        return all(
            name in knobs and knobs[name].accepts(value)
            for name, value in evidence.assignment.items()
        )

    def _changed(self, assignment: Mapping[str, Value]) -> set[tuple[str, str]]:
        """The (knob, value) pairs that differ from the control's."""
        return {
            (name, spelt(value))
            for name, value in assignment.items()
            if name not in self._control or spelt(self._control[name]) != spelt(value)
        }


def _listed(changes: set[tuple[str, str]]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sorted(changes)) or "no change"


def _judgement(evidence: Evidence) -> str:
    code = f", {evidence.code.value}" if evidence.code else ""
    reason = evidence.reason.rstrip(".")
    return f"{evidence.verdict.value}{code} ({reason})"


def _short(value: Any) -> str:
    if value is None:
        return "not stated"
    text = str(value)
    return text if len(text) <= 16 else text[:12] + "…"


def _leaves(data: Mapping[str, Any], before: str = "") -> Sequence[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in data.items():
        path = f"{before}{name}"
        found += _leaves(value, f"{path}.") if isinstance(value, Mapping) else [(path, value)]
    return found
