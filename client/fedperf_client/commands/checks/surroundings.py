"""Inputs of the checks from outside the home: clock, disk, packages, coordinator.

They are passed into every check, so that a test can set them. The coordinator is asked once for
its status, and not again when it does not answer.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from fedperf_client.sources.kinds import installed_kinds
from fedperf_shared.programs.extras import PACKAGE, extras, missing_packages

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from fedperf_client.federation.enrollment import Membership
    from fedperf_shared.exchange import Status

_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Surroundings:
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


def surroundings(now: Callable[[], datetime]) -> Surroundings:
    """Those of this process."""
    return Surroundings(
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
