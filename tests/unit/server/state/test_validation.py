"""Tests of validation: accepted releases and the reasons for refusals."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_server.state.validation import (
    MAX_WORKLOADS,
    NOISE_DEVIATIONS,
    Reason,
    RejectedReleaseError,
    ReportContext,
    check_contents,
    check_due,
    check_place,
    open_update,
)
from fedperf_shared.exchange import Refusal
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.releases import basis
from fedperf_shared.releases.kinds import (
    DIRECTED_REPORT,
    RESIDUAL_REPORT,
    TANGENT_UPDATE,
)
from fedperf_shared.releases.linear_queries import DIRECTIONS
from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    LinearizedParameters,
    LinearizedUpdate,
    ReleaseKind,
    ReportParameters,
    ResidualReport,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
    TrainingParameters,
)
from fedperf_shared.wire import codec
from tests.fakes.cell_queries import DIRECTED, make_cell_query

START = datetime(2027, 1, 1, tzinfo=UTC)
TIMES = (SlotTimes(timedelta(days=1), timedelta(days=2)),) * 2
TABLE = ReleaseCalendar(Period(START, windows=2), TIMES, TIMES, ModelMethod.TANGENT)
REPORT = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
MODEL = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)
SIGMA = 4.0
SCHEDULE = Schedule(
    TABLE,
    (
        Slot(REPORT, ReportParameters(SIGMA, 1.0)),
        Slot(DIRECTED, DirectedParameters(SIGMA, 100.0)),
        Slot(MODEL, LinearizedParameters(SIGMA, 100.0)),
        Slot(replace(MODEL, window=1), LinearizedParameters(SIGMA, 100.0)),
    ),
)
OLD = Schedule(
    replace(TABLE, model_method=ModelMethod.UNSPECIFIED),
    (Slot(MODEL, TrainingParameters(1.0, 0.1, 10, 1.0, 2000.0)),),
)
EXPONENT = -10
STEPS = 2**10
NOW = START + timedelta(days=1)


def tangent_update(
    value: float = 0.0, *, width: int = DIRECTIONS, **changes: int
) -> LinearizedUpdate:
    """Return an update with `value` in every direction, in units of the sensitivity."""
    values = np.full(width, round(value * STEPS), dtype=np.int64)
    plain = LinearizedUpdate(MODEL, 3, EXPONENT, values)
    return replace(plain, **changes)  # type: ignore[arg-type]  # tests name real fields


def tangent_verdict(update: LinearizedUpdate, schedule: Schedule = SCHEDULE) -> Reason | None:
    try:
        slot = check_place(update, schedule, slot=MODEL, base_version=3)
        check_contents(update, slot, ReportContext(), kind=TANGENT_UPDATE)
    except RejectedReleaseError as error:
        return error.reason
    return None


MOST_EACH = MAX_WORKLOADS / DIRECTIONS**0.5
"""Value in every direction at which the norm equals that of the most workloads."""


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (tangent_update(), None),
        (tangent_update(NOISE_DEVIATIONS * SIGMA), None),
        (tangent_update(-MOST_EACH), None),
        (tangent_update(base_version=4), Reason.BASE_VERSION),
        (tangent_update(width=DIRECTIONS - 1), Reason.SIZE),
        (tangent_update(width=0), Reason.SIZE),
        (tangent_update(grid_exponent=1), Reason.GRID),
        (tangent_update(1.01 * MAX_WORKLOADS), Reason.RANGE),
        (tangent_update(1e9, grid_exponent=0), Reason.RANGE),
        (tangent_update(1.01 * MOST_EACH), Reason.NORM),
    ],
)
def test_linearized_update_check_enforces_version_size_grid_range_and_norm(
    update: LinearizedUpdate, reason: Reason | None
) -> None:
    assert tangent_verdict(update) is reason


def test_linearized_update_for_dp_sgd_slot_is_rejected() -> None:
    assert tangent_verdict(tangent_update(), OLD) is Reason.WRONG_SLOT
    with pytest.raises(RejectedReleaseError, match="wrong_slot"):
        check_place(tangent_update(), OLD, slot=MODEL, base_version=3)


def report(counts: float = 0.0, residuals: float = 0.0, **changes: object) -> ResidualReport:
    """Return a report in units of one workload's contribution."""
    values = np.zeros(2 * basis.CELLS)
    values[0], values[basis.CELLS] = counts, residuals
    whole = np.round(values * STEPS).astype(np.int64)
    plain = ResidualReport(REPORT, basis.BASIS_VERSION, 1, EXPONENT, whole)
    return replace(plain, **changes)  # type: ignore[arg-type]  # tests name real fields


def verdict(content: ResidualReport, now: datetime = NOW) -> Reason | None:
    try:
        slot = check_due(content, SCHEDULE, now=now)
        check_contents(content, slot, ReportContext({1}), kind=RESIDUAL_REPORT)
    except RejectedReleaseError as error:
        return error.reason
    return None


