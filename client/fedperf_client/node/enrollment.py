"""Joining a federation: from the coordinator's join URL to a membership on disk.

The URL pins the certificate of the coordinator's enrollment endpoint, so that an intermediary
cannot take its place, and carries a token for one use. The private key is created here and never
leaves; both sides can compare its fingerprint.
"""

import hashlib
import hmac
import os
import re
import socket
import ssl
from dataclasses import astuple, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedperf_shared import identity
from fedperf_shared.errors import (
    ConfigurationError,
    ConnectionRefusedByPeerError,
    InvalidInputError,
    StorageError,
)
from fedperf_shared.exchange import JoinReply, JoinRequest
from fedperf_shared.identity import private_pem
from fedperf_shared.wire.services import enrollment_stub

KEY_FILE = "organization.key.pem"
_FILES = ("certificate.pem", "authority.pem", "coordinator.pem", "addresses.txt")
_TIMEOUT_SECONDS = 20.0
_FRAGMENT = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{48})")
_REASONS = {
    "token_unknown": "it does not know this invitation",
    "token_used": "this invitation was used already",
    "token_expired": "this invitation has expired",
    "already_member": "this organization is a member already",
}


# The coordinator's codes for an organization that joined it before.
_JOINED_BEFORE = ("token_used", "already_member")


class InvalidJoinUrlError(InvalidInputError):
    """Raised for a text that is not a join URL."""

    def __init__(self) -> None:
        super().__init__(
            "not a join URL; it looks like fedperf://HOST:PORT/#FINGERPRINT.TOKEN and is "
            "printed by `fedperf-server org add NAME`"
        )


class JoinRefusedError(ConnectionRefusedByPeerError):
    """Raised when the coordinator is unreachable, not that of the URL, or refuses."""


class JoinedAlreadyError(JoinRefusedError):
    """Raised when the organization has joined before and the invitation does not renew it."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"this home has joined already (the coordinator at {address}), so nothing was "
            "changed; see: fedperf status. To join anew, its operator revokes this organization "
            "and gives a new invitation"
        )


class KeyMissingError(ConfigurationError):
    """Raised when a membership is there without its private key."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path.parent} has a membership and no private key; restore {path.name} from a "
            f"backup, or move {path.parent} away and join with a new invitation"
        )


def is_member(directory: Path) -> bool:
    """Return whether `directory` has a membership, or a part of one, which `load` refuses."""
    return any((directory / name).exists() for name in _FILES)


@dataclass(frozen=True, slots=True)
class JoinUrl:
    """A parsed join URL."""

    host: str
    port: int
    pin: bytes
    token: bytes

    @classmethod
    def parse(cls, text: str) -> "JoinUrl":
        """Parse a join URL.

        Raises:
            InvalidJoinUrlError: it is not a join URL.
        """
        try:
            parts = urlsplit(text.strip())
            port = parts.port
        except ValueError:
            raise InvalidJoinUrlError from None
        match = _FRAGMENT.fullmatch(parts.fragment)
        if parts.scheme != "fedperf" or not parts.hostname or port is None or match is None:
            raise InvalidJoinUrlError
        return cls(parts.hostname, port, bytes.fromhex(match[1]), bytes.fromhex(match[2]))

    @property
    def address(self) -> str:
        """Return host:port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Membership(JoinReply):
    """An organization's membership data without its private key."""

    @property
    def coordinator_key(self) -> ec.EllipticCurvePublicKey:
        """Return the key that signs receipts.

        Raises:
            InvalidInputError: the stored one is not an elliptic-curve key.
        """
        try:
            key = serialization.load_pem_public_key(self.coordinator_public_key)
        except ValueError as error:
            raise InvalidInputError(f"the coordinator's key is not a key: {error}") from error
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidInputError("the coordinator's key is not an elliptic-curve key")
        return key

    def is_at(self, target: JoinUrl) -> bool:
        """Return whether the coordinator of this membership is on the host of the URL."""
        host, _, _ = self.exchange_address.rpartition(":")
        return target.address.startswith(f"{host}:")

    def require_certificates(self) -> None:
        """Raise StorageError for an invalid certificate, which gRPC would only log."""
        for name, pem in zip(_FILES, (self.certificate, self.ca_certificate), strict=False):
            try:
                x509.load_pem_x509_certificate(pem)
            except ValueError:
                raise StorageError(
                    f"{name} in the identity of this home is damaged; restore it from a backup, or "
                    "ask the coordinator's operator for a new invitation"
                ) from None

    def save(self, directory: Path) -> None:
        """Write the membership into `directory`.

        Raises:
            StorageError: it cannot be written.
        """
        addresses = "\n".join(
            (self.organization_id.hex(), self.exchange_address, self.fleet_address)
        )
        contents = (
            self.certificate,
            self.ca_certificate,
            self.coordinator_public_key,
            addresses.encode(),
        )
        try:
            for name, content in zip(_FILES, contents, strict=True):
                temporary = directory / f"{name}.new"
                temporary.write_bytes(content)
                temporary.replace(directory / name)
        except OSError as error:
            raise StorageError(f"cannot write into {directory}: {error.strerror}") from error

    @classmethod
    def load(cls, directory: Path) -> "Membership":
        """Read the membership in `directory`.

        Raises:
            ConfigurationError: there is none, or a part of one only.
            StorageError: it cannot be read.
        """
        try:
            certificate, authority, coordinator, addresses = (
                (directory / name).read_bytes() for name in _FILES
            )
            organization_id, exchange, fleet = addresses.decode().splitlines()
            return cls(
                bytes.fromhex(organization_id), certificate, authority, coordinator, exchange, fleet
            )
        except FileNotFoundError as error:
            if is_member(directory):
                missing = Path(error.filename).name
                raise ConfigurationError(
                    f"{directory} holds a part of a membership only, without {missing}; restore "
                    "it from a backup, or ask for a new invitation"
                ) from None
            raise ConfigurationError(
                f"{directory} holds no membership; join with `fedperf join URL`"
            ) from None
        except OSError as error:
            raise StorageError(f"cannot read {directory}: {error.strerror}") from error
        except ValueError:
            raise StorageError(f"{directory / _FILES[-1]} is damaged; join again") from None


