"""Tests of the worker process in which the daemon computes releases."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedperf_client.contributions.local_sums import (
    NEEDED_FOR_LINEARIZED,
    NEEDED_FOR_REPORTS,
    LinearizedTask,
    ReportTask,
)
from fedperf_client.contributions.mechanisms import sum_residuals
from fedperf_client.home.store import ExecutionStore
from fedperf_client.release.noise import SystemNoise
from fedperf_client.workers import worker_process
from fedperf_client.workers.child_process import ChildProcess
from fedperf_client.workers.worker_process import ComputationFailedError, WorkerProcess
from fedperf_simulations.model.ggfn import GGFN, state_to_arrays
from tests.fakes.linearized_queries import few_anchors, make_linearized_query
from tests.fakes.tasks import (
    Hung,
    KilledOnce,
    Noisy,
    Stubborn,
    busy,
    failing,
    its_process,
)
from tests.unit.client.executions import START, make_execution
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.work import count_calls

SUM = partial(sum_residuals, clip=1.5)
END = START + timedelta(hours=1)


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """Make the modules of this process importable in the child."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[4])
        yield


@pytest.fixture(scope="module")
def child(importable: None) -> Iterator[WorkerProcess]:
    """Yield one warm child for tests that only read its results."""
    del importable
    with WorkerProcess(()) as process:
        process.warm()
        yield process


@pytest.fixture(scope="module")
def computing(importable: None) -> Iterator[WorkerProcess]:
    """Yield one child for every kind of slot, as in the daemon. It imports torch once."""
    del importable
    needs = (*NEEDED_FOR_REPORTS, *NEEDED_FOR_LINEARIZED)
    with WorkerProcess(needs) as process:
        process.warm()
        yield process


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with ExecutionStore.open(path) as store:
        store.add([make_execution(number) for number in range(5)])
    return path


def test_worker_process_runs_tasks_in_one_other_process(child: WorkerProcess) -> None:
    pids = {child(its_process) for _ in range(2)}
    assert len(pids) == 1
    assert pids != {os.getpid()}


@pytest.mark.slow
def test_worker_process_noise_never_repeats(child: WorkerProcess) -> None:
    here = SystemNoise()
    drawn = [child(Noisy(here)) for _ in range(3)] + [here.discrete_gaussian(8, 2.0**40)]
    assert len(np.unique(np.concatenate(drawn))) == 4 * 8


def test_worker_process_killed_in_a_task_is_replaced_for_the_next(tmp_path: Path) -> None:
    with WorkerProcess(()) as process:
        with pytest.raises(ComputationFailedError, match="lost"):
            process(KilledOnce(tmp_path / "was-killed"))
        assert process(KilledOnce(tmp_path / "was-killed")) == "done"


def test_worker_process_stays_alive_after_a_failing_task(child: WorkerProcess) -> None:
    before = child(its_process)
    for _ in range(2):
        with pytest.raises(ComputationFailedError, match="ZeroDivisionError"):
            child(failing)
    assert child(its_process) == before


def test_worker_process_task_beyond_timeout_fails_and_next_gets_a_new_process(
    tmp_path: Path,
) -> None:
    with WorkerProcess(()) as process:
        before = process(its_process)
        with pytest.raises(ComputationFailedError, match="not done in time"):
            process(Hung(tmp_path / "began"), seconds=0.5)
        assert process(its_process) != before


def test_worker_process_caller_returns_before_the_timed_out_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, kill = threading.Event(), ChildProcess.kill
    monkeypatch.setattr(ChildProcess, "kill", lambda self: may_end.wait(20) and kill(self))
    with WorkerProcess(()) as process:
        process(its_process)
        with pytest.raises(ComputationFailedError, match="not done in time"):
            process(Stubborn(tmp_path / "began"), seconds=1.0)
        stubborn = int((tmp_path / "began").read_text())
        os.kill(stubborn, 0)  # the old process is still alive
        assert process(its_process) != stubborn
        may_end.set()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(stubborn) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(stubborn)


