"""Metrics of forgetting, from R[i][j]: a model's error on segment j after training segment i.

Lower is better everywhere; backward transfer above 0 is forgetting. Definitions as in Lopez-Paz and
Ranzato (NeurIPS 2017) and Chaudhry et al. (ECCV 2018), with errors in place of accuracies.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Metrics of one sequence.

    Attributes:
        final: mean error over all segments at the end.
        averaged: mean over time of the mean error over the segments seen so far.
        backward_transfer: mean over the earlier segments of how much worse each became since
            it was trained.
        forgetting: the same against the best that the model ever was on it.
    """

    final: float
    averaged: float
    backward_transfer: float
    forgetting: float

    @classmethod
    def of(cls, errors: Floats) -> "Forgetting":
        """The metrics of R, [segments, segments]; what lies above its diagonal is not looked at.

        Raises:
            InvalidInputError: R is not square, or has an error that is not a number.
        """
        averaged = float(seen_so_far(errors).mean())
        last = errors[-1]
        earlier = range(len(errors) - 1)
        best = [errors[place:, place].min() for place in range(len(errors))]
        return cls(
            float(last.mean()),
            averaged,
            float(np.mean([last[j] - errors[j, j] for j in earlier])) if earlier else 0.0,
            float(np.mean(last - best)),
        )


def seen_so_far(errors: Floats) -> Floats:
    """After each segment, the mean error over the segments until then, [segments].

    Raises:
        InvalidInputError: R is not square, or has an error that is not a number.
    """
    if errors.shape != 2 * errors.shape[:1] or not errors.size:
        raise InvalidInputError(f"errors must be a square of segments, got {errors.shape}")
    below = np.tril(np.ones(errors.shape, dtype=bool))
    if not np.isfinite(errors[below]).all():
        raise InvalidInputError("an error on a segment that was seen is not a number")
    return np.array([row[: place + 1].mean() for place, row in enumerate(errors)])
