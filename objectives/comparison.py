"""Comparing server sessions: the gain of a candidate over its control, with an honest interval.

The unit is the server session, not the repeat. Repeats of one session share its luck (where memory
landed, how warm the host was), so forty repeats of one unlucky start still say nothing about the
next start. What two or three sessions cannot show of their own spread, the lane's history supplies
as a prior: see `objectives.statistics.Noise.moderated`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from objectives.objective import Objective
from objectives.rate import Rate
from objectives.statistics import (
    Noise,
    first_repeat_is_slow,
    is_excess,
    normal_quantile,
    t_cdf,
    t_quantile,
)

Role = Literal["control", "candidate"]
Vector = npt.NDArray[np.float64]

TREND_FROM = 5
"""Sessions from which on a linear drift of the host is fitted; with fewer it counts as noise."""

FEW_RESIDUALS = 3
"""With fewer, the repeats of two controls say nothing about the host's present unrest."""


class Session(BaseModel):
    """One server session in a comparison.

    `logs` holds the natural log of the metric per repeat, negated where less is better, so that
    more is always better; `prompts` names the prompt of each. `at_s` places the session in time.
    `interleaved`: its repeats took turns with those of the session beside it, on a second server.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    logs: tuple[float, ...]
    prompts: tuple[str, ...]
    at_s: float = 0.0
    interleaved: bool = False

    @classmethod
    def of(
        cls, role: Role, rate: Rate, objective: Objective, *, interleaved: bool = False
    ) -> Session:
        """The session behind a rate; raises ValueError where it lacks the objective's metric."""
        sign = 1.0 if objective.direction == "maximize" else -1.0
        values = rate.samples(objective.metric)
        if min(values) <= 0:
            raise ValueError(f"a {objective.metric} of {min(values)} cannot be compared.")
        return cls(
            role=role,
            logs=tuple(sign * math.log(value) for value in values),
            prompts=tuple(row.prompt for row in rate.repeats),
            at_s=rate.started_at,
            interleaved=interleaved,
        )

    def without_first(self) -> Session:
        """The session as if its first repeat had been a warm-up."""
        return self.model_copy(update={"logs": self.logs[1:], "prompts": self.prompts[1:]})


class Effect(BaseModel):
    """The log of the ratio candidate over control, and how well it is known.

    `se` standard error with `dof` degrees of freedom; `drift` the log of the last control over the
    first; `warm_up` whether first repeats were left out on both sides; `session_sd` the standard
    deviation of one session's log mean that the interval rests on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    log_ratio: float
    se: float
    dof: float
    drift: float | None
    warm_up: bool
    controls: int
    candidates: int
    session_sd: float

    @property
    def ratio(self) -> float:
        """The gain as a ratio of rates."""
        return math.exp(self.log_ratio)

    def low(self, tail: float) -> float:
        """Lower bound of the ratio that misses with probability `tail`."""
        return math.exp(self.log_ratio - t_quantile(1 - tail, self.dof) * self.se)

    def high(self, tail: float) -> float:
        """Upper bound of the ratio that misses with probability `tail`."""
        return math.exp(self.log_ratio + t_quantile(1 - tail, self.dof) * self.se)


def stated_noise(objective: Objective) -> Noise:
    """The prior that the objective states: 95 % of session pairs lie within `session_drift`.

    The difference of two sessions has √2 times the standard deviation of one. Repeats are taken to
    stray as much as sessions do, until the lane has shown better.
    """
    sd = objective.session_drift / (normal_quantile(0.975) * math.sqrt(2))
    repeats = max(objective.deepest.repeats, 1)
    return Noise(sd=sd, dof=objective.ab.prior_sessions, repeat_sd=sd, repeats=repeats)


def learn_noise(controls: Sequence[Rate], objective: Objective) -> Noise:
    """The stated prior, corrected by what the lane's control sessions have shown, oldest first.

    Between sessions, from successive differences (von Neumann 1941), which a slow drift of the host
    hardly touches: s² = Σ(y[i+1] - y[i])² / 2(k - 1), worth 2(k - 1)² / (3k - 4) degrees of
    freedom. Between repeats, from what sessions and prompts leave unexplained.
    """
    prior = stated_noise(objective)
    sessions = [
        Session.of("control", rate, objective)
        for rate in controls
        if rate.workload == objective.workload and len(rate.repeats) >= prior.repeats
    ]
    count = len(sessions)
    if count < 2:
        return prior
    table = _cell_means(sessions, drop_first=_has_warm_up(sessions))
    means = table.mean(axis=1)
    variance = float((np.diff(means) ** 2).sum()) / (2 * (count - 1))
    degrees = 2 * (count - 1) ** 2 / (3 * count - 4)
    single, residuals = _interaction(table)
    weight = prior.dof + residuals
    repeat_sd = math.sqrt((prior.dof * prior.repeat_sd**2 + residuals * single) / weight)
    learned = prior.moderated(degrees * variance, degrees)
    return learned.model_copy(update={"repeat_sd": repeat_sd})


def effect(sessions: Sequence[Session], noise: Noise) -> Effect:
    """The gain of the candidate over the control, from at least one session of each.

    Each candidate session is compared with the controls around it, interpolated in order, which
    cancels a steady drift of the host. Raises ValueError without a session of each role.
    """
    is_candidate = np.array([session.role == "candidate" for session in sessions])
    if is_candidate.all() or not is_candidate.any():
        raise ValueError("a comparison needs at least one control and one candidate session.")
    warm_up = _has_warm_up(sessions)
    table = _cell_means(sessions, drop_first=warm_up)
    means = table.mean(axis=1)
    weights = _contrast(is_candidate)
    repeats = min(len(session.logs) - warm_up for session in sessions)
    residual, degrees = _residuals(means, is_candidate)
    spread = _spread_of_repeats(table, noise)
    noise = _unrested(table[~is_candidate], noise)
    known = noise.of_session(repeats, repeat_sd=spread).confronted(residual, degrees)
    controls = means[~is_candidate]
    return Effect(
        log_ratio=float(weights @ means),
        se=known.sd * float(np.sqrt(weights @ weights)),
        dof=known.dof,
        drift=float(controls[-1] - controls[0]) if controls.size > 1 else None,
        warm_up=warm_up,
        controls=int(controls.size),
        candidates=int(is_candidate.sum()),
        session_sd=known.sd,
    )


def chance_of_proof(now: Effect, *, bound: float, final_se: float, final_tail: float) -> float:
    """Predictive probability that the final interval will lie above the ratio `bound`.

    Spiegelhalter, Freedman & Blackburn 1986, with a flat prior on the effect: given today's
    estimate, the final one is distributed around it with variance se² - final_se².
    """
    needed = math.log(bound) + t_quantile(1 - final_tail, now.dof) * final_se
    spread = math.sqrt(max(now.se**2 - final_se**2, 0.0))
    if spread == 0.0:
        return 1.0 if now.log_ratio > needed else 0.0
    return t_cdf((now.log_ratio - needed) / spread, now.dof)


def final_weight(candidates: int) -> float:
    """√Σw² of the alternating plan with that many candidate sessions, a control at both ends."""
    plan = np.array([index % 2 == 1 for index in range(2 * candidates + 1)])
    weights = _contrast(plan)
    return float(np.sqrt(weights @ weights))


def _contrast(is_candidate: npt.NDArray[np.bool_]) -> Vector:
    """Weights of the session means whose sum is the effect.

    A candidate between two controls is compared with the two, each by how near it stands; a
    candidate at an end, with the mean of all controls.
    """
    weights = np.zeros(is_candidate.size)
    controls = np.flatnonzero(~is_candidate)
    places = np.flatnonzero(is_candidate)
    for place in places:
        weights[place] += 1.0 / places.size
        before = controls[controls < place]
        after = controls[controls > place]
        if before.size and after.size:
            left, right = before[-1], after[0]
            share = (place - left) / (right - left)
            weights[left] -= (1 - share) / places.size
            weights[right] -= share / places.size
        else:
            weights[controls] -= 1.0 / (places.size * controls.size)
    return weights


def _residuals(means: Vector, is_candidate: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Sum of squares and degrees of freedom that the sessions leave about role (and drift)."""
    columns = [np.ones(means.size), is_candidate.astype(float)]
    if means.size >= TREND_FROM:
        columns.append(np.arange(means.size) - (means.size - 1) / 2)
    design = np.column_stack(columns)
    fitted = design @ np.linalg.lstsq(design, means, rcond=None)[0]
    return float(((means - fitted) ** 2).sum()), float(means.size - design.shape[1])


