"""Enrollment adds organizations as members, and revokes them.

The operator invites with a join URL, which pins this server's enrollment certificate and contains a
token for one use. The client makes its own key and sends a certificate request. It gets a
certificate of this server's authority and a random id. The operator's name for it is never sent.
Members are looked up in the database by public key at every call. A certificate alone grants
nothing, so that revoking takes effect at once.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import select
from sqlalchemy.orm import Session

from fedperf_server.config import ServerConfig
from fedperf_server.membership.authority import CA, ENROLLMENT, SIGNING, KeyRing, issue
from fedperf_server.state.database import (
    Database,
    InvitationRow,
    Member,
    SightingRow,
    record_event,
)
from fedperf_shared import identity
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import JoinReply

INVITATION_LIFETIME = timedelta(days=7)
SEEN_EVERY = timedelta(minutes=1)
MAX_NAME_LENGTH = 100
_ID_BYTES = 16
_TOKEN_BYTES = 24

_log = structlog.get_logger()


class EnrollmentRefusedError(InvalidInputError):
    """Raised when joining is refused. The message is a constant code for the caller."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation, which the operator sends to one organization over a trusted channel."""

    name: str
    url: str
    expires_at: datetime


def organization_names(session: Session) -> dict[str, str]:
    """Return the operator's names of all organizations that ever joined, by id in hex."""
    rows = session.execute(select(Member.organization_id, Member.name))
    return {organization_id.hex(): name for organization_id, name in rows}


