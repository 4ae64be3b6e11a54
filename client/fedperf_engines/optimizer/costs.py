"""Additive costs of plans, and the constraints on which platform may run which operator.

The cost of a plan is the sum of one number per operator, one per edge, and one per platform that it
uses and that is not warm. A search can minimize such a sum exactly. Everything is at least 0. An
operator costs infinity on a platform that must not run it.

A platform may run an operator if it is a candidate (installed, requested), supports the operator,
and the memory that the operator needs fits the platform's cap. A pinned operator stays on its
platform. Where an operator has no platform left, the error names the operator and the reason.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class AdditiveCosts:
    """The costs of every part of a plan of `workflow`."""

    workflow: Workflow  # whose plans
    platforms: tuple[Platform, ...]  # the columns, k of them; plans are rows of columns [operators]
    operator_seconds: Floats  # [operators, k]; infinity where a platform must not run one
    # [edges, k, k], from the parent's to the child's platform, in the order of `workflow.edges`; 0
    # where both are the same
    transfer_seconds: Floats
    startup_seconds: Floats  # [k], paid once by a plan that uses the platform; 0 for a warm one

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
        """Return where an operator may run, [operators, k]."""
        return np.isfinite(self.operator_seconds)

    def within(self, platforms: Sequence[Platform], allowed: Mask) -> Self:
        """Return the costs of those platforms alone, and only where they are `allowed`.

        Args:
            platforms: in their new order, each one of those here.
            allowed: [operators, len(platforms)].

        Raises:
            InvalidInputError: a platform has no costs, or an operator runs nowhere.
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
        """Return whether every operator may run where that plan has it."""
        return all(
            platform in self.platforms and bool(row[self.platforms.index(platform)])
            for platform, row in zip(assignment, self.allowed, strict=True)
        )

    def total(self, assignment: Sequence[Platform]) -> float:
        """Return seconds of one plan, infinity where it is forbidden."""
        columns = [self.platforms.index(each) for each in assignment]
        return float(self.totals(np.array([columns], dtype=np.int64))[0])

    def totals(self, plans: Ints) -> Floats:
        """Return seconds of many plans, rows of columns [plans, operators]."""
        operators, edges = plans.shape[1], np.array(self.workflow.edges, np.int64).reshape(-1, 2)
        seconds = self.operator_seconds[np.arange(operators), plans].sum(axis=1)
        ends = plans[:, edges]
        transfers = self.transfer_seconds[np.arange(len(edges)), ends[..., 0], ends[..., 1]]
        return np.asarray(seconds + transfers.sum(axis=1) + self.startups(plans))

    def startups(self, plans: Ints) -> Floats:
        """Return the start-up seconds of the platforms each plan uses, [plans]."""
        used = (plans[:, :, None] == np.arange(len(self.platforms))).any(axis=1)
        return np.asarray(used @ self.startup_seconds)

    def assignment(self, plan: Ints) -> tuple[Platform, ...]:
        """Return the platforms of one row of columns."""
        return tuple(self.platforms[column] for column in plan.tolist())


_GIB = 2.0**30

MEMORY_WHERE_SPILLED = 1.0
MEMORY_IN_COLUMNS = 3.0
# Bytes of memory per byte of input, public rules of thumb: engines that spill to disk, engines that
# hold columns, and those whose columns hold objects of Python or whose nature is unknown.
MEMORY_IN_OBJECTS = 10.0

# By platform; any other counts as `MEMORY_IN_OBJECTS`.
MEMORY_FACTORS: Mapping[Platform, float] = MappingProxyType(
    {
        Platform.DUCKDB: MEMORY_WHERE_SPILLED,
        Platform.POLARS: MEMORY_IN_COLUMNS,
        Platform.PANDAS: MEMORY_IN_OBJECTS,
        Platform.SKLEARN: MEMORY_IN_COLUMNS,
        Platform.SPARK: MEMORY_WHERE_SPILLED,
        Platform.FLINK: MEMORY_WHERE_SPILLED,
    }
)

# (position of an operator, platform) -> whether that platform can run it
Supports = Callable[[int, Platform], bool]


class NoPlatformError(InvalidInputError):
    """No candidate platform may run an operator."""

    def __init__(self, position: int, kind: OperatorKind, reason: str) -> None:
        super().__init__(f"operator {position} ({kind.name}) {reason}")
        self.position = position


