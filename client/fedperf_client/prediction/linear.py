"""Ridge regression on flat features, its strength chosen by generalized cross-validation."""

from collections.abc import Callable

import numpy as np

from fedperf_client.prediction.learner import varying_columns
from fedperf_client.prediction.prediction import Floats

STRENGTHS: tuple[float, ...] = tuple(float(10**power) for power in np.arange(-1.0, 4.5, 0.5))
MARGIN = float(np.log(10.0))
"""How far beyond the targets seen a line may be followed, log seconds."""


def fit_ridge(features: Floats, target: Floats) -> Callable[[Floats], Floats]:
    """Features -> target, linear in the standardized columns, clipped near the targets seen."""
    columns = varying_columns(features)
    if len(target) < 3 or len(columns) == 0:  # noqa: PLR2004 - a line through two points is chance
        level = float(np.median(target)) if len(target) else 0.0
        return lambda asked: np.full(len(asked), level)
    from sklearn.linear_model import RidgeCV

    used = features[:, columns]
    centre, scale = used.mean(axis=0), used.std(axis=0)
    inside = np.ptp(used, axis=0)
    lowest, highest = used.min(axis=0) - inside, used.max(axis=0) + inside
    model = RidgeCV(alphas=STRENGTHS).fit((used - centre) / scale, target)
    floor, ceiling = target.min() - MARGIN, target.max() + MARGIN

    def answer(asked: Floats) -> Floats:
        near = np.clip(asked[:, columns], lowest, highest)
        values: Floats = model.predict((near - centre) / scale)
        return np.clip(values, floor, ceiling)

    return answer