MARGIN = NOISE_DEVIATIONS * SIGMA


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (report(), None),
        (report(-MARGIN), None),
        (report(-MARGIN - 1), Reason.RANGE),
        (report(100, 100 + 2 * MARGIN), None),
        (report(100, -101 - 2 * MARGIN), Reason.RANGE),
        (report(1e7 + MARGIN + 1), Reason.RANGE),
        (report(slot=replace(REPORT, window=1)), Reason.UNKNOWN_SLOT),
        (report(slot=MODEL), Reason.WRONG_SLOT),
        (report(slot=DIRECTED), Reason.WRONG_SLOT),
        (report(basis_version=99), Reason.BASIS_VERSION),
        (report(reference_version=2), Reason.REFERENCE_VERSION),
        (report(grid_exponent=1), Reason.GRID),
        (report(grid_exponent=2_000_000), Reason.GRID),
        (report(values=np.zeros(2 * basis.CELLS + 1, dtype=np.int64)), Reason.SIZE),
    ],
)
def test_residual_report_check_enforces_slot_version_grid_size_and_range(
    content: ResidualReport, reason: Reason | None
) -> None:
    assert verdict(content) is reason


def test_residual_report_is_accepted_at_most_five_minutes_before_slot_opens() -> None:
    assert verdict(report(), NOW - timedelta(seconds=300)) is None
    assert verdict(report(), NOW - timedelta(seconds=301)) is Reason.NOT_OPEN


def test_residual_report_from_simulated_workloads_is_accepted() -> None:
    random = np.random.default_rng(0)
    total = np.zeros(2 * basis.CELLS)
    for _ in range(500):
        cells = random.integers(0, basis.CELLS, size=5)
        total += basis.contribution(cells, random.normal(0, 3, size=5), 1.0)
    noisy = total + random.normal(0, SIGMA, size=total.shape)
    assert verdict(report(values=np.round(noisy * STEPS).astype(np.int64))) is None


QUESTION = make_cell_query()


def answer(first: float = 0.0, **changes: object) -> DirectedReport:
    """Return a directed report in units of one workload's contribution."""
    values = np.zeros(QUESTION.design.values)
    values[0] = first
    whole = np.round(values * STEPS).astype(np.int64)
    plain = DirectedReport(DIRECTED, QUESTION.version, EXPONENT, whole)
    return replace(plain, **changes)  # type: ignore[arg-type]  # tests name real fields


def judged(
    content: DirectedReport, *, has_query: bool = True, now: datetime = NOW
) -> Reason | None:
    try:
        slot = check_due(content, SCHEDULE, now=now)
        known = ReportContext(query=QUESTION if has_query else None)
        check_contents(content, slot, known, kind=DIRECTED_REPORT)
    except RejectedReleaseError as error:
        return error.reason
    return None


LARGEST = 1e7 * float(np.max(np.abs(QUESTION.design.directions[0]) * QUESTION.design.clips))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (answer(), None),
        (answer(-MARGIN), None),
        (answer(LARGEST + 0.99 * MARGIN), None),
        (answer(LARGEST + 1.01 * MARGIN), Reason.RANGE),
        (answer(-1.01 * (LARGEST + MARGIN)), Reason.RANGE),
        (answer(values=np.full(16, int(4e6 * STEPS))), Reason.RANGE),
        (answer(slot=replace(DIRECTED, window=1)), Reason.UNKNOWN_SLOT),
        (answer(slot=REPORT), Reason.WRONG_SLOT),
        (answer(slot=MODEL), Reason.WRONG_SLOT),
        (answer(design_version=2), Reason.QUERY),
        (answer(grid_exponent=1), Reason.GRID),
        (answer(values=np.zeros(15, dtype=np.int64)), Reason.SIZE),
    ],
)
def test_directed_report_check_enforces_slot_query_grid_size_and_range(
    content: DirectedReport, reason: Reason | None
) -> None:
    assert judged(content) is reason


def test_directed_report_without_query_or_before_slot_opens_is_rejected() -> None:
    assert judged(answer(), has_query=False) is Reason.QUERY
    assert judged(answer(), now=NOW - timedelta(seconds=301)) is Reason.NOT_OPEN


@given(st.binary(max_size=300))
def test_open_update_with_random_bytes_is_rejected(junk: bytes) -> None:
    with pytest.raises(RejectedReleaseError):
        open_update(junk, KEY.public_key())


KEY = new_private_key()


def test_open_update_verifies_signature_of_the_sending_organization() -> None:
    payload = codec.encode_release(tangent_update())
    data = codec.encode_signed_release(SignedRelease(payload, sign(KEY, payload)))
    signed, update = open_update(data, KEY.public_key())
    assert (signed.payload, update.slot) == (payload, MODEL)
    with pytest.raises(RejectedReleaseError, match="signature"):
        open_update(data, new_private_key().public_key())
    with pytest.raises(RejectedReleaseError, match="refused"):
        open_update(None, KEY.public_key())


@pytest.mark.parametrize("refusal", Refusal)
def test_open_update_with_refusal_raises_error_with_its_reason(refusal: Refusal) -> None:
    with pytest.raises(RejectedReleaseError, match=f"not accepted: {refusal.name.lower()}$"):
        open_update(None, KEY.public_key(), refusal=refusal)
