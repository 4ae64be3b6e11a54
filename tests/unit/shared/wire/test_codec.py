"""Tests of the codec: messages round-trip, and malformed ones are refused in one line."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Correction, Receipt, SignedReceipt, SyntheticRow, TrainRequest
from fedperf_shared.execution import InvalidExecutionError, MeasuredPlan
from fedperf_shared.releases.linear_queries import DIRECTIONS, LinearizedQuery
from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    LinearizedParameters,
    LinearizedUpdate,
    ModelUpdate,
    Parameters,
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
from fedperf_shared.wire.codec import array_from_message, array_to_message
from fedperf_shared.wire.exchange_pb2 import Correction as CorrectionMessage
from fedperf_shared.wire.exchange_pb2 import Question, SyntheticBatch
from fedperf_shared.wire.exchange_pb2 import TangentQuestion as TangentQuestionMessage
from fedperf_shared.wire.workflow_pb2 import MeasuredPlans, Operator, Workflow
from fedperf_shared.wire.workflow_pb2 import Plan as PlanMessage
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.cell_queries import DIRECTED, make_cell_query
from tests.fakes.plans import ONE_CORE, diamond, plans

REPORT_KEY = SlotKey(ReleaseKind.RESIDUAL_REPORT, 2, 0)
MODEL_KEY = SlotKey(ReleaseKind.MODEL_UPDATE, 2, 0)


@given(plans())
def test_codec_plan_round_trips(plan: Plan) -> None:
    assert codec.decode_plan(codec.encode_plan(plan)) == plan


@given(st.binary(max_size=200))
def test_codec_random_bytes_decode_as_plan_or_are_refused(payload: bytes) -> None:
    try:
        codec.decode_plan(payload)
    except InvalidInputError as error:
        assert str(error).startswith("not a valid plan")  # noqa: PT017


@given(st.binary(max_size=200))
def test_codec_random_bytes_decode_as_release_or_are_refused(payload: bytes) -> None:
    try:
        codec.decode_release(payload)
    except InvalidInputError as error:
        assert str(error).startswith("not a valid release")  # noqa: PT017


def test_codec_plan_with_unknown_operator_kind_is_refused() -> None:
    message = PlanMessage(workflow=Workflow(operators=[Operator(kind=99)]), platforms=[0])
    with pytest.raises(InvalidInputError, match="99"):
        codec.decode_plan(message.SerializeToString())


def test_codec_residual_report_round_trips_with_size_independent_of_values() -> None:
    values = np.array([-(2**40), 0, 7], dtype=np.int64)
    report = ResidualReport(REPORT_KEY, 1, 3, -20, values)
    payload = codec.encode_release(report)
    decoded = codec.decode_release(payload)
    assert isinstance(decoded, ResidualReport)
    assert (decoded.slot, decoded.reference_version, decoded.grid_exponent) == (REPORT_KEY, 3, -20)
    np.testing.assert_array_equal(decoded.values, values)
    empty = ResidualReport(REPORT_KEY, 1, 3, -20, np.zeros(3, np.int64))
    assert len(codec.encode_release(empty)) == len(payload)


def test_codec_directed_report_round_trips_with_size_independent_of_values() -> None:
    values = np.array([-(2**40), 0, 7], dtype=np.int64)
    payload = codec.encode_release(DirectedReport(DIRECTED, 3, -20, values))
    decoded = codec.decode_release(payload)
    assert isinstance(decoded, DirectedReport)
    assert (decoded.slot, decoded.design_version, decoded.grid_exponent) == (DIRECTED, 3, -20)
    np.testing.assert_array_equal(decoded.values, values)
    empty = DirectedReport(DIRECTED, 3, -20, np.zeros(3, np.int64))
    assert len(codec.encode_release(empty)) == len(payload)


def test_codec_linear_query_round_trips_and_empty_message_decodes_to_none() -> None:
    query = make_cell_query(version=3, reference_version=2, clip=0.7, center=-0.3)
    read = codec.decode_cell_query(codec.encode_cell_query(query))
    assert (read.slot, read.version, read.reference_version) == (DIRECTED, 3, 2)
    np.testing.assert_array_equal(read.center, query.center)
    np.testing.assert_array_equal(read.design.clips, query.design.clips)
    np.testing.assert_array_equal(read.design.directions, query.design.directions)
    assert codec.CELL_QUERY_OR_NONE.decode(Question()) is None


def spoiled(field: str, change: Callable[[list[float]], list[float]]) -> Question:
    message = Question.FromString(codec.encode_cell_query(make_cell_query()))
    values = change(list(getattr(message, field)))
    message.ClearField(field)
    getattr(message, field).extend(values)
    return message


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (spoiled("directions", lambda all_: [1.001 * each for each in all_]), "norm"),
        (spoiled("directions", lambda all_: all_[:-1]), "reshape"),
        (spoiled("directions", lambda all_: all_ * 20), "directions"),
        (spoiled("directions", lambda all_: []), "directions"),
        (spoiled("directions", lambda all_: [float("nan"), *all_[1:]]), "finite"),
        (spoiled("directions", lambda all_: [1e300, *all_[1:]]), "norm"),
        (spoiled("clips", lambda all_: [float("inf"), *all_[1:]]), "clip"),
        (spoiled("clips", lambda all_: [-1.0, *all_[1:]]), "clip"),
        (spoiled("clips", lambda all_: all_[1:]), "points"),
        (spoiled("center", lambda all_: [float("nan"), *all_[1:]]), "center"),
        (spoiled("center", lambda all_: [30.0, *all_[1:]]), "center"),
        (spoiled("center", lambda all_: all_ * 2), "center"),
        (spoiled("center", lambda all_: []), "center"),
    ],
)
def test_codec_linear_query_with_invalid_fields_is_refused(message: Question, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=f"not a valid linear query: .*{reason}"):
        codec.CELL_QUERY_OR_NONE.decode(message)


@given(st.binary(max_size=300), st.integers(0, 2000))
def test_codec_corrupted_linear_query_is_refused_or_has_norms_at_most_one(
    junk: bytes, place: int
) -> None:
    payload = codec.encode_cell_query(make_cell_query())
    try:
        query = codec.decode_cell_query(payload[:place] + junk + payload[place + len(junk) :])
    except InvalidInputError as error:
        assert str(error).startswith("not a valid linear query")  # noqa: PT017
    else:
        assert query.design.norms().max() <= 1 + 1e-9


def test_codec_model_update_round_trips() -> None:
    arrays = (np.arange(6, dtype=np.float32).reshape(2, 3), np.array([np.nan, 1], dtype=np.float32))
    payload = codec.encode_release(ModelUpdate(MODEL_KEY, 1, 4, arrays))
    decoded = codec.decode_release(payload)
    assert isinstance(decoded, ModelUpdate)
    for before, after in zip(arrays, decoded.arrays, strict=True):
        np.testing.assert_array_equal(before, after)


def test_codec_linearized_update_round_trips_with_size_independent_of_values() -> None:
    values = np.array([-(2**40), 0, 7], dtype=np.int64)
    payload = codec.encode_release(LinearizedUpdate(MODEL_KEY, 3, -20, values))
    decoded = codec.decode_release(payload)
    assert isinstance(decoded, LinearizedUpdate)
    assert (decoded.slot, decoded.base_version, decoded.grid_exponent) == (MODEL_KEY, 3, -20)
    np.testing.assert_array_equal(decoded.values, values)
    np.testing.assert_array_equal(decoded.natural(), values / 2**20)
    empty = LinearizedUpdate(MODEL_KEY, 3, -20, np.zeros(3, np.int64))
    assert len(codec.encode_release(empty)) == len(payload)


def test_codec_array_with_mismatched_shape_is_refused() -> None:
    message = array_to_message(np.zeros(4, np.float32))
    message.shape[0] = 5
    with pytest.raises(InvalidInputError, match="shape"):
        array_from_message(message)


METHODS: dict[ModelMethod, Parameters] = {
    ModelMethod.UNSPECIFIED: TrainingParameters(2.0, 0.05, 10, 0.5, 2000.0),
    ModelMethod.TANGENT: LinearizedParameters(2.0, 2000.0),
}


@pytest.mark.parametrize("method", ModelMethod)
def test_codec_schedule_round_trips(method: ModelMethod) -> None:
    hour = timedelta(hours=1)
    calendar = ReleaseCalendar(
        Period(datetime(2027, 1, 1, tzinfo=UTC)),
        (SlotTimes(0 * hour, hour), SlotTimes(hour, 2 * hour)),
        (SlotTimes(hour, 2 * hour),),
        method,
    )
    schedule = Schedule(
        calendar,
        (
            Slot(REPORT_KEY, ReportParameters(4.0, 1.5)),
            Slot(SlotKey(ReleaseKind.RESIDUAL_REPORT, 2, 1), DirectedParameters(4.0, 60.0)),
            Slot(MODEL_KEY, METHODS[method]),
        ),
    )
    assert codec.decode_schedule(codec.encode_schedule(schedule)) == schedule


def test_codec_calendar_without_model_method_decodes_and_unknown_is_refused() -> None:
    table = ReleaseCalendar(Period(datetime(2027, 1, 1, tzinfo=UTC)), (), (), ModelMethod.TANGENT)
    message = codec.CALENDAR.write(table)
    message.ClearField("model_method")
    assert codec.CALENDAR.decode(message) == replace(table, model_method=ModelMethod.UNSPECIFIED)
    message.MergeFromString(b"\x30\x63")  # field 6 = 99
    with pytest.raises(InvalidInputError, match="not a valid calendar: 99"):
        codec.CALENDAR.decode(message)


def test_codec_schedule_without_noise_is_refused() -> None:
    message = codec.SCHEDULE.write(
        Schedule(
            ReleaseCalendar(
                Period(datetime(2027, 1, 1, tzinfo=UTC)),
                (SlotTimes(timedelta(0), timedelta(hours=1)),),
                (),
            ),
            (Slot(REPORT_KEY, ReportParameters(4.0, 1.5)),),
        )
    )
    message.slots[0].report.noise_multiplier = 0.0
    with pytest.raises(InvalidInputError, match="noise_multiplier"):
        codec.SCHEDULE.decode(message)


def test_codec_cluster_round_trips() -> None:
    assert codec.CLUSTER.decode(codec.CLUSTER.write(ONE_CORE)) == ONE_CORE


@pytest.mark.slow
@given(st.lists(st.tuples(plans(), st.floats(-20, 20)), max_size=4))
def test_codec_measured_plans_round_trip(drawn: list[tuple[Plan, float]]) -> None:
    measured = tuple(MeasuredPlan(plan, ONE_CORE, seconds) for plan, seconds in drawn)
    assert codec.decode_measured_plans(codec.encode_measured_plans(measured)) == measured


def test_codec_measured_plan_without_finite_run_time_is_refused() -> None:
    for bad in (float("nan"), float("inf")):
        with pytest.raises(InvalidExecutionError, match="finite"):
            MeasuredPlan(diamond(), ONE_CORE, bad)
    message = MeasuredPlans()
    message.ParseFromString(codec.encode_measured_plans((MeasuredPlan(diamond(), ONE_CORE, 1.0),)))
    message.plans[0].log_runtime_seconds = float("nan")
    with pytest.raises(InvalidInputError, match="not a valid list of measured plans"):
        codec.decode_measured_plans(message.SerializeToString())


def test_codec_signed_releases_and_receipts_round_trip() -> None:
    signed = codec.encode_signed_release(SignedRelease(b"payload", b"signature"))
    assert codec.decode_signed_release(signed) == SignedRelease(b"payload", b"signature")
    receipt = Receipt(b"whose", b"id", b"digest", 3, datetime(2027, 1, 1, tzinfo=UTC))
    assert codec.decode_receipt(codec.encode_receipt(receipt)) == receipt
    confirmed = SignedReceipt(codec.encode_receipt(receipt), b"signature")
    assert codec.decode_signed_receipt(codec.encode_signed_receipt(confirmed)) == confirmed


@given(st.binary(max_size=200))
def test_codec_random_bytes_decode_or_raise_invalid_input_error(payload: bytes) -> None:
    for decode in (
        codec.decode_signed_release,
        codec.decode_signed_receipt,
        codec.decode_receipt,
        codec.decode_measured_plans,
        codec.decode_train_request,
        codec.decode_cell_query,
        codec.decode_linearized_query,
    ):
        try:
            decode(payload)
        except InvalidInputError as error:
            assert str(error).startswith("not a valid")  # noqa: PT017


def test_codec_train_request_round_trips() -> None:
    arrays = (np.arange(6, dtype=np.float32).reshape(2, 3),)
    sent = codec.encode_train_request(TrainRequest(MODEL_KEY, 1, 4, arrays))
    request = codec.decode_train_request(sent)
    assert (request.slot, request.architecture, request.base_version) == (MODEL_KEY, 1, 4)
    np.testing.assert_array_equal(request.arrays[0], arrays[0])
    assert request.query is None


def linearized_query_of(anchors: int = 5, **changes: float) -> LinearizedQuery:
    coefficients = np.random.default_rng(1).standard_normal((anchors, DIRECTIONS))
    return LinearizedQuery(changes.get("clip", 0.5), coefficients.astype(np.float32))


def test_codec_linearized_query_round_trips_alone_and_in_train_request() -> None:
    query = linearized_query_of()
    sent = codec.encode_train_request(TrainRequest(MODEL_KEY, 1, 4, (), query))
    for read in (
        codec.decode_linearized_query(codec.encode_linearized_query(query)),
        codec.decode_train_request(sent).query,
    ):
        assert read is not None
        assert read.clip == 0.5
        np.testing.assert_array_equal(read.coefficients, query.coefficients)


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan"), float("inf"), 1e3])
def test_linearized_query_with_invalid_clip_is_refused(clip: float) -> None:
    with pytest.raises(InvalidInputError, match="clip"):
        linearized_query_of(clip=clip)


@pytest.mark.parametrize(
    "coefficients",
    [
        np.zeros((0, DIRECTIONS), np.float32),
        np.zeros((10_001, DIRECTIONS), np.float32),
        np.zeros((5, DIRECTIONS - 1), np.float32),
        np.zeros(DIRECTIONS, np.float32),
        np.full((5, DIRECTIONS), np.nan, np.float32),
        np.full((5, DIRECTIONS), -np.inf, np.float32),
        np.full((5, DIRECTIONS), 1e30, np.float32),
    ],
)
def test_linearized_query_with_invalid_coefficients_is_refused_built_or_decoded(
    coefficients: np.ndarray,
) -> None:
    with pytest.raises(InvalidInputError, match="coefficient"):
        LinearizedQuery(0.5, coefficients)
    message = TangentQuestionMessage(clip=0.5, coefficients=array_to_message(coefficients))
    with pytest.raises(InvalidInputError, match="not a valid linearized query"):
        codec.decode_linearized_query(message.SerializeToString())


def test_codec_correction_round_trips_and_empty_message_decodes_to_none() -> None:
    assert codec.CORRECTION.decode(CorrectionMessage()) is None
    sent = Correction(1, 2, np.arange(3.0), np.eye(3))
    read = codec.CORRECTION.decode(CorrectionMessage.FromString(codec.encode_correction(sent)))
    assert read is not None
    assert (read.basis_version, read.reference_version) == (1, 2)
    np.testing.assert_array_equal(read.mean, sent.mean)
    np.testing.assert_array_equal(read.covariance, sent.covariance)


@pytest.mark.parametrize(
    "message",
    [
        CorrectionMessage(mean=[1.0], covariance=[1.0, 2.0]),
        CorrectionMessage(mean=[float("nan")], covariance=[1.0]),
        CorrectionMessage(mean=[1.0], covariance=[float("inf")]),
    ],
)
def test_codec_correction_with_invalid_numbers_is_refused(message: CorrectionMessage) -> None:
    with pytest.raises(InvalidInputError, match="correction"):
        codec.CORRECTION.decode(message)


def test_codec_synthetic_rows_round_trip_and_invalid_rows_are_refused() -> None:
    row = SyntheticRow(diamond(), ONE_CORE, 0.5, Platform.DUCKDB)
    message = SyntheticBatch.FromString(codec.encode_synthetic_rows((row, row)))
    assert codec.SYNTHETIC_ROWS.decode(message) == (row, row)
    message.rows[1].log_runtime_seconds = float("nan")
    with pytest.raises(InvalidInputError, match="finite"):
        codec.SYNTHETIC_ROWS.decode(message)
    message.rows[1].log_runtime_seconds = 0.5
    message.rows[0].segment = 99
    with pytest.raises(InvalidInputError, match="99"):
        codec.SYNTHETIC_ROWS.decode(message)
