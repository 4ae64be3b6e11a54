"""Source rows read from profiles of DuckDB 1.1 to 2.0: determined or unknown, never wrong."""

import importlib.metadata
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import RowCount, RowCounts
from fedperf_client.sources.duckdb.operators import schema_of
from fedperf_client.sources.duckdb.profile_file import OperatorTree
from fedperf_client.sources.ingestion import ingest, total
from fedperf_shared.workflow.vocabulary import SOURCE_KINDS
from tests.integration.sources.duckdb_job import QUERIES, SIZES

JOB = Path(__file__).with_name("duckdb_job.py")
INSTALLED = importlib.metadata.version("duckdb")

pytestmark = pytest.mark.slow


def library(directory: Path, version: str) -> Path:
    """Return a directory with only this DuckDB version. Skips the test if pip fails."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    made = subprocess.run(
        [*command, str(directory), f"duckdb=={version}"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if made.returncode:
        last = (made.stderr.strip() or "no reason").splitlines()[-1]
        pytest.skip(f"pip cannot install duckdb {version} here: {last}")
    return directory


def sources(profile: Path, counted: RowCounts) -> Iterator[tuple[float, bool]]:
    """Yield the rows of every scan of a profile, and whether they are known."""
    content = orjson.loads(profile.read_bytes())
    schema = schema_of(content)
    tree = OperatorTree(schema, counted)
    tree.read(content[schema.top])
    for operator, is_known in zip(tree.operators, tree.are_known, strict=True):
        if operator.kind in SOURCE_KINDS:
            yield operator.output_rows, is_known


@pytest.mark.parametrize("version", ["1.1.3", "1.2.2", "1.3.2", "1.4.4", "1.5.5", INSTALLED])
def test_duckdb_profile_scan_rows_are_mostly_determined_and_always_correct(
    tmp_path: Path, version: str
) -> None:
    directory = tmp_path / "profiles"
    directory.mkdir()
    paths = [] if version == INSTALLED else [str(library(tmp_path / "library", version))]
    subprocess.run(
        [sys.executable, str(JOB), str(directory)],
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        timeout=240,
    )
    profiles = sorted(directory.glob("*.json"))
    taken = total(list(ingest(profiles, tmp_path / "store")))
    assert (taken.executions, dict(taken.skipped)) == (4 * len(QUERIES), {})

    decided = Counter[str]()
    with ExecutionStore.open(tmp_path / "store") as store:

        def counts(place: str) -> list[RowCount]:
            return [RowCount(*each) for each in store.row_counts(place)]

        for profile in profiles:
            place, _, name = profile.stem.split("-")
            tables = QUERIES[name][1]
            found = list(sources(profile, counts)) if tables else []
            for rows, is_known in found:
                right = any(rows == pytest.approx(SIZES[each], rel=0.01) for each in tables)
                assert right or not is_known, (profile.name, rows)
                decided[place] += is_known
                decided[f"{place} scans"] += 1
    assert decided["native"] == decided["native scans"] > 0
    assert decided["parquet"] >= 0.9 * decided["parquet scans"] > 0
