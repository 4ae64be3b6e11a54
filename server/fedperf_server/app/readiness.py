"""What must hold before a server opens its ports: what members were promised, and its own keys.

Refused: a database that is lost, a certificate that cannot be read or is for another host than
the configuration names, and another calendar than the one that members declared their schedules
for, as long as that one lasts. Nothing is changed.
"""

from cryptography import x509

from fedperf_server.config import FILE_NAME, ServerConfig
from fedperf_server.membership.authority import ENROLLMENT, SERVER, KeyRing
from fedperf_server.state.database import Database
from fedperf_server.state.releases import promised_calendar
from fedperf_shared.errors import ConfigurationError, StorageError
from fedperf_shared.identity import hosts_of
from fedperf_shared.releases.period import Timetable


class OtherHostError(ConfigurationError):
    """The configuration names a host that the certificates are not for."""


class OtherCalendarError(ConfigurationError):
    """The configuration has another calendar than the one that members declared themselves for."""


def require_ready(config: ServerConfig) -> None:
    """Raise where this server would not be the one that its members know.

    Raises:
        OtherHostError: its certificates are for another host.
        OtherCalendarError: members declared their schedules for another calendar, which lasts.
        StorageError: database or certificates cannot be read.
    """
    ring = KeyRing(config.directory)
    for name in (SERVER, ENROLLMENT):
        _require_host(config, ring, name)
    database = Database.existing(config.database_url)
    try:
        with database.transaction() as session:
            promised = promised_calendar(session)
    finally:
        database.close()
    if promised is not None:
        _require_promised(config, promised)


def _require_host(config: ServerConfig, ring: KeyRing, name: str) -> None:
    path = ring.certificate_path(name)
    try:
        hosts = hosts_of(x509.load_pem_x509_certificate(ring.certificate(name)))
    except ValueError as error:
        raise StorageError(f"{path} is no certificate; restore it from a backup") from error
    if config.host not in hosts:
        known = " and ".join(map(repr, hosts)) or "no host"
        raise OtherHostError(
            f"{config.directory / FILE_NAME} has host {config.host!r}, and {path} is for {known}, "
            f"which members know: put {known} back, or make another server with "
            "`fedperf-server --directory NEW init`, which members join anew"
        )


def _require_promised(config: ServerConfig, promised: Timetable) -> None:
    ours, past = config.timetable, promised.period
    if ours == promised or not ours.period.start < past.end:
        return
    raise OtherCalendarError(
        f"members declared what they release for the calendar that begins at "
        f"{past.start.isoformat()} and ends at {past.end.isoformat()}, and "
        f"{config.directory / FILE_NAME} has another one ({_difference(ours, promised)}): put it "
        "back; a new calendar may begin where that one ends"
    )


def _difference(ours: Timetable, promised: Timetable) -> str:
    pairs = {
        "period_start": (ours.period.start.isoformat(), promised.period.start.isoformat()),
        "windows": (ours.period.windows, promised.period.windows),
        "window_seconds": (
            ours.period.window.total_seconds(),
            promised.period.window.total_seconds(),
        ),
    }
    found = [f"{key} {new}, not {old}" for key, (new, old) in pairs.items() if new != old]
    return ", ".join(found) or "other slots"
