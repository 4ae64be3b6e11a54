"""Weights of learners, by how wrong each was on own executions that it had not seen.

Weighting, not selection: with few errors the learner that looks best is often best by
chance, and a mix costs less where that happens. Errors are compared per piece of evidence:
a workload, or a level of scale or size that a fold held out, however many executions it has.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.prediction import Floats

STACKED_FROM = 100
"""Workloads from which on the weights are those whose mix would have had the least error."""

SMALLEST_WEIGHT = 0.01
"""Members below this are left out: they cost time and change nothing."""

_SMALLEST_ERROR = 0.02
"""Errors below this, in log seconds, are no reason to prefer a learner: clocks differ by more."""

_OUTLIER = 5.0
"""Times its learner's typical error: what an error counts at most for stacked weights."""


def mixing_weights(errors: Floats, evidence: NDArray[np.int64]) -> Floats:
    """Weights of the members, not negative, of sum 1; small ones are 0.

    With few pieces of evidence in proportion to error**-p: p grows with their number, so that few
    errors decide little. With many, the weights of the mix that would have erred least.
    Without errors the first member has all.

    Args:
        errors: out-of-fold log errors, [members, executions].
        evidence: piece of evidence that each error belongs to, [executions].
    """
    typical = [typical_error(row) for row in np.abs(errors)]
    return weights_of(errors, len(np.unique(evidence)), typical)


def weights_of(errors: Floats, pieces: int, typical: Sequence[float]) -> Floats:
    """As `mixing_weights`, of so many pieces of evidence.

    Args:
        errors: out-of-fold log errors, [members, executions].
        pieces: of evidence.
        typical: error of each member, see `typical_error`.
    """
    if errors.shape[1] == 0:
        return np.asarray(np.eye(len(errors))[0], dtype=np.float64)
    weights = _weights_by_error(np.array(typical), pieces)
    if pieces >= STACKED_FROM:
        weights = _stacked_weights(errors, weights, np.array(typical))
    weights = np.where(weights < SMALLEST_WEIGHT, 0.0, weights)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def mixed_errors(errors: Floats, evidence: NDArray[np.int64], folds: NDArray[np.int64]) -> Floats:
    """Errors of the mix, where the weights of each fold have not seen that fold's errors."""
    mixed = np.zeros(errors.shape[1])
    for fold in range(int(folds.max(initial=-1)) + 1):
        others, held = folds != fold, folds == fold
        mixed[held] = mixing_weights(errors[:, others], evidence[others]) @ errors[:, held]
    return mixed


def typical_error(absolute: Floats) -> float:
    """Mean of the absolute errors without the largest tenth; NaN of none."""
    kept = np.sort(absolute)[: int(np.ceil(0.9 * len(absolute)))]
    return float(kept.mean()) if len(kept) else float("nan")


def _weights_by_error(typical: Floats, pieces: int) -> Floats:
    relative = np.maximum(typical, _SMALLEST_ERROR)
    power = np.clip(pieces / 5, 4, 12)
    weights = (relative.min() / relative) ** power
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _stacked_weights(errors: Floats, start: Floats, typical: Floats) -> Floats:
    """Weights on the simplex with the least mean absolute error of the mix, from `start` on.

    The absolute value is smoothed below `_SMALLEST_ERROR`, so that the problem is convex
    and has a gradient. Outliers are clipped.
    """
    from scipy.optimize import minimize

    bounds = _OUTLIER * typical[:, None]
    clipped = np.clip(errors, -bounds, bounds)

    def smoothed(mixed: Floats) -> Floats:
        return np.sqrt(mixed**2 + _SMALLEST_ERROR**2)

    def mean_error(weights: Floats) -> float:
        return float(smoothed(weights @ clipped).mean())

    def slope(weights: Floats) -> Floats:
        mixed = weights @ clipped
        return np.asarray(clipped @ (mixed / smoothed(mixed)) / len(mixed), dtype=np.float64)

    ones = np.ones((1, len(start)))

    def beyond_one(weights: Floats) -> float:
        return float((ones @ weights)[0]) - 1.0

    # A dictionary, because SciPy takes longer to read a `LinearConstraint` than to solve.
    sum_is_one: Any = {"type": "eq", "fun": beyond_one, "jac": lambda _: ones[0]}
    found = minimize(
        mean_error,
        start,
        jac=slope,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(start),
        constraints=sum_is_one,
    )
    return np.clip(found.x, 0.0, 1.0) if found.success else start
