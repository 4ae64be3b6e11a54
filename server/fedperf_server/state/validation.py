"""Validation of everything that organizations send to the coordinator.

The functions are pure. They check a release against its organization's declared schedule and
against public constants. A refusal has one of a fixed set of reasons, which is counted, and
contains nothing of the release.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, unique

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Refusal
from fedperf_shared.identity import InvalidSignatureError, verify
from fedperf_shared.releases import basis, kinds
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.release import (
    NoisySum,
    Release,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
    Update,
)
from fedperf_shared.wire.codec import decode_release, decode_signed_release

# Maximum number of workloads of an organization, which bounds the sums of a report.
MAX_WORKLOADS = 10_000_000
# Allowed noise in standard deviations. A Gaussian exceeds it with probability below 1e-32.
NOISE_DEVIATIONS = 12.0
GRID_EXPONENTS = range(-60, 1)
CLOCK_TOLERANCE = timedelta(seconds=300)


@unique
class Reason(StrEnum):
    """The reason why a release was not accepted, including the `Refusal` codes of clients."""

    MALFORMED = "malformed"
    SIGNATURE = "signature"
    NO_SCHEDULE = "no_schedule"
    UNKNOWN_SLOT = "unknown_slot"
    WRONG_SLOT = "wrong_slot"
    NOT_OPEN = "not_open"
    BASE_VERSION = "base_version"
    NORM = "norm"
    BASIS_VERSION = "basis_version"
    REFERENCE_VERSION = "reference_version"
    QUERY = "question"
    SIZE = "size"
    GRID = "grid"
    RANGE = "range"
    REFUSED = "refused"
    UNREADABLE = "unreadable"
    NOT_DUE = "not_due"
    OTHER_MODEL = "other_model"
    OTHER_METHOD = "other_method"
    OTHER_PLANS = "other_plans"
    BUSY = "busy"
    GOING_OFFLINE = "going_offline"
    MISSING = "missing"
    DIFFERENT_BYTES = "different_bytes"
    REVOKED = "revoked"


class RejectedReleaseError(InvalidInputError):
    """Raised when a release is not accepted, with its `reason`."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"release not accepted: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ReportContext:
    """The public data for checking a release's contents, in addition to its slot."""

    reference_versions: Collection[int] = ()  # model versions that residuals may refer to
    query: CellQuery | None = None  # linear query of the slot, if it has one


def open_signed(signed: SignedRelease, key: ec.EllipticCurvePublicKey) -> Release:
    """Verify the signature and return the release.

    Raises:
        RejectedReleaseError: the signature is wrong, or the bytes are no release.
    """
    try:
        verify(key, signed.payload, signed.signature)
        return decode_release(signed.payload)
    except InvalidSignatureError:
        raise RejectedReleaseError(Reason.SIGNATURE) from None
    except InvalidInputError:
        raise RejectedReleaseError(Reason.MALFORMED) from None


def open_update(
    body: bytes | None, key: ec.EllipticCurvePublicKey, *, refusal: Refusal | None = None
) -> tuple[SignedRelease, Update]:
    """Return the signed model update in a reply. A `body` of None means a refusal.

    Raises:
        RejectedReleaseError: a refusal, a malformed body, a wrong signature, or no model update.
    """
    if body is None:
        raise RejectedReleaseError(Reason[refusal.name] if refusal else Reason.REFUSED)
    try:
        signed = decode_signed_release(body)
    except InvalidInputError:
        raise RejectedReleaseError(Reason.MALFORMED) from None
    release = open_signed(signed, key)
    if not kinds.is_update(release):
        raise RejectedReleaseError(Reason.WRONG_SLOT)
    return signed, release


def check_place(update: Update, schedule: Schedule, *, slot: SlotKey, base_version: int) -> Slot:
    """Check slot and base version of an update, and return the declared slot.

    Raises:
        RejectedReleaseError: a check failed; it has the first reason.
    """
    declared = _check_slot(update, schedule)
    _require(update.slot == slot, Reason.WRONG_SLOT)
    _require(update.base_version == base_version, Reason.BASE_VERSION)
    return declared


def check_due(report: Release, schedule: Schedule, *, now: datetime) -> Slot:
    """Check that the report's slot has opened, and return the declared slot.

    Raises:
        RejectedReleaseError: a check failed; it has the first reason.
    """
    declared = _check_slot(report, schedule)
    _require(now >= schedule.opens_at(report.slot) - CLOCK_TOLERANCE, Reason.NOT_OPEN)
    return declared