def supports_everything(position: int, platform: Platform) -> bool:
    """Return True: no platform is excluded."""
    del position, platform
    return True


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints that a plan must keep to."""

    candidates: tuple[Platform, ...]  # platforms to choose from; the first wins ties
    supports: Supports = supports_everything  # whether a platform can run an operator
    # Operators, by position, that stay on a platform.
    pinned: Mapping[int, Platform] = field(default_factory=dict)
    # Bytes that an operator may use at once on a platform; without an entry there is no cap.
    memory_caps: Mapping[Platform, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for platform, cap in self.memory_caps.items():
            if not cap > 0:  # written so that NaN is refused
                raise InvalidInputError(
                    f"the memory cap of {_name(platform)} must be positive, got {cap!r}"
                )

    @property
    def platforms(self) -> tuple[Platform, ...]:
        """Return the candidates, each once."""
        return tuple(dict.fromkeys(self.candidates))

    def allowed(self, workflow: Workflow) -> Mask:
        """Return the mask of the platforms on which every operator may run, [operators, platforms].

        Raises:
            InvalidInputError: an operator that does not exist is to stay somewhere.
            NoPlatformError: an operator may run nowhere.
        """
        self._require_existing(workflow)
        supported = np.array(
            [
                [self.supports(position, platform) for platform in self.platforms]
                for position in range(len(workflow.operators))
            ],
            dtype=np.bool_,
        ).reshape(len(workflow.operators), len(self.platforms))
        caps = np.array([self.memory_caps.get(each, math.inf) for each in self.platforms])
        needed = memory_needed(workflow, self.platforms)
        fitting = needed <= caps
        allowed = supported & fitting
        for position, platform in self.pinned.items():
            allowed[position] &= np.array([each is platform for each in self.platforms])
        for position in np.flatnonzero(~allowed.any(axis=1)).tolist():
            reason = self._reason(position, supported[position], needed[position])
            raise NoPlatformError(position, workflow.operators[position].kind, reason)
        return allowed

    def _require_existing(self, workflow: Workflow) -> None:
        count = len(workflow.operators)
        for position, platform in self.pinned.items():
            if not 0 <= position < count:
                raise InvalidInputError(
                    f"operator {position} is to stay on {_name(platform)}, but the workflow has "
                    f"operators 0 to {count - 1}"
                )

    def _reason(self, position: int, supported: Mask, needed: Floats) -> str:
        """Return why the operator may run nowhere."""
        names = ", ".join(_name(each) for each in self.platforms) or "none"
        stay = self.pinned.get(position)
        if stay is not None and stay not in self.platforms:
            return (
                f"is to stay on {_name(stay)}, which is not installed or not a candidate "
                f"(candidates: {names})"
            )
        able = [
            (platform, bytes_needed)
            for platform, can, bytes_needed in zip(self.platforms, supported, needed, strict=True)
            if can and (stay is None or platform is stay)
        ]
        if not able and stay is None:
            return f"runs on none of the candidate platforms ({names})"
        if not able:
            return f"is to stay on {_name(stay)}, which cannot run it"
        too_much = ", ".join(
            f"{_name(platform)} needs {bytes_needed / _GIB:.3g} of "
            f"{self.memory_caps[platform] / _GIB:.3g} GiB"
            for platform, bytes_needed in able
        )
        if stay is not None:
            return f"is to stay on {_name(stay)}, whose memory cap it does not fit: {too_much}"
        return f"fits the memory cap of no platform that can run it: {too_much}"


def memory_needed(workflow: Workflow, platforms: Sequence[Platform]) -> Floats:
    """Return bytes that every operator takes on every platform, [operators, platforms]."""
    read = np.array([_input_bytes(workflow, each) for each in workflow.operators])
    factors = np.array([MEMORY_FACTORS.get(each, MEMORY_IN_OBJECTS) for each in platforms])
    return np.asarray(read[:, None] * factors)


def _input_bytes(workflow: Workflow, operator: Operator) -> float:
    """Return the output bytes of all parents; for a source its own, as the features do."""
    if not operator.inputs:
        return operator.output_bytes
    return sum(workflow.operators[parent].output_bytes for parent in operator.inputs)


def _name(platform: Platform | None) -> str:
    return "nowhere" if platform is None else platform.name.lower()
