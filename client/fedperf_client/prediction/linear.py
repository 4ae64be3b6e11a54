"""Ridge regression on flat features, its strength chosen by generalized cross-validation.

Lines are followed a little beyond the columns seen; products of columns are read inside
their hull only, because a square that helps inside ruins everything outside.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fedperf_client.prediction.learner import varying_columns
from fedperf_client.prediction.prediction import Floats

STRENGTHS: tuple[float, ...] = tuple(float(10**power) for power in np.arange(-1.0, 4.5, 0.5))
WEAK_STRENGTHS: tuple[float, ...] = tuple(float(10**power) for power in np.arange(-4.0, 3.5, 0.5))
"""For tables of few columns, which a plan's hundreds of features are not."""

MARGIN = float(np.log(10.0))
"""How far beyond the targets seen a line may be followed, log seconds."""


def fit_ridge(
    features: Floats,
    target: Floats,
    *,
    degree: int = 1,
    strengths: Sequence[float] = STRENGTHS,
) -> Callable[[Floats], Floats]:
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
        return lambda asked: np.full(len(asked), level)
    from sklearn.linear_model import RidgeCV

    used = features[:, columns]
    centre, scale = used.mean(axis=0), used.std(axis=0)
    inside = np.ptp(used, axis=0)
    low, high = used.min(axis=0), used.max(axis=0)

    def terms(asked: Floats) -> Floats:
        near = (np.clip(asked, low - inside, high + inside) - centre) / scale
        if degree == 1:
            return np.asarray(near)
        return np.column_stack([near, _products((np.clip(asked, low, high) - centre) / scale)])

    model = RidgeCV(alphas=list(strengths)).fit(terms(used), target)
    floor, ceiling = target.min() - MARGIN, target.max() + MARGIN

    def answer(asked: Floats) -> Floats:
        values: Floats = model.predict(terms(asked[:, columns]))
        return np.clip(values, floor, ceiling)

    return answer


def _products(columns: Floats) -> Floats:
    """Squares and products of pairs, [rows, columns * (columns + 1) / 2]."""
    one, other = np.triu_indices(columns.shape[1])
    return np.asarray(columns[:, one] * columns[:, other])
