"""Releases of an organization, and the schedule that fixes them in advance.

A `Schedule` holds every `Slot` of a period with its privacy parameters. A slot produces at most one
release, whose id is the hash of period, kind, window and index. All requests for a slot get the
same release, even with different messages, Flower runs or models.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import IntEnum, StrEnum, unique
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.period import (
    ModelMethod,
    Period,
    ReleaseCalendar,
    SlotTimes,
    to_unix_ms,
)

MAX_STEPS = 100_000


@unique
class ReleaseKind(IntEnum):
    """The kinds of slots; numbers as in release.proto."""

    RESIDUAL_REPORT = 1
    MODEL_UPDATE = 2


@unique
class SizeClass(StrEnum):
    """The declared size of an organization. It is never counted from its data."""

    SMALL = "small"
    LARGE = "large"


class InvalidReleaseError(InvalidInputError):
    """Raised for a release that its slot cannot produce."""


@dataclass(frozen=True, slots=True, order=True)
class SlotKey:
    """The identifier of a slot of a period."""

    kind: ReleaseKind
    window: int
    index: int

    def release_id(self, period: Period) -> bytes:
        """Return the SHA-256 (32 bytes) of period start, kind, window and index."""
        text = f"fedperf/1 {to_unix_ms(period.start)} {self.kind:d} {self.window} {self.index}"
        return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class _SlotParameters:
    """Properties of all parameters, with default values."""

    slot_kind: ClassVar[ReleaseKind]
    # The required training method of a period with such slots; None for any.
    method: ClassVar[ModelMethod | None] = None

    noise_multiplier: float

    @property
    def exact_counts(self) -> int:
        """The number of leading values without noise."""
        return 0


@dataclass(frozen=True, slots=True)
class ReportParameters(_SlotParameters):
    """Privacy parameters of a residual report.

    Attributes:
        noise_multiplier: stddev of the Gaussian / L2 sensitivity, which is 1.
        residual_clip: bound C on the log residual, in log seconds.
        public_counts: whether the numbers of workloads per cell have no noise. An organization
            may declare this if its configurations are public.
    """

    slot_kind = ReleaseKind.RESIDUAL_REPORT

    residual_clip: float
    public_counts: bool = False

    def __post_init__(self) -> None:
        _require_positive(self, "noise_multiplier", "residual_clip")

    @property
    def exact_counts(self) -> int:
        """The number of cells if counts are public, else 0."""
        return CELLS if self.public_counts else 0


@dataclass(frozen=True, slots=True)
class _QueryParameters(_SlotParameters):
    """Parameters of one noisy sum whose bounds come with the coordinator's linear query.

    Attributes:
        noise_multiplier: stddev of the Gaussian / L2 sensitivity, which is 1.
        nominal_workloads: declared number of workloads in one release.
    """

    nominal_workloads: float

    def __post_init__(self) -> None:
        _require_positive(self, "noise_multiplier", "nominal_workloads")


@dataclass(frozen=True, slots=True)
class DirectedParameters(_QueryParameters):
    """Privacy parameters of a directed report; center and clips come with its linear query."""

    slot_kind = ReleaseKind.RESIDUAL_REPORT


@dataclass(frozen=True, slots=True)
class TrainingParameters(_SlotParameters):
    """Privacy parameters of a model update by DP-SGD, as old schedules hold them.

    They define the cost of such slots. New schedules do not use them.

    Attributes:
        noise_multiplier: stddev of the Gaussian / clip_norm.
        sampling_probability: probability of each workload to be sampled in a step.
        steps: optimizer steps of one update.
        clip_norm: bound on the L2 norm of one workload's gradient.
        nominal_workloads: declared number of workloads, which normalizes the gradient.
    """

    slot_kind = ReleaseKind.MODEL_UPDATE
    method = ModelMethod.UNSPECIFIED

    sampling_probability: float
    steps: int
    clip_norm: float
    nominal_workloads: float

    def __post_init__(self) -> None:
        _require_positive(self, "noise_multiplier", "clip_norm", "nominal_workloads")
        if not 0 < self.sampling_probability <= 1:
            raise ConfigurationError(
                f"sampling_probability must be in (0, 1], got {self.sampling_probability!r}"
            )
        if not 1 <= self.steps <= MAX_STEPS:
            raise ConfigurationError(f"steps must be 1 to {MAX_STEPS}, got {self.steps!r}")


@dataclass(frozen=True, slots=True)
class LinearizedParameters(_QueryParameters):
    """Privacy parameters of a linearized step; directions and clip come with its linear query."""

    slot_kind = ReleaseKind.MODEL_UPDATE
    method = ModelMethod.TANGENT


# Parameters of the mechanism that makes a slot's release private.
Parameters = ReportParameters | DirectedParameters | TrainingParameters | LinearizedParameters


@dataclass(frozen=True, slots=True)
class Slot:
    """One planned release: parameters of a report for a report slot, else of a model update."""

    key: SlotKey
    parameters: Parameters

    def __post_init__(self) -> None:
        if self.parameters.slot_kind is not self.key.kind:
            raise ConfigurationError(
                f"slot {self.key} does not go with {type(self.parameters).__name__}"
            )


@dataclass(frozen=True, slots=True)
class Schedule:
    """All slots of a period, in the order in which they open.

    The calendar limits the number of extra slots that are charged (`period.ReleaseCalendar`). Any
    of them may be used, so all have the same parameters. A schedule has at most one first slot.
    """

    calendar: ReleaseCalendar
    slots: tuple[Slot, ...]

    def __post_init__(self) -> None:
        keys = [slot.key for slot in self.slots]
        if len(set(keys)) != len(keys):
            raise ConfigurationError("a schedule names each slot once")
        for key in keys:
            if not 0 <= key.window < self.calendar.period.windows:
                raise ConfigurationError(f"slot {key} lies outside of the period")
            if not 0 <= key.index < len(self._times(key.kind)):
                raise ConfigurationError(f"slot {key} is not in the calendar")
        method = self.calendar.model_method
        for slot in self.slots:
            if slot.parameters.method not in (None, method):
                raise ConfigurationError(
                    f"slot {slot.key} does not train by {method.name.lower()}, as the "
                    "calendar requires"
                )
        if len({slot.parameters for slot in self.slots if self.is_extra(slot.key)}) > 1:
            raise ConfigurationError("all extra slots have the same parameters")
        reports = [key.index for key in keys if key.kind is ReleaseKind.RESIDUAL_REPORT]
        if sum(map(self.calendar.is_first_report, reports)) > 1:
            raise ConfigurationError("a schedule has one first slot at most")

    def slot(self, key: SlotKey) -> Slot | None:
        """Return the slot of that key, or None if the schedule has none."""
        return next((slot for slot in self.slots if slot.key == key), None)

    def is_extra(self, key: SlotKey) -> bool:
        """Return whether the slot is an extra one. Only a fixed number of them is charged."""
        is_update = key.kind is ReleaseKind.MODEL_UPDATE
        return is_update and key.index >= len(self.calendar.model_slots)

    def at_most(self) -> tuple[Slot, ...]:
        """Return the slots with the largest total charge: ordinary ones, and usable extra ones."""
        extra = [slot for slot in self.slots if self.is_extra(slot.key)]
        ordinary = [slot for slot in self.slots if not self.is_extra(slot.key)]
        return (*ordinary, *extra[: self.calendar.most_extra])

    def opens_at(self, key: SlotKey) -> datetime:
        """Return the earliest time of the slot's release."""
        start = self.calendar.period.window_start(key.window)
        return start + self._times(key.kind)[key.index].opens_after

    def replies_at(self, key: SlotKey) -> datetime:
        """Return the time at which the slot's release is sent, even if it was ready earlier."""
        start = self.calendar.period.window_start(key.window)
        return start + self._times(key.kind)[key.index].replies_after

    def _times(self, kind: ReleaseKind) -> tuple[SlotTimes, ...]:
        is_report, table = kind is ReleaseKind.RESIDUAL_REPORT, self.calendar
        return table.report_times if is_report else table.model_times


