"""Gradient boosting on flat features with settings for little data: one thread, deterministic."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.learners.learner import varying_columns
from fedperf_client.prediction.learners.ridge import MARGIN
from fedperf_client.prediction.learners.trees import Trees
from fedperf_client.prediction.prediction import Floats

ROUNDS = 200
_MANY = 300
_LINEAR_LEAVES: dict[str, object] = {
    "linear_tree": True,
    "linear_lambda": 0.1,
    "feature_fraction": 1.0,
}


@dataclass(frozen=True, slots=True, eq=False)
class BoostedTrees:
    """Features -> target.

    Attributes:
        columns: of the features that the trees read, int64.
        trees: their sum.
        floor: least answer.
        ceiling: largest answer.
    """

    columns: NDArray[np.int64]
    trees: Trees
    floor: float
    ceiling: float

    def __call__(self, asked: Floats) -> Floats:
        """[rows]."""
        return np.clip(self.trees(asked[:, self.columns]), self.floor, self.ceiling)


def fit_boosting(
    features: Floats,
    target: Floats,
    *,
    linear_leaves: bool = False,
    weights: Floats | None = None,
) -> BoostedTrees:
    """Features -> target. The same input gives the same trees, bit for bit.

    Args:
        features: [rows, columns].
        target: [rows].
        linear_leaves: leaves hold lines instead of levels; the answer is clipped near the
            targets seen, because lines of small leaves run away.
        weights: what each row counts as, [rows]; 1 by default.
    """
    columns = varying_columns(features)
    if len(columns) == 0:
        level = float(np.median(target)) if len(target) else 0.0
        return BoostedTrees(columns, Trees.of_text(""), level, level)
    import lightgbm

    leaves = _LINEAR_LEAVES if linear_leaves else {}
    data = lightgbm.Dataset(
        features[:, columns], target, weight=weights, params={"verbose": -1, **leaves}
    )
    rows = len(target) if weights is None else round(float(weights.sum()))
    booster = lightgbm.train(
        _settings(rows) | leaves,
        data,
        num_boost_round=ROUNDS,
        keep_training_booster=True,  # else it is written as text and read again
    )
    margin = MARGIN if linear_leaves else np.inf
    trees = Trees.of_text(booster.model_to_string())
    return BoostedTrees(columns, trees, float(target.min() - margin), float(target.max() + margin))


def _settings(rows: int) -> dict[str, object]:
    return {
        "objective": "regression",
        "learning_rate": 0.08,
        "num_leaves": 15 if rows >= _MANY else 7,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": max(2, min(10, rows // 15)),  # weights of its rows
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
