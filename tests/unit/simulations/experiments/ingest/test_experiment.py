"""Tests of the benchmark of ingestion in a small form, and of its generated log."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.ingest.experiment import (
    EXPERIMENT,
    MOST_MEGABYTES,
    TASKS,
    write_log,
)
from fedperf_simulations.harness.experiment import Settings
from tests.fakes.spark_logs import SparkLog, node, read_log
from tests.public_data import public_data


def test_generated_spark_log_is_read_as_its_queries(tmp_path: Path) -> None:
    lines = write_log(tmp_path / "log", 4_000_000)
    found, skipped = read_log(tmp_path / "log")
    assert skipped == []
    assert len(found) == lines // (2 * TASKS) > 1
    assert {each.origin.rows_known for each in found} == {1.0}
    assert {len(each.plan.workflow.operators) for each in found} == {41}
    assert (tmp_path / "log").stat().st_size >= 4_000_000


@pytest.mark.slow
def test_ingest_of_log_with_unfinished_queries_uses_bounded_memory(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as stream:
        for number in range(700):
            plan = node("Union", *[node("Scan parquet", rows=n) for n in range(200)])
            counted = {number * 1000 + n: n for n in range(200)}
            stream.write(SparkLog().start(number, plan).job(number, counted).bytes())
    command = [sys.executable, "-m", "fedperf_simulations.experiments.ingest.measurement"]
    answer = subprocess.run(
        [*command, str(tmp_path / "log"), str(tmp_path / "store"), "1"],
        check=True,
        capture_output=True,
    )
    found = orjson.loads(answer.stdout)
    assert found["skipped"] >= 700
    assert found["peak_bytes"] < MOST_MEGABYTES * 1024**2


def test_ingest_benchmark_without_data_names_the_environment_variable(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="FEDPERF_DATA"):
        EXPERIMENT.run(Settings(seed=0, out=tmp_path, quick=True))


@pytest.mark.slow
def test_quick_ingest_benchmark_has_five_rows_and_four_targets(tmp_path: Path) -> None:
    data = public_data("spark-eventlogs")
    outcome = EXPERIMENT.run(Settings(seed=0, out=tmp_path, data=data, quick=True))
    assert len(outcome.rows) == 5
    assert len(outcome.targets) == 4
    assert float(outcome.rows[1]["ratio"] or 0) > 1
