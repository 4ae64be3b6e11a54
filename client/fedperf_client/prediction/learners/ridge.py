"""Ridge regression on flat features, its strength chosen by generalized cross-validation.

Lines are followed a little beyond the columns seen; products of columns are read inside
their hull only, because a square that helps inside ruins everything outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.learners.learner import ROUNDING, varying_columns
from fedperf_client.prediction.prediction import Floats

STRENGTHS: tuple[float, ...] = tuple(float(10**power) for power in np.arange(-1.0, 4.5, 0.5))
WEAK_STRENGTHS: tuple[float, ...] = tuple(float(10**power) for power in np.arange(-4.0, 3.5, 0.5))
"""For tables of few columns, which a plan's hundreds of features are not."""

MARGIN = float(np.log(10.0))
"""How far beyond the targets seen a line may be followed, log seconds."""


LEAST_LEFT = 0.1
"""Of a row's error, that is its own at least where what counts as one with it differs from it."""


@dataclass(frozen=True, slots=True, eq=False)
class Ridge:
    """Features -> target, linear in standardized columns, and in their products at degree 2.

    Attributes:
        columns: of the features that it reads, int64 [columns].
        low: least value seen of each.
        high: largest value seen of each.
        centre: what stands for 0.
        scale: what stands for 1.
        weights: float64 [terms].
        level: what all terms are added to.
        floor: least answer.
        ceiling: largest answer.
        degree: 1 or 2.
    """

    columns: NDArray[np.int64]
    low: Floats
    high: Floats
    centre: Floats
    scale: Floats
    weights: Floats
    level: float
    floor: float
    ceiling: float
    degree: int = 1

    def __call__(self, asked: Floats) -> Floats:
        """[rows]."""
        values = self.terms(asked[:, self.columns]) @ self.weights + self.level
        return np.clip(values, self.floor, self.ceiling)

    def terms(self, used: Floats) -> Floats:
        """What is added up: the columns a span beyond their hull, products inside of it only."""
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
    """Features -> target, linear in the standardized columns, clipped near the targets seen.

    Args:
        features: [rows, columns].
        target: [rows].
        degree: 2 for squares and products of columns as well.
        strengths: of the ridge, to choose among.
        weights: what each row counts as, [rows]; 1 by default.
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
    """Coefficients and level: the mean over strengths, by how likely their errors are.

    An error is that of a row left out, with all that counts as one with it: of n rows that count
    1 / n each, the others would tell it. Of n rows a strength counts as the mean square of its
    errors to the power of -n / 2, so that no row makes the choice jump from one to the next.
    """
    counts = np.ones(len(target)) if weights is None else weights
    centre, level = np.average(terms, axis=0, weights=counts), np.average(target, weights=counts)
    root = np.sqrt(counts)
    wanted = root * (target - level)
    left, singular, right = np.linalg.svd(root[:, None] * (terms - centre), full_matrices=False)
    kept = singular > ROUNDING * singular[0]
    left, singular, right = left[:, kept], singular[kept], right[kept]
    along = left.T @ wanted
    squares, found = [], []
    for strength in strengths:
        shrunk = singular**2 / (singular**2 + strength)
        leverage = counts / counts.sum() + left**2 @ shrunk
        own = np.maximum(1 - leverage / counts, np.minimum(1 - leverage, LEAST_LEFT))
        squares.append(float((((wanted - left @ (shrunk * along)) / own) ** 2).sum()))
        found.append(right.T @ (shrunk / singular * along))
    relative = np.maximum(squares, np.finfo(float).tiny)
    likely = (relative.min() / relative) ** (counts.sum() / 2)
    coefficients = np.average(found, axis=0, weights=likely)
    return np.asarray(coefficients), float(level - centre @ coefficients)


def _products(columns: Floats) -> Floats:
    """Squares and products of pairs, [rows, columns * (columns + 1) / 2]."""
    one, other = np.triu_indices(columns.shape[1])
    return np.asarray(columns[:, one] * columns[:, other])
