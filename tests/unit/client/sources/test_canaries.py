"""Tests that no text of a source reaches a release.

A canary is inserted into every text that a source reads, one after the other. It may appear in the
few text fields of an execution, which are local. An integration test of the organizations shows
that they are not released. Inserting the canary into all texts at once changes no bit of a
release's inputs. Structural texts, such as the names of events, are excluded.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pytest

from fedperf_client.contributions.local_sums import ReportTask
from fedperf_client.contributions.mechanisms import sum_residuals
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import SkippedRecord, open_source
from fedperf_shared.execution import Execution, ExecutionMetadata
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.wire.codec import encode_plan
from tests.fakes.duckdb_profiles import grouped
from tests.fakes.json_paths import Place, at, places, replaced
from tests.fakes.spark_logs import sample

CANARY = "canary-7f3a9"
START = 1_772_000_000
NAMES = {"application", "application_id", "record", "description", "file", "failure"}
# Beside these, `columns` of the rows of tables, see `tables.test_table_source`.
LOCAL_TEXTS = {
    "execution_id",
    "workload",
    "source",
    "node_type",
    "architecture",
    "statement",
} | NAMES

Records = list[dict[str, object]]


def spark_log(records: Records, directory: Path) -> Path:
    path = directory / "eventlog"
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    return path


def duckdb_profiles(records: Records, directory: Path) -> Path:
    path = directory / "profiles"
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    os.utime(path, (START, START))  # its modification time dates the executions
    return path


SOURCES: dict[str, tuple[Callable[[Records, Path], Path], Records]] = {
    "Spark event log": (spark_log, sample()),
    "DuckDB profile": (duckdb_profiles, [grouped(version) for version in range(3)]),
}
NAMES_THE_WORKLOAD = "Spark event log"
"""Source whose workloads are named after the application. DuckDB names them by query shape."""


def read(write: Callable[[Records, Path], Path], records: Records, path: Path) -> list[Execution]:
    source = open_source(write(records, path))
    return [each for each in source.read() if not isinstance(each, SkippedRecord)]


def planted(records: Records, place: Place) -> Records:
    """Append the canary to the existing text."""
    return replaced(records, place, f"{at(records, place)}{CANARY}")


def text_places(records: Records) -> list[Place]:
    return [place for place in places(records) if isinstance(at(records, place), str)]


def what_counts(executions: Sequence[Execution]) -> list[object]:
    """Return the facts from which releases and models are computed."""
    return [
        (encode_plan(each.plan), each.cluster, each.status, each.measurement, each.finished_at)
        for each in executions
    ]


def texts(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in an object with the name of its field."""
    if isinstance(value, str) and not isinstance(value, Enum):
        yield name, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from texts(getattr(value, field.name), field.name)
    elif isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from texts(each, name)


def sums(executions: Sequence[Execution], directory: Path) -> np.ndarray[tuple[int], np.dtype]:
    """Return the sums of a residual report before noise is added."""
    directory.mkdir()
    with ExecutionStore.open(directory / "store") as store:
        store.add(executions)
    task = ReportTask(
        directory / "store",
        load_pretrained_model(),
        None,
        max(each.finished_at for each in executions) + timedelta(seconds=1),
        partial(sum_residuals, clip=1.0),
    )
    return task()


def test_text_fields_of_an_execution_are_the_known_local_ones() -> None:
    found = {
        field.name
        for kind in (Execution, ExecutionMetadata)
        for field in dataclasses.fields(kind)
        if field.type in {str, "str"}
    }
    assert found == LOCAL_TEXTS


@pytest.mark.parametrize("name", SOURCES)
def test_source_texts_reach_only_local_fields(tmp_path: Path, name: str) -> None:
    write, records = SOURCES[name]
    found_in: set[str] = set()
    for place in text_places(records):
        for execution in read(write, planted(records, place), tmp_path):
            holders = {field for field, text in texts(execution) if CANARY in text}
            assert holders <= LOCAL_TEXTS, place
            assert CANARY.encode() not in encode_plan(execution.plan)
            found_in |= holders
    known_by = {"application", "application_id", "description", "failure"}
    assert known_by <= found_in if name == NAMES_THE_WORKLOAD else not found_in


@pytest.mark.parametrize("name", SOURCES)
def test_release_sums_are_independent_of_non_structural_texts(tmp_path: Path, name: str) -> None:
    write, records = SOURCES[name]
    original = read(write, records, tmp_path)
    every = records
    planted_in = 0
    for place in text_places(records):
        more = planted(every, place)
        if what_counts(read(write, more, tmp_path)) == what_counts(original):
            every, planted_in = more, planted_in + 1
    assert planted_in >= len(text_places(records)) // 3
    changed = read(write, every, tmp_path)
    is_named = {each.workload for each in changed} != {each.workload for each in original}
    assert is_named is (name == NAMES_THE_WORKLOAD)
    before, after = sums(original, tmp_path / "a"), sums(changed, tmp_path / "b")
    assert before.any()
    assert np.array_equal(before, after)