@dataclass(frozen=True, slots=True)
class Bounds:
    """The interval from `least` to `most`, both included."""

    least: float
    most: float

    def hold(self, value: float) -> bool:
        """Return whether `value` lies within the bounds; NaN never does."""
        return self.least <= value <= self.most


# Log seconds: a factor of 22,000; a model that is further off is no model of these workloads.
MAX_RESIDUAL_CLIP = 10.0

DECLARABLE: Mapping[str, Bounds] = MappingProxyType(
    {
        # At the largest epsilon that a budget can have a single report's noise is 0.002.
        "noise_multiplier": Bounds(1e-3, 1e6),
        "residual_clip": Bounds(1e-2, MAX_RESIDUAL_CLIP),
        "nominal_workloads": Bounds(1.0, 1e7),
        "sampling_probability": Bounds(1e-6, 1.0),
        "steps": Bounds(1, MAX_STEPS),
        "clip_norm": Bounds(1e-6, 1e6),
    }
)
"""Public bounds of the parameters that an organization may declare, by name, in all kinds of slots.

The coordinator computes with declared parameters, so a positive and finite number is not enough. A
noise of 1e200 overflows, one of 1e-170 divides by nothing, and a clip of a million log seconds lets
one report outweigh all others. Policies have the same bounds (`fedperf_client.release.policy`), so
an honest organization never plans what is refused here.
"""


class NotDeclarableError(ConfigurationError):
    """Raised for a slot parameter out of bounds; `rule` is the bound, without the value."""

    def __init__(self, name: str, value: float) -> None:
        bounds = DECLARABLE[name]
        self.rule = f"{name} must be {bounds.least:g} to {bounds.most:g}"
        super().__init__(f"{self.rule}, got {value!r}")
        self.name = name
        self.value = value


