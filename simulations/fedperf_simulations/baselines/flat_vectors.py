"""Plans as vectors of fixed length, for models that know no graphs.

`robopt_vector` follows Robopt: per kind of operator and platform how many operators, and the
sums of their input and of their output rows; what crosses platforms; and the features of the
plan. `padded_vector` is what the GGFN paper gives its deep network: the features of the
operators one after the other, and those of the plan.
"""

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.workflow.features import OPERATOR_FEATURES, Features
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind

MOST_OPERATORS = 16
"""Operators of a padded vector; those of longer plans that come later are left out."""

_KINDS = slice(0, len(OperatorKind))
_PLATFORMS = slice(28, 28 + len(NAMED_PLATFORMS))
_INPUT_ROWS, _OUTPUT_ROWS = 50, 52
_SUMMED = (48, 57, 58)
"""Steps of user code, edges in from another platform, bytes over them."""

Float32 = NDArray[np.float32]


def robopt_vector(features: Features) -> Float32:
    """Float32 [24 kinds x 8 platforms x 3 + 3 + 39]."""
    rows = features.operators
    on = rows[:, _KINDS, None] * rows[:, None, _PLATFORMS]
    sums = [
        np.tensordot(weight, on, axes=1).ravel()
        for weight in (np.ones(len(rows)), rows[:, _INPUT_ROWS], rows[:, _OUTPUT_ROWS])
    ]
    return np.concatenate([*sums, rows[:, _SUMMED].sum(axis=0), features.plan], dtype=np.float32)


def padded_vector(features: Features) -> Float32:
    """Float32 [16 x 63 + 39], zeros where a plan has fewer operators."""
    padded = np.zeros((MOST_OPERATORS, OPERATOR_FEATURES), np.float32)
    kept = features.operators[:MOST_OPERATORS]
    padded[: len(kept)] = kept
    return np.concatenate([padded.ravel(), features.plan])
