"""Gradient boosting on flat features with settings for little data: one thread, deterministic."""

from collections.abc import Callable

import numpy as np

from fedperf_client.prediction.learner import varying_columns
from fedperf_client.prediction.linear import MARGIN
from fedperf_client.prediction.prediction import Floats

ROUNDS = 200
_MANY = 300
_LINEAR_LEAVES: dict[str, object] = {
    "linear_tree": True,
    "linear_lambda": 0.1,
    "feature_fraction": 1.0,
}


def fit_boosting(
    features: Floats, target: Floats, *, linear_leaves: bool = False
) -> Callable[[Floats], Floats]:
    """Features -> target. The same input gives the same trees, bit for bit.

    Args:
        features: [rows, columns].
        target: [rows].
        linear_leaves: leaves hold lines instead of levels; the answer is clipped near the
            targets seen, because lines of small leaves run away.
    """
    columns = varying_columns(features)
    if len(columns) == 0:
        level = float(np.median(target)) if len(target) else 0.0
        return lambda asked: np.full(len(asked), level)
    import lightgbm

    leaves = _LINEAR_LEAVES if linear_leaves else {}
    data = lightgbm.Dataset(features[:, columns], target, params={"verbose": -1, **leaves})
    booster = lightgbm.train(_settings(len(target)) | leaves, data, num_boost_round=ROUNDS)
    margin = MARGIN if linear_leaves else np.inf
    floor, ceiling = target.min() - margin, target.max() + margin

    def answer(asked: Floats) -> Floats:
        values = booster.predict(asked[:, columns], num_threads=1)
        return np.clip(np.asarray(values, dtype=np.float64), floor, ceiling)

    return answer


def _settings(rows: int) -> dict[str, object]:
    return {
        "objective": "regression",
        "learning_rate": 0.08,
        "num_leaves": 15 if rows >= _MANY else 7,
        "min_data_in_leaf": max(2, min(10, rows // 15)),
        "min_data_in_bin": 1,
        "max_bin": 63,
        "feature_fraction": 0.4,
        "lambda_l2": 1.0,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": 1,
        "verbose": -1,
    }
