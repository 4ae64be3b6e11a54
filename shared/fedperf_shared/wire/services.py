"""The gRPC services in domain types, with one table of calls for handlers and stubs.

A handler ends a call with `CallRefusedError` and a constant code. Every other exception becomes one
of two constant codes, so callers see no internals of the server. Credentials, ports, retries and
explanations for users are the responsibility of the callers.

A parsed message of small parts takes fifty times its bytes. A model needs megabytes. With the same
bound for all calls, a schedule or a status could fill the reader's memory, so every call has its
own. A message that is longer, or has more parts than `message_parts` allows, is not read. It ends
its call with an error of gRPC.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, cast

import grpc
import structlog
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from fedperf_shared.errors import FedperfError, InvalidInputError, StorageError
from fedperf_shared.exchange import (
    Correction,
    JoinReply,
    JoinRequest,
    SharedModel,
    SignedReceipt,
    Status,
    SyntheticRow,
)
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import Schedule, SignedRelease, SlotKey
from fedperf_shared.wire import codec
from fedperf_shared.wire import exchange_pb2 as messages
from fedperf_shared.wire.message_parts import check_parts

_SMALL = 64 << 10
_MODEL = 4 << 20

# The longest message of all calls of the Exchange, at both ends.
EXCHANGE_OPTIONS = (
    ("grpc.max_receive_message_length", _MODEL),
    ("grpc.max_send_message_length", _MODEL),
)

T = TypeVar("T")
_log = structlog.get_logger()


class CallRefusedError(FedperfError):
    """Raised to end a call with a constant code. The caller sees nothing else."""

    def __init__(self, status: grpc.StatusCode, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class EnrollmentHandler(Protocol):
    """The server's end of Enrollment."""

    def join(self, request: JoinRequest) -> JoinReply:
        """Register the holder of the request's token."""


class ExchangeHandler(Protocol):
    """The server's end of the Exchange: one method per call.

    The first argument of each is the caller that `admit` returned.
    """

    def admit(self, certificate: bytes) -> object:
        """Return the caller with that certificate (PEM, empty without one), or raise a refusal."""


class ExchangeCalls(Protocol):
    """The client's end of the Exchange. `exchange_stub` implements it over gRPC."""

    def status(self) -> Status:
        """Return the coordinator's time and the versions in force."""

    def calendar(self) -> ReleaseCalendar:
        """Return the public calendar."""

    def declare_schedule(self, schedule: Schedule) -> None:
        """Declare the schedule of the period."""

    def submit(self, signed: SignedRelease) -> SignedReceipt:
        """Submit a release. The signature of the receipt is not yet verified."""

    def receipts(self) -> Sequence[SignedReceipt]:
        """Return the receipts of the caller in this period. Signatures are not yet verified."""

    def model(self, version: int) -> SharedModel:
        """Return a version of the model, or the newest promoted one for 0."""

    def correction(self) -> Correction | None:
        """Return the published correction, or None while there is none."""

    def synthetic_rows(self) -> Sequence[SyntheticRow]:
        """Return the published synthetic rows."""

    def linear_query(self, slot: SlotKey) -> CellQuery | None:
        """Return the linear query of a directed slot, or None while there is none."""


@dataclass(frozen=True, slots=True)
class Call:
    """The messages of one call, and their bounds."""

    name: str  # in exchange.proto
    request: codec.Codec[Any, Any] | None  # codec of the argument; None without one
    reply: codec.Codec[Any, Any] | None  # codec of the result; None without one
    request_bytes: int = _SMALL  # maximum length of a request
    reply_bytes: int = _SMALL  # maximum length of a reply


_VERSION: codec.Codec[int, messages.GetModelRequest] = codec.Codec(
    "version",
    messages.GetModelRequest,
    lambda version: messages.GetModelRequest(version=version),
    lambda message: message.version,
)
_QUERY_SLOT: codec.Codec[SlotKey, messages.GetQuestionRequest] = codec.Codec(
    "slot",
    messages.GetQuestionRequest,
    lambda slot: messages.GetQuestionRequest(slot=codec.SLOT_KEY.write(slot)),
    lambda message: codec.SLOT_KEY.read(message.slot),
)

# Calls by method of `EnrollmentHandler`.
ENROLLMENT: Mapping[str, Call] = {"join": Call("Join", codec.JOIN_REQUEST, codec.JOIN_REPLY)}

# Calls by method of `ExchangeCalls`. A calendar has at most 400 windows, a correction 96 x 96
# numbers, a batch 4,096 plans of at most 481 bytes.
EXCHANGE: Mapping[str, Call] = {
    "status": Call("GetStatus", None, codec.STATUS),
    "calendar": Call("GetTimetable", None, codec.CALENDAR, reply_bytes=256 << 10),
    "declare_schedule": Call("DeclareSchedule", codec.SCHEDULE, None, request_bytes=256 << 10),
    "submit": Call(
        "SubmitRelease", codec.SIGNED_RELEASE, codec.SIGNED_RECEIPT, request_bytes=_MODEL
    ),
    "receipts": Call("GetReceipts", None, codec.RECEIPTS, reply_bytes=1 << 20),
    "model": Call("GetModel", _VERSION, codec.MODEL, reply_bytes=_MODEL),
    "correction": Call("GetCorrection", None, codec.CORRECTION, reply_bytes=256 << 10),
    "synthetic_rows": Call("GetSyntheticRows", None, codec.SYNTHETIC_ROWS, reply_bytes=2 << 20),
    "linear_query": Call(
        "GetQuestion", _QUERY_SLOT, codec.CELL_QUERY_OR_NONE, reply_bytes=256 << 10
    ),
}


