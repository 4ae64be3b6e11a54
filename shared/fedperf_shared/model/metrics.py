"""Error metrics of predicted run times: q-error and relative error.

All arguments are run times, positive and finite, [samples]. Empty arrays, arrays of unequal shapes
and invalid run times are refused.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedperf_shared.errors import InvalidInputError

_Floats = NDArray[np.float64]


class InvalidMetricInputError(InvalidInputError):
    """Raised for predictions and true values that cannot be compared."""


def q_error(predicted: ArrayLike, true: ArrayLike) -> _Floats:
    """Return max(predicted / true, true / predicted) per sample."""
    estimate, truth = _checked(predicted, true)
    return np.asarray(np.maximum(estimate / truth, truth / estimate))


def relative_errors(predicted: ArrayLike, true: ArrayLike) -> _Floats:
    """Return |predicted - true| / true per sample."""
    estimate, truth = _checked(predicted, true)
    return np.asarray(np.abs(estimate - truth) / truth)


def mape(predicted: ArrayLike, true: ArrayLike) -> float:
    """Return the mean relative error, as a ratio (0.3 is 30 %)."""
    return float(relative_errors(predicted, true).mean())


def median_q_error(predicted: ArrayLike, true: ArrayLike) -> float:
    """Return median q-error."""
    return float(np.median(q_error(predicted, true)))


def _checked(predicted: ArrayLike, true: ArrayLike) -> tuple[_Floats, _Floats]:
    estimate = np.asarray(predicted, dtype=np.float64)
    truth = np.asarray(true, dtype=np.float64)
    if estimate.shape != truth.shape or estimate.ndim != 1 or estimate.size == 0:
        raise InvalidMetricInputError(
            f"predicted {estimate.shape} and true {truth.shape} must be equal, flat and not empty"
        )
    for name, values in (("predicted", estimate), ("true", truth)):
        if not (np.isfinite(values) & (values > 0)).all():
            raise InvalidMetricInputError(f"{name} values must be positive and finite")
    return estimate, truth
