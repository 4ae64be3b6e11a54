"""Contract of every kind of source, tested on a small sample of each kind.

A source reads only its own kind of file and leaves other kinds alone. It returns the same
executions from any place and for any number of reads. It reports damaged content.
"""

import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import NothingToReadError, SkippedRecord, Source
from fedperf_client.sources.dbt import open_run_results
from fedperf_client.sources.duckdb.profile_file import open_profile
from fedperf_client.sources.history_file import open_history, write_history
from fedperf_client.sources.spark.event_log import open_event_log
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import Execution, ExecutionStatus
from tests.fakes.dbt_artifacts import result, run_results
from tests.fakes.duckdb_profiles import grouped, node_1, node_2, profile_1, profile_2
from tests.fakes.spark_logs import SparkLog, node, sample
from tests.unit.client.executions import make_execution

Opener = Callable[[Path], Source | None]


def write_history_file(path: Path) -> None:
    write_history(path, [make_execution(number) for number in range(3)])


def write_event_log(path: Path) -> None:
    path.write_bytes(b"\n".join(map(orjson.dumps, sample())))


def write_profiles(path: Path) -> None:
    path.write_bytes(b"\n".join(orjson.dumps(grouped(version)) for version in range(3)))


def write_run_results(path: Path) -> None:
    path.write_bytes(orjson.dumps(run_results(result("orders"), result("totals", seconds=2.5))))


KINDS: dict[str, tuple[Opener, Callable[[Path], None]]] = {
    "history": (open_history, write_history_file),
    "Spark event log": (open_event_log, write_event_log),
    "DuckDB profile": (open_profile, write_profiles),
    "dbt run results": (open_run_results, write_run_results),
}
ONE_PIECE = ("history", "dbt run results")
"""Kinds whose files are read as a whole."""

"""By entry point: the opener of the kind, and a function that writes a sample."""


def write_failed_history(path: Path) -> None:
    stati = [each for each in ExecutionStatus if each is not ExecutionStatus.OK]
    runs = [replace(make_execution(n), status=each) for n, each in enumerate(stati)]
    write_history(path, [*runs, replace(make_execution(99), status=stati[0], measurement=None)])


def write_failed_event_log(path: Path) -> None:
    log = SparkLog().begin()
    scan = node("Scan parquet ", rows=1)
    log.start(1, scan).job(1, {1: 5}, result="JobFailed").finish(1, error="no space left")
    log.start(2, scan, at=4000).job(2, {1: 5}, at=4000, end=5000, result="JobFailed")
    log.finish(2, at=5000, error=None)  # before Spark 3.4
    log.job(None, call_site="count at a.py:1", at=6000, end=7000, result="JobFailed")
    log.start(3, scan, at=8000)
    log.add("SparkListenerApplicationEnd", Timestamp=1_750_000_009_000)
    log.write(path)


def write_failed_profiles(path: Path) -> None:
    nothing = {"result_set_size": 0, "latency": 0.0}
    profiles = [
        profile_1(node_1("RESULT_COLLECTOR", 0), **nothing),
        profile_1(**nothing),
        profile_2(node_2("RESULT_COLLECTOR", 0), query={"total_time": 0.0}),
        {**grouped(0), "result": 0.0, "timing": 0.0},
    ]
    path.write_bytes(b"\n".join(map(orjson.dumps, profiles)))


def write_failed_run_results(path: Path) -> None:
    failed = result("orders", status="error", message="no table"), result("x", status="skipped")
    path.write_bytes(orjson.dumps(run_results(*failed, result("y", seconds=0.0))))


FAILED: dict[str, Callable[[Path], None]] = {
    "history": write_failed_history,
    "Spark event log": write_failed_event_log,
    "DuckDB profile": write_failed_profiles,
    "dbt run results": write_failed_run_results,
}
"""By entry point: a function that writes runs of which none succeeded."""

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(name="path")
def sample_of(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / "sample"
    KINDS[kind][1](path)
    return path


def opened(kind: str, path: Path) -> Source:
    found = KINDS[kind][0](path)
    assert found is not None
    return found


def executions(kind: str, path: Path) -> list[Execution]:
    return [each for each in opened(kind, path).read() if isinstance(each, Execution)]


def damaged(content: bytes) -> Iterator[bytes]:
    """Yield the content truncated, and with a damaged stretch, at about twenty offsets."""
    for place in range(1, len(content), max(len(content) // 20, 1)):
        yield content[:place]
        yield content[:place] + b"\xff\x00[{" + content[place + 4 :]


def test_source_contract_covers_every_registered_entry_point() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    # Tables have tests of their own: names of files tell them, and a damaged cell is another row.
    assert {*KINDS, "table"} == set(project["project"]["entry-points"]["fedperf.sources"])
    assert set(FAILED) == set(KINDS)


@every_kind
def test_source_with_failed_runs_yields_no_successful_execution(kind: str, tmp_path: Path) -> None:
    FAILED[kind](tmp_path / "failed")
    found = list(opened(kind, tmp_path / "failed").read())
    assert found
    assert [each for each in found if isinstance(each, Execution) and each.is_ok] == []


@every_kind
def test_source_sample_executions_are_stored_exactly_once(
    kind: str, path: Path, tmp_path: Path
) -> None:
    found = executions(kind, path)
    assert found
    with ExecutionStore.open(tmp_path / "store") as store:
        assert store.add(found) == len(found)
        assert store.add(executions(kind, path)) == 0
        stored = {each.execution_id: each for each in store.executions()}
    assert stored == {each.execution_id: each for each in found}


@every_kind
def test_source_copied_to_another_path_gives_same_executions(
    kind: str, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    copy = shutil.copy2(path, tmp_path / "elsewhere" / "copy")
    assert executions(kind, Path(copy)) == executions(kind, path)


def takes(kind: str, path: Path) -> bool:
    try:
        return KINDS[kind][0](path) is not None
    except NothingToReadError:  # raised after other kinds were tried
        return False


@every_kind
def test_source_opener_rejects_files_of_other_kinds(kind: str, tmp_path: Path) -> None:
    others = {"empty": b"", "text": b"started\nended\n", "json": b'{"a": 1}\n', "binary": bytes(64)}
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "directory").mkdir()
    for other, (_, write) in KINDS.items():
        if other != kind:
            write(tmp_path / other)
    assert [each.name for each in tmp_path.iterdir() if takes(kind, each)] == []


@every_kind
def test_damaged_source_raises_only_named_errors_and_adds_no_executions(
    kind: str, path: Path
) -> None:
    content = path.read_bytes()
    whole = {each.execution_id for each in executions(kind, path)}
    before_the_cut: set[str] = set()
    for each in damaged(content):
        path.write_bytes(each)
        try:
            source = KINDS[kind][0](path)
            found = list(source.read()) if source is not None else []
        except (InvalidInputError, StorageError):
            assert kind in ONE_PIECE
            continue
        assert all(isinstance(one, Execution | SkippedRecord) for one in found)
        ids = {one.execution_id for one in found if isinstance(one, Execution)}
        assert ids <= whole
        if content.startswith(each):
            assert before_the_cut <= ids
            before_the_cut = ids
        elif kind not in ONE_PIECE and each[:16] == content[:16]:  # by which a kind is known
            assert len(whole - ids) <= 1
    assert kind in ONE_PIECE or len(whole - before_the_cut) <= 1


@every_kind
def test_source_executions_have_origin_workload_and_end_time_with_zone(
    kind: str, path: Path
) -> None:
    for each in executions(kind, path):
        assert each.finished_at.tzinfo is not None
        assert each.workload
        assert kind == "history" or each.origin.source
