"""Checks of who the organization is to its coordinator: key, certificates, clocks.

The coordinator is asked for its status alone, and only where there is a whole membership. A
part of one, a damaged certificate or one for another key is a problem.
"""

import stat
from collections.abc import Iterator
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.commands.findings import (
    OF_OTHERS,
    Environment,
    Statement,
    ok,
    problem,
    warning,
)
from fedperf_client.home.config import Home
from fedperf_client.node.enrollment import KEY_FILE, Membership, is_member, load_or_create_key
from fedperf_client.node.exchange import MAX_CLOCK_SKEW, ClockSkewError, NoMemberError
from fedperf_shared.errors import ConfigurationError, ConnectionRefusedByPeerError
from fedperf_shared.identity import public_bytes

EXPIRES_SOON = timedelta(days=30)
NOTABLE_SKEW = timedelta(seconds=60)


def check_identity(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether the key is private and the certificates are for it and valid."""
    member = _member(home)
    if member is None:
        yield ok("not joined; a coordinator's operator gives the URL for: fedperf join URL")
        return
    membership, key = member
    mode = stat.S_IMODE((home.identity / KEY_FILE).stat().st_mode)
    if mode & OF_OTHERS:
        yield problem(
            f"the private key is open to others (mode {mode:04o})",
            f"run: chmod 600 {home.identity / KEY_FILE}",
        )
    own = _certificate("this organization's certificate", membership.certificate)
    if public_bytes(_key_of(own)) != public_bytes(key.public_key()):
        yield problem("the certificate is for another key", "restore both from one backup")
    yield _validity("this organization's certificate", own, around.now())
    authority = _certificate("the coordinator's authority", membership.ca_certificate)
    yield _validity("the coordinator's authority", authority, around.now())
    public_bytes(membership.coordinator_key)


def check_coordinator(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether the coordinator answers and the clocks agree."""
    member = _member(home)
    if member is None:
        yield ok("not joined, nobody was asked")
        return
    address = member[0].exchange_address
    try:
        skew = around.status(*member).now - around.now()
    except NoMemberError as error:
        yield problem(str(error), "")
        return
    except ConnectionRefusedByPeerError as error:
        yield warning(str(error), "predictions work without; releases wait")
        return
    if not abs(skew) <= MAX_CLOCK_SKEW:
        yield problem(str(ClockSkewError(skew)), "")
    elif abs(skew) > NOTABLE_SKEW:
        yield warning(f"the clocks differ by {abs(skew).total_seconds():.0f} s", "use NTP")
    else:
        yield ok(f"{address} answers, the clocks agree within {NOTABLE_SKEW.seconds} s")


def _member(home: Home) -> tuple[Membership, ec.EllipticCurvePrivateKey] | None:
    """Membership and key; None before joining.

    Raises:
        FedperfError: a part of it is missing or damaged.
    """
    if not is_member(home.identity):
        return None
    return Membership.load(home.identity), load_or_create_key(home.identity)


def _certificate(name: str, pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ConfigurationError(
            f"{name} is damaged; restore the identity from a backup, or ask for a new invitation"
        ) from None


def _key_of(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigurationError("the certificate is not for an elliptic-curve key; join again")
    return key


def _validity(name: str, certificate: x509.Certificate, now: datetime) -> Statement:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    renew = "ask the coordinator's operator for a new invitation"
    if now < begin:
        return problem(f"{name} is valid from {begin:%Y-%m-%d} on", "check this machine's clock")
    if not now < end:
        return problem(f"{name} was valid until {end:%Y-%m-%d}", renew)
    if end - now < EXPIRES_SOON:
        return warning(f"{name} is valid until {end:%Y-%m-%d} only", f"{renew} before that day")
    return ok(f"{name} is valid until {end:%Y-%m-%d}")