def test_worker_process_task_waiting_for_another_fails_at_its_timeout(tmp_path: Path) -> None:
    with WorkerProcess(()) as process:
        waiting = threading.Thread(target=_ignoring_failure, args=(process, tmp_path / "began"))
        waiting.start()
        _wait_for(tmp_path / "began")
        with pytest.raises(ComputationFailedError, match="the task before"):
            process(its_process, seconds=0.1)
        process.close()
        waiting.join(10)


def test_worker_process_not_warm_in_time_fails_the_task_and_continues_warming() -> None:
    with WorkerProcess(()) as process:
        with pytest.raises(ComputationFailedError, match="warm"):
            process(its_process, seconds=0.0)
        assert process._child is not None
        assert process(its_process) == process._child.pid


def test_worker_process_close_ends_a_hanging_task(tmp_path: Path) -> None:
    process = WorkerProcess(())
    asking = threading.Thread(target=_ignoring_failure, args=(process, tmp_path / "began"))
    asking.start()
    _wait_for(tmp_path / "began")
    process.close()
    asking.join(10)
    assert not asking.is_alive()
    with pytest.raises(ComputationFailedError, match="closed"):
        process(its_process)


def test_worker_process_child_started_during_close_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = WorkerProcess(())
    begun: list[ChildProcess] = []

    def start_and_close(command: Sequence[str]) -> ChildProcess:
        process.close()
        begun.append(ChildProcess(command))
        return begun[0]

    monkeypatch.setattr(worker_process, "ChildProcess", start_and_close)
    with pytest.raises(ComputationFailedError, match="closed"):
        process.warm()
    assert [each.is_alive() for each in begun] == [False]


def test_worker_process_ends_with_its_parent_within_a_task(tmp_path: Path) -> None:
    began = tmp_path / "began"
    code = f"""
import os, threading, time
from pathlib import Path
from fedperf_client.workers.worker_process import WorkerProcess
from tests.fakes.tasks import Stubborn
began = Path({str(began)!r})
threading.Thread(target=WorkerProcess(()), args=(Stubborn(began),), daemon=True).start()
while not began.exists() or not began.read_text():
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    child = int(began.read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(child)


@pytest.mark.slow
def test_worker_process_parent_uses_little_cpu_during_a_task() -> None:
    """The polling schedule of this process therefore does not depend on the computation."""
    with WorkerProcess(()) as process:
        process(its_process)
        short, long = (count_calls(partial(process, task)) for task in (its_process, busy))
    assert short == long > 0


@pytest.mark.slow
def test_worker_process_report_sum_equals_local_sum_without_noise(
    store: Path, computing: WorkerProcess
) -> None:
    task = ReportTask(store, seeded_checkpoint(), None, END, SUM)
    there = computing(task)
    again = computing(task)
    np.testing.assert_array_equal(there, task())
    np.testing.assert_array_equal(there, again)
    assert there.any()


def test_report_task_sums_executions_finished_in_its_span(store: Path) -> None:
    def counts(since: datetime | None, until: datetime) -> bool:
        return bool(ReportTask(store, seeded_checkpoint(), since, until, SUM)().any())

    assert counts(START, END)
    assert counts(None, END)
    assert not counts(END, END + timedelta(hours=1))
    assert not counts(None, START)


@pytest.mark.slow
def test_worker_process_linearized_sum_equals_local_sum_up_to_rounding(
    store: Path, computing: WorkerProcess
) -> None:
    start = tuple(state_to_arrays(GGFN(seed=3)).values())
    task = LinearizedTask(store, start, make_linearized_query(), few_anchors())
    there = computing(task)
    assert there.any()
    np.testing.assert_array_equal(there, computing(task))
    assert np.abs(there - task()).max() <= 2  # the child may use other threads


def _ignoring_failure(process: WorkerProcess, began: Path) -> None:
    with pytest.raises(ComputationFailedError):
        process(Hung(began))


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)
