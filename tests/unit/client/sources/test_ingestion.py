"""Tests of ingestion: sources are isolated from each other, and repeating it adds nothing."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedperf_client.home.segments import Encoder
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import ingestion
from fedperf_client.sources.history_file import write_history
from fedperf_client.sources.ingestion import IngestionCounts, IngestionOutcome, ingest, total
from tests.fakes.spark_logs import SparkLog, node
from tests.unit.client.executions import make_execution


@pytest.fixture
def sources(tmp_path: Path) -> Sequence[Path]:
    """Return a history, a Spark log, a damaged file and a file of an unknown format."""
    history, log, damaged, notes = (tmp_path / name for name in ("a", "b", "c.parquet", "d"))
    write_history(history, [make_execution(number) for number in range(3)])
    scan = node("Scan parquet", rows=1)
    SparkLog().begin().query(7, scan, {1: 10}).start(8, scan).write(log)
    damaged.write_bytes(b"PAR1 and no more")
    notes.write_text("hello")
    return history, log, damaged, notes


def stored(path: Path) -> int:
    with ExecutionStore.open(path) as store:
        return store.counts().executions


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ingest_stores_each_readable_source_or_reports_a_reason(
    tmp_path: Path, sources: Sequence[Path], jobs: int
) -> None:
    found = {each.path: each for each in ingest(sources, tmp_path / "store", jobs=jobs)}
    assert set(found) == set(sources)
    history, log, damaged, notes = (found[path] for path in sources)
    assert history == IngestionOutcome(sources[0], IngestionCounts(3, 3, 9, 9))
    with ExecutionStore.open(tmp_path / "store") as store:
        files = {each.origin.file for each in store.executions()}
    assert files == {str(tmp_path / "a"), str(tmp_path / "b")}
    assert log == IngestionOutcome(
        sources[1], IngestionCounts(1, 1, 1, 1, Counter({"no end: the log stops before it": 1}))
    )
    assert "not a readable Parquet file" in damaged.refused
    assert "not of a kind that can be read" in notes.refused
    assert stored(tmp_path / "store") == 4
    again = total(list(ingest(sources, tmp_path / "store")))
    assert (again.executions, again.new) == (4, 0)


def test_ingest_dry_run_counts_new_executions_and_stores_none(
    tmp_path: Path, sources: Sequence[Path]
) -> None:
    dry = total(list(ingest(sources, tmp_path / "store", dry_run=True)))
    assert (dry.executions, dry.new, stored(tmp_path / "store")) == (4, 4, 0)
    list(ingest(sources[:1], tmp_path / "store"))
    assert total(list(ingest(sources, tmp_path / "store", dry_run=True))).new == 1


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ingest_dry_run_counts_copies_like_the_real_run(
    tmp_path: Path, sources: Sequence[Path], jobs: int
) -> None:
    copies = [tmp_path / "copy", tmp_path / "another"]
    for copy in copies:
        copy.write_bytes(sources[1].read_bytes())
    every = [*sources, *copies]
    dry = total(list(ingest(every, tmp_path / "store", jobs=jobs, dry_run=True)))
    assert (dry.executions, dry.new) == (6, 4)
    assert total(list(ingest(every, tmp_path / "store", jobs=jobs))) == dry


def test_ingest_stores_and_counts_failed_executions(tmp_path: Path) -> None:
    scan = node("Scan parquet", rows=1)
    log = SparkLog().begin().start(7, scan).job(7, {1: 5}).finish(7, error="no bytes left")
    taken = total(list(ingest([log.write(tmp_path / "log")], tmp_path / "store")))
    assert (taken.executions, taken.new, taken.failed) == (1, 1, 1)


def dies_of_some(
    path: Path, *, store: Path, scratch: Path | None, encoder: Encoder | None, sources: object
) -> IngestionOutcome:
    """Replace the process that reads one source. It is killed by some sources."""
    del store, scratch, encoder, sources
    if path.name in ("b", "d"):
        os._exit(9)
    return IngestionOutcome(path, IngestionCounts(1))


@pytest.mark.fault
def test_ingest_of_source_that_kills_its_process_continues_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "_outcome", dies_of_some)
    paths = [SparkLog().begin().write(tmp_path / name) for name in "abcdef"]
    found = {each.path.name: each for each in ingest(paths, tmp_path / "store", jobs=2)}
    assert sorted(found) == list("abcdef")
    assert {name for name, each in found.items() if each.refused} == {"b", "d"}
    assert "b: the process that read it was lost" in found["b"].refused
    assert total(list(found.values())).executions == 4
