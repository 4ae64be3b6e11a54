"""What may leave an organization, and the schedule that fixes it in advance.

A `Schedule` holds every `Slot` of a period with its privacy parameters. A slot
produces at most one release, whose id is the hash of period, kind, window and
index: whoever asks, with whatever message, run or model, asks for the same release.
"""

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum, unique

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.releases.period import ModelMethod, Period, SlotTimes, Timetable, to_unix_ms

MAX_STEPS = 100_000


@unique
class ReleaseKind(IntEnum):
    """The kinds of slots; numbers as in release.proto."""

    RESIDUAL_REPORT = 1
    MODEL_UPDATE = 2


@unique
class SizeClass(StrEnum):
    """What an organization declares about its size; never counted from its data."""

    SMALL = "small"
    LARGE = "large"


class InvalidReleaseError(InvalidInputError):
    """A release is not one that its slot can produce."""


@dataclass(frozen=True, slots=True, order=True)
class SlotKey:
    """Which slot of a period."""

    kind: ReleaseKind
    window: int
    index: int

    def release_id(self, period: Period) -> bytes:
        """SHA-256 (32 bytes) of period start, kind, window and index."""
        text = f"fedperf/1 {to_unix_ms(period.start)} {self.kind:d} {self.window} {self.index}"
        return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class ReportParameters:
    """How a residual report is made private.

    Attributes:
        noise_multiplier: stddev of the Gaussian / L2 sensitivity, which is 1.
        residual_clip: bound C on the log residual, in log seconds.
        public_counts: whether the numbers of workloads per cell leave without noise, as an
            organization declares whose configurations are no secret.
    """

    noise_multiplier: float
    residual_clip: float
    public_counts: bool = False

    def __post_init__(self) -> None:
        _require_positive("noise_multiplier", self.noise_multiplier)
        _require_positive("residual_clip", self.residual_clip)


@dataclass(frozen=True, slots=True)
class DirectedParameters:
    """How a directed report is made private; center and clips come with its question.

    Attributes:
        noise_multiplier: stddev of the Gaussian / L2 sensitivity, which is 1.
        nominal_workloads: declared number of workloads that one report is about.
    """

    noise_multiplier: float
    nominal_workloads: float

    def __post_init__(self) -> None:
        _require_positive("noise_multiplier", self.noise_multiplier)
        _require_positive("nominal_workloads", self.nominal_workloads)


@dataclass(frozen=True, slots=True)
class TrainingParameters:
    """How a model update is made private (DP-SGD).

    Attributes:
        noise_multiplier: stddev of the Gaussian / clip_norm.
        sampling_probability: chance of each workload to be drawn in a step.
        steps: optimizer steps of one update.
        clip_norm: bound on the L2 norm of one workload's gradient.
        nominal_workloads: declared number of workloads; normalizes the gradient.
    """

    noise_multiplier: float
    sampling_probability: float
    steps: int
    clip_norm: float
    nominal_workloads: float

    def __post_init__(self) -> None:
        _require_positive("noise_multiplier", self.noise_multiplier)
        _require_positive("clip_norm", self.clip_norm)
        _require_positive("nominal_workloads", self.nominal_workloads)
        if not 0 < self.sampling_probability <= 1:
            raise ConfigurationError(
                f"sampling_probability must be in (0, 1], got {self.sampling_probability!r}"
            )
        if not 1 <= self.steps <= MAX_STEPS:
            raise ConfigurationError(f"steps must be 1 to {MAX_STEPS}, got {self.steps!r}")


@dataclass(frozen=True, slots=True)
class TangentParameters:
    """How a step at the tangent is made private; directions and clip come with its question.

    Attributes:
        noise_multiplier: stddev of the Gaussian / L2 sensitivity, which is 1.
        nominal_workloads: declared number of workloads that one step is about.
    """

    noise_multiplier: float
    nominal_workloads: float

    def __post_init__(self) -> None:
        _require_positive("noise_multiplier", self.noise_multiplier)
        _require_positive("nominal_workloads", self.nominal_workloads)


Parameters = ReportParameters | DirectedParameters | TrainingParameters | TangentParameters
"""How the release of a slot is made private."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One planned release: parameters of a report for a report slot, else of a model update."""

    key: SlotKey
    parameters: Parameters

    def __post_init__(self) -> None:
        is_report = isinstance(self.parameters, ReportParameters | DirectedParameters)
        if is_report != (self.key.kind is ReleaseKind.RESIDUAL_REPORT):
            raise ConfigurationError(
                f"slot {self.key} does not go with {type(self.parameters).__name__}"
            )


