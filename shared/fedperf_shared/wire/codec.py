"""Domain objects to bytes and back (workflow.proto, release.proto, exchange.proto).

Decoding never trusts: bytes that are no message, numbers outside of the vocabulary
and objects that refuse themselves all end in one `InvalidInputError`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.exchange import (
    Correction,
    JoinReply,
    Receipt,
    SharedModel,
    SignedReceipt,
    Status,
    SyntheticRow,
    TrainRequest,
)
from fedperf_shared.execution import ClusterConfig, MeasuredPlan
from fedperf_shared.releases import kinds
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.linear_queries import CellQuery, LinearizedQuery, public_design
from fedperf_shared.releases.period import (
    ModelMethod,
    Period,
    ReleaseCalendar,
    SlotTimes,
    from_unix_ms,
    to_unix_ms,
)
from fedperf_shared.releases.release import (
    Release,
    ReleaseKind,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire import exchange_pb2, release_pb2, workflow_pb2
from fedperf_shared.wire.message_parts import check_parts
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import Complexity, OperatorClass, OperatorKind, Platform

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def parse(kind: type[M], payload: bytes) -> M:
    """Return the message of that kind in `payload`; raises DecodeError where there is none."""
    message = kind()
    message.ParseFromString(payload)
    return message


def guarded(what: str, decode: Callable[[], T]) -> T:
    """Return the result of `decode`, whose failures all become one error.

    Raises:
        InvalidInputError: it failed; names `what` was to be decoded.
    """
    try:
        return decode()
    except (FedperfError, DecodeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"not a valid {what}: {error}") from error


def decoded(what: str, kind: type[M], payload: bytes, to_domain: Callable[[M], T]) -> T:
    """Return the domain object of the message in `payload`; errors as `guarded`."""
    return guarded(what, lambda: to_domain(parse(kind, payload)))


def received(what: str, kind: type[M], payload: bytes, to_domain: Callable[[M], T]) -> T:
    """Decode untrusted bytes as `decoded` does, but count their parts before."""

    def decode() -> T:
        check_parts(cast("Descriptor", kind.DESCRIPTOR), payload)
        return to_domain(parse(kind, payload))

    return guarded(what, decode)


def encoded(message: Message) -> bytes:
    """Return the message as bytes, equal for equal messages."""
    return message.SerializeToString(deterministic=True)


def encode_plan(plan: Plan) -> bytes:
    """Return a plan as bytes, equal for equal plans."""
    return encoded(plan_to_message(plan))


def decode_plan(payload: bytes) -> Plan:
    """Return the plan that `encode_plan` wrote.

    Raises:
        InvalidInputError: not a plan, or one that is not well formed.
    """
    return decoded("plan", workflow_pb2.Plan, payload, plan_from_message)


def encode_measured_plans(plans: Iterable[MeasuredPlan]) -> bytes:
    """Measured plans as bytes, in their order."""
    return encoded(workflow_pb2.MeasuredPlans(plans=map(_measured_to_message, plans)))


def decode_measured_plans(payload: bytes) -> tuple[MeasuredPlan, ...]:
    """Return the measured plans that `encode_measured_plans` wrote.

    Raises:
        InvalidInputError: not measured plans, or one of them is not well formed.
    """
    return decoded(
        "list of measured plans",
        workflow_pb2.MeasuredPlans,
        payload,
        lambda message: tuple(map(_measured_from_message, message.plans)),
    )


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
        queries_before=cluster.queries_before,
    )


def cluster_from_message(message: workflow_pb2.ClusterConfig) -> ClusterConfig:
    """Message to domain."""
    return ClusterConfig(
        message.nodes,
        message.cores,
        message.memory_bytes,
        message.machine_speed,
        message.queries_before,
    )


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


def _measured_to_message(measured: MeasuredPlan) -> workflow_pb2.MeasuredPlan:
    return workflow_pb2.MeasuredPlan(
        plan=plan_to_message(measured.plan),
        cluster=cluster_to_message(measured.cluster),
        log_runtime_seconds=measured.log_seconds,
    )


def _measured_from_message(message: workflow_pb2.MeasuredPlan) -> MeasuredPlan:
    return MeasuredPlan(
        plan_from_message(message.plan),
        cluster_from_message(message.cluster),
        message.log_runtime_seconds,
    )


MAX_ARRAY_VALUES = 50_000_000


def encode_release(release: Release) -> bytes:
    """Return a release as the bytes that are signed, stored and sent."""
    parts = {
        part.name: _TO_MESSAGE.get(part.name, int)(getattr(release, part.name))
        for part in fields(release)
    }
    return encoded(release_pb2.Release(**{kinds.kind_of(release).name: parts}))


def decode_release(payload: bytes) -> Release:
    """Return the release that `encode_release` wrote; its numbers are not yet judged.

    Raises:
        InvalidInputError: not a release.
    """
    return received("release", release_pb2.Release, payload, _release_from_message)


def encode_signed_release(payload: bytes, signature: bytes) -> bytes:
    """Return a serialized release and its signature as the bytes that leave."""
    return encoded(signed_release_to_message(SignedRelease(payload, signature)))


def decode_signed_release(data: bytes) -> SignedRelease:
    """The signed release that `encode_signed_release` wrote; its signature is not yet verified.

    Raises:
        InvalidInputError: not a signed release.
    """
    kind = release_pb2.SignedRelease
    return decoded("signed release", kind, data, signed_release_from_message)


def encode_receipt(receipt: Receipt) -> bytes:
    """Return a receipt as the bytes that the coordinator signs."""
    return encoded(
        release_pb2.Receipt(
            organization_id=receipt.organization_id,
            release_id=receipt.release_id,
            payload_sha256=receipt.payload_sha256,
            sequence=receipt.sequence,
            received_at_unix_ms=to_unix_ms(receipt.received_at),
        )
    )


def decode_receipt(payload: bytes) -> Receipt:
    """Return the receipt that `encode_receipt` wrote.

    Raises:
        InvalidInputError: not a receipt.
    """
    return decoded("receipt", release_pb2.Receipt, payload, _receipt_from_message)


def encode_signed_receipt(receipt: SignedReceipt) -> bytes:
    """Return a signed receipt as the bytes that an organization keeps."""
    return encoded(signed_receipt_to_message(receipt))


def decode_signed_receipt(data: bytes) -> SignedReceipt:
    """The signed receipt that `encode_signed_receipt` wrote; its signature is not yet verified.

    Raises:
        InvalidInputError: not a signed receipt.
    """
    kind = release_pb2.SignedReceipt
    return decoded("signed receipt", kind, data, signed_receipt_from_message)


def signed_release_to_message(signed: SignedRelease) -> release_pb2.SignedRelease:
    """Domain to message."""
    return release_pb2.SignedRelease(payload=signed.payload, signature=signed.signature)


def signed_release_from_message(message: release_pb2.SignedRelease) -> SignedRelease:
    """Message to domain."""
    return SignedRelease(message.payload, message.signature)


def signed_receipt_to_message(signed: SignedReceipt) -> release_pb2.SignedReceipt:
    """Domain to message."""
    return release_pb2.SignedReceipt(payload=signed.payload, signature=signed.signature)


def signed_receipt_from_message(message: release_pb2.SignedReceipt) -> SignedReceipt:
    """Message to domain."""
    return SignedReceipt(message.payload, message.signature)


def key_to_message(key: SlotKey) -> release_pb2.SlotKey:
    """Domain to message."""
    return release_pb2.SlotKey(
        kind=release_pb2.ReleaseKind.Name(int(key.kind)), window=key.window, index=key.index
    )


def key_from_message(message: release_pb2.SlotKey) -> SlotKey:
    """Message to domain; raises ValueError on an unknown kind."""
    return SlotKey(ReleaseKind(message.kind), message.window, message.index)


def array_to_message(array: NDArray[np.float32]) -> release_pb2.FloatArray:
    """Return a float32 array of any shape."""
    little_endian = np.ascontiguousarray(array, dtype="<f4")
    return release_pb2.FloatArray(shape=array.shape, float32_little_endian=little_endian.tobytes())


def array_from_message(message: release_pb2.FloatArray) -> NDArray[np.float32]:
    """Return the array, finite or not.

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


