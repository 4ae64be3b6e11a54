"""One organization and its coordinator over real sockets: restores, copies, killed workers.

A data directory that was restored from an old backup is consistent in itself. Only the
coordinator's receipts show that releases are missing in it.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node import reports as report_slot
from fedperf_client.node.enrollment import Membership, load_or_create_key
from fedperf_client.node.exchange import ExchangeClient
from fedperf_client.node.participant import Participant, compare_receipts, open_ledger
from fedperf_client.release.ledger import (
    LedgerDisagreesError,
    LedgerEntry,
    PrivacyLedger,
    ReleaseState,
)
from fedperf_client.release.noise import system_noise
from fedperf_client.release.policy import load_policy, policy_template
from fedperf_server.config import ServerConfig
from fedperf_server.controllers.reports import OrganizationCounts, count_releases
from fedperf_server.state.database import Database, ReportRow
from fedperf_shared.model import pretrained
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import SizeClass
from tests.fakes.task_runners import at_once, in_this_process
from tests.fakes.tasks import Killed
from tests.integration.organizations.daemon_thread import ScriptedClock, coordinator, daemon
from tests.integration.organizations.deployments import (
    make_executions,
    make_public_files,
    new_coordinator,
    new_home,
    now,
    operator,
    sleep_until,
    wait_until,
    whole_second,
)
from tests.integration.organizations.programs import START
from tests.unit.client.prediction.drifting_jobs import executions
from tests.unit.shared.console_programs import Ended, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

OPENS = timedelta(seconds=20)
"""Time from the start of the period until the slot opens. A daemon runs by then."""
SPAN = timedelta(seconds=8)
"""Time from the slot's opening to its release, or from a daemon's return if it was away."""
PATIENCE = 60.0
DRIFT = "what='relational work on duckdb'"


def fedperf(home: Home, *arguments: object) -> Ended:
    return run(cli.main, "--home", home.directory, *arguments)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerConfig:
    """Return a coordinator whose period has one report slot, due soon.

    The report may be drawn hours later.
    """
    public = make_public_files(tmp_path / "public")
    monkeypatch.setattr(pretrained, "PRETRAINED_PATH", public / START)
    period = Period(whole_second(now()), timedelta(hours=2), 1)
    table = ReleaseCalendar(period, (SlotTimes(OPENS, OPENS + SPAN),), ())
    return new_coordinator(tmp_path / "server", table)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(
        tmp_path / "home", policy_template(SizeClass.SMALL, 20_000), make_executions(5, seed=1)
    )


def test_daemon_logs_local_drift_exactly_once(
    config: ServerConfig, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExecutionStore.open(home.store) as store:
        store.add(executions(now() - timedelta(days=25)))
    said = list[str]()

    def is_said() -> bool:
        said.append(capsys.readouterr().out)
        return DRIFT in "".join(said)

    with coordinator(config, home), daemon(home):
        wait_until(is_said, seconds=PATIENCE, what="the drift in the log")
        sleep_until(now() + timedelta(seconds=3))
    assert "".join([*said, capsys.readouterr().out]).count(DRIFT) == 1


def test_second_daemon_on_a_data_directory_is_refused_in_one_line(
    config: ServerConfig, home: Home
) -> None:
    with coordinator(config, home), daemon(home):
        wait_until(home.lock.exists, seconds=PATIENCE, what="the first daemon")
        second = fedperf(home, "daemon")
    assert second.code == 4
    assert "is in use by process" in second.err
    assert len(second.err.strip().splitlines()) == 1


def test_status_shows_modes_in_force_and_stopped_daemon_logs_sealed_reports(
    config: ServerConfig, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_sealed() -> bool:
        ledgers = [PrivacyLedger.open(path) for path in home.ledgers]
        return any(e.state is ReleaseState.DRAWN for each in ledgers for e in each.entries())

    with coordinator(config, home):
        with daemon(home):
            wait_until(home.modes.exists, seconds=PATIENCE, what="the daemon's modes")
            text = home.policy.read_text()
            home.policy.write_text(text.replace('report = "auto"', 'report = "never"'))
            status = fedperf(home, "status").out
            assert "modes in force: residual_report auto" in status
            assert "policy: residual_report auto -> never counts from the daemon's next" in status
            wait_until(is_sealed, seconds=PATIENCE, what="a sealed report")
            capsys.readouterr()
        (said,) = [each for each in capsys.readouterr().out.splitlines() if "daemon stops" in each]
        assert "sealed=report-0-0" in said
        assert "modes in force: residual_report never" in fedperf(home, "status").out
        with operator(config) as tools:
            tools.revoke("one")
        refused = fedperf(home, "daemon")
        assert refused.code == 6
        assert "does not know this organization (any more)" in refused.complaint()
    status = fedperf(home, "status").out
    assert "the coordinator replied that it does not know this organization" in status


def test_report_with_killed_worker_process_is_sent_as_noise_at_its_time(
    config: ServerConfig,
    home: Home,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both sides read a clock that the test sets. The worker is killed while it sums up."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3])  # search path of the worker for `Killed`
    monkeypatch.setattr(report_slot, "ReportTask", Killed)
    clock = ScriptedClock(config.calendar.period.start)
    opens_at = clock.now + OPENS
    with coordinator(config, home, clock=clock) as database:
        with daemon(home, clock=clock):
            clock.now = opens_at
            said = list[str]()

            def is_said() -> bool:
                said.append(capsys.readouterr().out)
                return "a report leaves as noise alone" in "".join(said)

            wait_until(is_said, seconds=PATIENCE, what="the process to be missed")
            clock.now = opens_at + SPAN - timedelta(milliseconds=1)
            time.sleep(3 * home.load_config().poll_seconds)
            assert standing(database).accepted == 0
            clock.now = opens_at + SPAN
            wait_until(lambda: standing(database).accepted, seconds=PATIENCE, what="the report")
        with database.transaction() as session:
            (received_at,) = session.scalars(select(ReportRow.received_at))
        (entry,) = entries(home)
    assert received_at == opens_at + SPAN
    assert entry.state is ReleaseState.HANDED_OUT


def entries(home: Home) -> Sequence[LedgerEntry]:
    return PrivacyLedger.open(home.ledgers[-1]).entries()


def standing(database: Database) -> OrganizationCounts:
    with database.transaction() as session:
        return next(iter(count_releases(session).values()), OrganizationCounts())


def begin_period(home: Home, config: ServerConfig) -> None:
    open_ledger(home, load_policy(home.policy), config.calendar, now=config.calendar.period.start)


def nothing_more(home: Home, config: ServerConfig) -> None:
    del home, config


def restore(backup: Path, home: Home) -> None:
    shutil.rmtree(home.directory)
    shutil.copytree(backup, home.directory)


@pytest.mark.parametrize("before", [nothing_more, begin_period])
def test_daemon_on_restored_backup_draws_no_sent_release_and_needs_reconcile(
    config: ServerConfig,
    home: Home,
    tmp_path: Path,
    before: Callable[[Home, ServerConfig], None],
) -> None:
    """The backup was made before the period, or before the period's first charge."""
    with coordinator(config, home) as database:
        before(home, config)
        backup = shutil.copytree(home.directory, tmp_path / "backup")
        with daemon(home):
            wait_until(lambda: standing(database).accepted, seconds=PATIENCE, what="the report")
        restore(backup, home)
        with daemon(home):
            sleep_until(now() + 2 * SPAN)
        assert standing(database) == OrganizationCounts(accepted=1)
        assert PrivacyLedger.open(home.ledgers[-1]).entries() == ()
        assert "receipt 1 confirms a release" in str(stopped(home))
        assert "fedperf reconcile" in fedperf(home, "budget").out

        (row, _) = fedperf(home, "reconcile", "--json").rows()
        assert row["charged"] == 1
        with daemon(home):
            sleep_until(now() + 2 * SPAN)
        assert standing(database) == OrganizationCounts(accepted=1)
    assert stopped(home) is None