_OTHER_METHOD = {
    ModelMethod.TANGENT: TrainingParameters,
    ModelMethod.DP_SGD: TangentParameters,
}
"""Parameters that a period of the method does not have, so that no round mixes kinds."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All slots of a period, in the order in which they open.

    Of the extra slots (`period.Timetable`) only so many are ever charged as the timetable says,
    whichever these are; that is why all of them have the same parameters.
    """

    timetable: Timetable
    slots: tuple[Slot, ...]

    def __post_init__(self) -> None:
        keys = [slot.key for slot in self.slots]
        if len(set(keys)) != len(keys):
            raise ConfigurationError("a schedule names each slot once")
        for key in keys:
            if not 0 <= key.window < self.timetable.period.windows:
                raise ConfigurationError(f"slot {key} lies outside of the period")
            if not 0 <= key.index < len(self._times(key.kind)):
                raise ConfigurationError(f"slot {key} is not in the timetable")
        method = self.timetable.model_method
        for slot in self.slots:
            if isinstance(slot.parameters, _OTHER_METHOD[method]):
                raise ConfigurationError(
                    f"slot {slot.key} does not train by {method.name.lower()}, as the calendar says"
                )
        if len({slot.parameters for slot in self.slots if self.is_extra(slot.key)}) > 1:
            raise ConfigurationError("all extra slots have the same parameters")

    def slot(self, key: SlotKey) -> Slot | None:
        """The slot of that key, None where the schedule has none."""
        return next((slot for slot in self.slots if slot.key == key), None)

    def is_extra(self, key: SlotKey) -> bool:
        """Whether the slot is one of those of which only so many are charged."""
        is_update = key.kind is ReleaseKind.MODEL_UPDATE
        return is_update and key.index >= len(self.timetable.model_slots)

    def at_most(self) -> tuple[Slot, ...]:
        """What is charged at most: every slot, of the extra ones so many as may be used."""
        extra = [slot for slot in self.slots if self.is_extra(slot.key)]
        ordinary = [slot for slot in self.slots if not self.is_extra(slot.key)]
        return (*ordinary, *extra[: self.timetable.most_extra])

    def opens_at(self, key: SlotKey) -> datetime:
        """When the slot's release may be made."""
        start = self.timetable.period.window_start(key.window)
        return start + self._times(key.kind)[key.index].opens_after

    def replies_at(self, key: SlotKey) -> datetime:
        """When the slot's release leaves, ready or not before."""
        start = self.timetable.period.window_start(key.window)
        return start + self._times(key.kind)[key.index].replies_after

    def _times(self, kind: ReleaseKind) -> tuple[SlotTimes, ...]:
        if kind is ReleaseKind.RESIDUAL_REPORT:
            return self.timetable.report_slots
        return self.timetable.model_times


@dataclass(frozen=True, slots=True)
class ResidualReport:
    """Noisy sums on the public basis, as integers on the grid of step 2**grid_exponent.

    Attributes:
        slot: the slot that it fills.
        basis_version: version of `basis`.
        reference_version: model version that the residuals are taken against.
        grid_exponent: one integer step is 2**grid_exponent.
        values: int64 [2 * cells]: counts, then sums of clipped residual / C, both halved in scale
            as `basis.contribution` says.
    """

    slot: SlotKey
    basis_version: int
    reference_version: int
    grid_exponent: int
    values: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DirectedReport:
    """Noisy sums over workloads, as integers on the grid of step 2**grid_exponent.

    Attributes:
        slot: the slot that it fills.
        design_version: the server's number of the design, public.
        grid_exponent: one integer step is 2**grid_exponent.
        values: int64 [design.values]: offsets, then directions (see `directions`).
    """

    slot: SlotKey
    design_version: int
    grid_exponent: int
    values: NDArray[np.int64]

    def natural(self) -> NDArray[np.float64]:
        """The values in units of the norm rule, float64 [design.values]."""
        return np.ldexp(self.values.astype(np.float64), self.grid_exponent)


@dataclass(frozen=True, slots=True)
class ModelUpdate:
    """Difference between the weights after private training and those before.

    Attributes:
        slot: the slot that it fills.
        architecture: version of the architecture; fixes number, order and shapes of `arrays`.
        base_version: model version that training started from.
        arrays: float32 arrays in the order of the architecture.
    """

    slot: SlotKey
    architecture: int
    base_version: int
    arrays: tuple[NDArray[np.float32], ...]


@dataclass(frozen=True, slots=True, eq=False)
class TangentUpdate:
    """Noisy sums at the tangent of a model, as integers on the grid of step 2**grid_exponent.

    Attributes:
        slot: the slot that it fills.
        base_version: model version whose tangent it is.
        grid_exponent: one integer step is 2**grid_exponent.
        values: int64 [DIRECTIONS] (see `questions`).
    """

    slot: SlotKey
    base_version: int
    grid_exponent: int
    values: NDArray[np.int64]

    def natural(self) -> NDArray[np.float64]:
        """The values in units of the sensitivity, float64 [DIRECTIONS]."""
        return np.ldexp(self.values.astype(np.float64), self.grid_exponent)


Update = ModelUpdate | TangentUpdate
"""What the slot of a model round releases."""

Release = ResidualReport | DirectedReport | Update


def fits(release: Release, slot: Slot) -> bool:
    """Whether the release is one that the slot can produce."""
    made_with = {
        ResidualReport: ReportParameters,
        DirectedReport: DirectedParameters,
        ModelUpdate: TrainingParameters,
        TangentUpdate: TangentParameters,
    }
    return release.slot == slot.key and isinstance(slot.parameters, made_with[type(release)])


@dataclass(frozen=True, slots=True)
class SignedRelease:
    """The bytes of a release and its organization's signature over them."""

    payload: bytes
    signature: bytes


def _require_positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ConfigurationError(f"{name} must be positive and finite, got {value!r}")
