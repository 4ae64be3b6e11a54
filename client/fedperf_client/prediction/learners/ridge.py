"""Ridge regression on flat features, its strength chosen by generalized cross-validation.

Lines are followed a little beyond the values seen. Products of columns are clipped to the values
seen, because a square that helps inside ruins everything outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.prediction import Floats

STRENGTHS: tuple[float, ...] = tuple(float(10**power) for power in np.arange(-1.0, 4.5, 0.5))
# For tables of few columns, which a plan's hundreds of features are not.
WEAK_STRENGTHS: tuple[float, ...] = tuple(float(10**power) for power in np.arange(-4.0, 3.5, 0.5))

MARGIN = float(np.log(10.0))  # how far beyond the targets seen a line may be followed, log seconds
ROUNDING = 1e-9  # relative difference below which two numbers of a column are equal
# Smallest share of a row's error that is its own, where rows that count as one with it differ.
LEAST_LEFT = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Ridge:
    """A fitted ridge regression on standardized columns; at degree 2 also on their products."""

    columns: NDArray[np.int64]  # of the features that it reads, int64 [columns]
    low: Floats  # least value seen of each
    high: Floats  # largest value seen of each
    centre: Floats  # weighted mean of each
    scale: Floats  # weighted standard deviation of each
    weights: Floats  # float64 [terms]
    level: float  # intercept
    floor: float  # least prediction
    ceiling: float  # largest prediction
    degree: int = 1  # 1 or 2

    def __call__(self, features: Floats) -> Floats:
        """Predict the target, [rows]."""
        values = self.terms(features[:, self.columns]) @ self.weights + self.level
        return np.clip(values, self.floor, self.ceiling)

    def terms(self, used: Floats) -> Floats:
        """Return the terms: columns up to a span outside of the training data, products inside."""
        inside = self.high - self.low
        near = (np.clip(used, self.low - inside, self.high + inside) - self.centre) / self.scale
        if self.degree == 1:
            return np.asarray(near)
        clipped = np.clip(used, self.low, self.high)
        return np.column_stack([near, _products((clipped - self.centre) / self.scale)])


def fit_ridge(
    features: Floats,
    target: Floats,
    *,
    degree: int = 1,
    strengths: Sequence[float] = STRENGTHS,
    weights: Floats | None = None,
) -> Ridge:
    """Fit a ridge regression on standardized columns, clipped near the targets seen.

    Args:
        features: [rows, columns].
        target: [rows].
        degree: 2 for squares and products of columns as well.
        strengths: of the ridge, to choose among.
        weights: of each row, [rows]; 1 by default.
    """
    columns = varying_columns(features)
    if len(target) < 3 or len(columns) == 0:  # noqa: PLR2004 - a line through two points is chance
        level = float(np.median(target)) if len(target) else 0.0
        nothing = np.zeros(0)
        none = np.zeros(0, np.int64)
        return Ridge(none, nothing, nothing, nothing, nothing, nothing, level, level, level)
    used = features[:, columns]
    centre = np.average(used, axis=0, weights=weights)
    lowest, highest = float(target.min() - MARGIN), float(target.max() + MARGIN)
    shape = Ridge(
        columns,
        used.min(axis=0),
        used.max(axis=0),
        centre,
        np.sqrt(np.average((used - centre) ** 2, axis=0, weights=weights)),
        np.zeros(0),
        0.0,
        lowest,
        highest,
        degree,
    )
    coefficients, level = _averaged(shape.terms(used), target, strengths, weights)
    return replace(shape, weights=coefficients, level=level)


def _averaged(
    terms: Floats, target: Floats, strengths: Sequence[float], weights: Floats | None
) -> tuple[Floats, float]:
    """Return coefficients and level, averaged over strengths by the likelihood of their errors.

    An error is that of a row left out, with all rows that count as one with it: of n rows that
    count 1 / n each, the others would predict it. With n rows, the weight of a strength is the mean
    square of its errors to the power of -n / 2, so no single row makes the choice jump.
    """
    counts = np.ones(len(target)) if weights is None else weights
    centre, level = np.average(terms, axis=0, weights=counts), np.average(target, weights=counts)
    root = np.sqrt(counts)
    residual = root * (target - level)
    left, singular, right = np.linalg.svd(root[:, None] * (terms - centre), full_matrices=False)
    is_used = singular > ROUNDING * singular[0]
    left, singular, right = left[:, is_used], singular[is_used], right[is_used]
    along = left.T @ residual
    squares, solutions = [], []
    for strength in strengths:
        shrunk = singular**2 / (singular**2 + strength)
        leverage = counts / counts.sum() + left**2 @ shrunk
        own = np.maximum(1 - leverage / counts, np.minimum(1 - leverage, LEAST_LEFT))
        squares.append(float((((residual - left @ (shrunk * along)) / own) ** 2).sum()))
        solutions.append(right.T @ (shrunk / singular * along))
    relative = np.maximum(squares, np.finfo(float).tiny)
    likely = (relative.min() / relative) ** (counts.sum() / 2)
    coefficients = np.average(solutions, axis=0, weights=likely)
    return np.asarray(coefficients), float(level - centre @ coefficients)


def _products(columns: Floats) -> Floats:
    """Return squares and products of pairs, [rows, columns * (columns + 1) / 2]."""
    one, other = np.triu_indices(columns.shape[1])
    return np.asarray(columns[:, one] * columns[:, other])


def varying_columns(features: Floats) -> NDArray[np.int64]:
    """Return the columns that are not constant over the rows."""
    if len(features) == 0:
        return np.empty(0, np.int64)
    rounding = ROUNDING * np.abs(features).max(axis=0)
    return np.flatnonzero(np.ptp(features, axis=0) > rounding).astype(np.int64)
