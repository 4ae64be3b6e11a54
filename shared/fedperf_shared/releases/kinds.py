"""The kinds of releases, one row each: parameters, contents, and the bound on one workload.

Parameters and releases say themselves what follows from their own fields, under the same names
for all kinds (`release`). What a layer has to know beside stands in a table of its own, by these
rows: parameters in messages (`wire.codec`), event (`fedperf_client.release.accountant`), mechanism
(`fedperf_client.contributions`), check (`fedperf_server.state.validation`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeGuard, TypeVar

from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.linear_queries import DIRECTIONS, QUESTION_DIRECTIONS
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    InvalidReleaseError,
    LinearizedParameters,
    LinearizedUpdate,
    ModelUpdate,
    Parameters,
    Release,
    ReleaseKind,
    Report,
    ReportParameters,
    ResidualReport,
    Slot,
    TrainingParameters,
    Update,
)

P_co = TypeVar("P_co", bound=Parameters, covariant=True)
R_co = TypeVar("R_co", bound=Release, covariant=True)


@dataclass(frozen=True, slots=True)
class Kind(Generic[P_co, R_co]):
    """One kind of releases.

    Attributes:
        name: for people, programs and in `release.proto`.
        parameters: class of what a slot of the kind plans.
        release: class of what such a slot produces.
        public: names of the fields that are public, beside the slot.
        numbers: how many integers leave; None where nothing leaves any more.
        has_question: whether a question of the coordinator says what the release is about.
    """

    name: str
    parameters: type[P_co]
    release: type[R_co]
    public: str
    numbers: int | None
    has_question: bool

    @property
    def is_report(self) -> bool:
        """Return whether it fills report slots; else it fills slots of model rounds."""
        return self.parameters.slot_kind is ReleaseKind.RESIDUAL_REPORT

    @property
    def is_removed(self) -> bool:
        """Whether ledgers of before hold such slots and releases, and none is made any more."""
        return self.numbers is None

    def as_parameters(self, parameters: Parameters) -> P_co:
        """Return the parameters as those of this kind; InvalidReleaseError where they are not."""
        if not isinstance(parameters, self.parameters):  # proves the type, here for everybody
            raise InvalidReleaseError(f"{kind_of(parameters).name}, expected {self.name}")
        return parameters

    def as_release(self, release: Release) -> R_co:
        """Return the release as one of this kind; InvalidReleaseError where it is not."""
        if not isinstance(release, self.release):  # proves the type, here for everybody
            raise InvalidReleaseError(f"{kind_of(release).name}, expected {self.name}")
        return release


AnyKind = Kind[Parameters, Release]

RESIDUAL_REPORT = Kind(
    "residual_report",
    ReportParameters,
    ResidualReport,
    public="basis version, reference version, grid exponent",
    numbers=2 * CELLS,
    has_question=False,
)
"""A workload adds a vector of norm at most 1 to the sum: `basis.contribution` bounds it."""

DIRECTED_REPORT = Kind(
    "directed_report",
    DirectedParameters,
    DirectedReport,
    public="number of the question, grid exponent",
    numbers=QUESTION_DIRECTIONS,
    has_question=True,
)
"""A workload adds a vector of norm at most 1: the norm rule of the query's `Design`."""

MODEL_UPDATE = Kind(
    "model_update",
    TrainingParameters,
    ModelUpdate,
    public="architecture, base version",
    numbers=None,
    has_question=False,
)
"""In a step that samples it, a workload adds a gradient of norm at most the clip norm."""

TANGENT_UPDATE = Kind(
    "tangent_update",
    LinearizedParameters,
    LinearizedUpdate,
    public="base version, grid exponent",
    numbers=DIRECTIONS,
    has_question=True,
)
"""A workload adds a vector of norm at most 1: only the direction of its features counts."""

KINDS: tuple[AnyKind, ...] = (RESIDUAL_REPORT, DIRECTED_REPORT, MODEL_UPDATE, TANGENT_UPDATE)

_BY_CLASS: Mapping[type, AnyKind] = {
    each: kind for kind in KINDS for each in (kind.parameters, kind.release)
}


def kind_of(one: Parameters | Release) -> AnyKind:
    """The kind that has such parameters or releases."""
    return _BY_CLASS[type(one)]


def fits(release: Release, slot: Slot) -> bool:
    """Return whether the release is one that the slot can produce."""
    return release.slot == slot.key and kind_of(release) is kind_of(slot.parameters)


def is_report(release: Release) -> TypeGuard[Report]:
    """Return whether it is a release of a report slot."""
    return kind_of(release).is_report


def is_update(release: Release) -> TypeGuard[Update]:
    """Return whether it is a release of a model round's slot."""
    return not kind_of(release).is_report
