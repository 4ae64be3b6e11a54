"""Tests of parallel tasks: results equal those of one process, in the order of the tasks."""

import os
import time

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from fedperf_simulations.harness.side_by_side import computed


def _late_first(task: int) -> tuple[int, int]:
    time.sleep(0.2 if task == 0 else 0.0)
    return task, os.getpid()


@pytest.mark.parametrize("jobs", [1, 2])
def test_parallel_tasks_yield_results_in_task_order(jobs: int) -> None:
    found = list(computed(_late_first, range(5), "tasks", jobs=jobs))
    assert [task for task, _ in found] == [0, 1, 2, 3, 4]
    assert (os.getpid() in {process for _, process in found}) is (jobs == 1)


def test_parallel_tasks_progress_bar_is_absent_from_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(computed(str, [1, 2], "tasks", jobs=1)) == ["1", "2"]
    assert capsys.readouterr().out == ""


def _threads(task: int) -> set[int]:
    del task
    return {each["num_threads"] for each in threadpool_info()} | {torch.get_num_threads()}


def test_parallel_tasks_in_several_processes_use_one_thread_each() -> None:
    with threadpool_limits(2):
        found = list(computed(_threads, range(4), "tasks", jobs=2))
    assert found == [{1}] * 4