@dataclass(slots=True, eq=False, repr=False)
class Enrollment:
    """The invitations and members in the database."""

    database: Database
    ring: KeyRing
    config: ServerConfig
    _: KW_ONLY
    clock: Callable[[], datetime]
    _last_calls: dict[bytes, datetime] = field(default_factory=dict, init=False)

    def add_organization(
        self, name: str, *, lifetime: timedelta = INVITATION_LIFETIME
    ) -> Invitation:
        """Invite an organization under the operator's own name for it.

        Raises:
            InvalidInputError: the name is invalid, or a member has it.
        """
        if (
            not name.isprintable()
            or name != " ".join(name.split())
            or not 0 < len(name) <= MAX_NAME_LENGTH
        ):
            raise InvalidInputError(
                f"a name must have 1 to {MAX_NAME_LENGTH} printable characters, with single blanks "
                f"between words, got {name!r}"
            )
        now = self.clock()
        token = secrets.token_bytes(_TOKEN_BYTES)
        with self.database.transaction() as session:
            if _by_name(session, name) is not None:
                raise InvalidInputError(
                    f"an organization called {name!r} is a member already; choose another name or "
                    "revoke it"
                )
            _drop_invitation(session, name)
            session.add(
                InvitationRow(
                    token_sha256=hashlib.sha256(token).digest(),
                    name=name,
                    expires_at=now + lifetime,
                )
            )
            record_event(session, "invited", at=now, name=name)
        return Invitation(name, self._url(token), now + lifetime)

    def join(self, token: bytes, certificate_request: bytes) -> JoinReply:
        """Make the holder of `token` a member.

        Raises:
            EnrollmentRefusedError: the token is unknown, used or expired, or the request is
                malformed.
        """
        now = self.clock()
        key = _requested_key(certificate_request)
        with self.database.transaction() as session:
            invitation = session.get(InvitationRow, hashlib.sha256(token).digest())
            if invitation is None:
                raise EnrollmentRefusedError("token_unknown")
            if invitation.used_at is not None:
                raise EnrollmentRefusedError("token_used")
            if not now < invitation.expires_at:
                raise EnrollmentRefusedError("token_expired")
            if _by_key(session, key) is not None or _by_name(session, invitation.name) is not None:
                raise EnrollmentRefusedError("already_member")
            invitation.used_at = now
            member = Member(
                organization_id=secrets.token_bytes(_ID_BYTES),
                name=invitation.name,
                public_key=key,
                joined_at=now,
            )
            session.add(member)
            record_event(
                session, "joined", at=now, name=member.name, fingerprint=member.fingerprint
            )
        certificate = issue(self.ring, member.organization_id, member.public_key, now=now)
        _log.info("organization joined", name=member.name, fingerprint=member.fingerprint)
        return JoinReply(
            organization_id=member.organization_id,
            certificate=certificate,
            ca_certificate=self.ring.certificate(CA),
            coordinator_public_key=self.ring.key(SIGNING)
            .public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
            exchange_address=self.config.exchange_address,
            fleet_address=self.config.fleet_address,
        )

    def revoke(self, name: str) -> Member | InvitationRow:
        """End a membership or withdraw an unused invitation, and return it.

        Raises:
            InvalidInputError: no member and no invitation has that name.
        """
        now = self.clock()
        with self.database.transaction() as session:
            member = _by_name(session, name)
            if member is not None:
                member.revoked_at = now
                record_event(session, "revoked", at=now, name=name)
                return member
            withdrawn = _drop_invitation(session, name)
            if withdrawn is None:
                raise InvalidInputError(
                    f"no organization is called {name!r}; list them with `fedperf-server org list`"
                )
            record_event(session, "invitation_withdrawn", at=now, name=name)
            return withdrawn

    def members(self) -> list[Member]:
        """Return the current members, by name."""
        with self.database.transaction() as session:
            current = select(Member).where(Member.revoked_at.is_(None))
            return [*session.scalars(current.order_by(Member.name))]

    def find_member(self, key: ec.EllipticCurvePublicKey) -> Member | None:
        """Return the member with that key, or None for unknown and revoked keys."""
        with self.database.transaction() as session:
            return _by_key(session, key)

    def record_call(self, member: Member) -> None:
        """Store the time of a member's call, at most once per `SEEN_EVERY`."""
        now, previous = self.clock(), self._last_calls.get(member.organization_id)
        if previous is not None and now - previous < SEEN_EVERY:
            return
        self._last_calls[member.organization_id] = now
        row = SightingRow(organization_id=member.organization_id, seen_at=now)
        with self.database.transaction() as session:
            session.merge(row)

    def last_seen(self) -> dict[bytes, datetime]:
        """Return the last call of each member that ever called, by its id."""
        with self.database.transaction() as session:
            rows = session.scalars(select(SightingRow))
            return {row.organization_id: row.seen_at for row in rows}

    def pending_invitations(self) -> list[InvitationRow]:
        """Return unused invitations, including expired ones, by name."""
        query = select(InvitationRow).where(InvitationRow.used_at.is_(None))
        with self.database.transaction() as session:
            return [*session.scalars(query.order_by(InvitationRow.name))]

    def _url(self, token: bytes) -> str:
        certificate = x509.load_pem_x509_certificate(self.ring.certificate(ENROLLMENT))
        pin = certificate.fingerprint(hashes.SHA256()).hex()
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"fedperf://{host}:{self.config.enrollment_port}/#{pin}.{token.hex()}"


def _requested_key(certificate_request: bytes) -> ec.EllipticCurvePublicKey:
    try:
        request = x509.load_der_x509_csr(certificate_request)
        key = request.public_key()
        is_valid = request.is_signature_valid
    except (ValueError, InvalidSignature):
        raise EnrollmentRefusedError("request_malformed") from None
    if not is_valid or not isinstance(key, ec.EllipticCurvePublicKey):
        raise EnrollmentRefusedError("request_malformed")
    if not isinstance(key.curve, identity.CURVE):
        raise EnrollmentRefusedError("request_malformed")
    return key


def _by_name(session: Session, name: str) -> Member | None:
    return session.scalars(
        select(Member).where(Member.name == name, Member.revoked_at.is_(None))
    ).first()


def _drop_invitation(session: Session, name: str) -> InvitationRow | None:
    """Delete the unused invitation of that name and return it, or None without one."""
    unused = select(InvitationRow).where(
        InvitationRow.name == name, InvitationRow.used_at.is_(None)
    )
    row = session.scalars(unused).first()
    if row is not None:
        session.delete(row)
    return row


def _by_key(session: Session, key: ec.EllipticCurvePublicKey) -> Member | None:
    return session.scalars(
        select(Member).where(
            Member.public_key == key,
            Member.revoked_at.is_(None),
        )
    ).first()
