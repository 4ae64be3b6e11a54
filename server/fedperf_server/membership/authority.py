"""The authority: the coordinator's own keys and certificates, in its directory.

Four keys, each made once by `init`: the authority's, the server's, the one of the door of
enrollment, which join URLs pin, and the one that signs receipts. A key file is mode 0600
and is never overwritten; a directory that holds a server already is refused. What the
certificates say is in `certificates`, who gets one is in `enrollment`.
"""

import os
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_server.membership.certificates import (
    authority_certificate,
    member_certificate,
    self_signed_certificate,
    server_certificate,
    to_pem,
)
from fedperf_shared import identity
from fedperf_shared.errors import ConfigurationError, StorageError

CA = "authority"
SERVER = "server"
ENROLLMENT = "enrollment"
SIGNING = "signing"


class KeyRing:
    """The server's keys and certificates as PEM files in its directory; keys are mode 0600."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def certificate_path(self, name: str) -> Path:
        """The path of the certificate called `name`."""
        return self._directory / f"{name}.pem"

    def key_path(self, name: str) -> Path:
        """The path of the private key called `name`."""
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
    door_key = identity.new_private_key()
    ring.write(ENROLLMENT, door_key, to_pem(self_signed_certificate(host, door_key, now=now)))
    ring.write(SIGNING, identity.new_private_key())
    return ring


def issue(
    ring: KeyRing, organization_id: bytes, public_key: ec.EllipticCurvePublicKey, *, now: datetime
) -> bytes:
    """A member's certificate, PEM, signed by the authority of `ring`."""
    issuer = x509.load_pem_x509_certificate(ring.certificate(CA))
    made = member_certificate(organization_id, public_key, issuer=issuer, key=ring.key(CA), now=now)
    return to_pem(made)