class TooLongError(InvalidInputError):
    """Raised for a message that is longer than its call allows."""

    def __init__(self, call: str, size: int, most: int) -> None:
        super().__init__(f"{call}: a message of {size} bytes, at most {most} are read")


def enrollment_stub(channel: grpc.Channel, *, timeout_seconds: float) -> EnrollmentHandler:
    """Return the client's end of Enrollment. Every call may raise grpc.RpcError."""
    return cast("EnrollmentHandler", _stub(channel, "Enrollment", ENROLLMENT, timeout_seconds))


def exchange_stub(channel: grpc.Channel, *, timeout_seconds: float) -> ExchangeCalls:
    """Return the client's end of the Exchange.

    Every call may raise grpc.RpcError, and InvalidInputError for a malformed reply.
    """
    return cast("ExchangeCalls", _stub(channel, "Exchange", EXCHANGE, timeout_seconds))


def serve_enrollment(server: grpc.Server, handler: EnrollmentHandler) -> None:
    """Add the service Enrollment of `handler` to `server`."""
    _serve(server, "Enrollment", ENROLLMENT, lambda method, _: getattr(handler, method))


def serve_exchange(server: grpc.Server, handler: ExchangeHandler) -> None:
    """Add the service Exchange of `handler` to `server`."""

    def admitted(method: str, context: grpc.ServicerContext) -> Callable[..., object]:
        certificate = context.auth_context().get("x509_pem_cert", [b""])[0]
        return partial(getattr(handler, method), handler.admit(certificate))

    _serve(server, "Exchange", EXCHANGE, admitted)


def _stub(
    channel: grpc.Channel, service: str, calls: Mapping[str, Call], timeout_seconds: float
) -> SimpleNamespace:
    descriptor = messages.DESCRIPTOR.services_by_name[service]

    def make_stub(call: Call) -> Callable[..., object]:
        method = descriptor.methods_by_name[call.name]
        send = channel.unary_unary(
            f"/{descriptor.full_name}/{call.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=_bounded(call, method.output_type, call.reply_bytes),
        )

        def work(*argument: object) -> object:
            request, reply = call.request, call.reply
            message = request.write(*argument) if request else GetMessageClass(method.input_type)()
            response = send(message, timeout=timeout_seconds)
            return reply.decode(response) if reply else None

        return work

    return SimpleNamespace(**{method: make_stub(call) for method, call in calls.items()})


def _serve(
    server: grpc.Server,
    service: str,
    calls: Mapping[str, Call],
    bound_method: Callable[[str, grpc.ServicerContext], Callable[..., object]],
) -> None:
    descriptor = messages.DESCRIPTOR.services_by_name[service]

    def make_handler(name: str, call: Call) -> grpc.RpcMethodHandler:
        call_descriptor = descriptor.methods_by_name[call.name]

        def work(message: Message, context: grpc.ServicerContext) -> Message:
            request, reply = call.request, call.reply
            method = bound_method(name, context)  # admits before the request is read
            result = method(request.decode(message)) if request else method()
            return reply.write(result) if reply else GetMessageClass(call_descriptor.output_type)()

        return grpc.unary_unary_rpc_method_handler(
            lambda message, context: _result_or_abort(context, lambda: work(message, context)),
            request_deserializer=_bounded(call, call_descriptor.input_type, call.request_bytes),
            response_serializer=lambda reply: reply.SerializeToString(),
        )

    handlers = {call.name: make_handler(name, call) for name, call in calls.items()}
    server.add_registered_method_handlers(descriptor.full_name, handlers)


def _bounded(call: Call, kind: Descriptor, most: int) -> Callable[[bytes], Message]:
    """Return a parser of messages that refuses those above the bound."""
    message_class = GetMessageClass(kind)

    def read(message: bytes) -> Message:
        if len(message) > most:
            raise TooLongError(call.name, len(message), most)
        check_parts(kind, message)
        return message_class.FromString(message)

    return read


def _result_or_abort(context: grpc.ServicerContext, work: Callable[[], T]) -> T:
    """Return the result of `work`, or end the call with a constant code."""
    try:
        return work()
    except CallRefusedError as error:
        status, code = error.status, error.code
    except InvalidInputError:
        status, code = grpc.StatusCode.INVALID_ARGUMENT, "malformed"
    except StorageError:  # the database reports it once
        status, code = grpc.StatusCode.INTERNAL, "internal"
    except Exception:  # a bug: callers must not see its text
        _log.exception("a call failed")
        status, code = grpc.StatusCode.INTERNAL, "internal"
    context.abort(status, code)
    raise CallRefusedError(status, code)  # abort never returns
