"""Tasks in several processes give what they give in one, in the order of the tasks."""

import os
import time

import pytest

from fedperf_simulations.side_by_side import computed


def _late_first(task: int) -> tuple[int, int]:
    time.sleep(0.2 if task == 0 else 0.0)
    return task, os.getpid()


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_tasks(jobs: int) -> None:
    found = list(computed(_late_first, range(5), "tasks", jobs=jobs))
    assert [task for task, _ in found] == [0, 1, 2, 3, 4]
    assert (os.getpid() in {process for _, process in found}) is (jobs == 1)


def test_the_bar_is_no_part_of_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(computed(str, [1, 2], "tasks", jobs=1)) == ["1", "2"]
    assert capsys.readouterr().out == ""
