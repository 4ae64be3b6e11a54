"""Recovery of coordinator and node processes from SIGKILL in the middle of a round."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from fedperf_server.app.process import system_clock
from fedperf_server.membership.authority import KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.state import registry
from fedperf_server.state.database import Database, ModelRound, RoundOutcome
from fedperf_server.state.round_calendar import closed_rounds
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.releases.release import SignedRelease
from tests.integration.federation.small_federation import (
    Organization,
    admit,
    calendar,
    constant,
    full_schedule,
    new_server,
    node,
    world,
)

ROOT = Path(__file__).parents[3]
PACKAGE = "tests.integration.federation"


@contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", f"{PACKAGE}.{module}", *arguments]
    quiet = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=quiet, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()
            running.wait(10)


def read_until(running: subprocess.Popen[str], start: str) -> str:
    """Return the first line with this prefix. The test's time limit bounds the wait."""
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith(start):
            return line.strip()
    raise EOFError(f"the process ended before it said {start!r}")


@pytest.mark.fault
@pytest.mark.timeout(90)
def test_node_killed_in_round_is_counted_missing_and_joins_the_next(
    tmp_path: Path,
) -> None:
    start = calendar().period.start + timedelta(seconds=6)
    table = calendar(start=start, window=14.0, windows=2, replies=6.0)
    config = new_server(tmp_path / "server", table, grace=2.0)
    results: list[ModelRound] = []
    with world(config) as server:
        members = [
            admit(tmp_path, server.invite(name), name, full_schedule(table))
            for name in ("one", "two", "three")
        ]
        rounds = threading.Thread(target=server.run, args=(results.append,))
        rounds.start()
        home = str(tmp_path / "three")
        with node(members[0], constant(0.5)), node(members[1], constant(0.5)):
            with process("node_process", home, "60") as victim:
                read_until(victim, "asked 0")
                victim.kill()
            while not results:
                time.sleep(0.1)
            with process("node_process", home, "0") as returned:
                read_until(returned, "asked 1")
                while len(results) < 2:
                    time.sleep(0.1)
        server.stop.set()
        rounds.join(10)
    first, second = results
    assert (first.outcome, first.replies, first.failures) == (
        RoundOutcome.NEW_VERSION,
        2,
        {"missing": 1},
    )
    assert (second.outcome, second.replies, second.failures) == (RoundOutcome.NEW_VERSION, 3, {})


@pytest.mark.fault
@pytest.mark.timeout(90)
def test_node_restarted_within_round_still_replies(tmp_path: Path) -> None:
    start = calendar().period.start + timedelta(seconds=4)
    table = calendar(start=start, replies=30.0)
    config = new_server(tmp_path / "server", table)
    results: list[ModelRound] = []
    with world(config, quorum=1) as server:
        admit(tmp_path, server.invite("one"), "one", full_schedule(table))
        rounds = threading.Thread(target=server.run, args=(results.append,))
        rounds.start()
        home = str(tmp_path / "one")
        with process("node_process", home, "60") as victim:
            read_until(victim, "asked 0")
            victim.kill()
        with process("node_process", home, "0") as returned:
            read_until(returned, "asked 0")
            while not results:
                time.sleep(0.1)
        server.stop.set()
        rounds.join(10)
    assert (results[0].replies, results[0].failures) == (1, {})


@pytest.mark.fault
@pytest.mark.timeout(90)
def test_coordinator_killed_in_round_repeats_it_with_stored_bytes(
    tmp_path: Path,
) -> None:
    table = calendar(replies=20.0)
    config = new_server(tmp_path / "server", table)
    directory = str(tmp_path / "server")
    stored: dict[str, SignedRelease] = {}
    asked, answer_now = threading.Semaphore(0), threading.Event()

    def answer(organization: Organization, request: TrainRequest) -> SignedRelease:
        if organization.name not in stored:
            stored[organization.name] = constant(1.0)(organization, request)
        asked.release()
        answer_now.wait(60)
        return stored[organization.name]

    database = Database(config.database_url)
    operator = Enrollment(database, KeyRing(config.directory), config, clock=system_clock)
    with process("coordinator_process", directory) as first:
        read_until(first, "serving")
        members = [
            admit(tmp_path, operator.add_organization(name).url, name, full_schedule(table))
            for name in ("one", "two")
        ]
        # The round may have opened without nodes. It is repeated after the restart.
        first.kill()
    with node(members[0], answer), node(members[1], answer):
        with process("coordinator_process", directory) as second:
            asked.acquire(timeout=30)
            asked.acquire(timeout=30)
            second.kill()
        answer_now.set()
        with process("coordinator_process", directory) as third:
            assert read_until(third, "round") == "round 1 new_version 2"
    with database.transaction() as session:
        (result,) = closed_rounds(session, table)
        assert registry.version_numbers(session) == {1, 2}
    assert (result.replies, result.failures, result.new_version) == (2, {}, 2)
    database.close()
