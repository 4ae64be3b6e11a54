"""The model registry stores every version of the shared model, and the other publications.

Versions count from 1 and are never changed. A new version is a candidate until it is promoted or
rejected. Organizations get the newest promoted version unless they request another. Every decision
is stored, including inconclusive ones. The latest decision of a version counts, so that a promoted
version can be rolled back. `controllers.promotion` decides about promotions, and
`round_calendar` about the base versions of rounds. This module only stores.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.state.database import (
    ModelVersionRow,
    PromotionRecord,
    PublicationRow,
    VersionStatus,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Correction, SyntheticRow
from fedperf_shared.model.architecture import (
    ARCHITECTURE_VERSION,
    ARRAY_SHAPES,
    Weights,
    named_arrays,
    weights_of,
)
from fedperf_shared.model.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from fedperf_shared.wire.codec import (
    decode_correction,
    decode_synthetic_rows,
    encode_correction,
    encode_synthetic_rows,
)

CORRECTION = "correction"
SYNTHETIC_ROWS = "synthetic_rows"


class UnknownVersionError(InvalidInputError):
    """Raised for an unknown version of the model. Version 0 means the current one."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"there is no model version {version}"
            if version
            else "no model is in force yet; start the server with `fedperf-server run`"
        )
        self.version = version


class ModelFormat(Protocol):
    """The conversion between an architecture's arrays and the bytes of a checkpoint."""

    @property
    def architecture(self) -> int:
        """Number of the architecture on the wire."""

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Return the shapes of the arrays, in their order."""

    def encode(self, arrays: Sequence[NDArray[np.float32]], version: int) -> bytes:
        """Return the checkpoint that organizations fetch."""

    def decode(self, checkpoint: bytes) -> Weights:
        """Return the arrays, in their order."""


@dataclass(frozen=True, slots=True)
class GgfnFormat:
    """The format of GGFN: safetensors checkpoints."""

    architecture: int = ARCHITECTURE_VERSION

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Return the shapes in the order of the state dict."""
        return tuple(ARRAY_SHAPES.values())

    def encode(self, arrays: Sequence[NDArray[np.float32]], version: int) -> bytes:
        """Check the arrays and return them as a checkpoint."""
        named = named_arrays(arrays)
        return encode_checkpoint(Checkpoint(named, version))

    def decode(self, checkpoint: bytes) -> Weights:
        """Return the arrays of a checkpoint."""
        named = decode_checkpoint(checkpoint).arrays
        return weights_of(named)


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A stored version of the shared model."""

    version: int
    checkpoint: bytes
    created_at: datetime
    status: VersionStatus
    public_error: float | None

    @property
    def promoted(self) -> bool:
        """Return whether organizations may fetch it."""
        return self.status is VersionStatus.PROMOTED


def add_version(
    session: Session,
    model_format: ModelFormat,
    arrays: Sequence[NDArray[np.float32]],
    *,
    at: datetime,
    public_error: float | None = None,
    promoted: bool = False,
) -> int:
    """Store `arrays` as the next version in the caller's transaction, and return its number."""
    version = (session.scalar(select(func.max(ModelVersionRow.version))) or 0) + 1
    session.add(
        ModelVersionRow(
            version=version,
            checkpoint=model_format.encode(arrays, version),
            created_at=at,
            promoted_at=at if promoted else None,
            public_error=public_error,
        )
    )
    session.flush()
    return version


def decide(session: Session, decision: PromotionRecord) -> None:
    """Store a decision about a version, which counts from now on.

    Raises:
        UnknownVersionError: there is no such version.
    """
    row = session.get(ModelVersionRow, decision.version)
    if row is None:
        raise UnknownVersionError(decision.version)
    if decision.promoted and row.promoted_at is None:
        row.promoted_at = decision.decided_at
    decision.number = (session.scalar(select(func.max(PromotionRecord.number))) or 0) + 1
    session.add(decision)
    session.flush()


def reject(session: Session, version: int, reason: str, *, at: datetime) -> None:
    """Store a rejection without measurements; raises as `decide`."""
    status = VersionStatus.REJECTED
    decide(
        session,
        PromotionRecord(
            version=version, status=status, reason=reason, by_segment={}, decided_at=at
        ),
    )


def decisions(session: Session) -> tuple[PromotionRecord, ...]:
    """Return every decision, oldest first."""
    return tuple(session.scalars(select(PromotionRecord).order_by(PromotionRecord.number)))


