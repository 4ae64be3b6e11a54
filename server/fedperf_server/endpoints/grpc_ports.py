"""The two gRPC ports with TLS: enrollment and the Exchange.

At the enrollment port an organization with a join URL becomes a member. Join URLs pin the port's
certificate. Callers have no certificate yet, so the token authenticates them. At the Exchange
organizations fetch publications and submit releases. A caller is authenticated by the public key in
its certificate, which is looked up in the database at every call.

This module only translates. The rules are in `membership.enrollment`, `releases` and `validation`.
Errors are constant codes and reveal nothing of the server's state. Messages to the enrollment port
beyond 64 KiB are dropped.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy.orm import Session

from fedperf_server.config import FILE_NAME, ServerConfig
from fedperf_server.membership.authority import CA, ENROLLMENT, SERVER, SIGNING, KeyRing
from fedperf_server.membership.enrollment import Enrollment, EnrollmentRefusedError
from fedperf_server.state import registry, releases
from fedperf_server.state.database import Database, Member, record_event
from fedperf_server.state.drift_regimes import (
    DriftRegime,
    decision_counts,
    find_reported_regime,
    regimes,
)
from fedperf_server.state.releases import load_query
from fedperf_server.state.validation import (
    Reason,
    RejectedReleaseError,
    ReportContext,
    check_contents,
    check_due,
    open_signed,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.exchange import (
    Correction,
    JoinReply,
    JoinRequest,
    SharedModel,
    SignedReceipt,
    Status,
    SyntheticRow,
)
from fedperf_shared.releases.basis import BASIS_VERSION
from fedperf_shared.releases.kinds import is_report, kind_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import (
    NotDeclarableError,
    Schedule,
    SignedRelease,
    SlotKey,
    require_declarable,
)
from fedperf_shared.wire.services import (
    EXCHANGE_OPTIONS,
    CallRefusedError,
    serve_enrollment,
    serve_exchange,
)
from fedperf_shared.workflow.features import FEATURE_SCHEMA_VERSION


class PortTakenError(ConfigurationError):
    """Raised when the server cannot listen on a port."""

    def __init__(self, address: str, setting: str, reason: str = "is the port taken?") -> None:
        super().__init__(
            f"cannot listen on {address}: {reason}; change {setting} (port) or bind (address) in "
            f"{FILE_NAME}"
        )


class GrpcPort:
    """A gRPC server on one port."""

    def __init__(
        self,
        server: grpc.Server,
        bind: str,
        port: int,
        credentials: grpc.ServerCredentials,
        *,
        setting: str,
    ) -> None:
        """Bind `server` to the port.

        Args:
            server: server with its services.
            bind: address to listen on.
            port: port to listen on.
            credentials: TLS credentials.
            setting: configuration key of the port, for messages.

        Raises:
            PortTakenError: the port is taken.
        """
        address = f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
        try:
            server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise PortTakenError(address, setting) from error
        self._server = server

    def start(self) -> None:
        """Serve until `stop`."""
        self._server.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.stop(grace=1).wait()


_MAX_MESSAGE = 64 << 10

_log = structlog.get_logger()


class EnrollmentService:
    """The service of the enrollment port."""

    def __init__(self, enrollment: Enrollment) -> None:
        self._enrollment = enrollment

    def join(self, request: JoinRequest) -> JoinReply:
        """Make the caller a member, if its token is valid."""
        try:
            return self._enrollment.join(request.token, request.certificate_request)
        except EnrollmentRefusedError as error:
            _log.warning("joining refused", reason=str(error))
            raise CallRefusedError(grpc.StatusCode.PERMISSION_DENIED, str(error)) from None


def enrollment_server(enrollment: Enrollment, ring: KeyRing, config: ServerConfig) -> GrpcPort:
    """Return the enrollment port of this server, ready to start."""
    server = grpc.server(
        ThreadPoolExecutor(4, thread_name_prefix="enrollment"),
        options=[("grpc.max_receive_message_length", _MAX_MESSAGE)],
    )
    serve_enrollment(server, EnrollmentService(enrollment))
    credentials = grpc.ssl_server_credentials(
        [(ring.key_pem(ENROLLMENT), ring.certificate(ENROLLMENT))]
    )
    return GrpcPort(
        server, config.bind, config.enrollment_port, credentials, setting="enrollment_port"
    )


_WORKERS = 8


@dataclass(slots=True, eq=False, repr=False)
class ExchangeService:
    """The service of exchange.proto, in domain types."""

    database: Database
    enrollment: Enrollment
    config: ServerConfig
    _: KW_ONLY
    signing_key: ec.EllipticCurvePrivateKey
    clock: Callable[[], datetime]
    _cached: tuple[tuple[int, ...], tuple[int, tuple[DriftRegime, ...]]] | None = field(
        default=None, init=False
    )

    def admit(self, certificate: bytes) -> Member:
        """Return the member whose key is in the caller's certificate (PEM)."""
        member = self.enrollment.find_member(_load_key(certificate))
        if member is None:
            raise CallRefusedError(grpc.StatusCode.PERMISSION_DENIED, "not_a_member")
        self.enrollment.record_call(member)
        return member

    def status(self, _: Member) -> Status:
        """Return the server's time and the current versions."""
        now, period = self.clock(), self.config.calendar.period
        with self.database.transaction() as session:
            corrected = registry.published_at(session, registry.CORRECTION)
            version, declared = self._load_state(session)
        regime = (
            find_reported_regime(declared, period, window=period.nearest_window(now))
            if declared
            else None
        )
        begun = [each for each in declared[1:] if each.begins_at <= now]
        return Status(
            now,
            version,
            FEATURE_SCHEMA_VERSION,
            BASIS_VERSION,
            reference_version=regime.reference_version if regime else 0,
            regime_starts=tuple(each.begins_at for each in begun),
            correction_published=corrected,
        )

    def _load_state(self, session: Session) -> tuple[int, tuple[DriftRegime, ...]]:
        """Return the current version and all regimes, 0 and none before the first promotion.

        Every daemon calls this at every tick, so it is cached until a decision is added.
        """
        counts, cached = decision_counts(session), self._cached
        if cached is None or cached[0] != counts:
            try:
                cached = counts, (registry.current_version(session), regimes(session))
            except registry.UnknownVersionError:
                cached = counts, (0, ())
            self._cached = cached
        return cached[1]

    def calendar(self, _: Member) -> ReleaseCalendar:
        """Return the public calendar."""
        return self.config.calendar

    def declare_schedule(self, caller: Member, schedule: Schedule) -> None:
        """Store the caller's schedule for the period, if its parameters are allowed."""
        if schedule.calendar != self.config.calendar:
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, "other_timetable")
        try:
            require_declarable(schedule)
        except NotDeclarableError as error:
            code = f"not_declarable: {error.rule}"
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, code) from None
        now = self.clock()
        with self.database.transaction() as session:
            try:
                is_new = releases.declare_schedule(
                    session, caller.organization_id, schedule, at=now
                )
            except releases.DifferentScheduleError:
                raise CallRefusedError(
                    grpc.StatusCode.ALREADY_EXISTS, "other_schedule_declared"
                ) from None
            if is_new:
                record_event(
                    session,
                    "schedule_declared",
                    at=now,
                    name=caller.name,
                    slots=len(schedule.slots),
                )

    def submit(self, caller: Member, signed: SignedRelease) -> SignedReceipt:
        """Check and store a report; return the receipt of the first accepted bytes of its slot."""
        try:
            return self._accept(caller, signed)
        except RejectedReleaseError as error:
            with self.database.transaction() as session:
                releases.count_rejection(session, caller.organization_id, "report", error.reason)
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, error.reason.value) from None

    def receipts(self, caller: Member) -> list[SignedReceipt]:
        """Return all receipts of the caller's releases in this period, newest first."""
        period = self.config.calendar.period
        with self.database.transaction() as session:
            return releases.receipts_in(session, caller.organization_id, period)

    def model(self, _: Member, version: int) -> SharedModel:
        """Return a version of the model, for 0 the newest promoted one."""
        with self.database.transaction() as session:
            try:
                stored = registry.get_version(session, version)
            except registry.UnknownVersionError:
                raise CallRefusedError(grpc.StatusCode.NOT_FOUND, "no_such_version") from None
        return SharedModel(stored.version, stored.checkpoint)

    def correction(self, _: Member) -> Correction | None:
        """Return the published correction, or None before the first."""
        with self.database.transaction() as session:
            return registry.published_correction(session)

    def synthetic_rows(self, _: Member) -> Sequence[SyntheticRow]:
        """Return the published synthetic rows."""
        with self.database.transaction() as session:
            return registry.published_rows(session)

    def linear_query(self, _: Member, slot: SlotKey) -> CellQuery | None:
        """Return the linear query of a directed slot, or None without one."""
        with self.database.transaction() as session:
            return load_query(session, self.config.calendar.period, slot)

    def _accept(self, member: Member, signed: SignedRelease) -> SignedReceipt:
        release = open_signed(signed, member.public_key)
        period = self.config.calendar.period
        release_id = release.slot.release_id(period)
        now = self.clock()
        with self.database.transaction() as session:
            earlier = releases.find_receipt(session, member.organization_id, release_id)
            if earlier is not None:
                if not earlier.confirms(signed):  # it lost its record of the first release
                    kind_name = "report" if is_report(release) else "model_update"
                    reason = Reason.DIFFERENT_BYTES
                    releases.count_rejection(session, member.organization_id, kind_name, reason)
                return earlier.signed
            if not is_report(release):  # updates arrive through the fleet
                raise CallRefusedError(grpc.StatusCode.NOT_FOUND, "no_receipt_yet")
            schedule = releases.declared_schedule(session, member.organization_id, period)
            if schedule is None:
                raise RejectedReleaseError(Reason.NO_SCHEDULE)
            slot = check_due(release, schedule, now=now)
            public = ReportContext(
                registry.version_numbers(session), load_query(session, period, release.slot)
            )
            kind = kind_of(slot.parameters)
            reference = check_contents(release, slot, public, kind=kind)
            releases.store_report(
                session,
                member.organization_id,
                release,
                signed,
                reference_version=reference,
                period=period,
                at=now,
            )
            return releases.give_receipt(
                session, member.organization_id, release_id, signed, key=self.signing_key, at=now
            )


def exchange_server(
    database: Database,
    enrollment: Enrollment,
    ring: KeyRing,
    config: ServerConfig,
    *,
    clock: Callable[[], datetime],
) -> GrpcPort:
    """Return the Exchange of this server, ready to start."""
    pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="exchange")
    server = grpc.server(pool, options=EXCHANGE_OPTIONS)
    service = ExchangeService(
        database, enrollment, config, signing_key=ring.key(SIGNING), clock=clock
    )
    serve_exchange(server, service)
    credentials = grpc.ssl_server_credentials(
        [(ring.key_pem(SERVER), ring.certificate(SERVER))],
        root_certificates=ring.certificate(CA),
        require_client_auth=True,
    )
    return GrpcPort(server, config.bind, config.exchange_port, credentials, setting="exchange_port")


def _load_key(certificate: bytes) -> ec.EllipticCurvePublicKey:
    try:
        key = x509.load_pem_x509_certificate(certificate).public_key()
    except ValueError:
        raise CallRefusedError(grpc.StatusCode.UNAUTHENTICATED, "no_certificate") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise CallRefusedError(grpc.StatusCode.UNAUTHENTICATED, "no_certificate")
    return key