def check_contents(
    release: Release, slot: Slot, public: ReportContext, *, kind: kinds.AnyKind
) -> int:
    """Check the contents of a release of that kind, and return its model version.

    Raises:
        RejectedReleaseError: a check failed; it has the first reason.
    """
    _require(kinds.kind_of(release) is kind, Reason.WRONG_SLOT)
    return CHECKS[kind](release, slot.parameters.noise_multiplier, public)


def _check_slot(release: Release, schedule: Schedule) -> Slot:
    slot = schedule.slot(release.slot)
    if slot is None:
        raise RejectedReleaseError(Reason.UNKNOWN_SLOT)
    _require(kinds.fits(release, slot), Reason.WRONG_SLOT)
    return slot


def _check_report(release: Release, noise_multiplier: float, public: ReportContext) -> int:
    """Check that sums of contributions plus noise as declared can have these values.

    Counts of a contribution are not negative, and its residual in a cell is at most its
    count there. So the same holds for the sums, up to the noise.
    """
    report = kinds.RESIDUAL_REPORT.as_release(release)
    _require(report.basis_version == basis.BASIS_VERSION, Reason.BASIS_VERSION)
    _require(report.reference_version in public.reference_versions, Reason.REFERENCE_VERSION)
    values, margin = _on_grid(report, noise_multiplier)
    counts, residuals = values[: basis.CELLS], values[basis.CELLS :]
    _require(bool(np.all(counts >= -margin)), Reason.RANGE)
    _require(bool(np.all(counts <= MAX_WORKLOADS + margin)), Reason.RANGE)
    _require(bool(np.all(np.abs(residuals) <= counts + 2 * margin)), Reason.RANGE)
    return report.reference_version


def _check_response(release: Release, noise_multiplier: float, public: ReportContext) -> int:
    """Check that sums of responses plus noise as declared can have these values.

    A workload adds at most the largest |direction| * clip to a value, and 1 to the norm.
    """
    report, query = kinds.DIRECTED_REPORT.as_release(release), public.query
    if query is None or report.design_version != query.version:
        raise RejectedReleaseError(Reason.QUERY)
    values, margin = _on_grid(report, noise_multiplier)
    bounds = np.max(np.abs(query.design.directions) * query.design.clips, axis=1)
    _require(bool(np.all(np.abs(values) <= MAX_WORKLOADS * bounds + margin)), Reason.RANGE)
    _require(_has_valid_norm(values, margin), Reason.RANGE)
    return query.reference_version


def _check_tangent_update(release: Release, noise_multiplier: float, public: ReportContext) -> int:
    """Check a linearized update. A workload adds at most 1 to the norm of the sum."""
    del public
    update = kinds.TANGENT_UPDATE.as_release(release)
    values, margin = _on_grid(update, noise_multiplier)
    _require(bool(np.all(np.abs(values) <= MAX_WORKLOADS + margin)), Reason.RANGE)
    _require(_has_valid_norm(values, margin), Reason.NORM)
    return update.base_version


# Checks by kind. Each takes release, noise multiplier and context, and returns the version.
CHECKS: Mapping[kinds.AnyKind, Callable[[Release, float, ReportContext], int]] = {
    kinds.RESIDUAL_REPORT: _check_report,
    kinds.DIRECTED_REPORT: _check_response,
    kinds.TANGENT_UPDATE: _check_tangent_update,
}


def _on_grid(release: NoisySum, noise_multiplier: float) -> tuple[NDArray[np.float64], float]:
    """Return the checked values, and the maximum that noise and grid add to one of them."""
    _require(release.values.shape == (kinds.kind_of(release).numbers,), Reason.SIZE)
    _require(release.grid_exponent in GRID_EXPONENTS, Reason.GRID)
    margin = NOISE_DEVIATIONS * noise_multiplier + math.ldexp(1.0, release.grid_exponent)
    return release.natural(), margin


def _has_valid_norm(values: NDArray[np.float64], margin: float) -> bool:
    """Return whether vectors of norm at most 1 plus noise can have a sum of this norm."""
    return bool(np.linalg.norm(values) <= MAX_WORKLOADS + margin * math.sqrt(len(values)))


def _require(condition: bool, reason: Reason) -> None:
    if not condition:
        raise RejectedReleaseError(reason)
