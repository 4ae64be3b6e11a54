"""One coordinator process: enrollment, Exchange, gateway and coordinator, from start to stop.

`serving` opens the three ports in the order in which clients need them, and hands out the
coordinator; whatever was started is stopped at the end. `run_server` moves it on by the
system's clock.

Before a server opens its ports, what members were promised and its own keys are checked. Refused:
a database that is lost, a certificate that cannot be read or is for another host than the
configuration names, and another calendar than the one that members declared their schedules for,
as long as that one lasts. Nothing is changed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import structlog
from cryptography import x509

from fedperf_server.app.composition import Task, coordinator_of, ggfn_task
from fedperf_server.config import FILE_NAME, ServerConfig
from fedperf_server.controllers.missing_reports import MissingReport
from fedperf_server.controllers.reports import PublicationCounts
from fedperf_server.endpoints.grpc_ports import enrollment_server, exchange_server
from fedperf_server.inference.drift_evidence import PlatformDrift
from fedperf_server.membership.authority import ENROLLMENT, SERVER, SIGNING, KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.coordinator import Coordinator
from fedperf_server.rounds.open_round import RoundRules
from fedperf_server.state.database import Database
from fedperf_server.state.registry import PromotionRecord, VersionStatus
from fedperf_server.state.releases import promised_calendar
from fedperf_server.state.round_calendar import RoundResult
from fedperf_shared.errors import ConfigurationError, StorageError
from fedperf_shared.identity import hosts_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import ModelMethod, ReleaseCalendar
from fedperf_shared.runtime.failure_tracker import FailureTracker
from fedperf_shared.runtime.flower_settings import quiet_flower

_log = structlog.get_logger()


def announce(news: object) -> None:
    """Say in one line what a tick brought (`rounds.coordinator`)."""
    _LINES[type(news)](news)


def _question(asked: CellQuery) -> None:
    _log.info("question asked", window=asked.slot.window, slot=asked.slot.index)


def _correction(published: PublicationCounts) -> None:
    _log.info("correction published", reports=published.reports, rows=published.rows)


def _verdict(verdict: PromotionRecord) -> None:
    said = {
        VersionStatus.PROMOTED: "model promoted",
        VersionStatus.REJECTED: "model rejected",
        VersionStatus.CANDIDATE: "model left open",
    }[verdict.standing]
    _log.info(said, version=verdict.version, reason=verdict.reason)


def _drift(found: PlatformDrift) -> None:
    _log.info(
        "drift found",
        platform=found.platform.name.lower(),
        shared=found.shared,
        organizations=len(found.organizations),
        since=found.since,
        log_factor=round(found.log_factor, 3),
    )


def _absence(absent: MissingReport) -> None:
    _log.warning("report missing", organization=absent.organization, slot=absent.slot_name)


def _round(result: RoundResult) -> None:
    _log.info(
        "round closed",
        round=result.number,
        outcome=str(result.outcome),
        replies=f"{result.replies} of {result.asked}",
        refused=dict(result.failures),
        public_error=result.public_error,
    )


_LINES: dict[type, Callable[..., None]] = {
    CellQuery: _question,
    PublicationCounts: _correction,
    PromotionRecord: _verdict,
    PlatformDrift: _drift,
    MissingReport: _absence,
    RoundResult: _round,
}


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


def _require_promised(config: ServerConfig, promised: ReleaseCalendar) -> None:
    ours, past = config.calendar, promised.period
    if ours == promised or not ours.period.start < past.end:
        return
    raise OtherCalendarError(
        f"members declared what they release for the calendar that begins at "
        f"{past.start.isoformat()} and ends at {past.end.isoformat()}, and "
        f"{config.directory / FILE_NAME} has another one ({_difference(ours, promised)}): put it "
        "back; a new calendar may begin where that one ends"
    )


def _difference(ours: ReleaseCalendar, promised: ReleaseCalendar) -> str:
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


TICK_SECONDS = 0.25
"""Between two ticks: as long somebody who came online waits to be asked."""

log = structlog.get_logger()


def system_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


def run_server(
    config: ServerConfig, stop: threading.Event, *, clock: Callable[[], datetime]
) -> None:
    """Serve until `stop` is set.

    Raises:
        FedperfError: configuration, keys, database or ports cannot be used.
    """
    require_ready(config)
    with serving(config, ggfn_task(), clock=clock) as coordinator:
        _say_what_is_served(config, at=clock())
        run(coordinator, stop, clock=clock)
    log.info("stopped; all is kept, and `fedperf-server run` goes on")


def _say_what_is_served(config: ServerConfig, *, at: datetime) -> None:
    log.info(
        "serving",
        exchange=config.exchange_address,
        enrollment=f"{config.host}:{config.enrollment_port}",
        fleet=config.fleet_address,
    )
    if config.calendar.model_slots and config.calendar.model_method is ModelMethod.UNSPECIFIED:
        log.warning(
            "no model round is held: they would train by DP-SGD, which fedperf does not do any "
            'more; a next period needs model_method = "tangent"'
        )
    period = config.calendar.period
    if not at < period.end:
        log.warning(
            "the calendar has ended; nothing is asked until it names the next period_start",
            ended=period.end.isoformat(),
            look="fedperf-server calendar",
        )


def run(
    coordinator: Coordinator,
    stop: threading.Event,
    *,
    clock: Callable[[], datetime],
    on_news: Callable[[object], None] = announce,
) -> None:
    """Tick until `stop` is set."""
    while not stop.is_set():
        for news in coordinator.tick(clock()):
            on_news(news)
        stop.wait(TICK_SECONDS)


@contextmanager
def serving(
    config: ServerConfig,
    task: Task,
    *,
    clock: Callable[[], datetime] = system_clock,
    rules: RoundRules | None = None,
    troubles: FailureTracker | None = None,
) -> Iterator[Coordinator]:
    """All ports open; yields the coordinator, to be moved on by its ticks.

    Raises:
        ConfigurationError: a key is missing or a port is taken.
        GatewayError: the fleet cannot be served.
        DatabaseError: the database cannot be opened.
    """
    quiet_flower()
    from fedperf_server.endpoints.gateway import Gateway

    ring = KeyRing(config.directory)
    with ExitStack() as stack:
        database = Database(config.database_url)
        stack.callback(database.close)
        enrollment = Enrollment(database, ring, config, clock=clock)
        gateway = Gateway(
            bind=config.bind,
            port=config.fleet_port,
            certificate=ring.certificate_path(SERVER),
            private_key=ring.key_path(SERVER),
        )
        exchange = exchange_server(database, enrollment, ring, config, clock=clock)
        door = enrollment_server(enrollment, ring, config)
        for server in (gateway, exchange, door):
            server.start()
            stack.callback(server.stop)
        coordinator = coordinator_of(
            config,
            database,
            enrollment,
            gateway,
            task,
            signing_key=ring.key(SIGNING),
            since=clock(),
            rules=rules,
            troubles=troubles,
        )
        stack.callback(coordinator.stop)
        yield coordinator
