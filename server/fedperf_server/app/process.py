"""One coordinator process: enrollment, Exchange, gateway and coordinator, from start to stop.

`serving` opens the three ports in the order in which clients need them, and hands out the
coordinator; whatever was started is stopped at the end. `run_server` moves it on by the
system's clock.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import structlog

from fedperf_server.app.announcements import announce
from fedperf_server.app.composition import coordinator_of
from fedperf_server.app.readiness import require_ready
from fedperf_server.app.task import Task, ggfn_task
from fedperf_server.config import ServerConfig
from fedperf_server.endpoints.enrollment_port import enrollment_server
from fedperf_server.endpoints.exchange import exchange_server
from fedperf_server.membership.authority import SERVER, SIGNING, KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.coordinator import Coordinator
from fedperf_server.rounds.open_round import RoundRules
from fedperf_server.state.database import Database
from fedperf_shared.programs.flower_settings import quiet_flower
from fedperf_shared.programs.troubles import Troubles
from fedperf_shared.releases.period import ModelMethod

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
    if config.timetable.model_slots and config.timetable.model_method is ModelMethod.UNSPECIFIED:
        log.warning(
            "no model round is held: they would train by DP-SGD, which fedperf does not do any "
            'more; a next period needs model_method = "tangent"'
        )
    period = config.timetable.period
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
    troubles: Troubles | None = None,
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
