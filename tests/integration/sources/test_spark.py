"""Logs of the installed Spark, in every codec, are read as the executed job."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import SkippedRecord, find_sources, open_source
from fedperf_client.sources.ingestion import ingest_source
from fedperf_shared.execution import Execution
from fedperf_shared.workflow.vocabulary import RUNS_PYTHON, OperatorKind
from tests.integration.sources.spark_job import GROUPS, ROWS

JOB = Path(__file__).with_name("spark_job.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
        reason="needs Java and the extra [spark]",
    ),
]


def written(directory: Path, codec: str, *, rolling: bool) -> Path:
    """Return the log of a job that the installed Spark has just run."""
    directory.mkdir()
    subprocess.run(
        [sys.executable, JOB, str(directory), codec, str(rolling).lower()],
        check=True,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        timeout=240,
    )
    (log,) = [place for place, _ in find_sources([directory], [])]
    assert isinstance(log, Path)
    return log


@pytest.mark.parametrize(
    ("codec", "rolling"),
    [("zstd", True), ("lz4", False), ("snappy", False), ("none", False)],
)
def test_installed_spark_log_in_any_codec_is_read_as_the_job_that_ran(
    tmp_path: Path, codec: str, rolling: bool
) -> None:
    log = written(tmp_path / "logs", codec, rolling=rolling)
    assert log.is_dir() is rolling
    found = [each for each in open_source(log).read() if not isinstance(each, SkippedRecord)]
    (job,) = [each for each in found if kinds(each).count(OperatorKind.JOIN) == 1]
    rows = {operator.kind: operator.output_rows for operator in job.plan.workflow.operators}
    assert rows[OperatorKind.JOIN] == ROWS
    assert rows[OperatorKind.AGGREGATE] == rows[OperatorKind.SINK] == GROUPS
    assert job.origin.rows_known >= 0.94
    assert job.origin.source.startswith("spark 4.")
    assert job.cluster.cores == 2
    assert job.measurement is not None
    assert 0 < job.measurement.cpu_seconds < 4 * job.measurement.runtime_seconds
    assert (job.origin.application, job.origin.file) == ("orders 2026-03-01", "")
    assert job.origin.description == f"write -> out-{codec}-{str(rolling).lower()}"
    assert any(job.origin.operator_seconds)
    (counted,) = [e for e in found if e.origin.description == "orders of every customer"]
    assert counted.origin.record.startswith("job ")
    assert counted.workload.startswith("orders/count-at-spark-job-py-")
    assert OperatorKind.EXCHANGE in kinds(counted)
    assert OperatorKind.OTHER not in kinds(counted)
    assert RUNS_PYTHON in {each.code_steps for each in counted.plan.workflow.operators}
    with ExecutionStore.open(tmp_path / "store") as store:
        assert ingest_source(log, store).new == len(found)
        assert ingest_source(log, store).new == 0


def kinds(execution: Execution) -> list[OperatorKind]:
    return [operator.kind for operator in execution.plan.workflow.operators]
