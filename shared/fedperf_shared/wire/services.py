"""The gRPC services in domain types: handlers for the server, stubs for the client.

A handler ends a call with `CallRefusedError` and a constant code. Whatever else it
raises goes out as one of two constant codes, so nothing of the server's inside leaves.
Credentials, ports, retries and what an error means to a user are the callers' business.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import grpc
import structlog

from fedperf_shared.errors import FedperfError, InvalidInputError, StorageError
from fedperf_shared.exchange import (
    Correction,
    JoinReply,
    SharedModel,
    SignedReceipt,
    Status,
    SyntheticRow,
)
from fedperf_shared.releases.period import Timetable
from fedperf_shared.releases.questions import CellQuestion
from fedperf_shared.releases.release import Schedule, SignedRelease, SlotKey
from fedperf_shared.wire import exchange_pb2, exchange_pb2_grpc, release_pb2
from fedperf_shared.wire.codec import exchange, questions, releases, schedules
from fedperf_shared.wire.sizes import MAX_MESSAGE_BYTES, BoundedChannel, BoundedServer

EXCHANGE_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)
"""Of both ends of the Exchange: a model is larger than gRPC's default of 4 MiB."""

Caller = TypeVar("Caller")
T = TypeVar("T")
_log = structlog.get_logger()


