"""Tests of repeated history: it exists when its member joins and runs again in the period."""

from datetime import UTC, datetime, timedelta

import pytest

from fedperf_memory.year_simulation.year import RepeatedHistory
from fedperf_shared.execution import ExecutionStatus
from tests.unit.client.executions import make_execution

DAY = timedelta(days=1)
JOINS = datetime(2026, 12, 1, tzinfo=UTC)
ENDS = JOINS + 10 * DAY


@pytest.fixture
def history() -> RepeatedHistory:
    """Return five executions in another order than they finished."""
    found = [make_execution(number) for number in (3, 1, 0, 4, 2)]
    failed = make_execution(9, status=ExecutionStatus.FAILED, measurement=None)
    return RepeatedHistory.of([*found, failed], joins=JOINS, ends=ENDS)


def names(history: RepeatedHistory, since: datetime | None, until: datetime) -> list[str]:
    return [each.workload for each in history.between(since, until)]


def test_repeated_history_is_complete_from_joining_on(history: RepeatedHistory) -> None:
    everything = [f"workload-{number}" for number in range(5)]
    assert names(history, None, JOINS) == everything
    assert names(history, None, ENDS) == everything
    assert names(history, JOINS - DAY, JOINS + DAY) == everything
    assert names(history, None, JOINS - DAY) == []


def test_repeated_history_reruns_executions_in_order_during_the_period(
    history: RepeatedHistory,
) -> None:
    halves = [
        names(history, JOINS + 5 * each * DAY, JOINS + 5 * (each + 1) * DAY) for each in (0, 1)
    ]
    assert halves == [
        ["workload-0", "workload-1", "workload-2"],
        ["workload-3", "workload-4"],
    ]
    assert names(history, ENDS, ENDS + DAY) == []


def test_repeated_history_without_executions_is_empty() -> None:
    history = RepeatedHistory.of([], joins=JOINS, ends=ENDS)
    assert names(history, None, ENDS) == []
