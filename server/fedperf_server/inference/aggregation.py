"""Robust, equal-weight aggregation of model updates.

Every update counts the same, whatever its organization's size. Each is first scaled
down to a public norm bound; from `TRIM_FROM` updates on, the lowest and highest values
of every coordinate are left out. `influence_bound` says how far one update of any
content can move the result. Updates that are not finite or of a wrong shape are refused:
they should not have passed validation.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.release import InvalidReleaseError

TRIM_FROM = 5
"""Fewest updates with which the extremes of every coordinate are left out."""

TRIM_SHARE = 0.2
"""Share of updates left out at each end, rounded down."""


def aggregate(
    current: Weights, updates: Sequence[Weights], *, norm_bound: float
) -> tuple[NDArray[np.float32], ...]:
    """`current` plus the trimmed mean of the clipped updates.

    Args:
        current: weights in the order of the architecture.
        updates: differences of the same shapes, at least one.
        norm_bound: public bound on the L2 norm of one update over all arrays.

    Raises:
        InvalidReleaseError: no update, a wrong shape, or a value that is not finite.
        ConfigurationError: the bound is not positive and finite.
    """
    if not 0 < norm_bound < math.inf:
        raise ConfigurationError(f"norm_bound must be positive and finite, got {norm_bound}")
    if not updates:
        raise InvalidReleaseError("there is no update to aggregate")
    factors = [_clip_factor(update, current, norm_bound) for update in updates]
    return tuple(
        _moved(array, [_scaled(u[place], f) for f, u in zip(factors, updates, strict=True)])
        for place, array in enumerate(current)
    )


def influence_bound(updates: int, *, norm_bound: float) -> float:
    """Most that one of `updates` updates, of any content, moves the result (L2) against zeros.

    `norm_bound / updates` without trimming; with trimming the divisor is
    the number of values that are left in each coordinate.
    """
    return norm_bound / (updates - 2 * _trimmed(updates))


def update_norm(update: Weights) -> float:
    """L2 norm over all arrays."""
    return math.sqrt(sum(float(np.sum(np.square(a, dtype=np.float64))) for a in update))


def _trimmed(updates: int) -> int:
    return int(TRIM_SHARE * updates) if updates >= TRIM_FROM else 0


def _clip_factor(update: Weights, current: Weights, norm_bound: float) -> float:
    shapes, expected = [a.shape for a in update], [a.shape for a in current]
    if shapes != expected:
        raise InvalidReleaseError(f"an update has shapes {shapes}, the model has {expected}")
    norm = update_norm(update)
    if not math.isfinite(norm):
        raise InvalidReleaseError(f"an update has norm {norm}")
    return min(1.0, norm_bound / norm) if norm > 0 else 1.0


def _scaled(array: NDArray[np.float32], factor: float) -> NDArray[np.float64]:
    return np.asarray(array.astype(np.float64) * factor, dtype=np.float64)


def _moved(
    array: NDArray[np.float32], changes: Sequence[NDArray[np.float64]]
) -> NDArray[np.float32]:
    stacked = np.stack(changes)
    trimmed = _trimmed(len(stacked))
    if trimmed:
        stacked = np.sort(stacked, axis=0)[trimmed:-trimmed]
    return np.asarray(array + stacked.mean(axis=0), dtype=np.float32)
