"""The Exchange: what organizations ask and hand in, over gRPC with mutual TLS.

Whoever calls is known by the public key in their certificate, looked up in the
database at every call. Errors are constant codes; nothing of the server's inside
goes out. This module only translates; the rules are in `releases` and `validation`.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

import grpc  # type: ignore[import-untyped]
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_server import audit, registry, releases
from fedperf_server.config import ServerConfig
from fedperf_server.database import Database
from fedperf_server.enrollment import CA, SERVER, SIGNING, Enrollment, KeyRing, Member, listen
from fedperf_server.validation import (
    Reason,
    RejectedReleaseError,
    SignedRelease,
    check_report,
    open_signed,
)
from fedperf_shared.basis import BASIS_VERSION
from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.period import to_unix_ms
from fedperf_shared.release import ResidualReport
from fedperf_shared.wire import codec, exchange_pb2, exchange_pb2_grpc, release_pb2
from fedperf_shared.workflow.features import FEATURE_SCHEMA_VERSION

MAX_MESSAGE_BYTES = 64 << 20
_WORKERS = 8
T = TypeVar("T")
_log = logging.getLogger(__name__)


class _RefusedError(FedperfError):
    """Ends a call with a constant code."""

    def __init__(self, status: grpc.StatusCode, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class ExchangeService:
    """The rpcs; gRPC calls the methods by their names in exchange.proto."""

    def __init__(
        self,
        database: Database,
        enrollment: Enrollment,
        config: ServerConfig,
        *,
        signing_key: ec.EllipticCurvePrivateKey,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._enrollment = enrollment
        self._config = config
        self._key = signing_key
        self._clock = clock

    def GetStatus(  # noqa: N802
        self, request: exchange_pb2.GetStatusRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Status:
        """The server's time and the versions in force."""
        return self._answer(context, lambda member: self._status())

    def GetTimetable(  # noqa: N802
        self, request: exchange_pb2.GetTimetableRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Timetable:
        """The public calendar."""
        return self._answer(
            context, lambda member: codec.timetable_to_message(self._config.timetable)
        )

    def DeclareSchedule(  # noqa: N802
        self, request: exchange_pb2.Schedule, context: grpc.ServicerContext
    ) -> exchange_pb2.DeclareScheduleReply:
        """Store what the caller will release in the period."""
        return self._answer(context, lambda member: self._declare(member, request))

    def SubmitRelease(  # noqa: N802
        self, request: release_pb2.SignedRelease, context: grpc.ServicerContext
    ) -> release_pb2.SignedReceipt:
        """Check and store a report; give its receipt, or that of a model update."""
        signed = SignedRelease(request.payload, request.signature)
        return self._answer(context, lambda member: self._submit(member, signed))

    def GetModel(  # noqa: N802
        self, request: exchange_pb2.GetModelRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Model:
        """A version of the model; the newest promoted one by default."""
        return self._answer(context, lambda member: self._model(request.version))

    def GetCorrection(  # noqa: N802
        self, request: exchange_pb2.GetCorrectionRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Correction:
        """The published correction; an empty one where there is none."""
        return self._answer(
            context,
            lambda member: exchange_pb2.Correction.FromString(self._published(registry.CORRECTION)),
        )

    def GetSyntheticRows(  # noqa: N802
        self, request: exchange_pb2.GetSyntheticRowsRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.SyntheticBatch:
        """The published synthetic rows; none where there are none."""
        return self._answer(
            context,
            lambda member: exchange_pb2.SyntheticBatch.FromString(
                self._published(registry.SYNTHETIC_ROWS)
            ),
        )

    def _answer(self, context: grpc.ServicerContext, work: Callable[[Member], T]) -> T:
        """Run `work` for the caller, or end the call with a constant code."""
        try:
            return work(self._caller(context))
        except _RefusedError as error:
            status, code = error.status, error.code
        except InvalidInputError:
            status, code = grpc.StatusCode.INVALID_ARGUMENT, "malformed"
        except Exception:  # a bug or a full disk: nothing of it may go out
            _log.exception("a call of the Exchange failed")
            status, code = grpc.StatusCode.INTERNAL, "internal"
        context.abort(status, code)
        raise _RefusedError(status, code)  # abort never returns

    def _caller(self, context: grpc.ServicerContext) -> Member:
        member = self._enrollment.member_with(_caller_key(context))
        if member is None:
            raise _RefusedError(grpc.StatusCode.PERMISSION_DENIED, "not_a_member")
        return member

    def _status(self) -> exchange_pb2.Status:
        with self._database.transaction() as session:
            try:
                version = registry.get_version(session, 0).version
            except registry.UnknownVersionError:
                version = 0
        return exchange_pb2.Status(
            now_unix_ms=to_unix_ms(self._clock()),
            model_version=version,
            feature_schema_version=FEATURE_SCHEMA_VERSION,
            basis_version=BASIS_VERSION,
        )

    def _declare(
        self, member: Member, message: exchange_pb2.Schedule
    ) -> exchange_pb2.DeclareScheduleReply:
        schedule = codec.schedule_from_message(message)
        if schedule.timetable != self._config.timetable:
            raise _RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "other_timetable")
        now = self._clock()
        with self._database.transaction() as session:
            try:
                new = releases.declare_schedule(session, member.organization_id, schedule, at=now)
            except releases.DifferentScheduleError:
                raise _RefusedError(
                    grpc.StatusCode.ALREADY_EXISTS, "other_schedule_declared"
                ) from None
            if new:
                detail: audit.Detail = {"name": member.name, "slots": len(schedule.slots)}
                audit.record(session, "schedule_declared", detail, at=now)
        return exchange_pb2.DeclareScheduleReply()

    def _submit(self, member: Member, signed: SignedRelease) -> release_pb2.SignedReceipt:
        try:
            receipt = self._accept(member, signed)
        except RejectedReleaseError as error:
            with self._database.transaction() as session:
                releases.count_rejection(session, member.organization_id, "report", error.reason)
            raise _RefusedError(grpc.StatusCode.INVALID_ARGUMENT, error.reason.value) from None
        return release_pb2.SignedReceipt(payload=receipt.payload, signature=receipt.signature)

    def _accept(self, member: Member, signed: SignedRelease) -> releases.SignedReceipt:
        release = open_signed(signed, member.public_key)
        period = self._config.timetable.period
        release_id = release.slot.release_id(period)
        now = self._clock()
        with self._database.transaction() as session:
            earlier = releases.receipt_for(session, member.organization_id, release_id, signed)
            if earlier is not None:
                return earlier
            if not isinstance(release, ResidualReport):  # updates come through the fleet
                raise _RefusedError(grpc.StatusCode.NOT_FOUND, "no_receipt_yet")
            schedule = releases.declared_schedule(session, member.organization_id, period)
            if schedule is None:
                raise RejectedReleaseError(Reason.NO_SCHEDULE)
            known = registry.known_versions(session)
            check_report(release, schedule, reference_versions=known, now=now)
            releases.store_report(
                session, member.organization_id, release, signed, period=period, at=now
            )
            return releases.give_receipt(
                session, member.organization_id, release_id, signed, key=self._key, at=now
            )

    def _model(self, version: int) -> exchange_pb2.Model:
        with self._database.transaction() as session:
            try:
                found = registry.get_version(session, version)
            except registry.UnknownVersionError:
                raise _RefusedError(grpc.StatusCode.NOT_FOUND, "no_such_version") from None
        return exchange_pb2.Model(version=found.version, checkpoint=found.checkpoint)

    def _published(self, kind: str) -> bytes:
        with self._database.transaction() as session:
            return registry.publication(session, kind)


class ExchangeServer:
    """Serves `ExchangeService` on the exchange port."""

    def __init__(self, service: ExchangeService, ring: KeyRing, config: ServerConfig) -> None:
        limits = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ]
        pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="exchange")
        self._server = grpc.server(pool, options=limits)
        exchange_pb2_grpc.add_ExchangeServicer_to_server(  # type: ignore[no-untyped-call]
            service, self._server
        )
        credentials = grpc.ssl_server_credentials(
            [(ring.key_pem(SERVER), ring.certificate(SERVER))],
            root_certificates=ring.certificate(CA),
            require_client_auth=True,
        )
        listen(self._server, config.bind, config.exchange_port, credentials)

    def start(self) -> None:
        """Serve until `stop`."""
        self._server.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.stop(grace=1).wait()


def exchange_server(
    database: Database,
    enrollment: Enrollment,
    ring: KeyRing,
    config: ServerConfig,
    *,
    clock: Callable[[], datetime],
) -> ExchangeServer:
    """The Exchange of this server, ready to start."""
    service = ExchangeService(
        database, enrollment, config, signing_key=ring.key(SIGNING), clock=clock
    )
    return ExchangeServer(service, ring, config)


def _caller_key(context: grpc.ServicerContext) -> ec.EllipticCurvePublicKey:
    pem = context.auth_context().get("x509_pem_cert", [b""])[0]
    try:
        key = x509.load_pem_x509_certificate(pem).public_key()
    except ValueError:
        raise _RefusedError(grpc.StatusCode.UNAUTHENTICATED, "no_certificate") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise _RefusedError(grpc.StatusCode.UNAUTHENTICATED, "no_certificate")
    return key
