"""What is encoded comes back equal; what is not well formed is refused in one line."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.period import Period, SlotTimes, Timetable
from fedperf_shared.release import (
    ModelUpdate,
    ReleaseKind,
    ReportParameters,
    ResidualReport,
    Schedule,
    Slot,
    SlotKey,
    TrainingParameters,
)
from fedperf_shared.wire import codec
from fedperf_shared.wire.workflow_pb2 import Operator as OperatorMessage
from fedperf_shared.wire.workflow_pb2 import Plan as PlanMessage
from fedperf_shared.wire.workflow_pb2 import Workflow as WorkflowMessage
from fedperf_shared.workflow.graph import Plan
from tests.fakes.plans import ONE_CORE, plans

REPORT_KEY = SlotKey(ReleaseKind.RESIDUAL_REPORT, 2, 0)
MODEL_KEY = SlotKey(ReleaseKind.MODEL_UPDATE, 2, 0)


@given(plans())
def test_plans_round_trip(plan: Plan) -> None:
    assert codec.decode_plan(codec.encode_plan(plan)) == plan


@given(st.binary(max_size=200))
def test_foreign_bytes_are_a_plan_or_refused(payload: bytes) -> None:
    try:
        codec.decode_plan(payload)
    except InvalidInputError as error:
        assert str(error).startswith("not a valid plan")  # noqa: PT017


@given(st.binary(max_size=200))
def test_foreign_bytes_are_a_release_or_refused(payload: bytes) -> None:
    try:
        codec.decode_release(payload)
    except InvalidInputError as error:
        assert str(error).startswith("not a valid release")  # noqa: PT017


def test_unknown_kinds_are_refused() -> None:
    message = PlanMessage(
        workflow=WorkflowMessage(operators=[OperatorMessage(kind=99)]), platforms=[0]
    )
    with pytest.raises(InvalidInputError, match="99"):
        codec.decode_plan(message.SerializeToString())


def test_reports_round_trip_and_have_one_size() -> None:
    values = np.array([-(2**40), 0, 7], dtype=np.int64)
    report = ResidualReport(REPORT_KEY, 1, 3, -20, values)
    payload = codec.encode_release(report)
    decoded = codec.decode_release(payload)
    assert isinstance(decoded, ResidualReport)
    assert (decoded.slot, decoded.reference_version, decoded.grid_exponent) == (REPORT_KEY, 3, -20)
    np.testing.assert_array_equal(decoded.values, values)
    empty = ResidualReport(REPORT_KEY, 1, 3, -20, np.zeros(3, np.int64))
    assert len(codec.encode_release(empty)) == len(payload)


def test_model_updates_round_trip() -> None:
    arrays = (np.arange(6, dtype=np.float32).reshape(2, 3), np.array([np.nan, 1], dtype=np.float32))
    payload = codec.encode_release(ModelUpdate(MODEL_KEY, 1, 4, arrays))
    decoded = codec.decode_release(payload)
    assert isinstance(decoded, ModelUpdate)
    for before, after in zip(arrays, decoded.arrays, strict=True):
        np.testing.assert_array_equal(before, after)


def test_an_array_whose_shape_does_not_fit_is_refused() -> None:
    message = codec.array_to_message(np.zeros(4, np.float32))
    message.shape[0] = 5
    with pytest.raises(InvalidInputError, match="shape"):
        codec.array_from_message(message)


def test_schedules_round_trip() -> None:
    hour = timedelta(hours=1)
    timetable = Timetable(
        Period(datetime(2027, 1, 1, tzinfo=UTC)),
        (SlotTimes(0 * hour, hour),),
        (SlotTimes(hour, 2 * hour),),
    )
    schedule = Schedule(
        timetable,
        (
            Slot(REPORT_KEY, ReportParameters(4.0, 1.5)),
            Slot(MODEL_KEY, TrainingParameters(2.0, 0.05, 10, 0.5, 2000.0)),
        ),
    )
    assert codec.decode_schedule(codec.encode_schedule(schedule)) == schedule


def test_a_schedule_without_noise_cannot_be_decoded() -> None:
    message = codec.schedule_to_message(
        Schedule(
            Timetable(
                Period(datetime(2027, 1, 1, tzinfo=UTC)),
                (SlotTimes(timedelta(0), timedelta(hours=1)),),
                (),
            ),
            (Slot(REPORT_KEY, ReportParameters(4.0, 1.5)),),
        )
    )
    message.slots[0].report.noise_multiplier = 0.0
    with pytest.raises(InvalidInputError, match="noise_multiplier"):
        codec.schedule_from_message(message)


def test_clusters_round_trip() -> None:
    assert codec.cluster_from_message(codec.cluster_to_message(ONE_CORE)) == ONE_CORE
