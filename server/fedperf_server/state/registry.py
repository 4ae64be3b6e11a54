"""The model registry: every version of the shared model, and what else is published.

Versions count from 1 and are never changed. A new version is a candidate until it is promoted
or rejected; organizations get the newest promoted one unless they ask for a version. Every
decision is a verdict of its own, be it to leave a candidate open, and a version's latest verdict
counts, so that a promoted version can be taken back. Who is promoted is decided elsewhere
(`promotion`), and where rounds start (`promotion_graph`); this is only the storage.
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

from fedperf_server.state.database import ModelVersionRow, PublicationRow, VerdictRow
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
    """There is no such version of the model; version 0 stands for the one in force."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"there is no model version {version}"
            if version
            else "no model is in force yet; the first comes when `fedperf-server run` starts"
        )
        self.version = version


class ModelFormat(Protocol):
    """The conversion of one architecture's arrays to a checkpoint's bytes and back."""

    @property
    def architecture(self) -> int:
        """Number of the architecture on the wire."""

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Shapes of the arrays, in their order."""

    def encode(self, arrays: Sequence[NDArray[np.float32]], version: int) -> bytes:
        """The checkpoint that organizations fetch."""

    def decode(self, checkpoint: bytes) -> Weights:
        """The arrays, in their order."""


@dataclass(frozen=True, slots=True)
class GgfnFormat:
    """The product's model as safetensors checkpoints."""

    architecture: int = ARCHITECTURE_VERSION

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Shapes in the order of the state dict."""
        return tuple(ARRAY_SHAPES.values())

    def encode(self, arrays: Sequence[NDArray[np.float32]], version: int) -> bytes:
        """Checked arrays as a checkpoint."""
        named = named_arrays(arrays)
        return encode_checkpoint(Checkpoint(named, version))

    def decode(self, checkpoint: bytes) -> Weights:
        """The arrays of a checkpoint."""
        named = decode_checkpoint(checkpoint).arrays
        return weights_of(named)


@unique
class VersionStatus(StrEnum):
    """The standing of a version."""

    CANDIDATE = "candidate"
    PROMOTED = "promoted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One stored version."""

    version: int
    checkpoint: bytes
    created_at: datetime
    standing: VersionStatus
    public_error: float | None

    @property
    def promoted(self) -> bool:
        """Whether organizations may have it."""
        return self.standing is VersionStatus.PROMOTED


@dataclass(frozen=True, slots=True)
class PromotionRecord:
    """A decision about a version.

    Attributes:
        version: that it is about.
        standing: from now on; a candidate that is left open stays one.
        reason: in words, for the operator.
        gain: how much smaller its mean squared log error is than the promoted version's, by
            reports; None without reports.
        gain_error: its standard error.
        by_segment: mean absolute log error on the buffer's rows of each segment.
        decided_at: when.
    """

    version: int
    standing: VersionStatus
    reason: str
    gain: float | None
    gain_error: float | None
    by_segment: Mapping[Platform, float]
    decided_at: datetime

    @property
    def promoted(self) -> bool:
        """Whether organizations may have the version."""
        return self.standing is VersionStatus.PROMOTED


def add_version(
    session: Session,
    model_format: ModelFormat,
    arrays: Sequence[NDArray[np.float32]],
    *,
    at: datetime,
    public_error: float | None = None,
    promoted: bool = False,
) -> int:
    """Store `arrays` as the next version, in the caller's transaction, and give its number."""
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


def decide(session: Session, verdict: PromotionRecord) -> None:
    """Record a decision about a version; from now on it counts.

    Raises:
        UnknownVersionError: there is no such version.
    """
    row = session.get(ModelVersionRow, verdict.version)
    if row is None:
        raise UnknownVersionError(verdict.version)
    at = to_unix_ms(verdict.decided_at)
    if verdict.promoted and row.promoted_at is None:
        row.promoted_at = at
    session.add(
        VerdictRow(
            number=(session.scalar(select(func.max(VerdictRow.number))) or 0) + 1,
            version=verdict.version,
            standing=verdict.standing,
            reason=verdict.reason,
            gain=verdict.gain,
            gain_error=verdict.gain_error,
            by_segment=json.dumps({each.name: e for each, e in verdict.by_segment.items()}),
            decided_at=at,
        )
    )
    session.flush()


def reject(session: Session, version: int, reason: str, *, at: datetime) -> None:
    """Record a rejection for which nothing was measured; errors as `decide`."""
    decide(session, PromotionRecord(version, VersionStatus.REJECTED, reason, None, None, {}, at))


