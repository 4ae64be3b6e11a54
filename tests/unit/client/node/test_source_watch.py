"""The daemon's look at sources takes in what is new, one look at a time, and never fails."""

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
from tests.fakes.computing import at_once, in_this_process
from tests.unit.client.executions import make_execution

T = TypeVar("T")


class Later:
    """As `background.BackgroundRunner`: what is begun is done when the test says so."""

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


def test_a_process_of_its_own_takes_in_what_is_new(tmp_path: Path) -> None:
    with WorkerProcess(NEEDED_FOR_FOLLOWING) as compute:
        watching = SourceWatch(tmp_path / "store", compute=compute, start=at_once)
        watching.look((jobs(tmp_path / "a.parquet", 1, 2),))
        watching.look((jobs(tmp_path / "b.parquet", 3),))
    assert stored(tmp_path / "store") == 3


def test_a_look_waits_for_the_one_before(tmp_path: Path) -> None:
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


def test_nothing_is_begun_where_nothing_is_followed(tmp_path: Path) -> None:
    later = Later()
    SourceWatch(tmp_path / "store", compute=in_this_process, start=later).look(())
    assert later.begun == []


def test_what_cannot_be_read_is_said_and_holds_up_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watching = SourceWatch(tmp_path / "store", compute=in_this_process, start=at_once)
    watching.look((tmp_path / "missing", jobs(tmp_path / "a.parquet", 1)))
    assert "missing: no such file" in capsys.readouterr().out
    assert stored(tmp_path / "store") == 1


def test_a_look_that_was_lost_is_said_and_begun_again(
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


def test_a_path_that_is_not_there_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watching = SourceWatch(tmp_path / "store", compute=in_this_process, start=at_once)
    for _ in range(3):
        watching.look((tmp_path / "missing",))
    assert capsys.readouterr().out.count("missing") == 1
    (tmp_path / "missing").mkdir()
    watching.look((tmp_path / "missing",))
    watching.look((tmp_path / "missing",))
    assert capsys.readouterr().out.count("works again") == 1