def load_or_create_key(directory: Path) -> ec.EllipticCurvePrivateKey:
    """Return the organization's private key in `directory`, created on first use with mode 0600.

    Raises:
        KeyMissingError: a membership is there already, which another key would not fit.
        StorageError: it cannot be read or written, or is not an elliptic-curve key.
    """
    path = directory / KEY_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            if is_member(directory):
                raise KeyMissingError(path)
            _write_key(path, identity.new_private_key())
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise StorageError(f"cannot use {path}: {error.strerror}") from error
    except ValueError:
        raise StorageError(f"{path} is not a private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StorageError(f"{path} is not an elliptic-curve key")
    return key


def join(
    url: str, key: ec.EllipticCurvePrivateKey, *, joined: Membership | None = None
) -> Membership:
    """Join with `key`, or again if the earlier membership `joined` has ended.

    Raises:
        InvalidJoinUrlError: not a join URL.
        JoinedAlreadyError: by `joined`.
        JoinRefusedError: unreachable, not the pinned coordinator, or it refuses.
    """
    target = JoinUrl.parse(url)
    certificate = _pinned_certificate(target)
    credentials = grpc.ssl_channel_credentials(root_certificates=certificate)
    with grpc.secure_channel(target.address, credentials) as channel:
        stub = enrollment_stub(channel, timeout_seconds=_TIMEOUT_SECONDS)
        try:
            reply = stub.join(JoinRequest(target.token, _request(key)))
        except grpc.RpcError as error:
            if (
                joined is not None
                and joined.is_at(target)
                and _refusal_code(error) in _JOINED_BEFORE
            ):
                raise JoinedAlreadyError(joined.exchange_address) from None
            raise _refusal(target, certificate, error) from None
    return Membership(*astuple(reply))


def _pinned_certificate(target: JoinUrl) -> bytes:
    try:
        pem = ssl.get_server_certificate((target.host, target.port), timeout=_TIMEOUT_SECONDS)
    except socket.gaierror:
        raise JoinRefusedError(
            f"there is no host called {target.host!r}; check the join URL"
        ) from None
    except OSError as error:
        raise JoinRefusedError(
            f"no coordinator answers at {target.address} ({error.strerror or error}); "
            "is it running, and is the port open?"
        ) from None
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).digest()
    if not hmac.compare_digest(fingerprint, target.pin):
        raise JoinRefusedError(
            f"{target.address} shows another certificate than the join URL names; is it the port "
            "of the invitation (by default 8752, not that of the Exchange or of the fleet)? If it "
            "is, do not join, and ask the coordinator's operator"
        )
    return pem.encode()


def _refusal(target: JoinUrl, certificate: bytes, error: grpc.RpcError) -> JoinRefusedError:
    code = error.code() if isinstance(error, grpc.Call) else None
    if code is grpc.StatusCode.PERMISSION_DENIED:
        reason = _REASONS.get(_refusal_code(error), "it does not accept the request")
        return JoinRefusedError(
            f"the coordinator at {target.address} refuses: {reason}; "
            "ask its operator for a new invitation"
        )
    names = _host_names(certificate)
    if code is grpc.StatusCode.UNAVAILABLE and names and target.host not in names:
        return JoinRefusedError(
            f"the coordinator's certificate is not for {target.host!r} but for "
            f"{' and '.join(names)}; check the host in the join URL"
        )
    name = code.name.lower() if code else "unknown"
    return JoinRefusedError(f"joining at {target.address} failed: {name}; try again later")


def _refusal_code(error: grpc.RpcError) -> str:
    """Return the coordinator's code of a refusal, one of a closed set; empty if there is none."""
    return (error.details() or "") if isinstance(error, grpc.Call) else ""


def _host_names(certificate: bytes) -> list[str]:
    """Return the hosts that a certificate is for; none where it cannot be read."""
    try:
        return identity.hosts_of(x509.load_pem_x509_certificate(certificate))
    except ValueError:
        return []


def _request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Make a certificate request without a name: the coordinator assigns the id."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "organization")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name)
    return request.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.DER)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = private_pem(key)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