def _release_from_message(message: release_pb2.Release) -> Release:
    content = message.WhichOneof("content")
    for kind in kinds.KINDS:
        if kind.name == content:
            parts = getattr(message, content)
            return kind.release(
                **{
                    part.name: _FROM_MESSAGE.get(part.name, int)(getattr(parts, part.name))
                    for part in fields(kind.release)
                }
            )
    raise InvalidInputError("a release holds a report or a model update")


def _receipt_from_message(message: release_pb2.Receipt) -> Receipt:
    return Receipt(
        message.organization_id,
        message.release_id,
        message.payload_sha256,
        message.sequence,
        from_unix_ms(message.received_at_unix_ms),
    )


_TO_MESSAGE: Mapping[str, Callable[..., object]] = {
    "slot": key_to_message,
    "values": np.ndarray.tolist,
    "arrays": lambda arrays: [array_to_message(array) for array in arrays],
}
_FROM_MESSAGE: Mapping[str, Callable[..., Any]] = {
    "slot": key_from_message,
    "values": lambda values: np.array(values, dtype=np.int64),
    "arrays": lambda arrays: tuple(array_from_message(array) for array in arrays),
}
"""Codecs by name of the parts that are more than a whole number."""


PARAMETERS: Mapping[kinds.AnyKind, str] = {
    kinds.RESIDUAL_REPORT: "report",
    kinds.DIRECTED_REPORT: "directed",
    kinds.MODEL_UPDATE: "training",
    kinds.TANGENT_UPDATE: "tangent",
}
"""The field of each kind's parameters in a `Slot`, which names them as their class does."""

