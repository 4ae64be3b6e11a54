"""Ridge regression on flat features, its strength chosen by generalized cross-validation.

Lines are followed a little beyond the columns seen; products of columns are read inside
their hull only, because a square that helps inside ruins everything outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.learners.learner import varying_columns
from fedperf_client.prediction.prediction import Floats

STRENGTHS: tuple[float, ...] = tuple(float(10**power) for power in np.arange(-1.0, 4.5, 0.5))
WEAK_STRENGTHS: tuple[float, ...] = tuple(float(10**power) for power in np.arange(-4.0, 3.5, 0.5))
"""For tables of few columns, which a plan's hundreds of features are not."""

MARGIN = float(np.log(10.0))
"""How far beyond the targets seen a line may be followed, log seconds."""


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
) -> Ridge:
    """Features -> target, linear in the standardized columns, clipped near the targets seen.

    Args:
        features: [rows, columns].
        target: [rows].
        degree: 2 for squares and products of columns as well.
        strengths: of the ridge, to choose among.
    """
    columns = varying_columns(features)
    if len(target) < 3 or len(columns) == 0:  # noqa: PLR2004 - a line through two points is chance
        level = float(np.median(target)) if len(target) else 0.0
        nothing = np.zeros(0)
        none = np.zeros(0, np.int64)
        return Ridge(none, nothing, nothing, nothing, nothing, nothing, level, level, level)
    from sklearn.linear_model import RidgeCV

    used = features[:, columns]
    lowest, highest = float(target.min() - MARGIN), float(target.max() + MARGIN)
    shape = Ridge(
        columns,
        used.min(axis=0),
        used.max(axis=0),
        used.mean(axis=0),
        used.std(axis=0),
        np.zeros(0),
        0.0,
        lowest,
        highest,
        degree,
    )
    model = RidgeCV(alphas=list(strengths)).fit(shape.terms(used), target)
    return replace(shape, weights=np.asarray(model.coef_), level=float(model.intercept_))


def _products(columns: Floats) -> Floats:
    """Squares and products of pairs, [rows, columns * (columns + 1) / 2]."""
    one, other = np.triu_indices(columns.shape[1])
    return np.asarray(columns[:, one] * columns[:, other])
