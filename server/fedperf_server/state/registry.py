"""The model registry stores every version of the shared model, and the other publications.

Versions count from 1 and are never changed. A new version is a candidate until it is promoted or
rejected. Organizations get the newest promoted version unless they request another. Every decision
is stored, including inconclusive ones. The latest decision of a version counts, so that a promoted
version can be rolled back. `promotion` decides what is promoted, and `promotion_graph` where rounds
start. This module only stores.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.state.database import DecisionRow, ModelVersionRow, PublicationRow
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
from fedperf_shared.releases.period import from_unix_ms, to_unix_ms
from fedperf_shared.wire.codec import (
    decode_correction,
    decode_synthetic_rows,
    encode_correction,
    encode_synthetic_rows,
)
from fedperf_shared.workflow.vocabulary import Platform

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


@unique
class VersionStatus(StrEnum):
    """The status of a version."""

    CANDIDATE = "candidate"
    PROMOTED = "promoted"
    REJECTED = "rejected"


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


@dataclass(frozen=True, slots=True)
class PromotionRecord:
    """A decision about a version.

    Attributes:
        version: the version that was decided.
        status: its status from now on. An inconclusive candidate stays a candidate.
        reason: text for the operator.
        gain: reduction in mean squared log error against the promoted version, estimated from
            reports; None without reports.
        gain_error: standard error of the gain.
        by_segment: mean absolute log error on the buffer's rows of each segment.
        decided_at: time of the decision.
    """

    version: int
    status: VersionStatus
    reason: str
    gain: float | None
    gain_error: float | None
    by_segment: Mapping[Platform, float]
    decided_at: datetime

    @property
    def promoted(self) -> bool:
        """Return whether organizations may fetch the version."""
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
            created_at=to_unix_ms(at),
            promoted_at=to_unix_ms(at) if promoted else None,
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
    at = to_unix_ms(decision.decided_at)
    if decision.promoted and row.promoted_at is None:
        row.promoted_at = at
    session.add(
        DecisionRow(
            number=(session.scalar(select(func.max(DecisionRow.number))) or 0) + 1,
            version=decision.version,
            standing=decision.status,
            reason=decision.reason,
            gain=decision.gain,
            gain_error=decision.gain_error,
            by_segment=json.dumps({each.name: e for each, e in decision.by_segment.items()}),
            decided_at=at,
        )
    )
    session.flush()


def reject(session: Session, version: int, reason: str, *, at: datetime) -> None:
    """Store a rejection without measurements; raises as `decide`."""
    decide(session, PromotionRecord(version, VersionStatus.REJECTED, reason, None, None, {}, at))


def decisions(session: Session) -> tuple[PromotionRecord, ...]:
    """Return every decision, oldest first."""
    return tuple(
        map(_to_decision, session.scalars(select(DecisionRow).order_by(DecisionRow.number)))
    )


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
    decisions = select(DecisionRow.version, DecisionRow.standing).order_by(DecisionRow.number)
    for version, status in session.execute(decisions):
        status_of[version] = VersionStatus(status)
    return status_of


def inconclusive(session: Session) -> dict[int, datetime]:
    """Return candidates whose decision was inconclusive, with the time of the latest decision."""
    query = select(DecisionRow.version, func.max(DecisionRow.decided_at)).group_by(
        DecisionRow.version
    )
    status_of = statuses(session)
    return {
        version: from_unix_ms(at)
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


def publish_correction(
    session: Session,
    *,
    basis_version: int,
    reference_version: int,
    mean: NDArray[np.float64],
    covariance: NDArray[np.float64],
    at: datetime,
) -> None:
    """Replace the published correction: mean [cells] and covariance [cells, cells]."""
    correction = Correction(basis_version, reference_version, mean, covariance)
    _publish(session, CORRECTION, encode_correction(correction), at)


def publish_synthetic_rows(session: Session, rows: Iterable[SyntheticRow], *, at: datetime) -> None:
    """Replace the published synthetic rows."""
    _publish(session, SYNTHETIC_ROWS, encode_synthetic_rows(rows), at)


def published_correction(session: Session) -> Correction | None:
    """Return the published correction, or None before the first publication."""
    return decode_correction(_published(session, CORRECTION))


def published_rows(session: Session) -> tuple[SyntheticRow, ...]:
    """Return the published synthetic rows, none before the first publication."""
    return decode_synthetic_rows(_published(session, SYNTHETIC_ROWS))


def published_at(session: Session, kind: str) -> datetime | None:
    """Return the time of the last publication of that kind, or None before the first."""
    published = select(PublicationRow.published_at).where(PublicationRow.kind == kind)
    at = session.scalar(published)
    return None if at is None else from_unix_ms(at)


def _published(session: Session, kind: str) -> bytes:
    row = session.get(PublicationRow, kind)
    return row.payload if row else b""


def _publish(session: Session, kind: str, payload: bytes, at: datetime) -> None:
    session.merge(PublicationRow(kind=kind, payload=payload, published_at=to_unix_ms(at)))


def _to_version(row: ModelVersionRow, status: VersionStatus) -> ModelVersion:
    return ModelVersion(
        row.version, row.checkpoint, from_unix_ms(row.created_at), status, row.public_error
    )


def _to_decision(row: DecisionRow) -> PromotionRecord:
    return PromotionRecord(
        row.version,
        VersionStatus(row.standing),
        row.reason,
        row.gain,
        row.gain_error,
        {Platform[name]: error for name, error in json.loads(row.by_segment).items()},
        from_unix_ms(row.decided_at),
    )
