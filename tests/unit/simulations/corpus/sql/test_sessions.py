import threading
from dataclasses import replace

from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.sql.sessions import SessionKind, SqlSession, SqlStep, records_of
from fedperf_simulations.corpus.sql.tables import Storage, TableSet

STEP = SqlStep("family", "SELECT 1", TableSet("shop", 10, Storage.PARQUET))
SESSION = SqlSession(
    SessionKind.DUCKDB, 0, Platform.DUCKDB, 1, 1 << 30, (STEP, replace(STEP, runs=3), STEP)
)


def nothing() -> None:
    """Cancel nothing."""


def test_step_clock_runs_every_step_and_repeat_in_order() -> None:
    taken: list[tuple[int, int]] = []
    found = list(records_of(SESSION, lambda at, _, run: taken.append((at, run)), nothing))
    assert taken == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert [each.done for each in found] == [1, 3, 1]
    ends = [moment for each in found for moment in (each.began_at, each.ended_at)]
    assert ends == sorted(ends)
    assert all(each.host_busy_cores >= 0 and not each.error for each in found)


def test_step_clock_records_error_type_of_a_failed_step_and_continues() -> None:
    def take(position: int, step: SqlStep, run: int) -> None:
        if (position, run) == (1, 1):
            raise MemoryError(step.text)

    found = list(records_of(SESSION, take, nothing))
    assert [(each.done, each.error) for each in found] == [(1, ""), (1, "MemoryError"), (1, "")]


def test_step_clock_stops_when_the_engine_has_died() -> None:
    def take(position: int, step: SqlStep, run: int) -> None:
        raise ConnectionError(position, step, run)

    found = list(records_of(SESSION, take, nothing, is_alive=lambda: False))
    assert [each.error for each in found] == ["ConnectionError"]


def test_step_clock_cancels_a_step_that_exceeds_its_time_limit() -> None:
    called_off = threading.Event()

    def take(position: int, step: SqlStep, run: int) -> None:
        if not called_off.wait(10):
            raise TimeoutError(position, step, run)

    found = list(records_of(SESSION, take, called_off.set, longest_seconds=0.05))
    assert [each.error for each in found] == ["", "", ""]
    assert called_off.is_set()
