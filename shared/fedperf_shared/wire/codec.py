"""Domain objects to bytes and back (workflow.proto, release.proto, exchange.proto).

Every class has a `Codec`. An attribute is the message's field of the same name, unless the codec
lists it as a `_Part`.

Decoding trusts no input. Malformed bytes, numbers outside of the vocabulary and invalid objects all
raise `InvalidInputError`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from numpy.typing import NDArray

from fedperf_shared import exchange
from fedperf_shared.errors import FedperfError, InvalidInputError
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
    Parameters,
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

T = TypeVar("T")
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Codec(Generic[T, M]):
    """The conversion of objects of one class to messages and bytes, and back."""

    what: str  # name of the object in errors
    message: type[M]  # class of the message
    write: Callable[[T], M]  # object -> message
    read: Callable[[M], T]  # message -> object; may raise any error
    # Whether the parts of messages are counted before they are parsed (`message_parts`). The
    # services count those of all other messages.
    counts_parts: bool = False

    def encode(self, value: T) -> bytes:
        """Return the object as bytes. They are equal for equal objects."""
        return self.write(value).SerializeToString(deterministic=True)

    def decode(self, encoded: bytes | M) -> T:
        """Return the object of a message, or of its bytes.

        Raises:
            InvalidInputError: the message or its object is malformed.
        """
        try:
            if isinstance(encoded, bytes):
                if self.counts_parts:
                    check_parts(_descriptor(self.message), encoded)
                encoded = self.message.FromString(encoded)
            return self.read(encoded)
        except (FedperfError, DecodeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"not a valid {self.what}: {error}") from error


class _Part(NamedTuple):
    """A field that holds an attribute in another form, or under another name."""

    to_field: Callable[[Any], object]
    from_field: Callable[[Any], object]
    attribute: str = ""


def _descriptor(message: type[Message]) -> Descriptor:
    return message.DESCRIPTOR  # type: ignore[return-value]  # of generated classes


def _by_field(what: str, message: type[M], domain: Callable[..., T], **parts: _Part) -> Codec[T, M]:
    """Return the codec of a class whose attributes are the fields of a message.

    `parts` are the fields that are not simply the attribute of their name.
    """
    same = [each.name for each in _descriptor(message).fields if each.name not in parts]
    others = [(name, *part[:2], part.attribute or name) for name, part in parts.items()]

    def write(value: T) -> M:
        values = {name: getattr(value, name) for name in same}
        for name, to_field, _, attribute in others:
            values[name] = to_field(getattr(value, attribute))
        return message(**values)

    def read(received: M) -> T:
        values = {name: getattr(received, name) for name in same}
        for name, _, from_field, attribute in others:
            values[attribute] = from_field(getattr(received, name))
        return domain(**values)

    return Codec(what, message, write, read)


def _list_of(
    what: str, message: type[M], field: str, codec: Codec[T, Any]
) -> Codec[tuple[T, ...], M]:
    """Return the codec of a message that holds nothing but a list."""
    return Codec(
        what,
        message,
        lambda values: message(**{field: map(codec.write, values)}),
        lambda received: tuple(map(codec.read, getattr(received, field))),
    )


def _one(codec: Codec[T, Any]) -> _Part:
    return _Part(codec.write, codec.read)


def _each(codec: Codec[T, Any]) -> _Part:
    return _Part(
        lambda values: map(codec.write, values), lambda fields: tuple(map(codec.read, fields))
    )


def _renamed(attribute: str) -> _Part:
    return _Part(lambda value: value, lambda value: value, attribute)


def _time(attribute: str) -> _Part:
    return _Part(to_unix_ms, from_unix_ms, attribute)


def _span(attribute: str) -> _Part:
    return _Part(_to_ms, lambda ms: timedelta(milliseconds=ms), attribute)


def _to_ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


_OPERATOR = _by_field(
    "operator",
    workflow_pb2.Operator,
    Operator,
    kind=_Part(int, OperatorKind),
    operator_class=_Part(int, OperatorClass),
    inputs=_Part(tuple, tuple),
    complexity=_Part(int, Complexity),
)
_SOURCES = _by_field("source statistics", workflow_pb2.SourceStatistics, SourceStatistics)
_WORKFLOW = _by_field(
    "workflow", workflow_pb2.Workflow, Workflow, operators=_each(_OPERATOR), sources=_one(_SOURCES)
)
PLAN = _by_field(
    "plan",
    workflow_pb2.Plan,
    Plan,
    workflow=_one(_WORKFLOW),
    platforms=_Part(
        lambda platforms: map(int, platforms), lambda numbers: tuple(map(Platform, numbers))
    ),
)
CLUSTER = _by_field("cluster", workflow_pb2.ClusterConfig, ClusterConfig)
_MEASURED_PLAN = _by_field(
    "measured plan",
    workflow_pb2.MeasuredPlan,
    MeasuredPlan,
    plan=_one(PLAN),
    cluster=_one(CLUSTER),
    log_runtime_seconds=_renamed("log_seconds"),
)
MEASURED_PLANS = _list_of(
    "list of measured plans", workflow_pb2.MeasuredPlans, "plans", _MEASURED_PLAN
)

MAX_ARRAY_VALUES = 50_000_000


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


_ARRAY = Codec("array", release_pb2.FloatArray, array_to_message, array_from_message)

SLOT_KEY = _by_field("slot", release_pb2.SlotKey, SlotKey, kind=_Part(int, ReleaseKind))
SIGNED_RELEASE = _by_field("signed release", release_pb2.SignedRelease, SignedRelease)
SIGNED_RECEIPT = _by_field("signed receipt", release_pb2.SignedReceipt, exchange.SignedReceipt)
RECEIPTS = _list_of("list of receipts", exchange_pb2.Receipts, "receipts", SIGNED_RECEIPT)
RECEIPT = _by_field(
    "receipt", release_pb2.Receipt, exchange.Receipt, received_at_unix_ms=_time("received_at")
)

_RELEASE_PARTS = {
    "slot": _one(SLOT_KEY),
    "values": _Part(np.ndarray.tolist, lambda values: np.array(values, dtype=np.int64)),
    "arrays": _each(_ARRAY),
}


def _message_in(message: type[Message], field: str) -> type[Message]:
    inside = _descriptor(message).fields_by_name[field].message_type
    return GetMessageClass(inside)  # type: ignore[arg-type]  # the field holds a message


def _release_codec(kind: kinds.AnyKind) -> Codec[Release, Message]:
    message = _message_in(release_pb2.Release, kind.name)
    names = _descriptor(message).fields_by_name
    parts = {name: part for name, part in _RELEASE_PARTS.items() if name in names}
    return _by_field(kind.name, message, kind.release, **parts)


_RELEASES = {kind.name: _release_codec(kind) for kind in kinds.KINDS}


def _write_release(release: Release) -> release_pb2.Release:
    name = kinds.kind_of(release).name
    content: dict[str, Any] = {name: _RELEASES[name].write(release)}
    return release_pb2.Release(**content)


def _read_release(message: release_pb2.Release) -> Release:
    content = message.WhichOneof("content")
    if content is None:
        raise InvalidInputError("a release holds a report or a model update")
    return _RELEASES[content].read(getattr(message, content))


# The bytes that are signed, stored and sent. Numbers that were decoded are not yet judged.
RELEASE = Codec("release", release_pb2.Release, _write_release, _read_release, counts_parts=True)


# The field of each kind's parameters in a `Slot`, which names them as their class does.
PARAMETERS: Mapping[kinds.AnyKind, str] = {
    kinds.RESIDUAL_REPORT: "report",
    kinds.DIRECTED_REPORT: "directed",
    kinds.MODEL_UPDATE: "training",
    kinds.TANGENT_UPDATE: "tangent",
}

_PARAMETERS: Mapping[str, Codec[Parameters, Message]] = {
    name: _by_field("slot", _message_in(exchange_pb2.Slot, name), kind.parameters)
    for kind, name in PARAMETERS.items()
}


def _write_slot(slot: Slot) -> exchange_pb2.Slot:
    name = PARAMETERS[kinds.kind_of(slot.parameters)]
    parameters: dict[str, Any] = {name: _PARAMETERS[name].write(slot.parameters)}
    return exchange_pb2.Slot(key=SLOT_KEY.write(slot.key), **parameters)


def _read_slot(message: exchange_pb2.Slot) -> Slot:
    name = message.WhichOneof("parameters")
    if name is None:
        raise InvalidInputError("a slot has the parameters of a kind")
    return Slot(SLOT_KEY.read(message.key), _PARAMETERS[name].read(getattr(message, name)))


_SLOT = Codec("slot", exchange_pb2.Slot, _write_slot, _read_slot)
_TIMES = _by_field(
    "slot times",
    exchange_pb2.SlotTimes,
    SlotTimes,
    opens_after_ms=_span("opens_after"),
    replies_after_ms=_span("replies_after"),
)
# The fields of a calendar that hold times of slots, in messages as in `ReleaseCalendar`.
_SLOT_LISTS = ("report_slots", "model_slots", "extra_slots", "first_slots")


def _write_calendar(calendar: ReleaseCalendar) -> exchange_pb2.Timetable:
    return exchange_pb2.Timetable(
        period_start_unix_ms=to_unix_ms(calendar.period.start),
        window_ms=_to_ms(calendar.period.window),
        windows=calendar.period.windows,
        model_method=exchange_pb2.ModelMethod.Name(int(calendar.model_method)),
        extra_windows=calendar.extra_windows,
        **{name: map(_TIMES.write, getattr(calendar, name)) for name in _SLOT_LISTS},
    )


def _read_calendar(message: exchange_pb2.Timetable) -> ReleaseCalendar:
    window = timedelta(milliseconds=message.window_ms)
    period = Period(from_unix_ms(message.period_start_unix_ms), window, message.windows)
    return ReleaseCalendar(
        period,
        model_method=ModelMethod(message.model_method),
        extra_windows=message.extra_windows,
        **{name: tuple(map(_TIMES.read, getattr(message, name))) for name in _SLOT_LISTS},
    )


CALENDAR = Codec("calendar", exchange_pb2.Timetable, _write_calendar, _read_calendar)
SCHEDULE = _by_field(
    "schedule",
    exchange_pb2.Schedule,
    Schedule,
    timetable=_Part(CALENDAR.write, CALENDAR.decode, "calendar"),
    slots=_each(_SLOT),
)


def _write_cell_query(query: CellQuery) -> exchange_pb2.Question:
    return exchange_pb2.Question(
        slot=SLOT_KEY.write(query.slot),
        version=query.version,
        basis_version=query.basis_version,
        reference_version=query.reference_version,
        center=query.center.tolist(),
        clips=query.design.clips.tolist(),
        directions=query.design.directions.reshape(-1).tolist(),
    )


def _read_cell_query(message: exchange_pb2.Question) -> CellQuery:
    directions = np.array(message.directions, dtype=np.float64).reshape(-1, CELLS)
    return CellQuery(
        slot=SLOT_KEY.read(message.slot),
        version=message.version,
        basis_version=message.basis_version,
        reference_version=message.reference_version,
        center=np.array(message.center, dtype=np.float64),
        design=public_design(directions, np.array(message.clips, dtype=np.float64)),
    )


CELL_QUERY = Codec("linear query", exchange_pb2.Question, _write_cell_query, _read_cell_query)
# Encodes None, while there is no query, as the empty message.
CELL_QUERY_OR_NONE: Codec[CellQuery | None, exchange_pb2.Question] = Codec(
    "linear query",
    exchange_pb2.Question,
    lambda query: exchange_pb2.Question() if query is None else CELL_QUERY.write(query),
    lambda message: CELL_QUERY.read(message) if message.ByteSize() else None,
)

LINEARIZED_QUERY = _by_field(
    "linearized query",
    exchange_pb2.TangentQuestion,
    LinearizedQuery,
    coefficients=_one(_ARRAY),
)


def _write_request(request: exchange.TrainRequest) -> exchange_pb2.TrainRequest:
    query = request.query
    return exchange_pb2.TrainRequest(
        slot=SLOT_KEY.write(request.slot),
        architecture=request.architecture,
        base_version=request.base_version,
        arrays=map(array_to_message, request.arrays),
        question=None if query is None else LINEARIZED_QUERY.write(query),
    )


def _read_request(message: exchange_pb2.TrainRequest) -> exchange.TrainRequest:
    return exchange.TrainRequest(
        SLOT_KEY.read(message.slot),
        message.architecture,
        message.base_version,
        tuple(map(array_from_message, message.arrays)),
        LINEARIZED_QUERY.read(message.question) if message.HasField("question") else None,
    )


# The body of a message to a node. The client checks whether a decoded request is due.
TRAIN_REQUEST = Codec(
    "train request", exchange_pb2.TrainRequest, _write_request, _read_request, counts_parts=True
)


def _write_correction(correction: exchange.Correction | None) -> exchange_pb2.Correction:
    if correction is None:
        return exchange_pb2.Correction()
    return exchange_pb2.Correction(
        basis_version=correction.basis_version,
        reference_version=correction.reference_version,
        mean=correction.mean.tolist(),
        covariance=correction.covariance.reshape(-1).tolist(),
    )


def _read_correction(message: exchange_pb2.Correction) -> exchange.Correction | None:
    if not message.mean:
        return None
    mean = np.array(message.mean, dtype=np.float64)
    square = np.array(message.covariance, dtype=np.float64).reshape(mean.size, mean.size)
    return exchange.Correction(message.basis_version, message.reference_version, mean, square)


# Encodes None, while there is no correction, as the empty message.
CORRECTION = Codec("correction", exchange_pb2.Correction, _write_correction, _read_correction)

_SYNTHETIC_ROW = _by_field(
    "synthetic row",
    exchange_pb2.SyntheticRow,
    exchange.SyntheticRow,
    plan=_one(PLAN),
    cluster=_one(CLUSTER),
    log_runtime_seconds=_renamed("log_seconds"),
    segment=_Part(int, Platform),
)
SYNTHETIC_ROWS = _list_of("synthetic batch", exchange_pb2.SyntheticBatch, "rows", _SYNTHETIC_ROW)
STATUS = _by_field(
    "status",
    exchange_pb2.Status,
    exchange.Status,
    now_unix_ms=_time("now"),
    epoch_starts_unix_ms=_Part(
        lambda starts: map(to_unix_ms, starts),
        lambda starts: tuple(map(from_unix_ms, starts)),
        "regime_starts",
    ),
    correction_published_unix_ms=_Part(
        lambda at: 0 if at is None else to_unix_ms(at),
        lambda at: from_unix_ms(at) if at else None,
        "correction_published",
    ),
)
MODEL = _by_field("model", exchange_pb2.Model, exchange.SharedModel)
JOIN_REQUEST = _by_field("join request", exchange_pb2.JoinRequest, exchange.JoinRequest)
JOIN_REPLY = _by_field("join reply", exchange_pb2.JoinReply, exchange.JoinReply)

encode_plan, decode_plan = PLAN.encode, PLAN.decode
encode_measured_plans, decode_measured_plans = MEASURED_PLANS.encode, MEASURED_PLANS.decode
encode_release, decode_release = RELEASE.encode, RELEASE.decode
encode_signed_release, decode_signed_release = SIGNED_RELEASE.encode, SIGNED_RELEASE.decode
encode_receipt, decode_receipt = RECEIPT.encode, RECEIPT.decode
encode_signed_receipt, decode_signed_receipt = SIGNED_RECEIPT.encode, SIGNED_RECEIPT.decode
encode_schedule, decode_schedule = SCHEDULE.encode, SCHEDULE.decode
encode_train_request, decode_train_request = TRAIN_REQUEST.encode, TRAIN_REQUEST.decode
encode_linearized_query, decode_linearized_query = LINEARIZED_QUERY.encode, LINEARIZED_QUERY.decode
encode_synthetic_rows, decode_synthetic_rows = SYNTHETIC_ROWS.encode, SYNTHETIC_ROWS.decode
encode_cell_query, decode_cell_query = CELL_QUERY.encode, lru_cache(maxsize=64)(CELL_QUERY.decode)
# Signatures are not yet verified. Every organization requests the same query and correction, so
# decoded ones are cached.
encode_correction, decode_correction = CORRECTION.encode, lru_cache(maxsize=2)(CORRECTION.decode)