def statuses(session: Session) -> dict[int, VersionStatus]:
    """Return the status of every version, oldest first.

    The status of versions without a stored decision follows from `promoted_at`.
    """
    query = select(ModelVersionRow.version, ModelVersionRow.promoted_at).order_by(
        ModelVersionRow.version
    )
    status_of = {
        version: VersionStatus.CANDIDATE if promoted_at is None else VersionStatus.PROMOTED
        for version, promoted_at in session.execute(query)
    }
    decided = select(PromotionRecord.version, PromotionRecord.status)
    for version, status in session.execute(decided.order_by(PromotionRecord.number)):
        status_of[version] = status
    return status_of


def inconclusive(session: Session) -> dict[int, datetime]:
    """Return candidates whose decision was inconclusive, with the time of the latest decision."""
    query = select(PromotionRecord.version, func.max(PromotionRecord.decided_at)).group_by(
        PromotionRecord.version
    )
    status_of = statuses(session)
    return {
        version: at
        for version, at in session.execute(query)
        if status_of[version] is VersionStatus.CANDIDATE
    }


def versions(session: Session) -> tuple[ModelVersion, ...]:
    """Return all versions, oldest first."""
    status_of = statuses(session)
    rows = session.scalars(select(ModelVersionRow).order_by(ModelVersionRow.version))
    return tuple(_to_version(row, status_of[row.version]) for row in rows)


def get_version(session: Session, version: int) -> ModelVersion:
    """Return the version of that number, or for 0 the newest promoted one.

    Raises:
        UnknownVersionError: there is no such version.
    """
    if not version:
        return get_version(session, current_version(session))
    row = session.get(ModelVersionRow, version)
    if row is None:
        raise UnknownVersionError(version)
    return _to_version(row, statuses(session)[version])


def current_version(session: Session) -> int:
    """Return the number of the newest promoted version.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    promoted = [v for v, each in statuses(session).items() if each is VersionStatus.PROMOTED]
    if not promoted:
        raise UnknownVersionError(0)
    return max(promoted)


def promoted_since(session: Session, version: int) -> tuple[ModelVersion, ...]:
    """Return promoted versions from `version` on, oldest first, at least the current one.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    since = min(version, current_version(session))
    promoted = (
        each for each, status in statuses(session).items() if status is VersionStatus.PROMOTED
    )
    return tuple(get_version(session, each) for each in promoted if each >= since)


def first_promoted(session: Session) -> int:
    """Return the first version that was promoted.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    promoted = ModelVersionRow.promoted_at.is_not(None)
    version = session.scalar(select(func.min(ModelVersionRow.version)).where(promoted))
    if version is None:
        raise UnknownVersionError(0)
    return version


def version_numbers(session: Session) -> frozenset[int]:
    """Return the numbers of all versions."""
    return frozenset(session.scalars(select(ModelVersionRow.version)))


def publish_correction(session: Session, correction: Correction, *, at: datetime) -> None:
    """Replace the published correction."""
    _publish(session, CORRECTION, encode_correction(correction), at)


def publish_synthetic_rows(session: Session, rows: Iterable[SyntheticRow], *, at: datetime) -> None:
    """Replace the published synthetic rows."""
    _publish(session, SYNTHETIC_ROWS, encode_synthetic_rows(tuple(rows)), at)


def published_correction(session: Session) -> Correction | None:
    """Return the published correction, or None before the first publication."""
    return decode_correction(_published(session, CORRECTION))


def published_rows(session: Session) -> tuple[SyntheticRow, ...]:
    """Return the published synthetic rows, none before the first publication."""
    return decode_synthetic_rows(_published(session, SYNTHETIC_ROWS))


def published_at(session: Session, kind: str) -> datetime | None:
    """Return the time of the last publication of that kind, or None before the first."""
    return session.scalar(select(PublicationRow.published_at).where(PublicationRow.kind == kind))


def _published(session: Session, kind: str) -> bytes:
    row = session.get(PublicationRow, kind)
    return row.payload if row else b""


def _publish(session: Session, kind: str, payload: bytes, at: datetime) -> None:
    session.merge(PublicationRow(kind=kind, payload=payload, published_at=at))


def _to_version(row: ModelVersionRow, status: VersionStatus) -> ModelVersion:
    return ModelVersion(row.version, row.checkpoint, row.created_at, status, row.public_error)
