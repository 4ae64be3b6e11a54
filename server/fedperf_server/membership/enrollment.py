"""Enrollment: how an organization becomes a member, and stops being one.

The operator invites by a join URL that pins this server's enrollment certificate and
carries a token for one use. The client makes its own key and sends a certificate
request; it gets a certificate of this server's authority and a random id. The
operator's name for it never goes out. A member is whoever the database says, by
public key, now: a certificate alone opens nothing, so revoking takes effect at once.
"""

import hashlib
import ipaddress
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server.config import ServerConfig
from fedperf_server.state import audit
from fedperf_server.state.database import Database, InvitationRow, OrganizationRow
from fedperf_shared import identity
from fedperf_shared.errors import ConfigurationError, InvalidInputError, StorageError
from fedperf_shared.exchange import JoinReply
from fedperf_shared.releases.period import from_unix_ms, to_unix_ms
from fedperf_shared.wire.services import CallRefusedError, serve_enrollment

INVITATION_LIFETIME = timedelta(days=7)
CERTIFICATE_LIFETIME = timedelta(days=825)
AUTHORITY_LIFETIME = timedelta(days=3650)
_ID_BYTES = 16
_TOKEN_BYTES = 24
_MAX_MESSAGE = 64 << 10

CA = "authority"
SERVER = "server"
ENROLLMENT = "enrollment"
SIGNING = "signing"


class EnrollmentRefusedError(InvalidInputError):
    """Somebody may not join; the message is the constant code that the caller sees."""


class UnknownOrganizationError(InvalidInputError):
    """No member has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no organization is called {name!r}; `fedperf-server list` shows them")
        self.name = name


class OrganizationExistsError(InvalidInputError):
    """A member already has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"an organization called {name!r} is a member already; choose another name or revoke it"
        )
        self.name = name


@dataclass(frozen=True, slots=True)
class Invitation:
    """What the operator hands to one organization, over a channel that they trust."""

    name: str
    url: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Member:
    """An organization that joined and was not revoked."""

    organization_id: bytes
    name: str
    public_key: ec.EllipticCurvePublicKey
    joined_at: datetime

    @property
    def fingerprint(self) -> str:
        """What the organization sees on its side, too."""
        return identity.fingerprint(self.public_key)


@dataclass(frozen=True, slots=True)
class Joined:
    """What a new member gets."""

    member: Member
    certificate: bytes
    ca_certificate: bytes


class KeyRing:
    """The server's keys and certificates as PEM files in its directory; keys are mode 0600."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def certificate_path(self, name: str) -> Path:
        """Where the certificate called `name` is."""
        return self._directory / f"{name}.pem"

    def key_path(self, name: str) -> Path:
        """Where the private key called `name` is."""
        return self._directory / f"{name}.key.pem"

    def certificate(self, name: str) -> bytes:
        """The certificate, PEM."""
        return self._read(self.certificate_path(name))

    def key_pem(self, name: str) -> bytes:
        """The private key, PEM."""
        return self._read(self.key_path(name))

    def key(self, name: str) -> ec.EllipticCurvePrivateKey:
        """The private key.

        Raises:
            StorageError: there is none that can be read.
        """
        try:
            key = serialization.load_pem_private_key(self.key_pem(name), None)
        except ValueError as error:
            raise StorageError(f"{self.key_path(name)} is not a private key: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise StorageError(f"{self.key_path(name)} is not an elliptic-curve key")
        return key

    def write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: bytes = b"") -> None:
        """Store a new key and its certificate; an existing key is never overwritten."""
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        try:
            descriptor = os.open(self.key_path(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(pem)
            if certificate:
                self.certificate_path(name).write_bytes(certificate)
        except FileExistsError:
            raise ConfigurationError(f"{self.key_path(name)} exists already") from None
        except OSError as error:
            raise StorageError(f"cannot write {self.key_path(name)}: {error.strerror}") from error

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise ConfigurationError(f"{path} does not exist; run `fedperf-server init`") from None
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from error


def init(directory: Path, host: str, *, now: datetime) -> KeyRing:
    """Make the authority, the server's certificates for `host` and the signing key.

    Raises:
        ConfigurationError: the directory holds a server already.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ring = KeyRing(directory)
    ca_key = identity.new_private_key()
    ca = _authority(ca_key, now=now)
    ring.write(CA, ca_key, _pem(ca))
    server_key = identity.new_private_key()
    server = _server_certificate(host, server_key.public_key(), issuer=ca, key=ca_key, now=now)
    ring.write(SERVER, server_key, _pem(server))
    door_key = identity.new_private_key()
    ring.write(ENROLLMENT, door_key, _pem(_self_signed(host, door_key, now=now)))
    ring.write(SIGNING, identity.new_private_key())
    return ring


