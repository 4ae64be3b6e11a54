"""Keys, signatures and fingerprints: one EC P-384 key is an organization's identity.

The same key authenticates the Flower node, the certificate of the Exchange and the
signature under every release. This module also reads the hosts of a server's certificate.
"""

import hashlib

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_shared.errors import InvalidInputError

CURVE = ec.SECP384R1


class InvalidSignatureError(InvalidInputError):
    """A signature does not belong to these bytes and this key."""


def new_private_key() -> ec.EllipticCurvePrivateKey:
    """Return a fresh key from the operating system's randomness."""
    return ec.generate_private_key(CURVE())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the private key as PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the key as DER SubjectPublicKeyInfo."""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of the public key in groups of four characters, for people to compare."""
    digest = hashlib.sha256(public_bytes(key)).hexdigest()[:32]
    return "-".join(digest[start : start + 4] for start in range(0, len(digest), 4))


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses of a server's certificate; empty if it has none.

    Raises:
        ValueError: it is malformed.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def sign(key: ec.EllipticCurvePrivateKey, payload: bytes) -> bytes:
    """ECDSA with SHA-256 over `payload`."""
    return key.sign(payload, ec.ECDSA(hashes.SHA256()))


def verify(key: ec.EllipticCurvePublicKey, payload: bytes, signature: bytes) -> None:
    """Raise `InvalidSignatureError` unless `signature` is the key's over `payload`."""
    try:
        key.verify(signature, payload, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise InvalidSignatureError(
            "the signature does not belong to this key and payload"
        ) from None
