"""The coordinator process runs enrollment, Exchange, gateway and coordinator from start to stop.

`serving` opens the three ports in the order in which clients need them, and yields the coordinator.
Everything that was started is stopped at the end. `run_server` ticks it by the system's clock.

Before a server opens its ports, its keys and its calendar are checked. It does not start if the
database is lost, if a certificate cannot be read or is for another host than the configuration
names, or if the calendar differs from the one of the members' schedules before that one ends. The
checks change nothing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import structlog
from cryptography import x509

from fedperf_server.app.composition import Coordinator, Task, build_coordinator, ggfn_task
from fedperf_server.config import FILE_NAME, ServerConfig
from fedperf_server.controllers.reports import MissingReport, PublicationCounts
from fedperf_server.endpoints.grpc_ports import enrollment_server, exchange_server
from fedperf_server.inference.drift_evidence import PlatformDrift
from fedperf_server.membership.authority import ENROLLMENT, SERVER, SIGNING, KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.open_round import RoundRules
from fedperf_server.state.database import Database, ModelRound, PromotionRecord, VersionStatus
from fedperf_server.state.releases import declared_calendar
from fedperf_shared.errors import ConfigurationError, StorageError
from fedperf_shared.identity import hosts_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import ModelMethod, ReleaseCalendar
from fedperf_shared.runtime.failure_tracker import FailureTracker
from fedperf_shared.runtime.process import quiet_flower

_log = structlog.get_logger()


def log_event(event: object) -> None:
    """Log an event of a tick (`composition.Coordinator`) in one line."""
    match event:
        case CellQuery(slot=slot):
            _log.info("linear query sent", window=slot.window, slot=slot.index)
        case PublicationCounts():
            _log.info("correction published", reports=event.reports, rows=event.rows)
        case PromotionRecord():
            outcome = {VersionStatus.CANDIDATE: "inconclusive"}.get(event.status, event.status)
            _log.info(f"model {outcome}", version=event.version, reason=event.reason)
        case PlatformDrift():
            _log.info(
                "drift detected",
                platform=event.platform.name.lower(),
                shared=event.shared,
                organizations=len(event.organizations),
                since=event.since,
                log_factor=round(event.log_factor, 3),
            )
        case MissingReport():
            _log.warning("report missing", organization=event.organization, slot=event.slot_name)
        case ModelRound():
            _log.info(
                "round closed",
                round=event.number,
                outcome=str(event.outcome),
                replies=f"{event.replies} of {event.expected}",
                refused=event.failures,
                public_error=event.public_error,
            )
        case _:
            raise TypeError(f"no log line for a {type(event).__name__}")


def require_ready(config: ServerConfig) -> None:
    """Check that host and calendar are the ones that members joined with.

    Raises:
        ConfigurationError: the certificates are for another host, or members declared schedules
            for another calendar that has not ended.
        StorageError: database or certificates cannot be read.
    """
    ring = KeyRing(config.directory)
    for name in (SERVER, ENROLLMENT):
        _require_host(config, ring, name)
    database = Database.existing(config.database_url)
    try:
        with database.transaction() as session:
            declared = declared_calendar(session)
    finally:
        database.close()
    if declared is not None:
        _require_declared(config, declared)


def _require_host(config: ServerConfig, ring: KeyRing, name: str) -> None:
    path = ring.certificate_path(name)
    try:
        hosts = hosts_of(x509.load_pem_x509_certificate(ring.certificate(name)))
    except ValueError as error:
        raise StorageError(f"{path} is not a certificate; restore it from a backup") from error
    if config.host not in hosts:
        certified = " and ".join(map(repr, hosts)) or "no host"
        raise ConfigurationError(
            f"{config.directory / FILE_NAME} has host {config.host!r}, but {path}, which members "
            f"trust, is for {certified}. Set host to {certified} again, or make a new server with "
            "`fedperf-server --directory NEW init` and invite the members again"
        )


def _require_declared(config: ServerConfig, declared: ReleaseCalendar) -> None:
    configured, past = config.calendar, declared.period
    if configured == declared or not configured.period.start < past.end:
        return
    pairs = {
        "period_start": (configured.period.start.isoformat(), past.start.isoformat()),
        "windows": (configured.period.windows, past.windows),
        "window_seconds": (configured.period.window.total_seconds(), past.window.total_seconds()),
    }
    different = [f"{key} {new}, not {old}" for key, (new, old) in pairs.items() if new != old]
    raise ConfigurationError(
        f"the calendar in {config.directory / FILE_NAME} differs from the one that members "
        f"declared their schedules for, from {past.start.isoformat()} to {past.end.isoformat()} "
        f"({', '.join(different) or 'other slots'}). Restore it; a new calendar may begin at its "
        "end"
    )


TICK_SECONDS = 0.25  # time between two ticks, for which a node that connects waits at most


def system_clock() -> datetime:
    """Return the current time in UTC."""
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
        _log_start(config, at=clock())
        run(coordinator, stop, clock=clock)
    _log.info("stopped; start again with `fedperf-server run`")


def _log_start(config: ServerConfig, *, at: datetime) -> None:
    _log.info(
        "serving",
        exchange=config.exchange_address,
        enrollment=f"{config.host}:{config.enrollment_port}",
        fleet=config.fleet_address,
    )
    if config.calendar.model_slots and config.calendar.model_method is ModelMethod.UNSPECIFIED:
        _log.warning(
            "model rounds are skipped: this calendar trains by DP-SGD, which is not supported any "
            'more. Set model_method = "tangent" in the next period'
        )
    period = config.calendar.period
    if not at < period.end:
        _log.warning(
            "the calendar has ended; set the next period_start to continue",
            ended=period.end.isoformat(),
            show="fedperf-server calendar",
        )


def run(
    coordinator: Coordinator,
    stop: threading.Event,
    *,
    clock: Callable[[], datetime],
    on_event: Callable[[object], None] = log_event,
) -> None:
    """Tick until `stop` is set."""
    while not stop.is_set():
        for event in coordinator.tick(clock()):
            on_event(event)
        stop.wait(TICK_SECONDS)


@contextmanager
def serving(
    config: ServerConfig,
    task: Task,
    *,
    clock: Callable[[], datetime] = system_clock,
    rules: RoundRules | None = None,
    failures: FailureTracker | None = None,
) -> Iterator[Coordinator]:
    """Open all ports and yield the coordinator; the caller runs its ticks.

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
        coordinator = build_coordinator(
            config,
            database,
            enrollment,
            gateway,
            task,
            signing_key=ring.key(SIGNING),
            since=clock(),
            rules=rules,
            failures=failures,
        )
        stack.callback(coordinator.stop)
        yield coordinator
