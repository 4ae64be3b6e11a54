"""Tests of backoff: a database that fails for a minute is tried only a few times."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy.orm import Session

from fedperf_server.app.composition import Task, build_coordinator
from fedperf_server.app.process import run
from fedperf_server.config import ServerConfig
from fedperf_server.membership.authority import KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.state.database import Database, DatabaseError
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.period import default_calendar
from fedperf_shared.runtime.failure_tracker import FailureTracker
from tests.fakes.rounds import tangent_avg
from tests.unit.server.rounds.test_model_rounds import FakeFleet, TinyFormat

AT = datetime(2027, 1, 1, tzinfo=UTC)
MINUTE = 60.0
PAUSE = 0.5
"""Seconds between two ticks."""

TRIES = [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
"""Expected times. The first backoff takes one second, and each next one is twice as long."""


class Minute(threading.Event):
    """Stop event that is set after one simulated minute. Each check advances the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = -PAUSE

    def is_set(self) -> bool:
        if self.seconds + PAUSE < MINUTE:
            self.seconds += PAUSE
        else:
            self.set()
        return super().is_set()


class FailingDatabase(Database):
    """Database that fails in every transaction and records the times of the attempts."""

    def __init__(self, url: str, timer: Callable[[], float]) -> None:
        super().__init__(url)
        self._timer = timer
        self.tries: list[float] = []

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        self.tries.append(self._timer())
        raise DatabaseError("disk I/O error")
        yield


def test_coordinator_retries_a_failing_database_with_doubling_backoff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedperf_server.app.process.TICK_SECONDS", 0.0)
    minute = Minute()
    config = ServerConfig(tmp_path, "localhost", default_calendar(AT))
    database = FailingDatabase(config.database_url, lambda: minute.seconds)
    monkeypatch.setattr("fedperf_server.app.composition.store_first_version", lambda *a, **k: None)
    coordinator = build_coordinator(
        config,
        database,
        Enrollment(database, KeyRing(tmp_path), config, clock=lambda: AT),
        FakeFleet(lambda: None),
        Task(
            [np.zeros(2, dtype=np.float32)],
            TinyFormat(),
            tangent_avg(),
            lambda arrays: 1.0,
            lambda checkpoint: lambda entries: np.zeros(len(entries)),
            [],
        ),
        signing_key=new_private_key(),
        since=AT,
        failures=FailureTracker(timer=lambda: minute.seconds),
    )
    run(coordinator, minute, clock=lambda: AT)
    database.close()
    assert database.tries == TRIES