def require_declarable(schedule: Schedule) -> None:
    """Check that a schedule may be declared.

    Raises:
        NotDeclarableError: for the first parameter out of its bounds.
    """
    for parameters in dict.fromkeys(slot.parameters for slot in schedule.slots):
        for field in fields(parameters):
            value = getattr(parameters, field.name)
            if field.name in DECLARABLE and not DECLARABLE[field.name].hold(value):
                raise NotDeclarableError(field.name, value)


class _OnGrid:
    """Releases of noisy sums, as integers on the grid of step 2**grid_exponent."""

    __slots__ = ()

    grid_exponent: int
    values: NDArray[np.int64]

    def natural(self) -> NDArray[np.float64]:
        """Return the values in units of the norm rule, float64 [values]."""
        return np.ldexp(self.values.astype(np.float64), self.grid_exponent)

    def noisy_parts(self, exact_counts: int) -> tuple[str, ...]:
        """Describe the noisy parts, one line each; `exact_counts` is that of its parameters."""
        return (f"values: {len(self.values) - exact_counts} noisy integers",)

    def flaw(self, numbers: int | None) -> str:
        """Return why a release of `numbers` values may not be sent; empty if it may."""
        if self.values.shape == (numbers,) and self.values.dtype == np.int64:
            return ""
        return f"this release has {numbers} int64 values, this one {self.values.shape}"


@dataclass(frozen=True, slots=True)
class ResidualReport(_OnGrid):
    """Noisy sums on the public basis, as integers on the grid of step 2**grid_exponent."""

    slot: SlotKey  # the slot that it fills
    basis_version: int  # version of `basis`
    reference_version: int  # version of the reference model of the residuals
    grid_exponent: int  # one integer step is 2**grid_exponent
    # Int64 [2 * cells]: counts, then sums of clipped residual / C, both divided by sqrt(2) as in
    # `basis.contribution`.
    values: NDArray[np.int64]

    def public(self) -> dict[str, object]:
        """Public values besides slot and grid."""
        return {"basis_version": self.basis_version, "reference_version": self.reference_version}


@dataclass(frozen=True, slots=True, eq=False)
class DirectedReport(_OnGrid):
    """Noisy sums over workloads, as integers on the grid of step 2**grid_exponent."""

    slot: SlotKey  # the slot that it fills
    design_version: int  # the server's number of the design, public
    grid_exponent: int  # one integer step is 2**grid_exponent
    values: NDArray[np.int64]  # int64 [design.values]: offsets, then directions

    def public(self) -> dict[str, object]:
        """Public values besides slot and grid."""
        return {"question": self.design_version}


@dataclass(frozen=True, slots=True)
class ModelUpdate:
    """The change of the weights by training with DP-SGD. It is only read, never released."""

    slot: SlotKey  # the slot that it fills
    architecture: int  # version of the architecture; fixes number, order and shapes of `arrays`
    base_version: int  # model version that training started from
    arrays: tuple[NDArray[np.float32], ...]  # float32 arrays in the order of the architecture

    def natural(self) -> NDArray[np.float64]:
        """Return all weights in a row."""
        return np.concatenate([array.ravel() for array in self.arrays]).astype(np.float64)

    def public(self) -> dict[str, object]:
        """Public values besides the slot."""
        versions = {"architecture": self.architecture, "base_version": self.base_version}
        return {**versions, "arrays": len(self.arrays)}

    def flaw(self, numbers: int | None) -> str:
        """Return why no such update may be sent."""
        del numbers
        return "a model update by DP-SGD does not leave any more"


@dataclass(frozen=True, slots=True, eq=False)
class LinearizedUpdate(_OnGrid):
    """Noisy linearized update of a model, as integers on the grid of step 2**grid_exponent."""

    slot: SlotKey  # the slot that it fills
    base_version: int  # model version whose tangent it is
    grid_exponent: int  # one integer step is 2**grid_exponent
    values: NDArray[np.int64]  # int64 [DIRECTIONS] (see `linear_queries`)

    def public(self) -> dict[str, object]:
        """Public values besides slot and grid."""
        return {"base_version": self.base_version}


# Releases that are a sum of integers with one noise scale.
NoisySum = ResidualReport | DirectedReport | LinearizedUpdate

Update = ModelUpdate | LinearizedUpdate  # releases of a model round's slot
Report = ResidualReport | DirectedReport  # releases of a report slot
Release = Report | Update


@dataclass(frozen=True, slots=True)
class SignedRelease:
    """The bytes of a release and its organization's signature over them."""

    payload: bytes
    signature: bytes


def _require_positive(parameters: _SlotParameters, *names: str) -> None:
    for name in names:
        value = getattr(parameters, name)
        if not (value > 0 and math.isfinite(value)):
            raise ConfigurationError(f"{name} must be positive and finite, got {value!r}")
