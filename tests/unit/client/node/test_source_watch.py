"""The daemon's scan of sources: new executions, one scan at a time, errors without a crash."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest

from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.local_checks import NEEDED_FOR_FOLLOWING, SourceWatch
from fedperf_client.sources.history_file import write_history
from fedperf_client.workers.worker_process import ComputationFailedError, WorkerProcess
from fedperf_shared.runtime.failure_tracker import FailureTracker
from tests.fakes.task_runners import at_once, in_this_process
from tests.unit.client.executions import make_execution

T = TypeVar("T")


class Later:
    """A `background.BackgroundRunner` that runs its work when the test calls `do`."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[[], object], Future[object]]] = []

    def __call__(self, work: Callable[[], T], /) -> Future[T]:
        future: Future[T] = Future()
        self.begun.append((work, future))  # type: ignore[arg-type]
        return future

    def do(self) -> None:
        work, future = self.begun[-1]
        future.set_result(work())


def stored(path: Path) -> int:
    with ExecutionStore.open(path) as store:
        return store.counts().executions


def jobs(path: Path, *numbers: int) -> Path:
    write_history(path, [make_execution(number) for number in numbers])
    return path


@pytest.mark.slow
def test_source_watch_in_worker_process_stores_new_executions(tmp_path: Path) -> None:
    with WorkerProcess(NEEDED_FOR_FOLLOWING) as compute:
        watching = SourceWatch(tmp_path / "store", compute=compute, start=at_once)
        watching.look((jobs(tmp_path / "a.parquet", 1, 2),))
        watching.look((jobs(tmp_path / "b.parquet", 3),))
    assert stored(tmp_path / "store") == 3


def test_source_watch_begins_no_scan_before_the_previous_ends(tmp_path: Path) -> None:
    later = Later()
    watching = SourceWatch(tmp_path / "store", compute=in_this_process, start=later)
    paths = (jobs(tmp_path / "a.parquet", 1),)
    watching.look(paths)
    watching.look(paths)
    assert len(later.begun) == 1
    later.do()
    watching.look(paths)
    assert len(later.begun) == 2
    assert stored(tmp_path / "store") == 1


def test_source_watch_without_paths_begins_no_scan(tmp_path: Path) -> None:
    later = Later()
    SourceWatch(tmp_path / "store", compute=in_this_process, start=later).look(())
    assert later.begun == []


def test_source_watch_logs_unreadable_path_and_reads_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watching = SourceWatch(tmp_path / "store", compute=in_this_process, start=at_once)
    watching.look((tmp_path / "missing", jobs(tmp_path / "a.parquet", 1)))
    assert "missing: no such file" in capsys.readouterr().out
    assert stored(tmp_path / "store") == 1


def test_source_watch_logs_lost_scan_and_retries_after_backoff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = [True]

    def compute(task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        if lost.pop() if lost else False:
            raise ComputationFailedError("its process was lost")
        return in_this_process(task, seconds=seconds)

    seconds = [0.0]
    failures = FailureTracker(timer=lambda: seconds[0])
    watching = SourceWatch(tmp_path / "store", compute=compute, start=at_once, failures=failures)
    paths = (jobs(tmp_path / "a.parquet", 1),)
    watching.look(paths)
    assert "its process was lost" in capsys.readouterr().out
    watching.look(paths)
    assert stored(tmp_path / "store") == 0
    seconds[0] += 2
    watching.look(paths)
    assert stored(tmp_path / "store") == 1


def test_source_watch_logs_missing_path_once_and_its_recovery_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watching = SourceWatch(tmp_path / "store", compute=in_this_process, start=at_once)
    for _ in range(3):
        watching.look((tmp_path / "absent",))
    assert capsys.readouterr().out.count("absent") == 1
    (tmp_path / "absent").mkdir()
    watching.look((tmp_path / "absent",))
    watching.look((tmp_path / "absent",))
    assert capsys.readouterr().out.count("works again") == 1
