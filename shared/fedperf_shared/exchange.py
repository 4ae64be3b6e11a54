"""Messages between organizations and the coordinator, apart from the contents of releases.

Both sides use the same types, and `fedperf_shared.wire` turns them into bytes. The types validate
themselves: a correction that is not square, or a label that is not finite, raises an error. So
neither side needs another check.
"""

import math
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, unique
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.releases.linear_queries import LinearizedQuery
from fedperf_shared.releases.release import SlotKey
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform

MAX_ARRAYS = 32  # limit of a request's weights: those of the architecture
MAX_REHEARSAL_ROWS = 4096  # limit of a request's rows; every row costs its reader time


@unique
class Refusal(IntEnum):
    """A node's reason to refuse a request. Every reason depends on public facts only.

    The numbers are codes of Flower's error message, above those that Flower uses itself.
    """

    UNREADABLE = 101
    NOT_DUE = 102
    OTHER_MODEL = 103
    OTHER_METHOD = 104
    OTHER_PLANS = 105
    BUSY = 106
    GOING_OFFLINE = 107

    @classmethod
    def from_code(cls, code: int) -> "Refusal | None":
        """Return the refusal with that code, or None for an unknown code."""
        return cls(code) if code in cls.__members__.values() else None


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The token of an invitation, and the certificate request (PKCS#10, DER) of its holder."""

    token: bytes
    certificate_request: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The coordinator's reply to a new participant."""

    organization_id: bytes  # random, 16 bytes
    certificate: bytes  # the organization's, PEM
    ca_certificate: bytes  # the authority of both ports, PEM
    coordinator_public_key: bytes  # signs receipts, PEM
    exchange_address: str  # host:port
    fleet_address: str  # host:port


@dataclass(frozen=True, slots=True)
class Status:
    """The coordinator's time and the versions in force."""

    now: datetime  # the coordinator's clock
    model_version: int  # newest promoted model; 0 while there is none
    feature_schema_version: int  # of `workflow.features`
    basis_version: int  # of `basis`
    reference_version: int  # reference model of the residuals; 0 while there is none
    # The beginning of each drift regime after the first one, oldest first.
    regime_starts: tuple[datetime, ...] = ()
    # Time of the last change of the correction; None while there is none.
    correction_published: datetime | None = None

    def __post_init__(self) -> None:
        if not all(one < other for one, other in pairwise(self.regime_starts)):
            raise InvalidInputError("drift regimes must begin one after the other")


@dataclass(frozen=True, slots=True)
class SharedModel:
    """A version of the shared model, as a checkpoint's bytes."""

    version: int
    checkpoint: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """The correction of the reference model, computed from reports."""

    basis_version: int  # version of the basis that defines its cells
    reference_version: int  # model version that it corrects
    mean: NDArray[np.float64]  # log seconds to add per cell, float64 [cells]
    covariance: NDArray[np.float64]  # float64 [cells, cells]

    def __post_init__(self) -> None:
        shapes = (self.mean.shape, self.covariance.shape)
        if self.mean.size == 0 or shapes != ((self.mean.size,), (self.mean.size,) * 2):
            raise InvalidInputError(f"mean and covariance of a correction have shapes {shapes}")
        if not (np.isfinite(self.mean).all() and np.isfinite(self.covariance).all()):
            raise InvalidInputError("mean and covariance of a correction must be finite")


@dataclass(frozen=True, slots=True)
class SyntheticRow:
    """One row of the synthetic batch: public inputs, and a label from released values only."""

    plan: Plan  # from the public catalogue
    cluster: ClusterConfig  # from the public catalogue
    log_seconds: float  # natural log of wall seconds, shared model plus correction
    segment: Platform  # the platform whose share of the rehearsal buffer it counts against

    def __post_init__(self) -> None:
        if not math.isfinite(self.log_seconds):
            raise InvalidInputError(
                f"the label of a synthetic row must be finite, got {self.log_seconds!r}"
            )


@dataclass(frozen=True, slots=True)
class Receipt:
    """The coordinator's confirmation that it received these bytes."""

    organization_id: bytes  # the sender of the release
    release_id: bytes  # id of the slot's release
    payload_sha256: bytes  # hash of the received bytes
    sequence: int  # counts this organization's releases of all kinds from 1
    received_at: datetime  # on the coordinator's clock


@dataclass(frozen=True, slots=True)
class SignedReceipt:
    """A serialized Receipt and the coordinator's signature over these bytes."""

    payload: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """The coordinator's request for the model update of a slot."""

    slot: SlotKey  # the slot of the declared schedule
    architecture: int  # number of the architecture
    base_version: int  # model version of `arrays`
    # The base model, in the order of the architecture.
    arrays: tuple[NDArray[np.float32], ...]
    # The linear query at its tangent; None if an older coordinator requests DP-SGD.
    query: LinearizedQuery | None = None