def stopped(home: Home) -> object:
    """Return the `stopped` field of `fedperf status`."""
    status = fedperf(home, "status", "--json").json()
    assert isinstance(status, dict)
    return status["stopped"]


def test_two_running_copies_of_a_data_directory_make_one_ledger_disagree(
    config: ServerConfig, home: Home, tmp_path: Path
) -> None:
    """The conflict is not visible earlier: the second draw is sent, refused, and the last one."""
    with coordinator(config, home) as database, ExitStack() as connections:
        begin_period(home, config)
        copy = Home(Path(shutil.copytree(home.directory, tmp_path / "copy")))
        both = [participant_of(each, connections) for each in (home, copy)]
        wait_until(
            lambda: looked(both) and standing(database).refused,
            seconds=PATIENCE,
            what="the second draw",
        )
        assert looked(both)
        assert standing(database) == OrganizationCounts(1, {"report/different_bytes": 1})
        ledgers = [PrivacyLedger.open(each.ledgers[-1]) for each in (home, copy)]
        (other,) = [each for each in ledgers if each.disagreement()]
        key = other.schedule.slots[0].key
    drawn = [each.stored(key) for each in ledgers]
    assert None not in drawn
    assert drawn[0] != drawn[1]
    with pytest.raises(LedgerDisagreesError, match="other bytes"):
        other.dispatch(key, now())


def participant_of(home: Home, connections: ExitStack) -> Participant:
    """Return the participant that a daemon of this directory would run, in this thread."""
    ledger = PrivacyLedger.open(home.ledgers[-1])
    membership, key = Membership.load(home.identity), load_or_create_key(home.identity)
    exchange = connections.enter_context(ExchangeClient(membership, key))
    exchange.declare_schedule(ledger.schedule)
    compare_receipts(ledger, exchange)
    return Participant(
        home,
        exchange,
        ledger,
        system_noise,
        key,
        policy=load_policy(home.policy),
        reporting=in_this_process,
        training=in_this_process,
        start=at_once,
    )


def looked(every: Sequence[Participant]) -> bool:
    for participant in every:
        participant.tick(now())
    return True
