"""One flat vector per plan, for trees and linear models (in the manner of Robopt).

The vector forgets the edges: per (kind, named platform) it holds the number of
operators, the sum of their log input rows and of their log output rows; then
sums of a few operator features over the whole plan; the log seconds of the analytic cost
model; then the 39 plan features.
Operators on a platform without a name (`OTHER`, `UNASSIGNED`) count only in the sums.
Bounded, because the features are and a plan has at most `MAX_OPERATORS` operators.
"""

import numpy as np

from fedperf_shared.workflow.features import (
    PLAN_FEATURES,
    RESOURCE_FEATURES,
    Features,
    Float32Array,
)
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind

_INPUT_ROWS, _OUTPUT_ROWS = 50, 52
_SUMMED = (45, 46, 47, 48, 49, 53, 54, 55, 57, 58, 60, 61, 62)
_PARTITIONS = 45
_CELLS = len(OperatorKind) * len(NAMED_PLATFORMS)

_ANALYTIC = 3 * _CELLS + len(_SUMMED)
FLAT_FEATURES = _ANALYTIC + 1 + PLAN_FEATURES
"""Length of the flat vector: 3 x 24 x 8 + 13 + 1 + 39 = 629."""

PLAN_COLUMNS = np.setdiff1d(
    np.arange(FLAT_FEATURES),
    [
        3 * _CELLS + _SUMMED.index(_PARTITIONS),
        _ANALYTIC,
        *range(FLAT_FEATURES - RESOURCE_FEATURES, FLAT_FEATURES),
    ],
)
"""Columns of the flat vector that are the same for a plan on any resources."""


def flatten(features: Features) -> Float32Array:
    """The flat vector of a plan that has been featurized already, float32 [629]."""
    operators = features.operators.astype(np.float64)
    kind = operators[:, 0:24]
    platform = operators[:, 28:36]
    weights = np.stack(
        [np.ones(len(operators)), operators[:, _INPUT_ROWS], operators[:, _OUTPUT_ROWS]]
    )
    cells = np.einsum("wo,ok,op->wkp", weights, kind, platform)
    sums = operators[:, _SUMMED].sum(axis=0)
    analytic = [features.analytic_log_seconds]
    return np.concatenate([cells.ravel(), sums, analytic, features.plan]).astype(np.float32)
