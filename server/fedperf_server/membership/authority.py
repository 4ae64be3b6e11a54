"""The certificate authority: the coordinator's keys and certificates, in its directory.

`init` makes four keys once: the authority's, the server's, the enrollment port's, which join URLs
pin, and the key that signs receipts. A key file has mode 0600 and is never overwritten. A directory
that holds a server already is refused. `enrollment` decides which organizations get a certificate.

The authority signs one certificate for the server and one for each member, and no other authority.
The enrollment port has a self-signed certificate, because its callers do not know the authority
yet. A server's certificate is for one host. A member's certificate contains its id and no name.
Every certificate is valid from two days before it is made, so that a wrong clock does not
invalidate it and is reported as such later.
"""

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedperf_shared import identity
from fedperf_shared.errors import ConfigurationError, StorageError

CERTIFICATE_LIFETIME = timedelta(days=825)
AUTHORITY_LIFETIME = timedelta(days=3650)


def authority_certificate(key: ec.EllipticCurvePrivateKey, *, now: datetime) -> x509.Certificate:
    """Return the self-signed certificate of the authority, which signs all others."""
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


def server_certificate(
    host: str,
    public_key: ec.EllipticCurvePublicKey,
    *,
    issuer: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> x509.Certificate:
    """Return the certificate of the server on `host`, signed with the issuer's `key`."""
    builder = _builder(_name(host), issuer.subject, public_key, now, AUTHORITY_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    return _for_host(builder, host).sign(key, hashes.SHA384())


def self_signed_certificate(
    host: str, key: ec.EllipticCurvePrivateKey, *, now: datetime
) -> x509.Certificate:
    """Return the self-signed certificate of enrollment on `host`, which clients pin."""
    builder = _builder(_name(host), _name(host), key.public_key(), now, AUTHORITY_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    return _for_host(builder, host).sign(key, hashes.SHA384())


def member_certificate(
    organization_id: bytes,
    public_key: ec.EllipticCurvePublicKey,
    *,
    issuer: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> x509.Certificate:
    """Return a member's client certificate, signed with the issuer's `key`."""
    name = _name(organization_id.hex())
    builder = _builder(name, issuer.subject, public_key, now, CERTIFICATE_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    return builder.sign(key, hashes.SHA384())


def to_pem(certificate: x509.Certificate) -> bytes:
    """Return the certificate as PEM, in which it is stored and sent."""
    return certificate.public_bytes(serialization.Encoding.PEM)


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
    start = now.astimezone(UTC) - timedelta(days=2)  # a wrong clock is reported later
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
    ca_key = identity.new_private_key()
    ca = authority_certificate(ca_key, now=now)
    ring.write(CA, ca_key, to_pem(ca))
    server_key = identity.new_private_key()
    server = server_certificate(host, server_key.public_key(), issuer=ca, key=ca_key, now=now)
    ring.write(SERVER, server_key, to_pem(server))
    enrollment_key = identity.new_private_key()
    ring.write(
        ENROLLMENT, enrollment_key, to_pem(self_signed_certificate(host, enrollment_key, now=now))
    )
    ring.write(SIGNING, identity.new_private_key())
    return ring


def issue(
    ring: KeyRing, organization_id: bytes, public_key: ec.EllipticCurvePublicKey, *, now: datetime
) -> bytes:
    """Return a member's certificate, PEM, signed by the authority of `ring`."""
    issuer = x509.load_pem_x509_certificate(ring.certificate(CA))
    key = ring.key(CA)
    return to_pem(member_certificate(organization_id, public_key, issuer=issuer, key=key, now=now))
