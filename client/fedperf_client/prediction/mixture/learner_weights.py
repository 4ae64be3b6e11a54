"""Weights of learners, by how wrong each was on own executions that it had not seen.

Weighting, not selection: with few errors the learner that looks best is often best by
chance, and a mix costs less where that happens. Every workload weighs the same, however many
executions it has: in means of errors, and in how many pieces of evidence there are.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.prediction import Floats

Ints = NDArray[np.int64]

STACKED_FROM = 100
"""Workloads from which on the weights are those whose mix would have had the least error."""

SMALLEST_WEIGHT = 0.01
"""Members below this are left out: they cost time and change nothing."""

_SMALLEST_ERROR = 0.02
"""Errors below this, in log seconds, are no reason to prefer a learner: clocks differ by more."""

_OUTLIER = 5.0
"""Times its learner's typical error: what an error counts at most for stacked weights."""


def mixing_weights(
    errors: Floats,
    groups: Ints,
    evidence: Ints | None = None,
    *,
    ready: Floats | None = None,
) -> Floats:
    """Weights of the members, not negative, of sum 1; small ones are 0.

    With few pieces of evidence in proportion to error**-p: p grows with their number, so that few
    errors decide little. With many, the weights of the mix that would have erred least.
    Without errors the first member has all.

    Args:
        errors: out-of-fold log errors, [members, executions].
        groups: workload that each error belongs to, [executions].
        evidence: piece of evidence that it belongs to, [executions]; the workload by default.
        ready: part of its weight that each member has, [members]; 1 by default.
    """
    if errors.shape[1] == 0:
        return np.asarray(np.eye(len(errors))[0], dtype=np.float64)
    typical = np.array([typical_error(row, groups) for row in np.abs(errors)])
    pieces = len(np.unique(groups if evidence is None else evidence))
    weights = _weights_by_error(typical, pieces)
    if pieces > STACKED_FROM:
        stacked = _stacked_weights(errors, weights, typical, shares_of(groups))
        weights += min(1.0, pieces / STACKED_FROM - 1) * (stacked - weights)
    weights = weights if ready is None else weights * ready / (weights @ ready)
    weights = np.where(weights < SMALLEST_WEIGHT, 0.0, weights)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def mixed_errors(
    errors: Floats, groups: Ints, evidence: Ints, folds: Ints, *, ready: Floats | None = None
) -> Floats:
    """Errors of the mix, where the weights of each fold have not seen that fold's errors."""
    mixed = np.zeros(errors.shape[1])
    for fold in np.unique(folds).tolist():
        others, held = folds != fold, folds == fold
        weights = mixing_weights(errors[:, others], groups[others], evidence[others], ready=ready)
        mixed[held] = weights @ errors[:, held]
    return mixed


def typical_error(absolute: Floats, groups: Ints) -> float:
    """Mean over workloads of their absolute errors, without the largest tenth; NaN of none."""
    _, number = np.unique(groups, return_inverse=True)
    means = np.bincount(number, absolute) / np.maximum(np.bincount(number), 1)
    kept = np.sort(means)[: int(np.ceil(0.9 * len(means)))]
    return float(kept.mean()) if len(kept) else float("nan")


def shares_of(groups: Ints, most: float = 1.0) -> Floats:
    """What each execution counts as, where a workload counts as `most` executions at most."""
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(np.minimum(1.0, most / counts)[number], dtype=np.float64)


def _weights_by_error(typical: Floats, pieces: int) -> Floats:
    relative = np.maximum(typical, _SMALLEST_ERROR)
    power = np.clip(pieces / 5, 4, 12)
    weights = (relative.min() / relative) ** power
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _stacked_weights(errors: Floats, start: Floats, typical: Floats, shares: Floats) -> Floats:
    """Weights on the simplex with the least mean absolute error of the mix, from `start` on.

    The mean is over executions that count as `shares`.

    The absolute value is smoothed below `_SMALLEST_ERROR`, so that the problem is convex
    and has a gradient. Outliers are clipped.
    """
    from scipy.optimize import minimize

    bounds = _OUTLIER * typical[:, None]
    clipped, mean = np.clip(errors, -bounds, bounds), shares / shares.sum()

    def smoothed(mixed: Floats) -> Floats:
        return np.sqrt(mixed**2 + _SMALLEST_ERROR**2)

    def mean_error(weights: Floats) -> float:
        return float(smoothed(weights @ clipped) @ mean)

    def slope(weights: Floats) -> Floats:
        mixed = weights @ clipped
        return np.asarray(clipped @ (mean * mixed / smoothed(mixed)), dtype=np.float64)

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
