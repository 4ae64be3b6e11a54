"""Tests of reading a data directory for a simulation: all needed runs, and no changes."""

from pathlib import Path

import pytest

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_memory.year_simulation import year
from fedperf_memory.year_simulation.year import read_history
from fedperf_shared.execution import ExecutionStatus
from tests.unit.client.executions import make_execution
from tests.unit.shared.console_programs import contents


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a data directory of forty workloads that ran five times each."""
    found = Home(tmp_path / "home")
    found.create("")
    with ExecutionStore.open(found.store) as store:
        store.add(make_execution(number, workload=f"job-{number % 40}") for number in range(200))
    return found


def test_read_history_holds_out_a_quarter_of_the_workloads(home: Home) -> None:
    jobs = read_history(home, seed=1)
    asked = {each.workload for each in jobs.test}
    known = {each.workload for each in jobs.training}
    assert (len(asked), len(known), jobs.stored) == (10, 30, 40)
    assert not asked & known
    assert jobs.names == asked | known
    assert read_history(home, seed=1) == jobs
    assert {each.workload for each in read_history(home, seed=2).test} != asked


def test_read_history_keeps_the_last_three_executions_of_a_workload(home: Home) -> None:
    jobs = read_history(home, seed=1)
    name = jobs.training[0].workload
    ids = {each.execution_id for each in jobs.training if each.workload == name}
    number = int(name.removeprefix("job-"))
    assert ids == {f"execution-{number + 40 * turn}" for turn in (2, 3, 4)}


def test_read_history_samples_workloads_above_the_limit(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(year, "MOST_WORKLOADS", 8)
    jobs = read_history(home, seed=1)
    assert (len(jobs.names), jobs.stored) == (8, 40)
    assert len({each.workload for each in jobs.test}) == 2


def test_read_history_tests_only_workloads_with_successful_runs(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create("")
    with ExecutionStore.open(home.store) as store:
        store.add(
            make_execution(number, status=ExecutionStatus.FAILED, measurement=None)
            for number in range(6)
        )
        store.add(make_execution(number) for number in range(6, 14))
    jobs = read_history(home, seed=1)
    assert len(jobs.test) == 2
    assert all(each.is_ok for each in jobs.test)
    assert len(jobs.training) == 12


def test_read_history_of_empty_data_directory_is_empty_and_writes_no_files(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create("")
    before = contents(home.directory)
    assert read_history(home, seed=1).names == frozenset()
    assert contents(home.directory) == before


def test_read_history_leaves_the_data_directory_unchanged(home: Home) -> None:
    before = contents(home.directory)
    assert read_history(home, seed=1).training
    assert contents(home.directory) == before


def test_read_history_includes_executions_written_by_another_program(home: Home) -> None:
    with ExecutionStore.open(home.store) as store:
        store.add([make_execution(500, workload="new")])
        assert "new" in read_history(home, seed=1).names