def _without_warm_up(logs: Sequence[float]) -> Sequence[float]:
    return logs[1:] if first_repeat_is_slow([math.exp(log) for log in logs]) else logs


def _has_warm_up(sessions: Sequence[Session]) -> bool:
    """Whether any session began slowly, and all are long enough to spare their first repeat."""
    return all(len(session.logs) >= 3 for session in sessions) and any(
        len(_without_warm_up(session.logs)) < len(session.logs) for session in sessions
    )


def _cell_means(sessions: Sequence[Session], *, drop_first: bool) -> Vector:
    """Mean log per session and prompt, over the prompts that all sessions share.

    Without a shared prompt every session is one cell: its mean over whatever it was asked.
    """
    start = int(drop_first)
    cells: list[dict[str, list[float]]] = []
    for session in sessions:
        own: dict[str, list[float]] = {}
        for prompt, log in zip(session.prompts[start:], session.logs[start:], strict=True):
            own.setdefault(prompt, []).append(log)
        cells.append(own)
    shared = sorted(set.intersection(*(set(own) for own in cells)))
    if not shared:
        return np.array([[float(np.mean(session.logs[start:]))] for session in sessions])
    return np.array([[float(np.mean(own[prompt])) for prompt in shared] for own in cells])


def _spread_of_repeats(table: Vector, noise: Noise) -> float:
    """Standard deviation of one repeat about its session, for sessions that are short of repeats.

    Usually the lane's. Where a candidate gains on one prompt what it loses on the next, as
    speculation does, the few prompts of a short session say less about all of them.
    """
    variance, degrees = _interaction(table)
    uneven = degrees > 0 and is_excess(variance, noise.repeat_sd**2, degrees)
    return math.sqrt(variance) if uneven else noise.repeat_sd


def _unrested(controls: Vector, noise: Noise) -> Noise:
    """The lane's noise, enlarged when the host is less quiet now than when it was learned.

    Whether it is, the repeats of the controls in this comparison tell: where they stray from each
    other more than the lane's ever did, sessions are taken to stray more in the same proportion.
    """
    variance, degrees = _interaction(controls)
    if degrees < FEW_RESIDUALS or not is_excess(variance, noise.repeat_sd**2, degrees):
        return noise
    factor = math.sqrt(variance) / noise.repeat_sd
    return noise.model_copy(update={"sd": noise.sd * factor, "repeat_sd": noise.repeat_sd * factor})


def _interaction(table: Vector) -> tuple[float, float]:
    """Variance that sessions and prompts leave unexplained, and its degrees of freedom.

    The residuals of a two-way table without replication (Fisher 1925); zero freedom for one row
    or one column.
    """
    rows, columns = table.shape
    degrees = (rows - 1) * (columns - 1)
    if degrees == 0:
        return 0.0, 0.0
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    return float((rest**2).sum()) / degrees, float(degrees)
