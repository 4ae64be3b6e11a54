"""Tests of replay for a coordinator that never ran.

The tests in tests/integration/federation cover coordinators that did.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedperf_server.config import ServerConfig
from fedperf_server.state.database import Database
from fedperf_shared.releases.period import default_calendar
from fedperf_simulations.federation.replay import NothingToReplayError, replayed
from tests.fakes.rounds import tangent_avg, task_of


def test_replay_of_coordinator_that_never_ran_is_refused(tmp_path: Path) -> None:
    table = default_calendar(datetime(2027, 1, 4, tzinfo=UTC))
    stored = ServerConfig(tmp_path, "127.0.0.1", table)
    again = replace(stored, directory=tmp_path / "again", database_url="")
    source, task = Database(stored.database_url), task_of(tangent_avg())
    with (
        pytest.raises(NothingToReplayError, match="start it once"),
        replayed(source, again, task),
    ):
        pass
    source.close()
