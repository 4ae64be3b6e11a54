"""What a rehearsal reads of a home: all that is needed, and nothing is changed by it."""

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
    """Of forty workloads that ran five times each."""
    found = Home(tmp_path / "home")
    found.create("")
    with ExecutionStore.open(found.store) as store:
        store.add(make_execution(number, workload=f"job-{number % 40}") for number in range(200))
    return found


def test_a_quarter_of_the_workloads_is_kept_away_from_what_is_known(home: Home) -> None:
    jobs = read_history(home, seed=1)
    asked = {each.workload for each in jobs.test}
    known = {each.workload for each in jobs.training}
    assert (len(asked), len(known), jobs.stored) == (10, 30, 40)
    assert not asked & known
    assert jobs.names == asked | known
    assert read_history(home, seed=1) == jobs
    assert {each.workload for each in read_history(home, seed=2).test} != asked


def test_of_a_workload_the_last_executions_count(home: Home) -> None:
    jobs = read_history(home, seed=1)
    name = jobs.training[0].workload
    ids = {each.execution_id for each in jobs.training if each.workload == name}
    number = int(name.removeprefix("job-"))
    assert ids == {f"execution-{number + 40 * turn}" for turn in (2, 3, 4)}


def test_of_many_workloads_some_are_drawn(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(year, "MOST_WORKLOADS", 8)
    jobs = read_history(home, seed=1)
    assert (len(jobs.names), jobs.stored) == (8, 40)
    assert len({each.workload for each in jobs.test}) == 2


def test_what_never_ended_well_is_not_asked_about(tmp_path: Path) -> None:
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


def test_a_home_without_executions_has_none(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create("")
    before = contents(home.directory)
    assert read_history(home, seed=1).names == frozenset()
    assert contents(home.directory) == before


def test_the_home_stays_as_it_is(home: Home) -> None:
    before = contents(home.directory)
    assert read_history(home, seed=1).training
    assert contents(home.directory) == before


def test_what_another_program_just_wrote_is_read(home: Home) -> None:
    with ExecutionStore.open(home.store) as store:
        store.add([make_execution(500, workload="new")])
        assert "new" in read_history(home, seed=1).names
