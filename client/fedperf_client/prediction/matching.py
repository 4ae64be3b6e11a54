"""Folds that mimic the question: a learner is weighted by how it did on the like of it.

A question may lie between known scales (machines, cores) or beyond them, between known
sizes or beyond them. Random folds would ask everybody to interpolate and would prefer
those who remember; these folds hold out whole levels:

* between: each inner level in turn;
* beyond: the highest levels, as many as make it most alike how far the question reaches
  beyond what is known, as a share of the span that is known;
* neither: the folds of the caller, which split no workload.

No fold splits a level, so none splits repeats of a configuration.
"""

from dataclasses import dataclass
from enum import StrEnum, unique

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.learner import ROUNDING, varying_columns
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import InvalidInputError

Mask = NDArray[np.bool_]

LEVEL_STEP = 0.01
"""Log scale or size within which two executions are at the same level."""

MOST_LEVELS = 8
"""Of more levels, neighbours are put together."""

LEAST_KEPT = 2
"""Levels that a fold keeps; from fewer nobody can tell how run time grows."""


@unique
class Asks(StrEnum):
    """What a question asks of those who know some executions."""

    SEEN = "scale and size seen"
    BETWEEN_SCALES = "between scales"
    BETWEEN_SIZES = "between sizes"
    BEYOND_SCALES = "beyond scales"
    BEYOND_SIZES = "beyond sizes"


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where executions or questions lie.

    Attributes:
        scale: log machines or cores, float64 [rows].
        size: log of the input size, float64 [rows].
    """

    scale: Floats
    size: Floats

    def __post_init__(self) -> None:
        if self.scale.ndim != 1 or self.scale.shape != self.size.shape:
            shapes = f"{self.scale.shape} and {self.size.shape}"
            raise InvalidInputError(f"a place has one scale and one size, got shapes {shapes}")
        if not (np.isfinite(self.scale).all() and np.isfinite(self.size).all()):
            raise InvalidInputError("the places of executions and questions are finite")


def asks(known: Places, asked: Places) -> list[Asks]:
    """What each of the `asked` asks of those who know `known`; scale counts before size."""
    beyond_scale, new_scale = _beyond(known.scale, asked.scale), _new(known.scale, asked.scale)
    beyond_size, new_size = _beyond(known.size, asked.size), _new(known.size, asked.size)
    chosen = np.select(
        [beyond_scale, beyond_size, new_scale, new_size],
        [Asks.BEYOND_SCALES, Asks.BEYOND_SIZES, Asks.BETWEEN_SCALES, Asks.BETWEEN_SIZES],
        Asks.SEEN,
    )
    return [Asks(each) for each in chosen.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """Executions to learn from and executions to be asked about; some may be neither.

    Attributes:
        kept: rows, int64.
        held: rows, int64, at least one.
    """

    kept: NDArray[np.int64]
    held: NDArray[np.int64]


def matching_folds(known: Places, asked: Places, kind: Asks, features: Floats) -> list[Fold]:
    """Folds of the known executions that resemble `asked`.

    Args:
        known: places of the executions.
        asked: places of the questions, all of that `kind`.
        kind: one of `asks`.
        features: of the executions, [executions, columns]. Nobody is asked about a column in
            which all kept executions are alike and the one held out is not: a machine type,
            say, that only one size ran on.

    Returns:
        None where there are too few levels to mimic the question, or nothing to mimic.
    """
    if kind is Asks.SEEN:
        return []
    along_scale = kind in {Asks.BETWEEN_SCALES, Asks.BEYOND_SCALES}
    values, wanted = (known.scale, asked.scale) if along_scale else (known.size, asked.size)
    levels = _levels(values)
    count = int(levels.max(initial=-1)) + 1
    if kind in {Asks.BETWEEN_SCALES, Asks.BETWEEN_SIZES}:
        inner = [_fold(levels == level, features) for level in range(1, count - 1)]
        return [each for each in inner if len(each.held)]
    cuts = [_fold(levels >= count - held, features) for held in range(1, count - LEAST_KEPT + 1)]
    usable = [each for each in cuts if len(each.held)]
    if not usable:
        return []
    reach = _reach(values, wanted)
    like = [abs(_reach(values[each.kept], values[each.held]) - reach) for each in usable]
    return [usable[int(np.argmin(like))]]


def _fold(held: Mask, features: Floats) -> Fold:
    kept = np.flatnonzero(~held)
    rest = np.flatnonzero(held)
    alike = np.setdiff1d(np.arange(features.shape[1]), varying_columns(features[kept]))
    new = np.abs(features[np.ix_(rest, alike)] - features[kept[:1]][:, alike])
    fair = (new <= ROUNDING * np.abs(features[:, alike]).max(axis=0, initial=0.0)).all(axis=1)
    return Fold(kept, rest[fair])


def _reach(seen: Floats, wanted: Floats) -> float:
    """Log of how far beyond what was seen, as a share of the span that was seen."""
    above, below = wanted - seen.max(), seen.min() - wanted
    beyond = float(np.maximum(np.maximum(above, below), 0.0).mean())
    return float(np.log(max(beyond, LEVEL_STEP) / max(float(np.ptp(seen)), LEVEL_STEP)))


def _beyond(known: Floats, asked: Floats) -> Mask:
    if len(known) == 0:
        return np.ones(len(asked), bool)
    outside = (asked > known.max() + LEVEL_STEP) | (asked < known.min() - LEVEL_STEP)
    return np.asarray(outside)


def _new(known: Floats, asked: Floats) -> Mask:
    if len(known) == 0:
        return np.ones(len(asked), bool)
    return np.asarray(np.abs(asked[:, None] - known).min(axis=1) > LEVEL_STEP)


def _levels(values: Floats) -> NDArray[np.int64]:
    """The level of each value, counted from the lowest, at most `MOST_LEVELS` of them."""
    order = np.argsort(values, kind="stable")
    steps = np.diff(values[order], prepend=values[order][:1]) > LEVEL_STEP
    levels = np.empty(len(values), np.int64)
    levels[order] = np.cumsum(steps)
    count = int(levels.max(initial=-1)) + 1
    return levels if count <= MOST_LEVELS else levels * MOST_LEVELS // count
