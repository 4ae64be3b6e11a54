"""The coordinator's certificates: their contents, lifetimes and signers.

The authority signs one certificate for the server and one for each member, and no other authority.
The door of enrollment signs its own, as whoever comes there knows no authority yet. A server's
certificate is for one host, a member's for its id alone: nobody's name is in it. Every certificate
begins two days before it is made, so that a wrong clock fails no certificate and is told as such
later on. This module reads no clock and writes no file (`authority` does).
"""

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE_LIFETIME = timedelta(days=825)
AUTHORITY_LIFETIME = timedelta(days=3650)


def authority_certificate(key: ec.EllipticCurvePrivateKey, *, now: datetime) -> x509.Certificate:
    """The certificate of the authority that signs all others, by its own `key`."""
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
    """The certificate of the server on `host`, signed with the issuer's `key`."""
    builder = _builder(_name(host), issuer.subject, public_key, now, AUTHORITY_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    return _for_host(builder, host).sign(key, hashes.SHA384())


def self_signed_certificate(
    host: str, key: ec.EllipticCurvePrivateKey, *, now: datetime
) -> x509.Certificate:
    """The certificate of enrollment on `host`, by its own `key`; clients pin it."""
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
    """A member's certificate, for calls but not for serving, signed with the issuer's `key`."""
    name = _name(organization_id.hex())
    builder = _builder(name, issuer.subject, public_key, now, CERTIFICATE_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    return builder.sign(key, hashes.SHA384())


def to_pem(certificate: x509.Certificate) -> bytes:
    """The certificate as PEM, the form in which it is stored and sent."""
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
