"""The kinds of releases, with their parameters, contents and bound on one workload.

Parameters and releases compute values from their own fields (`release`). Each layer has a
table with a row for each kind: messages (`wire.codec`), privacy events
(`fedperf_client.release.accountant`), mechanisms (`fedperf_client.contributions`), and validation
of received releases (`fedperf_server.state.validation`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeGuard, TypeVar

from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.linear_queries import DIRECTIONS, QUERY_DIRECTIONS
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
    """One kind of releases."""

    name: str  # for people, programs and in `release.proto`
    parameters: type[P_co]  # class of the parameters of a slot
    release: type[R_co]  # class of the release of a slot
    contents: str  # description of the numbers, for people
    public: str  # the fields besides the slot that depend on no execution
    numbers: int | None  # number of integers; None for a kind that is not released any more
    has_query: bool  # whether the coordinator chooses the sums by a linear query

    @property
    def is_report(self) -> bool:
        """Whether it fills report slots. Other kinds fill slots of model rounds."""
        return self.parameters.slot_kind is ReleaseKind.RESIDUAL_REPORT

    @property
    def is_removed(self) -> bool:
        """Whether only older ledgers hold such slots and releases."""
        return self.numbers is None

    def as_parameters(self, parameters: Parameters) -> P_co:
        """Return the parameters with their class, or raise InvalidReleaseError."""
        if not isinstance(parameters, self.parameters):
            raise InvalidReleaseError(f"{kind_of(parameters).name}, expected {self.name}")
        return parameters

    def as_release(self, release: Release) -> R_co:
        """Return the release with its class, or raise InvalidReleaseError."""
        if not isinstance(release, self.release):
            raise InvalidReleaseError(f"{kind_of(release).name}, expected {self.name}")
        return release


AnyKind = Kind[Parameters, Release]

# A workload adds a vector of norm at most 1 to the sum: `basis.contribution` bounds it
RESIDUAL_REPORT = Kind(
    "residual_report",
    ReportParameters,
    ResidualReport,
    contents="workloads and sum of residuals in each public cell",
    public="version of the cells, version of the model, grid exponent",
    numbers=2 * CELLS,
    has_query=False,
)

# A workload adds a vector of norm at most 1: the norm rule of the query's `Design`
DIRECTED_REPORT = Kind(
    "directed_report",
    DirectedParameters,
    DirectedReport,
    contents="weighted sums of residuals, with the coordinator's weights",
    public="version of the linear query, grid exponent",
    numbers=QUERY_DIRECTIONS,
    has_query=True,
)

# In a step that samples it, a workload adds a gradient of norm at most the clip norm.
MODEL_UPDATE = Kind(
    "model_update",
    TrainingParameters,
    ModelUpdate,
    contents="gradients of DP-SGD, which are not released any more",
    public="architecture, version of the model",
    numbers=None,
    has_query=False,
)

# A workload adds a vector of norm at most 1: the direction of its gradient counts
TANGENT_UPDATE = Kind(
    "tangent_update",
    LinearizedParameters,
    LinearizedUpdate,
    contents="change of the model in the coordinator's directions",
    public="version of the model, grid exponent",
    numbers=DIRECTIONS,
    has_query=True,
)

KINDS: tuple[AnyKind, ...] = (RESIDUAL_REPORT, DIRECTED_REPORT, MODEL_UPDATE, TANGENT_UPDATE)

_BY_CLASS: Mapping[type, AnyKind] = {
    each: kind for kind in KINDS for each in (kind.parameters, kind.release)
}


def kind_of(one: Parameters | Release) -> AnyKind:
    """Return the kind of these parameters or of this release."""
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