_SLOTS = ("report_slots", "model_slots", "extra_slots", "first_slots")
"""The fields of a calendar that hold times of slots, in messages as in `ReleaseCalendar`."""


def encode_schedule(schedule: Schedule) -> bytes:
    """Return a schedule as bytes, equal for equal schedules."""
    return encoded(schedule_to_message(schedule))


def decode_schedule(payload: bytes) -> Schedule:
    """Return the schedule that `encode_schedule` wrote.

    Raises:
        InvalidInputError: not a schedule.
    """
    return schedule_from_message(guarded("schedule", lambda: parse(exchange_pb2.Schedule, payload)))


def calendar_to_message(calendar: ReleaseCalendar) -> exchange_pb2.Timetable:
    """Domain to message."""
    return exchange_pb2.Timetable(
        period_start_unix_ms=to_unix_ms(calendar.period.start),
        window_ms=_to_ms(calendar.period.window),
        windows=calendar.period.windows,
        model_method=exchange_pb2.ModelMethod.Name(int(calendar.model_method)),
        extra_windows=calendar.extra_windows,
        **{name: map(_times_to_message, getattr(calendar, name)) for name in _SLOTS},
    )


def calendar_from_message(message: exchange_pb2.Timetable) -> ReleaseCalendar:
    """Message to domain.

    Raises:
        InvalidInputError: not a calendar.
    """

    def decode() -> ReleaseCalendar:
        period = Period(
            from_unix_ms(message.period_start_unix_ms),
            timedelta(milliseconds=message.window_ms),
            message.windows,
        )
        return ReleaseCalendar(
            period,
            model_method=ModelMethod(message.model_method),
            extra_windows=message.extra_windows,
            **{name: tuple(map(_times_from_message, getattr(message, name))) for name in _SLOTS},
        )

    return guarded("calendar", decode)


def schedule_to_message(schedule: Schedule) -> exchange_pb2.Schedule:
    """Domain to message."""
    return exchange_pb2.Schedule(
        timetable=calendar_to_message(schedule.calendar),
        slots=[_slot_to_message(slot) for slot in schedule.slots],
    )


def schedule_from_message(message: exchange_pb2.Schedule) -> Schedule:
    """Message to domain.

    Raises:
        InvalidInputError: not a schedule.
    """
    return guarded(
        "schedule",
        lambda: Schedule(
            calendar_from_message(message.timetable),
            tuple(_slot_from_message(slot) for slot in message.slots),
        ),
    )


def _slot_to_message(slot: Slot) -> exchange_pb2.Slot:
    name = PARAMETERS[kinds.kind_of(slot.parameters)]
    return exchange_pb2.Slot(key=key_to_message(slot.key), **{name: asdict(slot.parameters)})


def _slot_from_message(message: exchange_pb2.Slot) -> Slot:
    field = message.WhichOneof("parameters")
    for kind, name in PARAMETERS.items():
        if name == field:
            stored = getattr(message, name)
            values = {each.name: getattr(stored, each.name) for each in fields(kind.parameters)}
            return Slot(key_from_message(message.key), kind.parameters(**values))
    raise InvalidInputError("a slot has the parameters of a kind")


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


def encode_question(question: CellQuery) -> bytes:
    """Encode a linear query for storage and transport."""
    return encoded(question_to_message(question))


