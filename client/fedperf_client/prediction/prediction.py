"""Questions about run times, and answers that say how sure they are.

A `Prediction` holds 0 < lower <= median <= upper < infinity or does not exist.
Everything inside works on the natural log of wall seconds; seconds appear only here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS

Floats = NDArray[np.float64]

LOG_SECONDS_LIMIT = math.log(MAX_RUNTIME_SECONDS)
"""Medians lie within exp(-limit) and exp(limit) seconds, whatever a model says."""


class InvalidPredictionError(InvalidInputError):
    """A prediction carries values that no predictor may give."""


class PredictorFailedError(FedperfError):
    """A predictor gave a wrong number of values, or values that are not finite."""

    def __init__(self, name: str, expected: int, values: Floats) -> None:
        wrong = int(np.count_nonzero(~np.isfinite(values)))
        super().__init__(
            f"predictor {name!r} gave values of shape {values.shape} for {expected} questions, "
            f"{wrong} of them not finite"
        )
        self.name = name


PredictLog = Callable[[Sequence[PlanOnCluster]], Floats]
"""Plans -> natural log of wall seconds [plans]; how a shared model is passed in."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted run time.

    Attributes:
        median_seconds: half of such executions should take longer.
        lower_seconds: lower end of the interval.
        upper_seconds: upper end of the interval.
        level: share of executions that the interval should cover.
        extrapolating: the question lies outside of what was seen; the interval is widened
            and its level is not promised.
    """

    median_seconds: float
    lower_seconds: float
    upper_seconds: float
    level: float = 0.9
    extrapolating: bool = False

    def __post_init__(self) -> None:
        ordered = 0 < self.lower_seconds <= self.median_seconds <= self.upper_seconds
        if not (ordered and self.upper_seconds < math.inf):
            raise InvalidPredictionError(
                "a prediction needs 0 < lower <= median <= upper < infinity, got "
                f"{self.lower_seconds!r}, {self.median_seconds!r}, {self.upper_seconds!r}"
            )
        if not 0 < self.level < 1:
            raise InvalidPredictionError(f"level must be in (0, 1), got {self.level!r}")

    def covers(self, seconds: float) -> bool:
        """Whether an execution that took so long lies in the interval."""
        return self.lower_seconds <= seconds <= self.upper_seconds


def checked_log(name: str, values: Floats, expected: int) -> Floats:
    """`values` as float64 [expected] within the limits, or `PredictorFailedError`."""
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (expected,) or not np.isfinite(values).all():
        raise PredictorFailedError(name, expected, values)
    return np.clip(values, -LOG_SECONDS_LIMIT, LOG_SECONDS_LIMIT)