def organization_names(session: Session) -> dict[str, str]:
    """The operator's names of all that ever joined, by organization id in hex."""
    rows = session.execute(select(OrganizationRow.organization_id, OrganizationRow.name))
    return {organization_id.hex(): name for organization_id, name in rows}


class Enrollment:
    """Invitations and members, in the database."""

    def __init__(
        self,
        database: Database,
        ring: KeyRing,
        config: ServerConfig,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._ring = ring
        self._config = config
        self._clock = clock

    def add_organization(
        self, name: str, *, lifetime: timedelta = INVITATION_LIFETIME
    ) -> Invitation:
        """Invite an organization under the operator's own name for it.

        Raises:
            OrganizationExistsError: a member is called so.
        """
        now = self._clock()
        token = secrets.token_bytes(_TOKEN_BYTES)
        with self._database.transaction() as session:
            if _by_name(session, name) is not None:
                raise OrganizationExistsError(name)
            for old in session.scalars(
                select(InvitationRow).where(
                    InvitationRow.name == name, InvitationRow.used_at.is_(None)
                )
            ):
                session.delete(old)
            session.add(
                InvitationRow(
                    token_sha256=hashlib.sha256(token).digest(),
                    name=name,
                    expires_at=to_unix_ms(now + lifetime),
                )
            )
            audit.record(session, "invited", {"name": name}, at=now)
        return Invitation(name, self._url(token), now + lifetime)

    def join(self, token: bytes, certificate_request: bytes) -> Joined:
        """Make whoever holds `token` a member.

        Raises:
            EnrollmentRefusedError: the token is unknown, used or too old, or the
                request is not one.
        """
        now = self._clock()
        key = _requested_key(certificate_request)
        with self._database.transaction() as session:
            invitation = session.get(InvitationRow, hashlib.sha256(token).digest())
            if invitation is None:
                raise EnrollmentRefusedError("token_unknown")
            if invitation.used_at is not None:
                raise EnrollmentRefusedError("token_used")
            if not to_unix_ms(now) < invitation.expires_at:
                raise EnrollmentRefusedError("token_expired")
            if _by_key(session, key) is not None or _by_name(session, invitation.name) is not None:
                raise EnrollmentRefusedError("already_member")
            invitation.used_at = to_unix_ms(now)
            row = OrganizationRow(
                organization_id=secrets.token_bytes(_ID_BYTES),
                name=invitation.name,
                public_key=identity.public_bytes(key),
                joined_at=to_unix_ms(now),
            )
            session.add(row)
            audit.record(
                session,
                "joined",
                {"name": row.name, "fingerprint": identity.fingerprint(key)},
                at=now,
            )
            member = _member(row)
        return Joined(member, self._issue(member, now), self._ring.certificate(CA))

    def revoke(self, name: str) -> Member:
        """End a membership, or take back an unused invitation's place.

        Raises:
            UnknownOrganizationError: no member is called so.
        """
        now = self._clock()
        with self._database.transaction() as session:
            row = _by_name(session, name)
            if row is None:
                raise UnknownOrganizationError(name)
            row.revoked_at = to_unix_ms(now)
            audit.record(session, "revoked", {"name": name}, at=now)
            return _member(row)

    def members(self) -> list[Member]:
        """Everybody who may take part now, by name."""
        with self._database.transaction() as session:
            rows = session.scalars(
                select(OrganizationRow)
                .where(OrganizationRow.revoked_at.is_(None))
                .order_by(OrganizationRow.name)
            )
            return [_member(row) for row in rows]

    def member_with(self, key: ec.EllipticCurvePublicKey) -> Member | None:
        """The member with that key, None for strangers and the revoked."""
        with self._database.transaction() as session:
            row = _by_key(session, key)
            return _member(row) if row else None

    def _issue(self, member: Member, now: datetime) -> bytes:
        issuer = x509.load_pem_x509_certificate(self._ring.certificate(CA))
        name = _name(member.organization_id.hex())
        builder = _builder(name, issuer.subject, member.public_key, now, CERTIFICATE_LIFETIME)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        return _pem(builder.sign(self._ring.key(CA), hashes.SHA384()))

    def _url(self, token: bytes) -> str:
        certificate = x509.load_pem_x509_certificate(self._ring.certificate(ENROLLMENT))
        pin = certificate.fingerprint(hashes.SHA256()).hex()
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        return f"fedperf://{host}:{self._config.enrollment_port}/#{pin}.{token.hex()}"


class EnrollmentServer:
    """The gRPC endpoint of joining, on the enrollment port."""

    def __init__(self, enrollment: Enrollment, ring: KeyRing, config: ServerConfig) -> None:
        self._enrollment = enrollment
        self._config = config
        self._coordinator_key = ring.key(SIGNING).public_key()
        self._server = grpc.server(
            ThreadPoolExecutor(4, thread_name_prefix="enrollment"),
            options=[("grpc.max_receive_message_length", _MAX_MESSAGE)],
        )
        serve_enrollment(self._server, self)
        credentials = grpc.ssl_server_credentials(
            [(ring.key_pem(ENROLLMENT), ring.certificate(ENROLLMENT))]
        )
        listen(self._server, config.bind, config.enrollment_port, credentials)

    def start(self) -> None:
        """Serve until `stop`."""
        self._server.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.stop(grace=1).wait()

    def join(self, token: bytes, certificate_request: bytes) -> JoinReply:
        """Answer one organization."""
        try:
            joined = self._enrollment.join(token, certificate_request)
        except EnrollmentRefusedError as error:
            raise CallRefusedError(grpc.StatusCode.PERMISSION_DENIED, str(error)) from None
        return JoinReply(
            organization_id=joined.member.organization_id,
            certificate=joined.certificate,
            ca_certificate=joined.ca_certificate,
            coordinator_public_key=self._coordinator_key.public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
            exchange_address=self._config.exchange_address,
            fleet_address=self._config.fleet_address,
        )


def listen(server: grpc.Server, bind: str, port: int, credentials: grpc.ServerCredentials) -> None:
    """Let `server` listen.

    Raises:
        ConfigurationError: the port is taken.
    """
    address = f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
    try:
        server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {address}: is the port taken?") from error


def _requested_key(certificate_request: bytes) -> ec.EllipticCurvePublicKey:
    try:
        request = x509.load_der_x509_csr(certificate_request)
        key = request.public_key()
        valid = request.is_signature_valid
    except (ValueError, InvalidSignature):
        raise EnrollmentRefusedError("request_malformed") from None
    if not valid or not isinstance(key, ec.EllipticCurvePublicKey):
        raise EnrollmentRefusedError("request_malformed")
    if not isinstance(key.curve, identity.CURVE):
        raise EnrollmentRefusedError("request_malformed")
    return key


def _by_name(session: Session, name: str) -> OrganizationRow | None:
    return session.scalars(
        select(OrganizationRow).where(
            OrganizationRow.name == name, OrganizationRow.revoked_at.is_(None)
        )
    ).first()


def _by_key(session: Session, key: ec.EllipticCurvePublicKey) -> OrganizationRow | None:
    return session.scalars(
        select(OrganizationRow).where(
            OrganizationRow.public_key == identity.public_bytes(key),
            OrganizationRow.revoked_at.is_(None),
        )
    ).first()


def _member(row: OrganizationRow) -> Member:
    key = serialization.load_der_public_key(row.public_key)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise StorageError("the database holds a key that is not an elliptic-curve key")
    return Member(row.organization_id, row.name, key, from_unix_ms(row.joined_at))


def _authority(key: ec.EllipticCurvePrivateKey, *, now: datetime) -> x509.Certificate:
    name = _name("fedperf coordinator")
    builder = _builder(name, name, key.public_key(), now, AUTHORITY_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA384())


def _server_certificate(
    host: str,
    public_key: ec.EllipticCurvePublicKey,
    *,
    issuer: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> x509.Certificate:
    builder = _builder(_name(host), issuer.subject, public_key, now, AUTHORITY_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    return _for_host(builder, host).sign(key, hashes.SHA384())


def _self_signed(host: str, key: ec.EllipticCurvePrivateKey, *, now: datetime) -> x509.Certificate:
    builder = _builder(_name(host), _name(host), key.public_key(), now, AUTHORITY_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    return _for_host(builder, host).sign(key, hashes.SHA384())


def _for_host(builder: x509.CertificateBuilder, host: str) -> x509.CertificateBuilder:
    try:
        name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        name = x509.DNSName(host)
    builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    return builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    start = now.astimezone(UTC) - timedelta(days=2)  # a wrong clock is told as such later on
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + lifetime)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
