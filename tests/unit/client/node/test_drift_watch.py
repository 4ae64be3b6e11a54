"""The daemon's look for drift: said once, in its own time, and holding up nothing."""

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
from tests.fakes.computing import at_once, in_this_process
from tests.unit.client.executions import START, make_execution
from tests.unit.client.node.test_source_watch import Later
from tests.unit.client.prediction.drifting_jobs import BEFORE, executions
from tests.unit.client.public import install_start

SOON = START + timedelta(hours=BEFORE, days=20)
SAID = "slower since 2026-03-13' kind=concept what='relational work on duckdb'"


class Watched:
    """A store, and a watch on it whose time the test tells."""

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
        """One look, after all waiting; what it gave is said when it is concluded."""
        self.moment += 1e6
        self.watching.look()
        self.later.do()
        found = self.later.begun[-1][1].result()
        assert isinstance(found, DriftCheckResult)
        return found

    def conclude(self) -> None:
        """A look that comes too early to begin another one."""
        self.watching.look()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    install_start(tmp_path, monkeypatch)
    return Watched(tmp_path)


def test_a_drift_is_said_once(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_old_drifts_and_calm_stores_are_no_news(
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


def test_nothing_is_computed_where_nothing_came(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.add(0, 30)
    found = watched.look()
    read = "fedperf_client.node.local_checks.load_drift_streams"
    monkeypatch.setattr(read, lambda store: pytest.fail("read again"))
    watched.conclude()
    assert watched.look() == found


def test_looking_takes_a_small_share_of_the_time(watched: Watched) -> None:
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


def test_a_look_that_does_not_end_holds_up_nothing(watched: Watched) -> None:
    """The daemon's loop goes on at its own pace: a look is begun and never waited for."""
    for moment in range(5):
        watched.moment = float(moment)
        watched.watching.look()
    assert len(watched.later.begun) == 1


def test_a_look_that_fails_is_tried_again_every_minute_and_said_ever_more_rarely(
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
def test_the_process_that_follows_looks_for_drift_as_well(watched: Watched) -> None:
    with ExecutionStore.open(watched.store) as store:
        store.add([make_execution()])
    task = DriftTask(watched.store, None)
    assert pickle.loads(pickle.dumps(task)) == task
    with WorkerProcess(NEEDED_FOR_FOLLOWING) as compute:
        assert compute(task).executions == 1
