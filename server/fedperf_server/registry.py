"""The model registry: every version of the shared model, and what else is published.

Versions count from 1 and are never changed. A new version is a candidate until it is
promoted; organizations get the newest promoted one unless they ask for a version.
Who is promoted is decided elsewhere; this is only the storage.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.database import ModelVersionRow, PublicationRow
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Correction, SyntheticRow
from fedperf_shared.model.architecture import ARCHITECTURE_VERSION, ARRAY_SHAPES
from fedperf_shared.model.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from fedperf_shared.period import to_unix_ms
from fedperf_shared.wire.codec import encode_correction, encode_synthetic_rows

CORRECTION = "correction"
SYNTHETIC_ROWS = "synthetic_rows"

Arrays = list[NDArray[np.float32]]


class UnknownVersionError(InvalidInputError):
    """There is no such version of the model."""

    def __init__(self, version: int) -> None:
        super().__init__(f"there is no model version {version}")
        self.version = version


class ModelFormat(Protocol):
    """How arrays of one architecture become a checkpoint's bytes and back."""

    @property
    def architecture(self) -> int:
        """Number of the architecture on the wire."""

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Shapes of the arrays, in their order."""

    def encode(self, arrays: Sequence[NDArray[np.float32]], version: int) -> bytes:
        """The checkpoint that organizations fetch."""

    def decode(self, checkpoint: bytes) -> Arrays:
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
        named = dict(zip(ARRAY_SHAPES, arrays, strict=True))
        return encode_checkpoint(Checkpoint(named, version))

    def decode(self, checkpoint: bytes) -> Arrays:
        """The arrays of a checkpoint."""
        named = decode_checkpoint(checkpoint).arrays
        return [named[name] for name in ARRAY_SHAPES]


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One stored version."""

    version: int
    checkpoint: bytes
    promoted: bool
    public_error: float | None


def add_version(
    session: Session,
    model_format: ModelFormat,
    arrays: Sequence[NDArray[np.float32]],
    *,
    at: datetime,
    public_error: float | None = None,
    promoted: bool = False,
) -> int:
    """Store `arrays` as the next version, in the caller's transaction; its number."""
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


def promote(session: Session, version: int, *, at: datetime) -> None:
    """Let organizations fetch `version`.

    Raises:
        UnknownVersionError: there is no such version.
    """
    row = session.get(ModelVersionRow, version)
    if row is None:
        raise UnknownVersionError(version)
    row.promoted_at = row.promoted_at or to_unix_ms(at)


def newest_version(session: Session) -> ModelVersion:
    """The newest version, promoted or not: where the next round starts.

    Raises:
        UnknownVersionError: nothing was ever stored.
    """
    query = select(ModelVersionRow).order_by(ModelVersionRow.version.desc()).limit(1)
    return _found(session.scalars(query).first(), 0)


def get_version(session: Session, version: int) -> ModelVersion:
    """That version, or for 0 the newest promoted one.

    Raises:
        UnknownVersionError: there is no such version.
    """
    if version:
        return _found(session.get(ModelVersionRow, version), version)
    query = (
        select(ModelVersionRow)
        .where(ModelVersionRow.promoted_at.is_not(None))
        .order_by(ModelVersionRow.version.desc())
        .limit(1)
    )
    return _found(session.scalars(query).first(), 0)


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


def publication(session: Session, kind: str) -> bytes:
    """The serialized message published as `kind`; empty where there is none yet."""
    row = session.get(PublicationRow, kind)
    return row.payload if row else b""


def _publish(session: Session, kind: str, payload: bytes, at: datetime) -> None:
    session.merge(PublicationRow(kind=kind, payload=payload, published_at=to_unix_ms(at)))


def _found(row: ModelVersionRow | None, version: int) -> ModelVersion:
    if row is None:
        raise UnknownVersionError(version)
    return ModelVersion(row.version, row.checkpoint, row.promoted_at is not None, row.public_error)
