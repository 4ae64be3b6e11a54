"""The daemon's periodic check for drift: logged once, limited in time, never blocking."""

import pickle
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.local_checks import (
    DRIFT_CHECK_SHARE,
    NEEDED_FOR_FOLLOWING,
    DriftCheckResult,
    DriftTask,
    DriftWatch,
)
from fedperf_client.workers.worker_process import ComputationFailedError, WorkerProcess
from tests.fakes.task_runners import at_once, in_this_process
from tests.unit.client.executions import START, make_execution
from tests.unit.client.node.test_source_watch import Later
from tests.unit.client.prediction.drifting_jobs import BEFORE, executions
from tests.unit.client.pretrained_model import install_start

SOON = START + timedelta(hours=BEFORE, days=20)
SAID = "slower since 2026-03-13' kind=concept what='relational work on duckdb'"


class Watched:
    """A store and its drift watch. The test sets the time and runs the work."""

    def __init__(self, directory: Path, *, now: datetime = SOON) -> None:
        self.store = directory / "store"
        self.later = Later()
        self.moment = 0.0
        self.watching = DriftWatch(
            self.store,
            compute=in_this_process,
            start=self.later,
            clock=lambda: now,
            timer=lambda: self.moment,
        )

    def add(self, begin: int, end: int) -> None:
        with ExecutionStore.open(self.store) as store:
            store.add(executions()[begin:end])

    def look(self) -> DriftCheckResult:
        """Run one check after all pauses and return its result. `conclude` logs it."""
        self.moment += 1e6
        self.watching.look()
        self.later.do()
        found = self.later.begun[-1][1].result()
        assert isinstance(found, DriftCheckResult)
        return found

    def conclude(self) -> None:
        """Let the watch log the last result. It is too early for a new check."""
        self.watching.look()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    install_start(tmp_path, monkeypatch)
    return Watched(tmp_path)


@pytest.mark.slow
def test_drift_watch_logs_a_drift_once(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    watched.add(0, 500)
    watched.look()
    assert SAID not in capsys.readouterr().out
    watched.conclude()
    assert capsys.readouterr().out.count(SAID) == 1
    watched.add(500, 550)
    watched.look()
    watched.conclude()
    assert len(watched.later.begun) == 2
    assert SAID not in capsys.readouterr().out


def test_drift_watch_logs_no_old_drift_and_none_for_an_empty_store(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Watched(tmp_path, now=SOON + timedelta(days=90))
    old.add(0, 550)
    old.look()
    old.conclude()
    calm = Watched(tmp_path / "calm")
    calm.store.parent.mkdir()
    calm.look()
    calm.conclude()
    assert capsys.readouterr().out == ""


def test_drift_watch_without_new_executions_reads_no_streams(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.add(0, 30)
    found = watched.look()
    read = "fedperf_client.node.local_checks.load_drift_streams"
    monkeypatch.setattr(read, lambda store: pytest.fail("read again"))
    watched.conclude()
    assert watched.look() == found


def test_drift_check_is_repeated_only_after_its_share_of_the_time(watched: Watched) -> None:
    watched.add(0, 30)
    found = watched.look()
    watched.watching.look()
    assert len(watched.later.begun) == 1
    begun = watched.moment
    watched.moment = begun + 0.99 * found.seconds / DRIFT_CHECK_SHARE
    watched.watching.look()
    assert len(watched.later.begun) == 1
    watched.moment = begun + 1.01 * found.seconds / DRIFT_CHECK_SHARE
    watched.watching.look()
    assert len(watched.later.begun) == 2


def test_drift_watch_does_not_wait_for_a_running_check(watched: Watched) -> None:
    """The daemon's loop starts a check and never waits for it."""
    for moment in range(5):
        watched.moment = float(moment)
        watched.watching.look()
    assert len(watched.later.begun) == 1


def test_failing_drift_check_is_retried_every_minute_and_logged_rarely(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(task: object, /, *, seconds: float | None = None) -> DriftCheckResult:
        del task, seconds
        tried.append(moment[0])
        raise ComputationFailedError("its process was lost")

    tried, moment = list[float](), [0.0]
    watching = DriftWatch(
        tmp_path / "store",
        compute=lost,  # type: ignore[arg-type]
        start=at_once,
        clock=lambda: SOON,
        timer=lambda: moment[0],
    )
    for moment[0] in range(0, 3600, 5):
        watching.look()
    assert len(tried) == 60
    assert capsys.readouterr().out.count("its process was lost") == 4


@pytest.mark.slow
def test_drift_task_is_picklable_and_runs_in_the_worker_process(watched: Watched) -> None:
    with ExecutionStore.open(watched.store) as store:
        store.add([make_execution()])
    task = DriftTask(watched.store, None)
    assert pickle.loads(pickle.dumps(task)) == task
    with WorkerProcess(NEEDED_FOR_FOLLOWING) as compute:
        assert compute(task).executions == 1
