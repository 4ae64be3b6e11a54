"""A coordinator and a daemon in threads of a test, with a clock that the test may set."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from fedperf_client.home.config import Home
from fedperf_client.node.daemon import run_daemon
from fedperf_server.app.composition import store_first_version
from fedperf_server.app.process import serving
from fedperf_server.config import ServerConfig
from fedperf_server.state.database import Database
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.model.architecture import Weights
from fedperf_shared.model.pretrained import load_pretrained_model
from tests.fakes.rounds import tangent_avg, task_of
from tests.integration.organizations.deployments import join, now, operator


@dataclass
class ScriptedClock:
    """A clock that stands still until it is set."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now


@contextmanager
def coordinator(
    config: ServerConfig, home: Home, *, clock: Callable[[], datetime] = now
) -> Iterator[Database]:
    """Yield the database of a running coordinator that `home` has joined."""
    database = Database(config.database_url)
    start = [*load_pretrained_model().arrays.values()]
    store_first_version(database, GgfnFormat(), start, at=now())
    task = task_of(tangent_avg(), evaluate=nought)
    with (
        serving(config, task, clock=clock),
        operator(config) as tools,
    ):
        join(home, tools.add_organization("one").url)
        yield database
    database.close()


def nought(arrays: Weights) -> float:
    del arrays
    return 0.0


@contextmanager
def daemon(home: Home, *, clock: Callable[[], datetime] = now) -> Iterator[None]:
    stop = threading.Event()
    options = {"clock": clock, "stop": stop}
    running = threading.Thread(target=run_daemon, args=(home,), kwargs=options)
    running.start()
    try:
        yield
        assert running.is_alive()
    finally:
        stop.set()
        running.join(30)
