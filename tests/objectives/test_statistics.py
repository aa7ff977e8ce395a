"""The statistics agree with their sources, and are honest about small samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from objectives.statistics import (
    Noise,
    corruption_bound,
    first_repeat_is_slow,
    percentiles,
    summarize,
    t_cdf,
    t_quantile,
)


def test_the_interval_of_a_mean_is_students() -> None:
    sample = [10.0, 11.0, 12.5, 9.5]
    summary = summarize(sample, confidence=0.9)
    low, high = stats.t.interval(0.9, 3, np.mean(sample), stats.sem(sample))
    assert (summary.low, summary.high) == (pytest.approx(low), pytest.approx(high))


def test_one_value_says_nothing_about_its_spread() -> None:
    summary = summarize([3.0])
    assert (summary.mean, summary.low, summary.high) == (3.0, None, None)
    with pytest.raises(ValueError, match="empty"):
        summarize([])


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=30))
def test_a_summary_is_ordered(sample: list[float]) -> None:
    summary = summarize(sample)
    slack = 1e-9 * summary.max
    assert summary.min - slack <= summary.p10 <= summary.median + slack
    assert summary.median <= summary.max + slack
    assert summary.low is not None
    assert summary.high is not None
    assert summary.low - slack <= summary.mean <= summary.high + slack
    assert percentiles(sample).p50 == pytest.approx(summary.median)


def test_the_corruption_bound_is_clopper_and_pearsons() -> None:
    assert corruption_bound(100) == pytest.approx(1 - 0.05 ** (1 / 100))
    exact = stats.binomtest(2, 50, alternative="less").proportion_ci(0.95, method="exact").high
    assert corruption_bound(50, 2) == pytest.approx(exact)
    assert corruption_bound(3, 3) == 1.0


@given(st.integers(1, 5000))
def test_more_clean_repeats_prove_more(repeats: int) -> None:
    assert corruption_bound(repeats + 1) < corruption_bound(repeats)


def test_students_functions_agree_with_scipy() -> None:
    assert t_quantile(0.975, 4.5) == pytest.approx(stats.t.ppf(0.975, 4.5))
    assert t_quantile(0.975, math.inf) == pytest.approx(1.959964, rel=1e-6)
    assert t_cdf(1.3, 6) == pytest.approx(stats.t.cdf(1.3, 6))


def test_a_prior_and_new_residuals_are_weighed_by_what_they_are_worth() -> None:
    prior = Noise(sd=0.01, dof=8, repeat_sd=0.01, repeats=4)
    known = prior.moderated(2 * 0.015**2, 2)
    assert known.dof == 10
    assert known.sd == pytest.approx(math.sqrt((8 * 0.01**2 + 2 * 0.015**2) / 10))
    assert prior.confronted(2 * 0.015**2, 2) == known
    # What the prior makes all but impossible puts it out of force.
    shaken = prior.confronted(2 * 0.05**2, 2)
    assert (shaken.dof, shaken.sd) == (2, pytest.approx(0.05))
    assert prior.of_session(4).sd == prior.sd
    assert prior.of_session(1).sd == pytest.approx(math.sqrt(0.01**2 + 0.75 * 0.01**2))


@pytest.mark.parametrize(
    ("values", "slow"),
    [
        ([89.47, 94.3, 94.5, 94.54], True),  # the laboratory's own
        ([94.2, 94.3, 94.5, 94.4], False),
        ([93.0, 94.3, 92.0, 95.0], False),  # no further away than the others are from each other
        ([89.0, 94.3, 94.5], False),  # too few to tell
    ],
)
def test_a_warm_up_is_told_from_noise(values: list[float], slow: bool) -> None:
    assert first_repeat_is_slow(values) is slow
