"""A finding of a check, and what checks look at from outside the home: clock, disk, packages.

Every finding names its check and says what was found. The advice is empty where nothing is to be
done. What lies outside is passed into every check, so that a test can set it. The coordinator is
asked once for its status, and not again when it does not answer.
"""

import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from fedperf_client.sources import installed_kinds
from fedperf_shared.runtime.extras import PACKAGE, extras, missing_packages

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from fedperf_client.federation.enrollment import Membership
    from fedperf_shared.exchange import Status


@unique
class Severity(StrEnum):
    """How good or bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check.

    Attributes:
        check: which one.
        verdict: how good or bad it is.
        what: what was found.
        advice: what to do, empty where nothing is to be done.
    """

    check: str
    verdict: Severity
    what: str
    advice: str = ""


Statement = tuple[Severity, str, str]


def ok(what: str) -> Statement:
    """A finding that asks for nothing."""
    return Severity.OK, what, ""


def warning(what: str, advice: str) -> Statement:
    """A finding that may wait, with what to do."""
    return Severity.WARNING, what, advice


def problem(what: str, advice: str) -> Statement:
    """A finding that stops something, with what to do."""
    return Severity.PROBLEM, what, advice


_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Environment:
    """What lies outside of the directory.

    Attributes:
        now: the present moment, with time zone.
        disk: bytes in all and free where a path lies.
        requirements: what the package needs, as its metadata says.
        python: the versions of Python that it allows.
        version: of an installed package; raises PackageNotFoundError for any other.
        extras: names of the extras.
        missing_packages: of an extra, those that are not installed.
        status: of the coordinator, as a member gets it.
        kinds: of sources that are installed, with what is wrong with them.
    """

    now: Callable[[], datetime]
    disk: Callable[[Path], tuple[int, int]]
    requirements: Callable[[], Sequence[str]]
    python: Callable[[], str]
    version: Callable[[str], str]
    extras: Callable[[], Sequence[str]]
    missing_packages: Callable[[str], Sequence[str]]
    status: "Callable[[Membership, ec.EllipticCurvePrivateKey], Status]"
    kinds: Callable[[], Mapping[str, Exception | None]]


def surroundings(now: Callable[[], datetime]) -> Environment:
    """Those of this process."""
    return Environment(
        now=now,
        disk=_disk,
        requirements=lambda: metadata.requires(PACKAGE) or [],
        python=lambda: metadata.metadata(PACKAGE)["Requires-Python"] or "",
        version=metadata.version,
        extras=lambda: [*extras()],
        missing_packages=lambda extra: [*missing_packages(extra)],
        status=_status,
        kinds=installed_kinds,
    )


def _disk(path: Path) -> tuple[int, int]:
    found = shutil.disk_usage(path)
    return found.total, found.free


def _status(membership: "Membership", key: "ec.EllipticCurvePrivateKey") -> "Status":
    from tenacity import Retrying, stop_after_attempt

    from fedperf_client.federation.exchange import ExchangeClient

    once = Retrying(stop=stop_after_attempt(1), reraise=True)
    with ExchangeClient(membership, key, retry=once, timeout_seconds=_TIMEOUT_SECONDS) as exchange:
        return exchange.status()


OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
