"""Protocol buffers to domain objects and back.

Decoding never trusts: bytes that are no message, numbers outside of the vocabulary
and objects that refuse themselves all end in one `InvalidInputError`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.period import Period, SlotTimes, Timetable, from_unix_ms, to_unix_ms
from fedperf_shared.release import (
    ModelUpdate,
    Release,
    ReleaseKind,
    ReportParameters,
    ResidualReport,
    Schedule,
    Slot,
    SlotKey,
    TrainingParameters,
)
from fedperf_shared.wire import exchange_pb2, release_pb2, workflow_pb2
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import Complexity, OperatorClass, OperatorKind, Platform

MAX_ARRAY_VALUES = 50_000_000

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def encode_plan(plan: Plan) -> bytes:
    """A plan as bytes, equal for equal plans."""
    return plan_to_message(plan).SerializeToString(deterministic=True)


def decode_plan(payload: bytes) -> Plan:
    """The plan that `encode_plan` wrote.

    Raises:
        InvalidInputError: not a plan, or one that is not well formed.
    """
    return _guarded("plan", lambda: plan_from_message(_parse(workflow_pb2.Plan, payload)))


def encode_release(release: Release) -> bytes:
    """A release as the bytes that are signed, stored and sent."""
    message = release_pb2.Release()
    if isinstance(release, ResidualReport):
        message.residual_report.CopyFrom(_report_to_message(release))
    else:
        message.model_update.CopyFrom(_update_to_message(release))
    return message.SerializeToString(deterministic=True)


def decode_release(payload: bytes) -> Release:
    """The release that `encode_release` wrote; its numbers are not yet judged.

    Raises:
        InvalidInputError: not a release.
    """

    def decode() -> Release:
        message = _parse(release_pb2.Release, payload)
        content = message.WhichOneof("content")
        if content == "residual_report":
            return _report_from_message(message.residual_report)
        if content == "model_update":
            return _update_from_message(message.model_update)
        raise InvalidInputError("a release holds a residual report or a model update")

    return _guarded("release", decode)


def plan_to_message(plan: Plan) -> workflow_pb2.Plan:
    """Domain to message."""
    return workflow_pb2.Plan(
        workflow=workflow_pb2.Workflow(
            operators=[_operator_to_message(each) for each in plan.workflow.operators],
            sources=workflow_pb2.SourceStatistics(
                columns=plan.workflow.sources.columns,
                top_key_share=plan.workflow.sources.top_key_share,
                distinct_ratio=plan.workflow.sources.distinct_ratio,
                null_ratio=plan.workflow.sources.null_ratio,
            ),
        ),
        platforms=[int(platform) for platform in plan.platforms],
    )


def plan_from_message(message: workflow_pb2.Plan) -> Plan:
    """Message to domain; raises ValueError or FedperfError on nonsense."""
    sources = message.workflow.sources
    workflow = Workflow(
        tuple(_operator_from_message(each) for each in message.workflow.operators),
        SourceStatistics(
            sources.columns, sources.top_key_share, sources.distinct_ratio, sources.null_ratio
        ),
    )
    return Plan(workflow, tuple(Platform(number) for number in message.platforms))


def cluster_to_message(cluster: ClusterConfig) -> workflow_pb2.ClusterConfig:
    """Domain to message."""
    return workflow_pb2.ClusterConfig(
        nodes=cluster.nodes,
        cores=cluster.cores,
        memory_bytes=cluster.memory_bytes,
        machine_speed=cluster.machine_speed,
    )


def cluster_from_message(message: workflow_pb2.ClusterConfig) -> ClusterConfig:
    """Message to domain."""
    return ClusterConfig(message.nodes, message.cores, message.memory_bytes, message.machine_speed)


def timetable_to_message(timetable: Timetable) -> exchange_pb2.Timetable:
    """Domain to message."""
    return exchange_pb2.Timetable(
        period_start_unix_ms=to_unix_ms(timetable.period.start),
        window_ms=_to_ms(timetable.period.window),
        windows=timetable.period.windows,
        report_slots=[_times_to_message(each) for each in timetable.report_slots],
        model_slots=[_times_to_message(each) for each in timetable.model_slots],
    )


def timetable_from_message(message: exchange_pb2.Timetable) -> Timetable:
    """Message to domain.

    Raises:
        InvalidInputError: not a timetable.
    """

    def decode() -> Timetable:
        period = Period(
            from_unix_ms(message.period_start_unix_ms),
            timedelta(milliseconds=message.window_ms),
            message.windows,
        )
        return Timetable(
            period,
            tuple(_times_from_message(each) for each in message.report_slots),
            tuple(_times_from_message(each) for each in message.model_slots),
        )

    return _guarded("timetable", decode)


def schedule_to_message(schedule: Schedule) -> exchange_pb2.Schedule:
    """Domain to message."""
    return exchange_pb2.Schedule(
        timetable=timetable_to_message(schedule.timetable),
        slots=[_slot_to_message(slot) for slot in schedule.slots],
    )


def schedule_from_message(message: exchange_pb2.Schedule) -> Schedule:
    """Message to domain.

    Raises:
        InvalidInputError: not a schedule.
    """
    return _guarded(
        "schedule",
        lambda: Schedule(
            timetable_from_message(message.timetable),
            tuple(_slot_from_message(slot) for slot in message.slots),
        ),
    )


def encode_schedule(schedule: Schedule) -> bytes:
    """A schedule as bytes, equal for equal schedules."""
    return schedule_to_message(schedule).SerializeToString(deterministic=True)


def decode_schedule(payload: bytes) -> Schedule:
    """The schedule that `encode_schedule` wrote.

    Raises:
        InvalidInputError: not a schedule.
    """
    return schedule_from_message(
        _guarded("schedule", lambda: _parse(exchange_pb2.Schedule, payload))
    )


def key_to_message(key: SlotKey) -> release_pb2.SlotKey:
    """Domain to message."""
    return release_pb2.SlotKey(
        kind=release_pb2.ReleaseKind.Name(int(key.kind)), window=key.window, index=key.index
    )


def key_from_message(message: release_pb2.SlotKey) -> SlotKey:
    """Message to domain; raises ValueError on an unknown kind."""
    return SlotKey(ReleaseKind(message.kind), message.window, message.index)


def array_to_message(array: NDArray[np.float32]) -> release_pb2.FloatArray:
    """A float32 array of any shape."""
    little_endian = np.ascontiguousarray(array, dtype="<f4")
    return release_pb2.FloatArray(shape=array.shape, float32_little_endian=little_endian.tobytes())


def array_from_message(message: release_pb2.FloatArray) -> NDArray[np.float32]:
    """The array, finite or not.

    Raises:
        InvalidInputError: shape and bytes do not agree.
    """
    size = 1
    for length in message.shape:
        size *= length
    if size > MAX_ARRAY_VALUES or len(message.float32_little_endian) != 4 * size:
        raise InvalidInputError(
            f"an array of shape {tuple(message.shape)} does not have "
            f"{len(message.float32_little_endian)} bytes"
        )
    flat = np.frombuffer(message.float32_little_endian, dtype="<f4")
    return flat.reshape(tuple(message.shape)).astype(np.float32)


def _operator_to_message(operator: Operator) -> workflow_pb2.Operator:
    return workflow_pb2.Operator(
        kind=operator.kind,
        operator_class=operator.operator_class,
        inputs=operator.inputs,
        output_rows=operator.output_rows,
        row_bytes=operator.row_bytes,
        complexity=operator.complexity,
        code_steps=operator.code_steps,
        iterations=operator.iterations,
        key_distinct_ratio=operator.key_distinct_ratio,
        partitions=operator.partitions,
    )


def _operator_from_message(message: workflow_pb2.Operator) -> Operator:
    return Operator(
        kind=OperatorKind(message.kind),
        operator_class=OperatorClass(message.operator_class),
        inputs=tuple(message.inputs),
        output_rows=message.output_rows,
        row_bytes=message.row_bytes,
        complexity=Complexity(message.complexity),
        code_steps=message.code_steps,
        iterations=message.iterations,
        key_distinct_ratio=message.key_distinct_ratio,
        partitions=message.partitions,
    )


def _report_to_message(report: ResidualReport) -> release_pb2.ResidualReport:
    return release_pb2.ResidualReport(
        slot=key_to_message(report.slot),
        basis_version=report.basis_version,
        reference_version=report.reference_version,
        grid_exponent=report.grid_exponent,
        values=report.values.tolist(),
    )


def _report_from_message(message: release_pb2.ResidualReport) -> ResidualReport:
    return ResidualReport(
        key_from_message(message.slot),
        message.basis_version,
        message.reference_version,
        message.grid_exponent,
        np.array(message.values, dtype=np.int64),
    )


def _update_to_message(update: ModelUpdate) -> release_pb2.ModelUpdate:
    return release_pb2.ModelUpdate(
        slot=key_to_message(update.slot),
        architecture=update.architecture,
        base_version=update.base_version,
        arrays=[array_to_message(array) for array in update.arrays],
    )


def _update_from_message(message: release_pb2.ModelUpdate) -> ModelUpdate:
    return ModelUpdate(
        key_from_message(message.slot),
        message.architecture,
        message.base_version,
        tuple(array_from_message(array) for array in message.arrays),
    )


def _slot_to_message(slot: Slot) -> exchange_pb2.Slot:
    message = exchange_pb2.Slot(key=key_to_message(slot.key))
    parameters = slot.parameters
    if isinstance(parameters, ReportParameters):
        message.report.noise_multiplier = parameters.noise_multiplier
        message.report.residual_clip = parameters.residual_clip
    else:
        message.training.noise_multiplier = parameters.noise_multiplier
        message.training.sampling_probability = parameters.sampling_probability
        message.training.steps = parameters.steps
        message.training.clip_norm = parameters.clip_norm
        message.training.nominal_workloads = parameters.nominal_workloads
    return message


def _slot_from_message(message: exchange_pb2.Slot) -> Slot:
    key = key_from_message(message.key)
    if message.WhichOneof("parameters") == "report":
        report = message.report
        return Slot(key, ReportParameters(report.noise_multiplier, report.residual_clip))
    training = message.training
    return Slot(
        key,
        TrainingParameters(
            noise_multiplier=training.noise_multiplier,
            sampling_probability=training.sampling_probability,
            steps=training.steps,
            clip_norm=training.clip_norm,
            nominal_workloads=training.nominal_workloads,
        ),
    )


def _times_to_message(times: SlotTimes) -> exchange_pb2.SlotTimes:
    return exchange_pb2.SlotTimes(
        opens_after_ms=_to_ms(times.opens_after), replies_after_ms=_to_ms(times.replies_after)
    )


def _times_from_message(message: exchange_pb2.SlotTimes) -> SlotTimes:
    return SlotTimes(
        timedelta(milliseconds=message.opens_after_ms),
        timedelta(milliseconds=message.replies_after_ms),
    )


def _to_ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def _parse(kind: type[M], payload: bytes) -> M:
    message = kind()
    message.ParseFromString(payload)
    return message


def _guarded(what: str, decode: Callable[[], T]) -> T:
    try:
        return decode()
    except FedperfError as error:
        raise InvalidInputError(f"not a valid {what}: {error}") from error
    except (DecodeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"not a valid {what}: {error}") from error
