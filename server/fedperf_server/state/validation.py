"""Checks on everything that organizations send to the coordinator.

The functions are pure. They judge a release against the schedule that its organization declared and
against public constants. A refusal has one of a closed set of reasons, which is counted, and
carries nothing of what was sent.
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

MAX_WORKLOADS = 10_000_000
"""More workloads than any organization has: bounds the sums of a report."""
NOISE_DEVIATIONS = 12.0
"""A Gaussian passes this many standard deviations with a probability below 1e-32."""
GRID_EXPONENTS = range(-60, 1)
CLOCK_TOLERANCE = timedelta(seconds=300)


@unique
class Reason(StrEnum):
    """Why something was not accepted; a member that refuses to answer gives its `Refusal`."""

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
    QUESTION = "question"
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
    """A release was not accepted; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"release not accepted: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ReportContext:
    """The public facts, beside its slot, that a release's contents are judged against.

    Attributes:
        reference_versions: model versions that residuals may be taken against.
        question: of the slot, where one was asked.
    """

    reference_versions: Collection[int] = ()
    question: CellQuery | None = None


def open_signed(signed: SignedRelease, key: ec.EllipticCurvePublicKey) -> Release:
    """The release, once the signature over its bytes is the key's.

    Raises:
        RejectedReleaseError: wrong signature, or not a release.
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
    """The signed model update that answers a round; None is a refusal to answer, for `refusal`.

    Raises:
        RejectedReleaseError: refused, malformed, wrong signature, or no model update.
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
    """Check that an update fills `slot`, starting from that model; the slot as declared.

    Raises:
        RejectedReleaseError: with the first reason that holds.
    """
    declared = _check_slot(update, schedule)
    _require(update.slot == slot, Reason.WRONG_SLOT)
    _require(update.base_version == base_version, Reason.BASE_VERSION)
    return declared


def check_due(report: Release, schedule: Schedule, *, now: datetime) -> Slot:
    """Check that a report fills a slot that has opened; the slot as declared.

    Raises:
        RejectedReleaseError: with the first reason that holds.
    """
    declared = _check_slot(report, schedule)
    _require(now >= schedule.opens_at(report.slot) - CLOCK_TOLERANCE, Reason.NOT_OPEN)
    return declared


def check_contents(
    release: Release, slot: Slot, known: ReportContext, *, kind: kinds.AnyKind
) -> int:
    """Check what a release of that kind holds; the model version that it is about.

    Raises:
        RejectedReleaseError: with the first reason that holds.
    """
    _require(kinds.kind_of(release) is kind, Reason.WRONG_SLOT)
    return CHECKS[kind](release, slot.parameters.noise_multiplier, known)


def _check_slot(release: Release, schedule: Schedule) -> Slot:
    slot = schedule.slot(release.slot)
    if slot is None:
        raise RejectedReleaseError(Reason.UNKNOWN_SLOT)
    _require(kinds.fits(release, slot), Reason.WRONG_SLOT)
    return slot


def _check_report(release: Release, noise_multiplier: float, known: ReportContext) -> int:
    """Whether noise of the declared size on sums of contributions can give these values.

    A contribution's counts are not negative, and its residual in a cell is never
    longer than its count there; so the sums obey the same, up to the noise.
    """
    report = kinds.RESIDUAL_REPORT.as_release(release)
    _require(report.basis_version == basis.BASIS_VERSION, Reason.BASIS_VERSION)
    _require(report.reference_version in known.reference_versions, Reason.REFERENCE_VERSION)
    values, margin = _on_grid(report, noise_multiplier)
    counts, residuals = values[: basis.CELLS], values[basis.CELLS :]
    _require(bool(np.all(counts >= -margin)), Reason.RANGE)
    _require(bool(np.all(counts <= MAX_WORKLOADS + margin)), Reason.RANGE)
    _require(bool(np.all(np.abs(residuals) <= counts + 2 * margin)), Reason.RANGE)
    return report.reference_version


def _check_answer(release: Release, noise_multiplier: float, known: ReportContext) -> int:
    """Whether noise of the declared size on sums of answers can give these values.

    A workload adds at most the largest |direction| * clip to a value, and 1 to their norm.
    """
    report, question = kinds.DIRECTED_REPORT.as_release(release), known.question
    if question is None or report.design_version != question.version:
        raise RejectedReleaseError(Reason.QUESTION)
    values, margin = _on_grid(report, noise_multiplier)
    most = np.max(np.abs(question.design.directions) * question.design.clips, axis=1)
    _require(bool(np.all(np.abs(values) <= MAX_WORKLOADS * most + margin)), Reason.RANGE)
    _require(_is_short(values, margin), Reason.RANGE)
    return question.reference_version


def _check_tangent_update(release: Release, noise_multiplier: float, known: ReportContext) -> int:
    """Whether a step at a tangent can be: a workload adds at most 1, in length, to the sum."""
    del known
    update = kinds.TANGENT_UPDATE.as_release(release)
    values, margin = _on_grid(update, noise_multiplier)
    _require(bool(np.all(np.abs(values) <= MAX_WORKLOADS + margin)), Reason.RANGE)
    _require(_is_short(values, margin), Reason.NORM)
    return update.base_version


CHECKS: Mapping[kinds.AnyKind, Callable[[Release, float, ReportContext], int]] = {
    kinds.RESIDUAL_REPORT: _check_report,
    kinds.DIRECTED_REPORT: _check_answer,
    kinds.TANGENT_UPDATE: _check_tangent_update,
}
"""Of release, noise multiplier and what is known: raises, or gives the model version."""


def _on_grid(release: NoisySum, noise_multiplier: float) -> tuple[NDArray[np.float64], float]:
    """The numbers, so many as there should be, and the most that noise and grid add to one."""
    _require(release.values.shape == (kinds.kind_of(release).numbers,), Reason.SIZE)
    _require(release.grid_exponent in GRID_EXPONENTS, Reason.GRID)
    margin = NOISE_DEVIATIONS * noise_multiplier + math.ldexp(1.0, release.grid_exponent)
    return release.natural(), margin


def _is_short(values: NDArray[np.float64], margin: float) -> bool:
    """Whether vectors of norm at most 1, and noise, can sum up to a vector as long as this."""
    return bool(np.linalg.norm(values) <= MAX_WORKLOADS + margin * math.sqrt(len(values)))


def _require(holds: bool, reason: Reason) -> None:
    if not holds:
        raise RejectedReleaseError(reason)