def verdicts(session: Session) -> tuple[PromotionRecord, ...]:
    """Every decision, oldest first."""
    return tuple(map(_verdict, session.scalars(select(VerdictRow).order_by(VerdictRow.number))))


def standings(session: Session) -> dict[int, VersionStatus]:
    """The standing of every version, oldest first, without its checkpoint.

    Those of before there were verdicts stand by their promotion.
    """
    query = select(ModelVersionRow.version, ModelVersionRow.promoted_at).order_by(
        ModelVersionRow.version
    )
    found = {
        version: VersionStatus.CANDIDATE if promoted_at is None else VersionStatus.PROMOTED
        for version, promoted_at in session.execute(query)
    }
    decided = select(VerdictRow.version, VerdictRow.standing).order_by(VerdictRow.number)
    for version, standing in session.execute(decided):
        found[version] = VersionStatus(standing)
    return found


def left_open(session: Session) -> dict[int, datetime]:
    """Candidates that a verdict left open, with the moment of the latest one."""
    query = select(VerdictRow.version, func.max(VerdictRow.decided_at)).group_by(VerdictRow.version)
    stand = standings(session)
    return {
        version: from_unix_ms(at)
        for version, at in session.execute(query)
        if stand[version] is VersionStatus.CANDIDATE
    }


def versions(session: Session) -> tuple[ModelVersion, ...]:
    """All versions, oldest first."""
    found = standings(session)
    rows = session.scalars(select(ModelVersionRow).order_by(ModelVersionRow.version))
    return tuple(_version(row, found[row.version]) for row in rows)


def get_version(session: Session, version: int) -> ModelVersion:
    """The version of that number, or for 0 the newest promoted one.

    Raises:
        UnknownVersionError: there is no such version.
    """
    if not version:
        return get_version(session, in_force(session))
    row = session.get(ModelVersionRow, version)
    if row is None:
        raise UnknownVersionError(version)
    return _version(row, standings(session)[version])


def in_force(session: Session) -> int:
    """The number of the newest promoted version.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    promoted = [v for v, each in standings(session).items() if each is VersionStatus.PROMOTED]
    if not promoted:
        raise UnknownVersionError(0)
    return max(promoted)


def promoted_since(session: Session, version: int) -> tuple[ModelVersion, ...]:
    """Promoted versions from `version` on, oldest first; the one in force is always the last.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    since = min(version, in_force(session))
    promoted = (
        each for each, stand in standings(session).items() if stand is VersionStatus.PROMOTED
    )
    return tuple(get_version(session, each) for each in promoted if each >= since)


def first_promoted(session: Session) -> int:
    """The first version that was promoted.

    Raises:
        UnknownVersionError: nothing was promoted yet.
    """
    promoted = ModelVersionRow.promoted_at.is_not(None)
    version = session.scalar(select(func.min(ModelVersionRow.version)).where(promoted))
    if version is None:
        raise UnknownVersionError(0)
    return version


def known_versions(session: Session) -> frozenset[int]:
    """The numbers of all versions."""
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
    """The published correction; None where there is none yet."""
    return decode_correction(_published(session, CORRECTION))


def published_rows(session: Session) -> tuple[SyntheticRow, ...]:
    """The published synthetic rows; none where there are none yet."""
    return decode_synthetic_rows(_published(session, SYNTHETIC_ROWS))


def published_at(session: Session, kind: str) -> datetime | None:
    """The time of the last such publication; None where there was none."""
    published = select(PublicationRow.published_at).where(PublicationRow.kind == kind)
    at = session.scalar(published)
    return None if at is None else from_unix_ms(at)


def _published(session: Session, kind: str) -> bytes:
    row = session.get(PublicationRow, kind)
    return row.payload if row else b""


def _publish(session: Session, kind: str, payload: bytes, at: datetime) -> None:
    session.merge(PublicationRow(kind=kind, payload=payload, published_at=to_unix_ms(at)))


def _version(row: ModelVersionRow, standing: VersionStatus) -> ModelVersion:
    return ModelVersion(
        row.version, row.checkpoint, from_unix_ms(row.created_at), standing, row.public_error
    )


def _verdict(row: VerdictRow) -> PromotionRecord:
    return PromotionRecord(
        row.version,
        VersionStatus(row.standing),
        row.reason,
        row.gain,
        row.gain_error,
        {Platform[name]: error for name, error in json.loads(row.by_segment).items()},
        from_unix_ms(row.decided_at),
    )
