"""One daemon runs through three periods of two minutes, without a restart.

The operator adds the periods one after the other.
"""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from fedperf_client.home.config import Home
from fedperf_client.release.ledger import PrivacyLedger, ReleaseState
from fedperf_client.release.policy import policy_template
from fedperf_server.config import write_config
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import SizeClass
from tests.integration.organizations.deployments import (
    Stage,
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

PERIOD = timedelta(minutes=2)
SLOT = SlotTimes(timedelta(seconds=50), timedelta(seconds=70))


def has_receipts(home: Home, count: int) -> bool:
    return len(list(home.receipts.glob("*"))) == count


def test_running_daemon_sends_a_report_in_each_of_three_periods(
    tmp_path: Path,
) -> None:
    calendar = ReleaseCalendar(
        Period(whole_second(now() + timedelta(seconds=10)), PERIOD, 1), (SLOT,), ()
    )
    config = new_coordinator(tmp_path / "server", calendar)
    home = new_home(
        tmp_path / "home", policy_template(SizeClass.SMALL, 20_000), make_executions(5, seed=1)
    )
    stage = Stage(tmp_path / "logs", make_public_files(tmp_path / "public"))
    try:
        server = stage.start("fedperf-server", "--directory", str(config.directory), "run")
        wait_until(lambda: "serving" in server.text(), seconds=60, what="the coordinator")
        with operator(config) as tools:
            join(home, tools.add_organization("one").url)
        daemon = stage.start("fedperf", "--home", str(home.directory), "daemon")
        for number in range(1, 4):
            wait_until(partial(has_receipts, home, number), seconds=180, what=f"receipt {number}")
            period = Period(config.calendar.period.end, PERIOD, 1)
            config = replace(config, calendar=replace(calendar, period=period))
            write_config(config)
            assert server.stop() == 0
            server = stage.start("fedperf-server", "--directory", str(config.directory), "run")
        assert daemon.process.poll() is None
        assert daemon.stop() == 0
    finally:
        stage.close()
        print(stage.texts())
    for path, start in zip(home.ledgers, range(3), strict=True):
        ledger = PrivacyLedger.open(path)
        assert ledger.schedule.calendar.period.start == calendar.period.start + start * PERIOD
        (entry,) = ledger.entries()
        assert entry.state is ReleaseState.HANDED_OUT
