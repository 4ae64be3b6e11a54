"""Constraints on which platform may run which operator, as one mask.

A platform may run an operator if it is a candidate (installed, wished for) and supports the
operator. The user must not keep the operator elsewhere, and what the operator reads must fit the
platform's memory cap. Where an operator has no platform left, one line refuses the constraints and
names the operator and the reason.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from fedperf_engines.optimizer.costs import Floats, Mask
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

_GIB = 2.0**30

MEMORY_WHERE_SPILLED = 1.0
MEMORY_IN_COLUMNS = 3.0
MEMORY_IN_OBJECTS = 10.0
"""Bytes of memory per byte of input, public rules of thumb: engines that spill to disk, engines
that hold columns, and those whose columns hold objects of Python or whose nature is unknown."""

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
"""By platform; any other counts as `MEMORY_IN_OBJECTS`."""

Supports = Callable[[int, Platform], bool]
"""(position of an operator, platform) -> whether that platform can run it."""


class NoPlatformError(InvalidInputError):
    """No candidate platform may run an operator."""

    def __init__(self, position: int, kind: OperatorKind, reason: str) -> None:
        super().__init__(f"operator {position} ({kind.name}) {reason}")
        self.position = position


def supports_everything(position: int, platform: Platform) -> bool:
    """The mask that refuses nothing."""
    del position, platform
    return True


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints that a plan must keep to.

    Attributes:
        candidates: platforms to choose from; the first wins ties.
        supports: whether a platform can run an operator.
        pinned: operators, by position, that stay on a platform.
        memory_caps: bytes that an operator may use at once on a platform; without an entry
            there is no cap.
    """

    candidates: tuple[Platform, ...]
    supports: Supports = supports_everything
    pinned: Mapping[int, Platform] = field(default_factory=dict)
    memory_caps: Mapping[Platform, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for platform, cap in self.memory_caps.items():
            if not cap > 0:  # written so that NaN is refused
                raise InvalidInputError(
                    f"the memory cap of {_name(platform)} must be positive, got {cap!r}"
                )

    @property
    def platforms(self) -> tuple[Platform, ...]:
        """The candidates, each once."""
        return tuple(dict.fromkeys(self.candidates))

    def allowed(self, workflow: Workflow) -> Mask:
        """The mask of the platforms on which every operator may run, [operators, platforms].

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
        """Why the operator may run nowhere."""
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
    """Bytes that every operator takes on every platform, [operators, platforms]."""
    read = np.array([_input_bytes(workflow, each) for each in workflow.operators])
    factors = np.array([MEMORY_FACTORS.get(each, MEMORY_IN_OBJECTS) for each in platforms])
    return np.asarray(read[:, None] * factors)


def _input_bytes(workflow: Workflow, operator: Operator) -> float:
    """As the features count it: of all parents, for a source of its own output."""
    if not operator.inputs:
        return operator.output_bytes
    return sum(workflow.operators[parent].output_bytes for parent in operator.inputs)


def _name(platform: Platform | None) -> str:
    return "nowhere" if platform is None else platform.name.lower()
