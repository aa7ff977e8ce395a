"""What a configuration's value may be, with its uncertainty, from the values measured so far.

A Gaussian process over the changes to the control (C. E. Rasmussen and C. K. I. Williams, "Gaussian
Processes for Machine Learning", 2006, chapter 2). Its kernel is that of a linear model with one
effect per change and a smaller one per pair of changes: with m changes in common,
k = c² + a² m + b² m(m - 1)/2. On the logarithm of a rate, effects multiply, as independent
optimisations do.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy import linalg, special  # type: ignore[import-untyped]  # scipy ships no annotations

from tuner.changes import Matrix

_COMMON: Final = 0.1
_SCALES: Final = (0.1, 0.2)
"""Candidates for the typical effect of one change, in units of the value (for logarithms: 10 % and
20 %); the likeliest is taken."""
_PAIR_SHARE: Final = 0.7
_NOISE: Final = 0.02
"""Repeats of one configuration differ by about 2 % within a session."""
_REMEMBERED: Final = 300


class RateModel:
    """Predicts values for rows of changes.

    Args:
        items: rows of the measured configurations, shape (n, items), n ≥ 1.
        values: what was measured, shape (n,); the larger the better.
        control: the value that stands for "no change".
    """

    def __init__(self, items: Matrix, values: Matrix, control: float) -> None:
        # The best and the latest say the most about where to go on.
        kept = np.arange(len(values))
        if len(values) > _REMEMBERED:
            best = np.argsort(-values)[: _REMEMBERED // 2]
            kept = np.unique(np.concatenate([best, kept[-(_REMEMBERED // 2) :]]))
        self._items = items[kept]
        self._control = control
        target = values[kept] - control
        fits = [self._fit(scale, target) for scale in _SCALES]
        self._scale, self._factor, self._weights, _ = max(fits, key=lambda fit: fit[3])

    def _fit(self, scale: float, target: Matrix) -> tuple[float, Matrix, Matrix, float]:
        covariance = _kernel(self._items, self._items, scale)
        covariance[np.diag_indices_from(covariance)] += _NOISE**2
        factor, _ = linalg.cho_factor(covariance, lower=True)
        factor = np.tril(factor)
        weights = np.asarray(linalg.cho_solve((factor, True), target))
        likelihood = -0.5 * float(target @ weights) - float(np.log(np.diag(factor)).sum())
        return scale, factor, weights, likelihood

    def predict(self, items: Matrix) -> tuple[Matrix, Matrix]:
        """Means and standard deviations for rows of changes."""
        shared = _kernel(items, self._items, self._scale)
        mean = self._control + shared @ self._weights
        explained = linalg.solve_triangular(self._factor, shared.T, lower=True)
        own = items.sum(axis=1)
        prior = _kernel_of_shared(own, self._scale)
        variance = prior - (explained**2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def expected_improvement(self, items: Matrix, best: float) -> Matrix:
        """How much above `best` each row is expected to be, counting only what is above.

        D. R. Jones, M. Schonlau and W. J. Welch, "Efficient global optimization of expensive
        black-box functions", Journal of Global Optimization 13, 1998.
        """
        mean, deviation = self.predict(items)
        ahead = (mean - best) / deviation
        density = np.exp(-0.5 * ahead**2) / np.sqrt(2.0 * np.pi)
        return np.asarray(deviation * (ahead * special.ndtr(ahead) + density))


def _kernel(left: Matrix, right: Matrix, scale: float) -> Matrix:
    return _kernel_of_shared(left @ right.T, scale)


def _kernel_of_shared(shared: Matrix, scale: float) -> Matrix:
    pair = (scale * _PAIR_SHARE) ** 2 / 2.0
    return np.asarray(_COMMON**2 + scale**2 * shared + pair * shared * (shared - 1.0))
