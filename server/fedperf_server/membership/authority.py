"""The certificate authority: the coordinator's keys and certificates, in its directory.

`init` makes four keys once: the authority's, the server's, the enrollment port's, which join URLs
pin, and the key that signs receipts. A key file has mode 0600 and is never overwritten. A directory
that holds a server already is refused. `enrollment` decides which organizations get a certificate.

The authority signs one certificate for the server and one for each member, and no other authority.
The enrollment port has a self-signed certificate, because its callers do not have that of the
authority yet. A server's certificate is for one host. A member's certificate contains its id and no
name. Every certificate is valid from two days before it is made, so that a wrong clock does not
invalidate it and is reported as such later.
"""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedperf_shared import identity
from fedperf_shared.errors import ConfigurationError, StorageError
from fedperf_shared.identity import private_pem

CERTIFICATE_LIFETIME = timedelta(days=825)
AUTHORITY_LIFETIME = timedelta(days=3650)


_NO_USAGE = dict.fromkeys(
    (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    ),
    False,
)
_SIGNS_CERTIFICATES = x509.KeyUsage(**_NO_USAGE, key_cert_sign=True, crl_sign=True)


CA = "authority"
SERVER = "server"
ENROLLMENT = "enrollment"
SIGNING = "signing"


class KeyRing:
    """The server's keys and certificates as PEM files in its directory. Keys have mode 0600."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def certificate_path(self, name: str) -> Path:
        """Return the path of the certificate called `name`."""
        return self._directory / f"{name}.pem"

    def key_path(self, name: str) -> Path:
        """Return the path of the private key called `name`."""
        return self._directory / f"{name}.key.pem"

    def certificate(self, name: str) -> bytes:
        """Return the certificate, PEM."""
        return self._read(self.certificate_path(name))

    def key_pem(self, name: str) -> bytes:
        """Return the private key, PEM."""
        return self._read(self.key_path(name))

    def key(self, name: str) -> ec.EllipticCurvePrivateKey:
        """Return the private key.

        Raises:
            StorageError: the key is missing or cannot be read.
        """
        try:
            key = serialization.load_pem_private_key(self.key_pem(name), None)
        except ValueError as error:
            raise StorageError(f"{self.key_path(name)} is not a private key: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise StorageError(f"{self.key_path(name)} is not an elliptic-curve key")
        return key

    def write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: bytes = b"") -> None:
        """Store a new key and its certificate. An existing key is never overwritten."""
        pem = private_pem(key)
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
            raise ConfigurationError(
                f"{path} does not exist; restore it from a backup of the server's directory"
            ) from None
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from error


def init(directory: Path, host: str, *, now: datetime) -> KeyRing:
    """Make the authority, the server's certificates for `host` and the signing key.

    Raises:
        ConfigurationError: the directory holds a server already.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ring = KeyRing(directory)
    ca_key, server_key, enrollment_key = (identity.new_private_key() for _ in range(3))
    is_authority, is_leaf = x509.BasicConstraints(True, 0), x509.BasicConstraints(False, None)
    try:
        address: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        address = x509.DNSName(host)
    at_host = (
        x509.SubjectAlternativeName([address]),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
    )
    name = "fedperf coordinator"
    ca = _certify(name, ca_key.public_key(), (is_authority, _SIGNS_CERTIFICATES), ca_key, now=now)
    ring.write(CA, ca_key, _to_pem(ca))
    server = _certify(
        host, server_key.public_key(), (is_leaf, *at_host), ca_key, issuer=ca, now=now
    )
    ring.write(SERVER, server_key, _to_pem(server))
    enrollment = _certify(
        host, enrollment_key.public_key(), (is_authority, *at_host), enrollment_key, now=now
    )
    ring.write(ENROLLMENT, enrollment_key, _to_pem(enrollment))
    ring.write(SIGNING, identity.new_private_key())
    return ring


def issue(
    ring: KeyRing, organization_id: bytes, public_key: ec.EllipticCurvePublicKey, *, now: datetime
) -> bytes:
    """Return a member's client certificate, PEM, signed by the authority of `ring`."""
    extensions = (
        x509.BasicConstraints(False, None),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
    )
    certificate = _certify(
        organization_id.hex(),
        public_key,
        extensions,
        ring.key(CA),
        issuer=x509.load_pem_x509_certificate(ring.certificate(CA)),
        lifetime=CERTIFICATE_LIFETIME,
        now=now,
    )
    return _to_pem(certificate)


def _certify(
    subject: str,
    public_key: ec.EllipticCurvePublicKey,
    extensions: Sequence[x509.ExtensionType],
    key: ec.EllipticCurvePrivateKey,
    *,
    issuer: x509.Certificate | None = None,
    lifetime: timedelta = AUTHORITY_LIFETIME,
    now: datetime,
) -> x509.Certificate:
    """Return a certificate signed with the issuer's `key`, self-signed without an issuer."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    start = now.astimezone(UTC) - timedelta(days=2)  # a wrong clock is reported later
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.subject if issuer else name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + lifetime)
    )
    for each in extensions:
        is_critical = isinstance(each, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(each, critical=is_critical)
    return builder.sign(key, hashes.SHA384())


def _to_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