@lru_cache(maxsize=64)
def decode_question(payload: bytes) -> CellQuery:
    """Decode the output of `encode_question`, cached because every organization requests it.

    Raises:
        InvalidInputError: not a question, or none that may be answered.
    """
    return decoded("question", exchange_pb2.Question, payload, _cell_question_from_message)


def question_to_message(question: CellQuery | None) -> exchange_pb2.Question:
    """Domain to message; the empty one where there is none yet."""
    if question is None:
        return exchange_pb2.Question()
    return exchange_pb2.Question(
        slot=key_to_message(question.slot),
        version=question.version,
        basis_version=question.basis_version,
        reference_version=question.reference_version,
        center=question.center.tolist(),
        clips=question.design.clips.tolist(),
        directions=question.design.directions.reshape(-1).tolist(),
    )


def question_from_message(message: exchange_pb2.Question) -> CellQuery | None:
    """Decode the message; None for the empty message, sent while there is none yet.

    Raises:
        InvalidInputError: not a question, or none that may be answered.
    """
    if message.ByteSize() == 0:
        return None
    return guarded("question", lambda: _cell_question_from_message(message))


def asked_slot(message: exchange_pb2.GetQuestionRequest) -> SlotKey:
    """Return the slot whose linear query is requested.

    Raises:
        InvalidInputError: no slot.
    """
    return guarded("slot", lambda: key_from_message(message.slot))


def _cell_question_from_message(message: exchange_pb2.Question) -> CellQuery:
    directions = np.array(message.directions, dtype=np.float64).reshape(-1, CELLS)
    return CellQuery(
        slot=key_from_message(message.slot),
        version=message.version,
        basis_version=message.basis_version,
        reference_version=message.reference_version,
        center=np.array(message.center, dtype=np.float64),
        design=public_design(directions, np.array(message.clips, dtype=np.float64)),
    )


def encode_train_request(request: TrainRequest) -> bytes:
    """Return the body of the message that asks a node for a model update."""
    question = request.question
    return encoded(
        exchange_pb2.TrainRequest(
            slot=key_to_message(request.slot),
            architecture=request.architecture,
            base_version=request.base_version,
            arrays=map(array_to_message, request.arrays),
            question=None if question is None else _tangent_question_to_message(question),
        )
    )


def decode_train_request(body: bytes) -> TrainRequest:
    """Return the request that `encode_train_request` wrote; whether it is due is not yet judged.

    Raises:
        InvalidInputError: not a request.
    """
    return received("train request", exchange_pb2.TrainRequest, body, _request_from_message)


def encode_tangent_question(question: LinearizedQuery) -> bytes:
    """Encode a linearized query for the coordinator's storage."""
    return encoded(_tangent_question_to_message(question))


def decode_tangent_question(payload: bytes) -> LinearizedQuery:
    """Decode the output of `encode_tangent_question`.

    Raises:
        InvalidInputError: not a question, or none that may be answered.
    """
    kind = exchange_pb2.TangentQuestion
    return decoded("question at a tangent", kind, payload, _tangent_question_from_message)


def encode_correction(correction: Correction) -> bytes:
    """Return a correction as the bytes that are published."""
    return encoded(correction_to_message(correction))


@lru_cache(maxsize=2)
def decode_correction(payload: bytes) -> Correction | None:
    """Return the correction that `encode_correction` wrote, decoded once; None for no bytes.

    Raises:
        InvalidInputError: not a correction.
    """
    return decoded("correction", exchange_pb2.Correction, payload, correction_from_message)


def encode_synthetic_rows(rows: Iterable[SyntheticRow]) -> bytes:
    """Synthetic rows as the bytes that are published."""
    return encoded(synthetic_rows_to_message(rows))


def decode_synthetic_rows(payload: bytes) -> tuple[SyntheticRow, ...]:
    """Return the rows that `encode_synthetic_rows` wrote; none for no bytes.

    Raises:
        InvalidInputError: a row is not well formed.
    """
    return decoded(
        "synthetic batch", exchange_pb2.SyntheticBatch, payload, synthetic_rows_from_message
    )


def correction_to_message(correction: Correction | None) -> exchange_pb2.Correction:
    """Domain to message; the empty one where there is none yet."""
    if correction is None:
        return exchange_pb2.Correction()
    return exchange_pb2.Correction(
        basis_version=correction.basis_version,
        reference_version=correction.reference_version,
        mean=correction.mean.tolist(),
        covariance=correction.covariance.reshape(-1).tolist(),
    )


