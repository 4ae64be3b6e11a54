"""Command lines of README and of the pages for engineers and security officers, in order.

They run in one data directory with synthetic logs. First slots of the coordinator open every ten
seconds. The daemon runs from its line to the end.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.release.history import receipt_path
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.schedule import slot_name
from fedperf_client.sources.history_file import write_history
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import SlotKey
from tests.fakes.measured_logs import FakeTask, MeasuredLog
from tests.fakes.spark_logs import SQL, grouped, node
from tests.integration.organizations.deployments import (
    make_executions,
    new_coordinator,
    now,
    operator,
    wait_until,
    whole_second,
)
from tests.integration.pages.runners import walk
from tests.integration.pages.shell import PATIENCE, Shell
from tests.pages import ENGINEER, OFFICER, README, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DRAWN_FOR = timedelta(seconds=150)
"""Maximum time for drawing a report. Other lines run in the meantime."""

SHOWN = {
    "runs.csv": "job,nodes",
    "workflow.json": '{"platform"',
    "totals.json": '{"steps"',
    "prices.toml": "currency",
    "top.sql": "SELECT item",
}
"""Files that the engineer's page shows, with the first characters of each."""

EARLIER = "earlier.parquet"
"""Executions that are stored first: `evaluate` needs more than a handful."""

NIGHTLY = ROOT / "tests" / "cases" / "nightly"


def calendar() -> ReleaseCalendar:
    """Return a calendar with a first report slot every ten seconds.

    The directed slot after it is an hour away.
    """
    opens = [timedelta(seconds=10 * place) for place in range(1, 300)]
    return ReleaseCalendar(
        Period(whole_second(now()), HOUR, 2),
        report_slots=(SlotTimes(HOUR / 60, HOUR / 30), SlotTimes(0.95 * HOUR, HOUR)),
        model_slots=(),
        first_slots=tuple(SlotTimes(each, each + DRAWN_FOR) for each in opens),
    )


class Member:
    """An organization's data directory, and the variables that depend on it."""

    def __init__(self, directory: Path, invited: Callable[[], str]) -> None:
        self.home = Home(directory)
        self.variables: Mapping[str, Callable[[], str]] = {
            "JOIN_URL": invited,
            "EXECUTION": lambda: self.executions()[-1],
            "SPARE": lambda: self.executions()[0],
            "COMING": lambda: slot_name(self.slots()[-1]),
            "LEFT": self.slot_that_left,
            "TODAY": lambda: f"{now():%Y-%m-%dT%H:%M:%S}",
        }

    def executions(self) -> list[str]:
        """Return the ids in order of the finishing times."""
        with ExecutionStore.open(self.home.store) as store:
            found = sorted(store.executions(), key=lambda each: each.finished_at)
        return [each.execution_id for each in found]

    def ledger(self) -> PrivacyLedger:
        wait_until(lambda: self.home.ledgers, seconds=PATIENCE, what="the daemon's ledger")
        return PrivacyLedger.open(self.home.ledgers[-1])

    def slots(self) -> list[SlotKey]:
        return [slot.key for slot in self.ledger().schedule.slots]

    def slot_that_left(self) -> str:
        key, ledger = self.slots()[0], self.ledger()
        receipt = receipt_path(self.home.receipts, ledger, key)
        wait_until(receipt.exists, seconds=PATIENCE, what="the first report's receipt")
        return slot_name(key)


@contextmanager
def coordinator(directory: Path) -> Iterator[Callable[[], str]]:
    """Run a coordinator and yield a function that invites Acme."""
    config = new_coordinator(directory / "server", calendar())
    serving = Shell(directory).background("fedperf-server --directory server run", until="serving")
    with serving, operator(config) as tools:
        yield lambda: tools.add_organization("Acme").url


def test_commands_of_readme_engineer_and_officer_pages_succeed_in_order(tmp_path: Path) -> None:
    there, here = tmp_path / "coordinator", tmp_path / "organization"
    there.mkdir()
    here.mkdir()
    make_files(here)
    said: dict[str, str] = {}
    with coordinator(there) as invited, ExitStack() as running:
        member = Member(here / "home", invited)
        places = {
            "FEDPERF_HOME": str(member.home.directory),
            "FEDPERF_SERVER_DIRECTORY": str(there / "server"),
        }
        shell = Shell(here, places, member.variables)
        for line in walk(README, ENGINEER, OFFICER):
            if line == "fedperf daemon":
                running.enter_context(shell.background(line))
            else:
                said[line] = shell.run(line)
            if line == "fedperf init":
                shell.run(f"fedperf ingest {EARLIER}")
    [compared] = [told for line, told in said.items() if line.endswith("--execute")]
    assert compared.startswith("recommended: ")
    assert re.search(r"the advised plan (was the fastest|took \d)", compared)
    assert (here / "advice.html").read_text().startswith("<!doctype html>")


def make_files(directory: Path) -> None:
    """Write the input files of the lines, from the page or synthetic."""
    page = ENGINEER.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, begins in SHOWN.items():
        [text] = [each for each in blocks if each.startswith(begins)]
        (directory / name).write_text(text)
    grid = (NIGHTLY / "campaign.toml").read_text()
    smaller = grid.replace("start = 100000, stop = 800000", "start = 10000, stop = 80000")
    (directory / "campaign.toml").write_text(smaller)
    (directory / "jobs.py").write_text((NIGHTLY / "jobs.py").read_text())
    write_history(directory / EARLIER, make_executions(12, seed=8))
    write_history(directory / "other.parquet", make_executions(12, seed=9))
    write_logs(directory / "spark-events")
    (directory / "profiles").mkdir()
    [settings] = re.findall(r"`(SET enable_profiling.*?)`", page)
    with duckdb.connect() as connection:
        connection.execute(settings.replace("profiles/", f"{directory}/profiles/"))
        connection.execute(
            "SELECT range % 7 AS k, count(*) FROM range(10000) GROUP BY k"
        ).fetchall()


def write_logs(directory: Path) -> None:
    """Write logs of two applications on three days.

    On the third day a newer Spark version takes four times as long.
    """
    directory.mkdir()
    plan = grouped(node("Scan parquet t", rows=1))
    for day, (version, slower) in enumerate([("4.0.1", 1), ("4.0.1", 1), ("4.1.0", 4)]):
        for name in ("orders", "payroll"):
            log = MeasuredLog(app_id=f"{name}-{day}", app_name=name)
            log.begin()
            log.set(executor_cores="4", executor_memory="4g")
            log.events[0]["Spark Version"] = version
            begun = day * DAY // timedelta(milliseconds=1)
            for event in log.events:
                if "Timestamp" in event:
                    event["Timestamp"] += begun  # type: ignore[operator]
            ended = begun + 8000 * slower
            log.opened(at=begun)
            log.stage([*[FakeTask(begun, begun + 2000, fetched=2**20, held=2**30)] * 7,
                       FakeTask(begun, ended, fetched=2**26, held=2**30)])  # fmt: skip
            log.closed(end=ended + 500)
            for event in log.events:
                if event["Event"] == SQL + "SparkListenerSQLExecutionStart":
                    event["sparkPlanInfo"] = plan
            log.write(directory / log.app_id)
