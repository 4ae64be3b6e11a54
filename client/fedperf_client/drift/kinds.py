"""Kinds of drift: concept, where the time of equal work changes, or covariate, where the work does.

Concept drift is a shift of the residual at equal jobs and inputs; covariate drift is a change of
the inputs. Both can hold. Where all inputs after the change are others, the executions after it
cannot be compared with those before. Nothing is called concept drift then: predictors that read the
inputs learn the difference from them.
"""

import math
from dataclasses import dataclass
from enum import StrEnum, unique

import numpy as np
from numpy.typing import NDArray

from fedperf_client.drift.detection import MOST_SURPRISING, Floats, Ints

SIGNIFICANT = 3.0
"""Standard errors by which a shift at equal inputs is away from 0."""

LEAST_COMPARED = 5.0
"""Pairs of executions before and after, so to speak, that a comparison needs."""

CHANCE = 0.01
"""Chance of a false alarm: a test sees a change where none is, over the tests of all inputs."""


@unique
class DriftKind(StrEnum):
    """Kinds of drift."""

    CONCEPT = "concept"
    COVARIATE = "covariate"


@dataclass(frozen=True, slots=True)
class ResidualShift:
    """By how much a residual shifted at equal jobs and inputs.

    Attributes:
        log_seconds: after - before.
        error: its standard error; infinite where nothing can be compared.
    """

    log_seconds: float
    error: float

    @property
    def is_known(self) -> bool:
        """Whether there was something to compare."""
        return math.isfinite(self.error)

    @property
    def is_significant(self) -> bool:
        """Whether it is more than chance."""
        return abs(self.log_seconds) > SIGNIFICANT * self.error


def shift_between(residuals: Floats, jobs: Ints, inputs: Floats, is_after: Ints) -> ResidualShift:
    """The shift by least squares, where every job has a level and every input a slope.

    Jobs count that ran before and after; where these are too few, all are taken for one.

    Args:
        residuals: log seconds, [executions].
        jobs: number of the job of each, [executions].
        inputs: what differs between executions of a job, [executions, inputs].
        is_after: 0 before the change, 1 after it, [executions].
    """
    after = is_after.astype(np.float64)
    groups = np.unique(jobs, return_inverse=True)[1]
    if not _weight(_within(after[:, None], groups)) >= LEAST_COMPARED:
        groups = np.zeros_like(groups)
    values = _within(np.column_stack([residuals, after]), groups)
    values[:, 0] = np.clip(values[:, 0], -MOST_SURPRISING, MOST_SURPRISING)
    around = _within(inputs, groups)
    around /= np.maximum(np.linalg.norm(around, axis=0), 1e-9)
    rest = values - around @ np.linalg.lstsq(around, values, rcond=1e-6)[0]
    residual, step = rest[:, 0], rest[:, 1:]
    freedom = len(residuals) - groups.max() - 2 - inputs.shape[1]
    if not (_weight(step) >= LEAST_COMPARED and freedom > 0):
        return ResidualShift(0.0, np.inf)
    shift = float(step[:, 0] @ residual / _weight(step))
    left = float(np.sum((residual - shift * step[:, 0]) ** 2)) / freedom
    return ResidualShift(shift, float(np.sqrt(left / _weight(step))))


def inputs_changed(before: Floats, after: Floats) -> bool:
    """Whether the distribution of any input changed, by Kolmogorov-Smirnov and Bonferroni.

    Args:
        before: [executions, inputs].
        after: [other executions, inputs].
    """
    from scipy.stats import ks_2samp

    tests = before.shape[1]
    return any(
        ks_2samp(before[:, each], after[:, each]).pvalue < CHANCE / tests for each in range(tests)
    )


def _within(columns: Floats, groups: NDArray[np.intp]) -> Floats:
    """Without the mean of each group."""
    count = np.bincount(groups)
    means = [np.bincount(groups, column) / count for column in columns.T]
    return np.asarray(columns - np.array(means).reshape(columns.shape[1], -1).T[groups])


def _weight(step: Floats) -> float:
    return float(np.sum(step**2))
