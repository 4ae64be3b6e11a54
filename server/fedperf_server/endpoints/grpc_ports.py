"""The two ports of gRPC with TLS: enrollment, and the Exchange.

At the enrollment port an organization that holds a join URL becomes a member. Its certificate is
the one that join URLs pin; callers have none yet, so the token alone counts. At the Exchange
organizations ask and hand in. Whoever calls is known by the public key in their certificate,
looked up in the database at every call.

This module only translates; the rules are in `membership.enrollment`, `releases` and `validation`.
Errors are constant codes; nothing of the server's inside goes out. Messages to the enrollment port
beyond 64 KiB are dropped.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy.orm import Session

from fedperf_server.config import FILE_NAME, ServerConfig
from fedperf_server.membership.authority import CA, ENROLLMENT, SERVER, SIGNING, KeyRing
from fedperf_server.membership.enrollment import Enrollment, EnrollmentRefusedError, Member
from fedperf_server.state import audit, registry, releases
from fedperf_server.state.database import Database
from fedperf_server.state.drift_regimes import DriftRegime, decided, epochs, reported_among
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
    SharedModel,
    SignedReceipt,
    Status,
    SyntheticRow,
)
from fedperf_shared.releases.basis import BASIS_VERSION
from fedperf_shared.releases.declared_bounds import NotDeclarableError, require_declarable
from fedperf_shared.releases.kinds import is_report, kind_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import Release, Schedule, SignedRelease, SlotKey
from fedperf_shared.wire.services import (
    EXCHANGE_OPTIONS,
    CallRefusedError,
    serve_enrollment,
    serve_exchange,
)
from fedperf_shared.workflow.features import FEATURE_SCHEMA_VERSION


class PortTakenError(ConfigurationError):
    """A port cannot be listened on."""

    def __init__(self, address: str, setting: str, reason: str = "is the port taken?") -> None:
        super().__init__(
            f"cannot listen on {address}: {reason}; {setting} in {FILE_NAME} chooses the port, "
            "bind the address"
        )


class GrpcPort:
    """A gRPC server at one port."""

    def __init__(
        self,
        server: grpc.Server,
        bind: str,
        port: int,
        credentials: grpc.ServerCredentials,
        *,
        setting: str,
    ) -> None:
        """Take the port for `server`.

        Args:
            server: with its services.
            bind: address to listen on.
            port: that it listens on.
            credentials: of TLS.
            setting: key of the configuration that chose the port.

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

log = structlog.get_logger()


class EnrollmentService:
    """Answers who wants to join."""

    def __init__(self, enrollment: Enrollment, ring: KeyRing, config: ServerConfig) -> None:
        self._enrollment = enrollment
        self._config = config
        self._coordinator_key = ring.key(SIGNING).public_key()

    def join(self, token: bytes, certificate_request: bytes) -> JoinReply:
        """Answer one organization."""
        try:
            joined = self._enrollment.join(token, certificate_request)
        except EnrollmentRefusedError as error:
            log.warning("joining refused", reason=str(error))
            raise CallRefusedError(grpc.StatusCode.PERMISSION_DENIED, str(error)) from None
        member = joined.member
        log.info("organization joined", name=member.name, fingerprint=member.fingerprint)
        return JoinReply(
            organization_id=member.organization_id,
            certificate=joined.certificate,
            ca_certificate=joined.ca_certificate,
            coordinator_public_key=self._coordinator_key.public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
            exchange_address=self._config.exchange_address,
            fleet_address=self._config.fleet_address,
        )


def enrollment_server(enrollment: Enrollment, ring: KeyRing, config: ServerConfig) -> GrpcPort:
    """The enrollment port of this server, ready to start."""
    server = grpc.server(
        ThreadPoolExecutor(4, thread_name_prefix="enrollment"),
        options=[("grpc.max_receive_message_length", _MAX_MESSAGE)],
    )
    serve_enrollment(server, EnrollmentService(enrollment, ring, config))
    credentials = grpc.ssl_server_credentials(
        [(ring.key_pem(ENROLLMENT), ring.certificate(ENROLLMENT))]
    )
    return GrpcPort(
        server, config.bind, config.enrollment_port, credentials, setting="enrollment_port"
    )


_WORKERS = 8


