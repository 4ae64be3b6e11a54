"""Seconds of a plan as a sum: operators, transfers between platforms, starts of platforms.

Additive costs are what a search can be exact about: the cost of a plan is the sum of one
number per operator, one per edge, and one per platform that it uses and that is not warm.
Everything is at least 0; an operator that a platform must not run costs infinity there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.vocabulary import Platform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class AdditiveCosts:
    """What every part of a plan of `workflow` costs.

    Attributes:
        workflow: whose plans.
        platforms: the columns, k of them; plans are rows of columns [operators].
        operator_seconds: [operators, k]; infinity where a platform must not run one.
        transfer_seconds: [edges, k, k], from the parent's to the child's platform, in the
            order of `workflow.edges`; 0 where both are the same.
        startup_seconds: [k], paid once by a plan that uses the platform; 0 for a warm one.
    """

    workflow: Workflow
    platforms: tuple[Platform, ...]
    operator_seconds: Floats
    transfer_seconds: Floats
    startup_seconds: Floats

    def __post_init__(self) -> None:
        operators, edges = len(self.workflow.operators), len(self.workflow.edges)
        count = len(self.platforms)
        if count == 0 or len(set(self.platforms)) != count:
            raise InvalidInputError(f"costs need platforms, each once, got {count}")
        for name, values, shape in (
            ("operator", self.operator_seconds, (operators, count)),
            ("transfer", self.transfer_seconds, (edges, count, count)),
            ("start-up", self.startup_seconds, (count,)),
        ):
            if values.shape != shape:
                raise InvalidInputError(
                    f"{name} seconds have the shape {values.shape}, not {shape}"
                )
            if not (values >= 0).all():  # written so that NaN is refused
                raise InvalidInputError(f"{name} seconds are numbers from 0 on")
        for name, values in (
            ("transfer", self.transfer_seconds),
            ("start-up", self.startup_seconds),
        ):
            if not np.isfinite(values).all():
                raise InvalidInputError(f"{name} seconds are finite; only an operator is forbidden")
        if np.diagonal(self.transfer_seconds, axis1=1, axis2=2).any():
            raise InvalidInputError("nothing is transferred inside a platform: 0 on the diagonal")
        for position in np.flatnonzero(~self.allowed.any(axis=1)).tolist():
            raise InvalidInputError(
                f"operator {position} ({self.workflow.operators[position].kind.name}) runs "
                "nowhere: its seconds are infinite wherever it may run"
            )

    @property
    def allowed(self) -> Mask:
        """Where an operator may run, [operators, k]."""
        return np.isfinite(self.operator_seconds)

    def within(self, platforms: Sequence[Platform], allowed: Mask) -> Self:
        """The costs of those platforms alone, and only where they are `allowed`.

        Args:
            platforms: in their new order, each one of those here.
            allowed: [operators, len(platforms)].

        Raises:
            InvalidInputError: nothing is known of a platform, or an operator runs nowhere.
        """
        unknown = [each.name.lower() for each in platforms if each not in self.platforms]
        if unknown:
            raise InvalidInputError(f"no costs are known of {', '.join(unknown)}")
        columns = [self.platforms.index(each) for each in platforms]
        return type(self)(
            self.workflow,
            tuple(platforms),
            np.where(allowed, self.operator_seconds[:, columns], np.inf),
            self.transfer_seconds[:, columns][:, :, columns],
            self.startup_seconds[columns],
        )

    def allows(self, assignment: Sequence[Platform]) -> bool:
        """Whether every operator may run where that plan has it."""
        return all(
            platform in self.platforms and bool(row[self.platforms.index(platform)])
            for platform, row in zip(assignment, self.allowed, strict=True)
        )

    def total(self, assignment: Sequence[Platform]) -> float:
        """Seconds of one plan, infinity where it is forbidden."""
        columns = [self.platforms.index(each) for each in assignment]
        return float(self.totals(np.array([columns], dtype=np.int64))[0])

    def totals(self, plans: Ints) -> Floats:
        """Seconds of many plans, rows of columns [plans, operators]."""
        operators, edges = plans.shape[1], np.array(self.workflow.edges, np.int64).reshape(-1, 2)
        seconds = self.operator_seconds[np.arange(operators), plans].sum(axis=1)
        ends = plans[:, edges]
        moved = self.transfer_seconds[np.arange(len(edges)), ends[..., 0], ends[..., 1]]
        return np.asarray(seconds + moved.sum(axis=1) + self.startups(plans))

    def startups(self, plans: Ints) -> Floats:
        """Seconds of starting what each of the plans uses and is not warm, [plans]."""
        used = (plans[:, :, None] == np.arange(len(self.platforms))).any(axis=1)
        return np.asarray(used @ self.startup_seconds)

    def assignment(self, plan: Ints) -> tuple[Platform, ...]:
        """The platforms of one row of columns."""
        return tuple(self.platforms[column] for column in plan.tolist())
