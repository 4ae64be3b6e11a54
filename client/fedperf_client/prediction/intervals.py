"""Conformal intervals on out-of-fold residuals, and the hull outside of which they do not hold.

Inside the hull of what was seen the half width is the finite-sample conformal quantile
of the absolute residuals, where each *workload* weighs the same however often it ran.
Where workloads are too few for the level, a public half width is the least.
Outside of the hull the half width is doubled and the prediction says `extrapolating`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.prediction import (
    LOG_SECONDS_LIMIT,
    Floats,
    InvalidPredictionError,
    Prediction,
    Question,
)
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

DEFAULT_HALF_WIDTH = math.log(4.0)
"""Half width in log seconds before own executions say better: a factor of 4 each way."""

WIDENING = 2.0
"""Factor on the half width outside of the hull."""

HULL_MARGIN = math.log(2.0)
"""Sizes up to twice, or down to half, of what was seen count as inside."""


def conformal_half_width(residuals: Floats, groups: NDArray[np.int64], level: float) -> float:
    """Half width in log seconds that covers a residual of a *new* workload with chance >= level.

    Args:
        residuals: out-of-fold log residuals, [executions].
        groups: number of the workload of each execution, [executions].
        level: wanted coverage in (0, 1).
    """
    if not 0 < level < 1:
        raise InvalidPredictionError(f"level must be in (0, 1), got {level!r}")
    if len(residuals) == 0:
        return DEFAULT_HALF_WIDTH
    size = np.abs(residuals)
    order = np.argsort(size, kind="stable")
    executions_of = np.bincount(groups)
    workloads = int(np.count_nonzero(executions_of))
    mass = np.cumsum(1.0 / executions_of[groups[order]])
    rank = (workloads + 1) * level
    if not rank <= workloads:
        return max(float(size.max()), DEFAULT_HALF_WIDTH)
    return float(size[order][np.searchsorted(mass, rank - 1e-9)])


@dataclass(frozen=True, slots=True)
class Hull:
    """A box around the questions seen: sizes and cores, and the platforms and kinds among them.

    Attributes:
        lowest: log source rows, log largest output, log cores, log nodes, log operators.
        highest: the same, upper ends.
        platforms: platforms seen.
        kinds: operator kinds seen.
    """

    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    platforms: frozenset[Platform]
    kinds: frozenset[OperatorKind]

    @classmethod
    def around(cls, questions: Sequence[Question]) -> Self:
        """The hull of `questions`; without any, everything lies outside."""
        if not questions:
            return cls((), (), frozenset(), frozenset())
        sizes = np.array([_sizes(question) for question in questions])
        return cls(
            tuple(sizes.min(axis=0).tolist()),
            tuple(sizes.max(axis=0).tolist()),
            frozenset(platform for q in questions for platform in q.plan.platforms),
            frozenset(o.kind for q in questions for o in q.plan.workflow.operators),
        )

    def contains(self, question: Question) -> bool:
        """Whether `question` lies inside."""
        if not self.platforms:
            return False
        inside = all(
            low - HULL_MARGIN <= size <= high + HULL_MARGIN
            for low, size, high in zip(self.lowest, _sizes(question), self.highest, strict=True)
        )
        kinds = {operator.kind for operator in question.plan.workflow.operators}
        return inside and self.platforms.issuperset(question.plan.platforms) and kinds <= self.kinds


def with_interval(
    log_seconds: float, half_width: float, *, level: float, inside: bool
) -> Prediction:
    """The prediction of median exp(`log_seconds`), widened where the hull does not hold it."""
    width = half_width if inside else WIDENING * half_width
    lower, upper = (
        max(-2 * LOG_SECONDS_LIMIT, log_seconds - width),
        min(2 * LOG_SECONDS_LIMIT, log_seconds + width),
    )
    return Prediction(
        math.exp(log_seconds), math.exp(lower), math.exp(upper), level, extrapolating=not inside
    )


def _sizes(question: Question) -> tuple[float, ...]:
    operators = question.plan.workflow.operators
    source_rows = sum(operator.output_rows for operator in operators if not operator.inputs)
    largest = max(operator.output_rows for operator in operators)
    return (
        math.log1p(source_rows),
        math.log1p(largest),
        math.log(question.cluster.cores),
        math.log(question.cluster.nodes),
        math.log(len(operators)),
    )