class ExchangeService:
    """Answers the calls of exchange.proto, in domain types."""

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
        self._read: tuple[tuple[int, ...], tuple[int, tuple[DriftRegime, ...]]] | None = None

    def admit(self, certificate: bytes) -> Member:
        """The member whose key is in the caller's certificate (PEM)."""
        member = self._enrollment.member_with(_key_in(certificate))
        if member is None:
            raise CallRefusedError(grpc.StatusCode.PERMISSION_DENIED, "not_a_member")
        self._enrollment.saw(member)
        return member

    def status(self, caller: Member) -> Status:
        """The server's time and the versions in force."""
        del caller
        now, period = self._clock(), self._config.calendar.period
        with self._database.transaction() as session:
            corrected = registry.published_at(session, registry.CORRECTION)
            version, known = self._known(session)
        about = reported_among(known, period, window=period.nearest_window(now)) if known else None
        begun = [each for each in known[1:] if each.begins_at <= now]
        return Status(
            now,
            version,
            FEATURE_SCHEMA_VERSION,
            BASIS_VERSION,
            reference_version=about.reference_version if about else 0,
            epoch_starts=tuple(each.begins_at for each in begun),
            correction_published=corrected,
        )

    def _known(self, session: Session) -> tuple[int, tuple[DriftRegime, ...]]:
        """The version in force and all epochs; 0 and none before anything was promoted.

        Every daemon asks at every tick: read again only where a decision was added.
        """
        stored, kept = decided(session), self._read
        if kept is None or kept[0] != stored:
            try:
                kept = stored, (registry.in_force(session), epochs(session))
            except registry.UnknownVersionError:
                kept = stored, (0, ())
            self._read = kept
        return kept[1]

    def calendar(self, caller: Member) -> ReleaseCalendar:
        """The public calendar."""
        del caller
        return self._config.calendar

    def declare_schedule(self, caller: Member, schedule: Schedule) -> None:
        """Store what the caller will release in the period, if it may be declared."""
        if schedule.calendar != self._config.calendar:
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, "other_timetable")
        try:
            require_declarable(schedule)
        except NotDeclarableError as error:
            code = f"not_declarable: {error.rule}"
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, code) from None
        now = self._clock()
        with self._database.transaction() as session:
            try:
                new = releases.declare_schedule(session, caller.organization_id, schedule, at=now)
            except releases.DifferentScheduleError:
                raise CallRefusedError(
                    grpc.StatusCode.ALREADY_EXISTS, "other_schedule_declared"
                ) from None
            if new:
                detail: audit.Detail = {"name": caller.name, "slots": len(schedule.slots)}
                audit.record(session, "schedule_declared", detail, at=now)

    def submit(self, caller: Member, signed: SignedRelease) -> SignedReceipt:
        """Check and store a report; the receipt of the first bytes taken for its slot."""
        try:
            return self._accept(caller, signed)
        except RejectedReleaseError as error:
            with self._database.transaction() as session:
                releases.count_rejection(session, caller.organization_id, "report", error.reason)
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, error.reason.value) from None

    def receipts(self, caller: Member) -> list[SignedReceipt]:
        """Every receipt of the caller's releases in this period, newest first."""
        period = self._config.calendar.period
        with self._database.transaction() as session:
            return releases.receipts_in(session, caller.organization_id, period)

    def model(self, caller: Member, version: int) -> SharedModel:
        """A version of the model; the newest promoted one by default."""
        del caller
        with self._database.transaction() as session:
            try:
                found = registry.get_version(session, version)
            except registry.UnknownVersionError:
                raise CallRefusedError(grpc.StatusCode.NOT_FOUND, "no_such_version") from None
        return SharedModel(found.version, found.checkpoint)

    def correction(self, caller: Member) -> Correction | None:
        """The published correction; None while there is none."""
        del caller
        with self._database.transaction() as session:
            return registry.published_correction(session)

    def synthetic_rows(self, caller: Member) -> Sequence[SyntheticRow]:
        """The published synthetic rows."""
        del caller
        with self._database.transaction() as session:
            return registry.published_rows(session)

    def question(self, caller: Member, slot: SlotKey) -> CellQuery | None:
        """The question of a directed slot; None while there is none."""
        del caller
        with self._database.transaction() as session:
            return load_query(session, self._config.calendar.period, slot)

    def _accept(self, member: Member, signed: SignedRelease) -> SignedReceipt:
        release = open_signed(signed, member.public_key)
        period = self._config.calendar.period
        release_id = release.slot.release_id(period)
        now = self._clock()
        with self._database.transaction() as session:
            earlier = self._earlier(session, member, release, signed)
            if earlier is not None:
                return earlier
            if not is_report(release):  # they come through the fleet
                raise CallRefusedError(grpc.StatusCode.NOT_FOUND, "no_receipt_yet")
            schedule = releases.declared_schedule(session, member.organization_id, period)
            if schedule is None:
                raise RejectedReleaseError(Reason.NO_SCHEDULE)
            slot = check_due(release, schedule, now=now)
            known = ReportContext(
                registry.known_versions(session), load_query(session, period, release.slot)
            )
            kind = kind_of(slot.parameters)
            reference = check_contents(release, slot, known, kind=kind)
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
                session, member.organization_id, release_id, signed, key=self._key, at=now
            )

    def _earlier(
        self, session: Session, member: Member, release: Release, signed: SignedRelease
    ) -> SignedReceipt | None:
        """The receipt of what was taken for the slot before, be it these bytes or others."""
        release_id = release.slot.release_id(self._config.calendar.period)
        try:
            return releases.receipt_for(session, member.organization_id, release_id, signed)
        except RejectedReleaseError as error:
            kind = "report" if is_report(release) else "model_update"
            releases.count_rejection(session, member.organization_id, kind, error.reason)
            return releases.first_receipt(session, member.organization_id, release_id)


def exchange_server(
    database: Database,
    enrollment: Enrollment,
    ring: KeyRing,
    config: ServerConfig,
    *,
    clock: Callable[[], datetime],
) -> GrpcPort:
    """The Exchange of this server, ready to start."""
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


def _key_in(certificate: bytes) -> ec.EllipticCurvePublicKey:
    try:
        key = x509.load_pem_x509_certificate(certificate).public_key()
    except ValueError:
        raise CallRefusedError(grpc.StatusCode.UNAUTHENTICATED, "no_certificate") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise CallRefusedError(grpc.StatusCode.UNAUTHENTICATED, "no_certificate")
    return key