def synthetic_rows_to_message(rows: Iterable[SyntheticRow]) -> exchange_pb2.SyntheticBatch:
    """Domain to message."""
    return exchange_pb2.SyntheticBatch(rows=map(_row_to_message, rows))


def correction_from_message(message: exchange_pb2.Correction) -> Correction | None:
    """Decode the message; None for the empty message, sent while there is none yet.

    Raises:
        InvalidInputError: not a correction.
    """
    if not message.mean:
        return None
    mean = np.array(message.mean, dtype=np.float64)
    covariance = np.array(message.covariance, dtype=np.float64)

    def decode() -> Correction:
        square = covariance.reshape(mean.size, mean.size)
        return Correction(message.basis_version, message.reference_version, mean, square)

    return guarded("correction", decode)


def synthetic_rows_from_message(message: exchange_pb2.SyntheticBatch) -> tuple[SyntheticRow, ...]:
    """Message to domain.

    Raises:
        InvalidInputError: a row is not well formed.
    """
    return guarded("synthetic batch", lambda: tuple(map(_row_from_message, message.rows)))


def status_to_message(status: Status) -> exchange_pb2.Status:
    """Domain to message."""
    return exchange_pb2.Status(
        now_unix_ms=to_unix_ms(status.now),
        model_version=status.model_version,
        feature_schema_version=status.feature_schema_version,
        basis_version=status.basis_version,
        reference_version=status.reference_version,
        epoch_starts_unix_ms=[to_unix_ms(each) for each in status.epoch_starts],
        correction_published_unix_ms=(
            0 if status.correction_published is None else to_unix_ms(status.correction_published)
        ),
    )


def status_from_message(message: exchange_pb2.Status) -> Status:
    """Message to domain.

    Raises:
        InvalidInputError: its time is none.
    """
    return guarded(
        "status",
        lambda: Status(
            from_unix_ms(message.now_unix_ms),
            message.model_version,
            message.feature_schema_version,
            message.basis_version,
            message.reference_version,
            tuple(from_unix_ms(each) for each in message.epoch_starts_unix_ms),
            from_unix_ms(message.correction_published_unix_ms)
            if message.correction_published_unix_ms
            else None,
        ),
    )


def model_to_message(model: SharedModel) -> exchange_pb2.Model:
    """Domain to message."""
    return exchange_pb2.Model(version=model.version, checkpoint=model.checkpoint)


def model_from_message(message: exchange_pb2.Model) -> SharedModel:
    """Message to domain; the checkpoint is not yet judged."""
    return SharedModel(message.version, message.checkpoint)


def join_reply_to_message(reply: JoinReply) -> exchange_pb2.JoinReply:
    """Domain to message."""
    return exchange_pb2.JoinReply(**asdict(reply))


def join_reply_from_message(message: exchange_pb2.JoinReply) -> JoinReply:
    """Message to domain; keys and certificates are not yet judged."""
    return JoinReply(*(getattr(message, each.name) for each in fields(JoinReply)))


def _request_from_message(message: exchange_pb2.TrainRequest) -> TrainRequest:
    return TrainRequest(
        key_from_message(message.slot),
        message.architecture,
        message.base_version,
        tuple(map(array_from_message, message.arrays)),
        _tangent_question_from_message(message.question) if message.HasField("question") else None,
    )


def _tangent_question_to_message(question: LinearizedQuery) -> exchange_pb2.TangentQuestion:
    return exchange_pb2.TangentQuestion(
        clip=question.clip, coefficients=array_to_message(question.coefficients)
    )


def _tangent_question_from_message(message: exchange_pb2.TangentQuestion) -> LinearizedQuery:
    return LinearizedQuery(message.clip, array_from_message(message.coefficients))


def _row_to_message(row: SyntheticRow) -> exchange_pb2.SyntheticRow:
    return exchange_pb2.SyntheticRow(
        plan=plan_to_message(row.plan),
        cluster=cluster_to_message(row.cluster),
        log_runtime_seconds=row.log_seconds,
        segment=int(row.segment),
    )


def _row_from_message(message: exchange_pb2.SyntheticRow) -> SyntheticRow:
    return SyntheticRow(
        plan_from_message(message.plan),
        cluster_from_message(message.cluster),
        message.log_runtime_seconds,
        Platform(message.segment),
    )