class CallRefusedError(FedperfError):
    """Ends a call with a constant code, the only thing that the caller gets to see."""

    def __init__(self, status: grpc.StatusCode, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class EnrollmentHandler(Protocol):
    """The calls that a server of Enrollment answers."""

    def join(self, token: bytes, certificate_request: bytes) -> JoinReply:
        """Make whoever holds `token` a member; the request is PKCS#10, DER."""


class ExchangeHandler(Protocol[Caller]):
    """The calls that a server of the Exchange answers; each is admitted before it is read."""

    def admit(self, certificate: bytes) -> Caller:
        """The caller, by its certificate (PEM, empty where there is none), or a refusal."""

    def status(self, caller: Caller) -> Status:
        """The server's time and the versions in force."""

    def timetable(self, caller: Caller) -> Timetable:
        """The public calendar."""

    def declare_schedule(self, caller: Caller, schedule: Schedule) -> None:
        """Store what the caller will release in the period."""

    def submit(self, caller: Caller, signed: SignedRelease) -> SignedReceipt:
        """Check and store a report; the receipt of the first bytes taken for its slot."""

    def receipts(self, caller: Caller) -> Sequence[SignedReceipt]:
        """Every receipt of the caller's releases in this period, newest first."""

    def model(self, caller: Caller, version: int) -> SharedModel:
        """A version of the model, the newest promoted one for 0."""

    def correction(self, caller: Caller) -> Correction | None:
        """The published correction; None while there is none."""

    def synthetic_rows(self, caller: Caller) -> Sequence[SyntheticRow]:
        """The published synthetic rows."""

    def question(self, caller: Caller, slot: SlotKey) -> CellQuestion | None:
        """The question of a directed slot; None while there is none."""


class ExchangeCalls(Protocol):
    """The client's end of the Exchange: `ExchangeStub` over gRPC."""

    def status(self) -> Status:
        """The coordinator's time and the versions in force."""

    def timetable(self) -> Timetable:
        """The public calendar."""

    def declare_schedule(self, schedule: Schedule) -> None:
        """Declare what will be released in the period."""

    def submit(self, signed: SignedRelease) -> SignedReceipt:
        """Hand in a release; the receipt's signature is not yet verified."""

    def receipts(self) -> Sequence[SignedReceipt]:
        """The receipts of own releases in this period; signatures are not yet verified."""

    def model(self, version: int) -> SharedModel:
        """A version of the model, the newest promoted one for 0."""

    def correction(self) -> Correction | None:
        """The published correction; None while there is none."""

    def synthetic_rows(self) -> Sequence[SyntheticRow]:
        """The published synthetic rows."""

    def question(self, slot: SlotKey) -> CellQuestion | None:
        """The question of a directed slot; None while there is none."""


def serve_enrollment(server: grpc.Server, handler: EnrollmentHandler) -> None:
    """Let `server` answer Enrollment through `handler`."""
    exchange_pb2_grpc.add_EnrollmentServicer_to_server(  # type: ignore[no-untyped-call]
        _EnrollmentServicer(handler), BoundedServer(server)
    )


def serve_exchange(server: grpc.Server, handler: ExchangeHandler[Caller]) -> None:
    """Let `server` answer the Exchange through `handler`."""
    exchange_pb2_grpc.add_ExchangeServicer_to_server(  # type: ignore[no-untyped-call]
        _ExchangeServicer(handler), BoundedServer(server)
    )


class EnrollmentStub:
    """The client's end of Enrollment; every call may raise grpc.RpcError."""

    def __init__(self, channel: grpc.Channel, *, timeout_seconds: float) -> None:
        self._stub = exchange_pb2_grpc.EnrollmentStub(BoundedChannel(channel))  # type: ignore[no-untyped-call]
        self._timeout = timeout_seconds

    def join(self, token: bytes, certificate_request: bytes) -> JoinReply:
        """Ask to become a member; the request is PKCS#10, DER."""
        request = exchange_pb2.JoinRequest(token=token, certificate_request=certificate_request)
        return exchange.join_reply_from_message(self._stub.Join(request, timeout=self._timeout))


class ExchangeStub:
    """The client's end of the Exchange.

    Every call may raise grpc.RpcError, and InvalidInputError for a reply that is not
    well formed.
    """

    def __init__(self, channel: grpc.Channel, *, timeout_seconds: float) -> None:
        self._stub = exchange_pb2_grpc.ExchangeStub(BoundedChannel(channel))  # type: ignore[no-untyped-call]
        self._timeout = timeout_seconds

    def status(self) -> Status:
        """The coordinator's time and the versions in force."""
        request = exchange_pb2.GetStatusRequest()
        return exchange.status_from_message(self._stub.GetStatus(request, timeout=self._timeout))

    def timetable(self) -> Timetable:
        """The public calendar."""
        request = exchange_pb2.GetTimetableRequest()
        reply = self._stub.GetTimetable(request, timeout=self._timeout)
        return schedules.timetable_from_message(reply)

    def declare_schedule(self, schedule: Schedule) -> None:
        """Declare what will be released in the period."""
        request = schedules.schedule_to_message(schedule)
        self._stub.DeclareSchedule(request, timeout=self._timeout)

    def submit(self, signed: SignedRelease) -> SignedReceipt:
        """Hand in a release; the receipt's signature is not yet verified."""
        request = releases.signed_release_to_message(signed)
        reply = self._stub.SubmitRelease(request, timeout=self._timeout)
        return releases.signed_receipt_from_message(reply)

    def receipts(self) -> tuple[SignedReceipt, ...]:
        """The receipts of own releases in this period; signatures are not yet verified."""
        request = exchange_pb2.GetReceiptsRequest()
        reply = self._stub.GetReceipts(request, timeout=self._timeout)
        return tuple(map(releases.signed_receipt_from_message, reply.receipts))

    def model(self, version: int) -> SharedModel:
        """A version of the model, the newest promoted one for 0."""
        request = exchange_pb2.GetModelRequest(version=version)
        return exchange.model_from_message(self._stub.GetModel(request, timeout=self._timeout))

    def correction(self) -> Correction | None:
        """The published correction; None while there is none."""
        request = exchange_pb2.GetCorrectionRequest()
        reply = self._stub.GetCorrection(request, timeout=self._timeout)
        return exchange.correction_from_message(reply)

    def synthetic_rows(self) -> tuple[SyntheticRow, ...]:
        """The published synthetic rows."""
        request = exchange_pb2.GetSyntheticRowsRequest()
        reply = self._stub.GetSyntheticRows(request, timeout=self._timeout)
        return exchange.synthetic_rows_from_message(reply)

    def question(self, slot: SlotKey) -> CellQuestion | None:
        """The question of a directed slot; None while there is none."""
        request = exchange_pb2.GetQuestionRequest(slot=releases.key_to_message(slot))
        reply = self._stub.GetQuestion(request, timeout=self._timeout)
        return questions.question_from_message(reply)


class _EnrollmentServicer:
    """Called by gRPC under the names of exchange.proto."""

    def __init__(self, handler: EnrollmentHandler) -> None:
        self._handler = handler

    def Join(  # noqa: N802
        self, request: exchange_pb2.JoinRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.JoinReply:
        return _answer(
            context,
            lambda: exchange.join_reply_to_message(
                self._handler.join(request.token, request.certificate_request)
            ),
        )


class _ExchangeServicer(Generic[Caller]):
    """Called by gRPC under the names of exchange.proto."""

    def __init__(self, handler: ExchangeHandler[Caller]) -> None:
        self._handler = handler

    def GetStatus(  # noqa: N802
        self, request: exchange_pb2.GetStatusRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Status:
        return self._admitted(
            context, lambda caller: exchange.status_to_message(self._handler.status(caller))
        )

    def GetTimetable(  # noqa: N802
        self, request: exchange_pb2.GetTimetableRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Timetable:
        return self._admitted(
            context, lambda caller: schedules.timetable_to_message(self._handler.timetable(caller))
        )

    def DeclareSchedule(  # noqa: N802
        self, request: exchange_pb2.Schedule, context: grpc.ServicerContext
    ) -> exchange_pb2.DeclareScheduleReply:
        def declare(caller: Caller) -> exchange_pb2.DeclareScheduleReply:
            self._handler.declare_schedule(caller, schedules.schedule_from_message(request))
            return exchange_pb2.DeclareScheduleReply()

        return self._admitted(context, declare)

    def SubmitRelease(  # noqa: N802
        self, request: release_pb2.SignedRelease, context: grpc.ServicerContext
    ) -> release_pb2.SignedReceipt:
        def submit(caller: Caller) -> release_pb2.SignedReceipt:
            signed = releases.signed_release_from_message(request)
            return releases.signed_receipt_to_message(self._handler.submit(caller, signed))

        return self._admitted(context, submit)

    def GetReceipts(  # noqa: N802
        self, request: exchange_pb2.GetReceiptsRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Receipts:
        def receipts(caller: Caller) -> exchange_pb2.Receipts:
            found = self._handler.receipts(caller)
            return exchange_pb2.Receipts(receipts=map(releases.signed_receipt_to_message, found))

        return self._admitted(context, receipts)

    def GetModel(  # noqa: N802
        self, request: exchange_pb2.GetModelRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Model:
        return self._admitted(
            context,
            lambda caller: exchange.model_to_message(self._handler.model(caller, request.version)),
        )

    def GetCorrection(  # noqa: N802
        self, request: exchange_pb2.GetCorrectionRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Correction:
        return self._admitted(
            context,
            lambda caller: exchange.correction_to_message(self._handler.correction(caller)),
        )

    def GetSyntheticRows(  # noqa: N802
        self, request: exchange_pb2.GetSyntheticRowsRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.SyntheticBatch:
        return self._admitted(
            context,
            lambda caller: exchange.synthetic_rows_to_message(self._handler.synthetic_rows(caller)),
        )

    def GetQuestion(  # noqa: N802
        self, request: exchange_pb2.GetQuestionRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Question:
        return self._admitted(
            context,
            lambda caller: questions.question_to_message(
                self._handler.question(caller, questions.asked_slot(request))
            ),
        )

    def _admitted(self, context: grpc.ServicerContext, work: Callable[[Caller], T]) -> T:
        certificate = context.auth_context().get("x509_pem_cert", [b""])[0]
        return _answer(context, lambda: work(self._handler.admit(certificate)))


def _answer(context: grpc.ServicerContext, work: Callable[[], T]) -> T:
    """What `work` gives; otherwise the call ends with a constant code."""
    try:
        return work()
    except CallRefusedError as error:
        status, code = error.status, error.code
    except InvalidInputError:
        status, code = grpc.StatusCode.INVALID_ARGUMENT, "malformed"
    except StorageError:  # whoever keeps the database says so, once
        status, code = grpc.StatusCode.INTERNAL, "internal"
    except Exception:  # a bug: nothing of it may go out
        _log.exception("a call failed")
        status, code = grpc.StatusCode.INTERNAL, "internal"
    context.abort(status, code)
    raise CallRefusedError(status, code)  # abort never returns
