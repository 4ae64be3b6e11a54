"""Dates and charges of `fedperf simulate`, compared with a daemon's real period.

The calendar is compressed to three windows of two hours, on a clock that the test sets.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import orjson
import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.release.history import read_spending, receipt_path
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.policy import load_policy, policy_template
from fedperf_client.release.schedule import plan_schedule
from fedperf_memory.memory_federation import calendar_times
from fedperf_server.app.composition import store_first_version
from fedperf_server.app.process import serving
from fedperf_server.config import write_calendar
from fedperf_server.state.database import Database
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.model import pretrained
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import SizeClass
from tests.fakes.rounds import tangent_avg, task_of
from tests.integration.organizations.daemon_thread import ScriptedClock, daemon, nought
from tests.integration.organizations.deployments import (
    join,
    make_executions,
    make_public_files,
    new_coordinator,
    new_home,
    now,
    operator,
    wait_until,
    whole_second,
)
from tests.integration.organizations.programs import START
from tests.unit.shared.console_programs import Ended, contents, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

PATIENCE = 120.0
JOINS = timedelta(minutes=25)
"""Time of joining: after the first of the first slots has opened."""


def on(*minutes: int) -> tuple[SlotTimes, ...]:
    return tuple(
        SlotTimes(timedelta(minutes=each), timedelta(minutes=each + 10)) for each in minutes
    )


def compressed(start: datetime) -> ReleaseCalendar:
    return ReleaseCalendar(
        Period(start, timedelta(hours=2), 3), on(20, 40, 60), on(90), first_slots=on(20, 80)
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a data directory with plain and directed reports scheduled in two windows."""
    policy = policy_template(SizeClass.SMALL, 400).replace("epsilon = 1.0", "epsilon = 8.0")
    home = new_home(tmp_path / "home", policy, make_executions(24, seed=1))
    with ExecutionStore.open(home.store) as store:
        store.add(make_executions(24, seed=1))
    return home


def fedperf(home: Home, *arguments: object) -> Ended:
    return run(cli.main, "--home", home.directory, *arguments)


GUARD = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"):
        raise PermissionError(event)

sys.addaudithook(refuse)
"""
"""Loaded by every Python process at start: it blocks all network access."""


def rehearsed(home: Home, calendar: Path, joins: datetime) -> Mapping[str, object]:
    """Return the output of `fedperf simulate` in a process without network access."""
    guard = calendar.parent / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(GUARD)
    paths = os.pathsep.join([str(guard), os.environ.get("PYTHONPATH", "")])
    program = Path(sys.executable).with_name("fedperf")
    day = f"{joins:%Y-%m-%dT%H:%M:%S}"
    options = ["--joining-day", day, "--calendar", str(calendar), "--members", "1", "--json"]
    ended = subprocess.run(
        [str(program), "--home", str(home.directory), "simulate", *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    found = orjson.loads(ended.stdout)
    assert isinstance(found, dict)
    return found


def test_simulate_predicts_dates_and_charges_of_daemon_offline_and_read_only(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = compressed(whole_second(now()))
    joins = table.period.start + JOINS
    write_calendar(table, tmp_path / "calendar.toml")
    before = contents(home.directory)
    told = rehearsed(home, tmp_path / "calendar.toml", joins)
    assert contents(home.directory) == before

    public = make_public_files(tmp_path / "public")
    monkeypatch.setattr(pretrained, "PRETRAINED_PATH", public / START)
    lived_by_the_daemon(home, tmp_path / "server", table, joins)

    lived = fedperf(home, "release", "list", "--json").rows()
    releases = told["releases"]
    assert isinstance(releases, list)
    assert len(releases) > 3
    assert {each["kind"] for each in releases} == {"residual_report", "directed_report"}
    same = ("slot", "kind", "charged_at", "bytes", "epsilon", "epsilon_replace_one")
    assert [[each[name] for name in same] for each in releases] == [
        [each[name] for name in same] for each in lived
    ]
    assert all(each["sent"] for each in releases)
    assert [each["send_at"] for each in releases] == [each["receipt_received_at"] for each in lived]
    _, spending = read_spending(home.ledgers, at=table.period.end)
    assert told["released"] == spending.made
    for name in ("slots", "spent", "spent_replace_one"):
        assert told[name] == getattr(spending, name)


def lived_by_the_daemon(
    home: Home, directory: Path, table: ReleaseCalendar, joins: datetime
) -> None:
    """Run the whole period with a real daemon and real sockets, timestamp by timestamp."""
    config, clock = new_coordinator(directory, table), ScriptedClock(joins)
    planned = plan_schedule(load_policy(home.policy), table, at=joins).schedule
    keys = [slot.key for slot in planned.slots]
    database = Database(config.database_url)
    start = [*pretrained.load_pretrained_model().arrays.values()]
    store_first_version(database, GgfnFormat(), start, at=now())

    def is_settled() -> bool:
        """Return True if all due releases were drawn and sent."""
        coordinator.tick(clock.now)
        if not home.ledgers:
            return False
        ledger = PrivacyLedger.open(home.ledgers[-1])
        drawn = (ledger.stored(key) for key in keys if planned.opens_at(key) <= clock.now)
        left = (
            receipt_path(home.receipts, ledger, key).exists()
            for key in keys
            if planned.replies_at(key) <= clock.now
        )
        return all(each is not None for each in drawn) and all(left)

    task = task_of(tangent_avg(), evaluate=nought)
    with serving(config, task, clock=clock) as coordinator, operator(config) as tools:
        join(home, tools.add_organization("one").url)
        with daemon(home, clock=clock):
            for moment in calendar_times(table, grace=config.grace, declared=keys):
                if joins < moment < table.period.end:
                    clock.now = moment
                    wait_until(is_settled, seconds=PATIENCE, what=f"what is due at {moment}")
    database.close()
