import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from fedperf_client.home.store import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    AmbiguousExecutionError,
    ExecutionStore,
    Selection,
    UnknownExecutionError,
)
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import ClusterConfig, Execution, ExecutionStatus, Measurement
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.executions import START, chain_plan, executions, make_execution
from tests.unit.shared.console_programs import contents


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "executions.sqlite"


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(execution=executions())
def test_execution_round_trips_through_the_store(tmp_path: Path, execution: Execution) -> None:
    path = tmp_path / f"{time.monotonic_ns()}.sqlite"
    with ExecutionStore.open(path) as store:
        assert store.add([execution]) == 1
    with ExecutionStore.open(path) as store:
        assert list(store.executions()) == [execution]


def test_add_of_duplicate_id_keeps_the_first_execution(path: Path) -> None:
    first = make_execution(1)
    with ExecutionStore.open(path) as store:
        assert store.add([first, make_execution(2)]) == 2
        assert store.add([make_execution(1, workload="changed"), make_execution(3)]) == 1
        assert [e.execution_id for e in store.executions()] == [
            "execution-1",
            "execution-2",
            "execution-3",
        ]
        assert next(store.executions()) == first


def test_executions_are_filtered_by_workload_status_and_time(path: Path) -> None:
    failed = make_execution(7, workload="a", status=ExecutionStatus.FAILED, measurement=None)
    with ExecutionStore.open(path) as store:
        store.add([make_execution(n, workload="ab"[n % 2]) for n in range(6)] + [failed])
        assert [e.execution_id for e in store.executions(workload="b")] == [
            "execution-1",
            "execution-3",
            "execution-5",
        ]
        assert store.newest(9, Selection(status=ExecutionStatus.FAILED)) == (failed,)
        late = list(store.executions(since=START + timedelta(seconds=5)))
        assert [e.execution_id for e in late] == ["execution-5", "execution-7"]
        early = list(store.executions(until=START + timedelta(seconds=1)))
        assert [e.execution_id for e in early] == ["execution-0"]
        assert list(store.executions(workload="nobody")) == []


def test_executions_iterate_across_pages_during_writes(path: Path) -> None:
    same_moment = [make_execution(n, finished_at=START) for n in range(1201)]
    with ExecutionStore.open(path) as store:
        store.add(same_moment)
        found = []
        for execution in store.executions():
            found.append(execution.execution_id)
            if len(found) == 10:
                store.add([make_execution(5000)])
    assert len(found) == 1202
    assert len(set(found)) == 1202


def test_counts_are_of_executions_and_workloads(path: Path) -> None:
    with ExecutionStore.open(path) as store:
        assert store.counts().executions == 0
        store.add([make_execution(n, workload="ab"[n % 2]) for n in range(5)])
        counts = store.counts()
        assert store.workloads() == ("a", "b")
    assert (counts.executions, counts.workloads) == (5, 2)


def test_finished_at_round_trips_as_utc(path: Path) -> None:
    eastern = datetime.fromisoformat("2026-03-01T12:00:00.123456+09:00")
    with ExecutionStore.open(path) as store:
        store.add([make_execution(finished_at=eastern)])
        found = next(store.executions()).finished_at
    assert found == eastern
    assert found.tzinfo is UTC


@pytest.mark.parametrize(
    "bad",
    [
        make_execution(1, workload="\ud800"),
        make_execution(1, execution_id=""),
        make_execution(1, measurement=Measurement(1.0, 1.0, 2**63)),
    ],
    ids=["not text", "no id", "too large"],
)
def test_add_with_unstorable_value_is_refused_and_stores_no_execution(
    path: Path, bad: Execution
) -> None:
    with ExecutionStore.open(path) as store:
        with pytest.raises(InvalidInputError):
            store.add([make_execution(0), bad])
        assert store.counts().executions == 0


