"""One coordinator process: enrollment, Exchange, gateway and rounds, started and stopped together.

`serving` opens the three ports in the order in which clients need them, and hands out the
coordinator; whatever was started is stopped at the end.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from fedperf_server.config import ServerConfig
from fedperf_server.endpoints.enrollment_port import EnrollmentServer
from fedperf_server.endpoints.exchange import exchange_server
from fedperf_server.membership.authority import SERVER, SIGNING, KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.coordinator import Coordinator
from fedperf_server.rounds.next_model import Evaluate
from fedperf_server.rounds.open_round import RoundRules
from fedperf_server.rounds.round_method import RoundMethod
from fedperf_server.state import registry
from fedperf_server.state.database import Database
from fedperf_server.state.registry import ModelFormat
from fedperf_shared.model.architecture import Weights
from fedperf_shared.programs.flower_settings import quiet_flower
from fedperf_shared.programs.troubles import Troubles


def system_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


def store_start_model(
    database: Database,
    model_format: ModelFormat,
    arrays: Weights,
    *,
    at: datetime,
    public_error: float | None = None,
) -> None:
    """Make `arrays` version 1, promoted, unless the registry holds a model already."""
    with database.transaction() as session:
        try:
            registry.newest_version(session)
        except registry.UnknownVersionError:
            registry.add_version(
                session, model_format, arrays, at=at, public_error=public_error, promoted=True
            )


@contextmanager
def serving(
    config: ServerConfig,
    *,
    model_format: ModelFormat,
    method: RoundMethod,
    evaluate: Evaluate,
    rules: RoundRules | None = None,
    clock: Callable[[], datetime] = system_clock,
    troubles: Troubles | None = None,
) -> Iterator[Coordinator]:
    """All ports open; yields the coordinator, whose `run` holds the rounds.

    Raises:
        ConfigurationError: a key is missing or a port is taken.
        GatewayError: the fleet port cannot be served.
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
        door = EnrollmentServer(enrollment, ring, config)
        for server in (gateway, exchange, door):
            server.start()
            stack.callback(server.stop)
        yield Coordinator(
            database,
            enrollment,
            gateway,
            timetable=config.timetable,
            rules=rules or RoundRules(config.quorum, config.grace),
            model_format=model_format,
            signing_key=ring.key(SIGNING),
            method=method,
            evaluate=evaluate,
            clock=clock,
            troubles=troubles,
        )