@pytest.mark.parametrize("content", [b"no database at all, but long enough" * 40, b"SQLite for"])
def test_open_of_file_that_is_no_database_is_refused_and_keeps_it(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    with pytest.raises(StorageError, match="not a store of fedperf, name another file") as caught:
        ExecutionStore.open(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_open_of_foreign_database_is_refused_and_keeps_it(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match="another program"):
        ExecutionStore.open(path)
    assert path.read_bytes() == before


ADDED_COLUMNS = {
    7: "statement operator_keys columns",
    6: "rows_within tasks",
    4: "application application_id record description file failure operator_seconds",
    3: "queries_before startup_seconds",
    2: "source node_type architecture rows_known remarks",
}
"""Columns by the schema version that added them."""


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_open_migrates_older_schema_without_losing_executions(path: Path, version: int) -> None:
    known = make_execution(
        1, cluster=ClusterConfig(1, 2, 8_000_000_000), measurement=Measurement(1.5)
    )
    with ExecutionStore.open(path) as store:
        store.add([known])
    with sqlite3.connect(path) as connection:
        for added_in, columns in ADDED_COLUMNS.items():
            for column in columns.split() if version < added_in else ():
                connection.execute(f"ALTER TABLE execution DROP COLUMN {column}")
        for added_in, table in ((2, "source"), (5, "segment"), (5, "state"), (6, "counted_rows")):
            if version < added_in:
                connection.execute(f"DROP TABLE {table}")
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with ExecutionStore.open(path) as store:
        assert list(store.executions()) == [known]
        assert store.add([make_execution(2)]) == 1
        assert list(store.executions())[1] == make_execution(2)


def test_open_of_newer_schema_is_refused_with_both_versions(path: Path) -> None:
    ExecutionStore.open(path).close()
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()
    with pytest.raises(StorageError, match=f"schema {SCHEMA_VERSION + 1}.*reads {SCHEMA_VERSION}"):
        ExecutionStore.open(path)


def test_open_unchanged_reads_without_changing_any_file(path: Path) -> None:
    with ExecutionStore.open(path) as store:
        store.add([make_execution(1)])
    before = contents(path.parent)
    with ExecutionStore.open_unchanged(path) as store:
        assert [*store.executions()] == [make_execution(1)]
        with pytest.raises(StorageError, match="readonly"):
            store.add([make_execution(2)])
        assert contents(path.parent) == before
    assert contents(path.parent) == before


def test_open_unchanged_reads_uncheckpointed_writes(path: Path) -> None:
    with ExecutionStore.open(path) as writer:
        writer.add([make_execution(1)])
        with ExecutionStore.open_unchanged(path) as store:
            assert [*store.executions()] == [make_execution(1)]
        writer.add([make_execution(2)])


def test_open_unchanged_of_older_schema_is_refused_without_migration(path: Path) -> None:
    ExecutionStore.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    before = contents(path.parent)
    with pytest.raises(StorageError, match=r"schema 1, .* with: fedperf status"):
        ExecutionStore.open_unchanged(path)
    assert contents(path.parent) == before


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report every path as not writable. Root could write anywhere."""
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)


def test_open_to_read_in_read_only_directory_reads_and_refuses_writes(
    path: Path, read_only: None
) -> None:
    with ExecutionStore.open(path) as store:
        store.add([make_execution(1)])
    before = contents(path.parent)
    with ExecutionStore.open_to_read(path) as store:
        assert [*store.executions()] == [make_execution(1)]
        with pytest.raises(StorageError, match="this home is read-only"):
            store.add([make_execution(2)])
    assert contents(path.parent) == before


def test_open_unchanged_without_store_creates_no_file(path: Path) -> None:
    with pytest.raises(StorageError):
        ExecutionStore.open_unchanged(path)
    assert not path.exists()


def test_damaged_store_raises_one_storage_error(path: Path) -> None:
    with ExecutionStore.open(path) as store:
        store.add(make_execution(n) for n in range(300))
    content = bytearray(path.read_bytes())
    for start in range(4096, len(content), 4096):
        content[start : start + 512] = b"\xa5" * 512
    path.write_bytes(content)
    with ExecutionStore.open(path) as store, pytest.raises(StorageError, match="damaged"):
        list(store.executions())


def test_execution_with_damaged_plan_raises_error_with_its_id(path: Path) -> None:
    with ExecutionStore.open(path) as store:
        store.add([make_execution(1)])
    tampered = sqlite3.connect(path)
    tampered.execute("UPDATE execution SET plan = x'ffff'")
    tampered.commit()
    tampered.close()
    with ExecutionStore.open(path) as store, pytest.raises(StorageError, match="execution-1"):
        list(store.executions())


@pytest.mark.parametrize("path", [Path("/proc/executions.sqlite"), Path("/nowhere/at/all.sqlite")])
def test_open_in_unwritable_directory_raises_storage_error(path: Path) -> None:
    with pytest.raises(StorageError, match="the directory must exist and be writable"):
        ExecutionStore.open(path)


def test_add_to_read_only_store_is_refused_and_keeps_executions(path: Path) -> None:
    with ExecutionStore.open(path) as store:
        store.add([make_execution(0)])
        store._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(StorageError, match="writable"):
            store.add([make_execution(1)])
        assert [e.execution_id for e in store.executions()] == ["execution-0"]


def test_store_sets_application_id_and_write_ahead_log(path: Path) -> None:
    ExecutionStore.open(path).close()
    raw = sqlite3.connect(path)
    try:
        assert raw.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        raw.close()


def test_concurrent_opens_from_threads_all_succeed(path: Path) -> None:
    failures: list[Exception] = []
    barrier = threading.Barrier(8)

    def use(number: int) -> None:
        barrier.wait()
        try:
            with ExecutionStore.open(path) as store:
                store.add([make_execution(number)])
        except StorageError as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with ExecutionStore.open(path) as store:
        assert store.counts().executions == 8


class RefusedTwice(sqlite3.Connection):
    """A connection that is busy twice, as if two programs enabled the write-ahead log at once."""

    refusals = 2

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA journal_mode") and self.refusals:
            self.refusals -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorname = "SQLITE_BUSY"
            raise error
        return super().execute(sql, *parameters)


def test_open_retries_when_write_ahead_log_is_busy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=RefusedTwice))
    with ExecutionStore.open(path) as store:
        store.add([make_execution(1)])
        assert tuple(store._connection.execute("PRAGMA journal_mode").fetchone()) == ("wal",)


def _write(path: Path, first: int) -> None:
    with ExecutionStore.open(path) as store:
        for start in range(first, first + 200, 10):
            store.add([make_execution(n) for n in range(start, start + 10)])


def test_two_writing_processes_lose_no_execution(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, first)) for first in (0, 1000)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    with ExecutionStore.open(path) as store:
        assert store.counts().executions == 400


_ENDLESS_WRITER = """
import sys
from pathlib import Path
from fedperf_client.home.store import ExecutionStore
from tests.unit.client.executions import make_execution
number = int(sys.argv[2])
with ExecutionStore.open(Path(sys.argv[1])) as store:
    while True:
        store.add([make_execution(n) for n in range(number, number + 5)])
        print(number, flush=True)
        number += 5
"""


@pytest.mark.fault
def test_killed_writer_neither_corrupts_store_nor_loses_confirmed_executions(path: Path) -> None:
    confirmed = -5
    for attempt in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", _ENDLESS_WRITER, str(path), str(confirmed + 5)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[4],
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.01 + 0.017 * attempt)
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read()
        writer.wait()
        writer.stdout.close()
        complete = [int(line) for line in rest.splitlines() if line]
        confirmed = max([confirmed + 5, *complete])
        with ExecutionStore.open(path) as store:
            (verdict,) = store._connection.execute("PRAGMA integrity_check").fetchone()
            found = {e.execution_id for e in store.executions()}
        assert verdict == "ok"
        assert {f"execution-{n}" for n in range(confirmed + 5)} <= found
        assert len(found) % 5 == 0


def test_importing_store_imports_no_heavy_package() -> None:
    code = (
        "import sys, fedperf_client.home.store; "
        "print([m for m in ('torch', 'pandas', 'duckdb', 'polars', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_stored_plans_take_under_1000_bytes_each(path: Path) -> None:
    with ExecutionStore.open(path) as store:
        empty = path.stat().st_size
        store.add([make_execution(n, plan=chain_plan(20)) for n in range(200)])
    assert path.stat().st_size - empty < 200 * 1000


def test_find_returns_execution_by_id_and_refuses_unknown_ids(tmp_path: Path) -> None:
    stored = [make_execution(number) for number in range(3)]
    with ExecutionStore.open(tmp_path / "executions.sqlite") as store:
        store.add(stored)
        assert store.find("execution-1") == stored[1]
        with pytest.raises(UnknownExecutionError, match="'execution-9' among the 3 in the store"):
            store.find("execution-9")
        with pytest.raises(UnknownExecutionError, match="''"):
            store.find("")


def test_find_accepts_unique_id_prefix_and_refuses_ambiguous_ones(tmp_path: Path) -> None:
    ids = ["0123456789ab", "0123456789cd", "0123", "01%45678zz", "zz"]
    with ExecutionStore.open(tmp_path / "executions.sqlite") as store:
        store.add([make_execution(execution_id=each) for each in ids])
        assert store.find("0123456789a").execution_id == "0123456789ab"
        assert store.find("0123").execution_id == "0123"
        assert store.find("01%").execution_id == "01%45678zz"
        with pytest.raises(AmbiguousExecutionError, match="begins with '01234'"):
            store.find("01234")
        with pytest.raises(
            AmbiguousExecutionError,
            match=r", 4, .*: 01%45678 \(\S+\), 0123 \(\S+\), 0123456789a \(\S+\), 0123456789c",
        ):
            store.find("01")
        for each in ids:
            short = store.short_id(each)
            assert store.find(short).execution_id == each
            assert len(short) == min(len(each), max(8, len(short)))
        assert store.short_id(ids[0]) == "0123456789a"
        assert store.short_id(ids[3]) == "01%45678"


def test_newest_returns_executions_newest_first_within_selection(tmp_path: Path) -> None:
    stored = [
        make_execution(n, workload=f"w{n % 2}", status=ExecutionStatus(n % 3)) for n in range(9)
    ]
    with ExecutionStore.open(tmp_path / "executions.sqlite") as store:
        store.add(stored)
        assert store.newest(3) == (stored[8], stored[7], stored[6])
        assert store.newest(2, Selection(workload="w1")) == (stored[7], stored[5])
        failed = ExecutionStatus.FAILED
        assert store.newest(9, Selection(status=failed)) == (stored[7], stored[4], stored[1])


def test_digest_changes_exactly_when_stored_executions_change(tmp_path: Path) -> None:
    path = tmp_path / "executions.sqlite"

    def digest(*added: int, deleted: tuple[str, ...] = ()) -> bytes:
        with ExecutionStore.open(path) as store:
            store.add([make_execution(number) for number in added])
            store.delete(deleted)
            return store.digest()

    seen = [digest(), digest(0), digest(0, 1), digest(deleted=("execution-1",)), digest(1)]
    assert len(set(seen)) == len(seen)
    assert digest() == digest(0, 1) == digest(deleted=("nobody",)) == seen[-1]


def test_delete_removes_exactly_the_selected_executions(tmp_path: Path) -> None:
    with ExecutionStore.open(tmp_path / "executions.sqlite") as store:
        store.add(make_execution(n, workload=f"w{n % 2}") for n in range(6))
        chosen = store.ids(Selection(workload="w1"))
        assert chosen == ("execution-1", "execution-3", "execution-5")
        assert store.delete([*chosen, "execution-1", "nobody"]) == 3
        assert store.ids() == ("execution-0", "execution-2", "execution-4")


def test_platform_selection_skips_executions_with_unreadable_plan(path: Path) -> None:
    with ExecutionStore.open(path) as store:
        store.add([make_execution(1), make_execution(2)])
        store._connection.execute("UPDATE execution SET plan = x'ffff' WHERE workload LIKE '%1'")
        assert store.ids(Selection(platform=Platform.DUCKDB)) == ("execution-2",)
