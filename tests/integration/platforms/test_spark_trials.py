"""Spark in the worker processes of trials: warm between runs, within its cap, gone at the end."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedperf_engines.platforms.engine import installed_platforms
from fedperf_engines.platforms.operations import (
    Aggregate,
    AggregateFunction,
    Aggregation,
    Column,
    ColumnType,
    ReadParquet,
    Sink,
)
from fedperf_engines.platforms.program import Program, Step, to_json
from fedperf_engines.trials.profiler import (
    Trial,
    TrialLimits,
    TrialRequest,
    WorkerKey,
    WorkerPool,
)
from fedperf_shared.execution import ExecutionStatus, Measurement
from fedperf_shared.workflow.vocabulary import Platform

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        Platform.SPARK not in installed_platforms(), reason="needs Java and the extra [spark]"
    ),
]

CAP = 2_000_000_000
LIMITS = TrialLimits(120.0, 6_000_000_000)
ROWS = 500_000
PROGRAM = Program(
    (
        Step(ReadParquet("d", (Column("k", ColumnType.INTEGER), Column("v", ColumnType.FLOAT)))),
        Step(Aggregate(("k",), (Aggregation(AggregateFunction.SUM, "s", "v"),)), (0,)),
        Step(Sink(), (1,)),
    )
)


@pytest.fixture(scope="module")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    numbers = np.random.default_rng(0).random(ROWS)
    table = pa.table({"k": np.arange(ROWS) % 1000, "v": numbers})
    pq.write_table(table, directory / "d.parquet", compression="none")
    return directory


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # fast start
        with WorkerPool() as pool:
            yield pool


def run(pool: WorkerPool, data_directory: Path, *platforms: Platform) -> Trial:
    request = TrialRequest(to_json(PROGRAM), platforms, data_directory, 1, CAP)
    return pool.run(request, LIMITS)


def measured(trial: Trial) -> Measurement:
    assert trial.status is ExecutionStatus.OK, trial.reason
    assert trial.measurement is not None
    return trial.measurement


def java_below(pid: int) -> psutil.Process:
    # Spark's script becomes the JVM, which itself starts short-lived children.
    (java,) = psutil.Process(pid).children()
    assert "java" in java.name()
    return java


def test_spark_trials_share_a_warm_jvm_within_memory_cap_and_clean_up(
    pool: WorkerPool, data_directory: Path
) -> None:
    files = set(Path.cwd().iterdir())
    first = measured(run(pool, data_directory, *[Platform.SPARK] * 3))
    worker = pool._workers[WorkerKey(frozenset({Platform.SPARK}), 1, CAP)]
    java = java_below(worker.child.pid)
    assert f"-Xmx{int(0.7 * (CAP - 500_000_000))}" in java.cmdline()
    second = measured(run(pool, data_directory, *[Platform.SPARK] * 3))
    assert java_below(worker.child.pid) == java
    for each in (first, second):
        assert 0 < each.cpu_seconds < 20 * each.runtime_seconds
        assert each.read_bytes > 8 * ROWS, "what the JVM reads counts"
        assert 200e6 < each.peak_memory_bytes < CAP, "and what it holds"
    connections = java.net_connections(kind="inet")
    assert {address.laddr.ip for address in connections} <= {"127.0.0.1", "::ffff:127.0.0.1"}
    scratch = Path(worker.scratch)
    assert scratch.is_dir()
    pool.close()
    assert not java.is_running() or java.status() == psutil.STATUS_ZOMBIE
    assert not scratch.exists()
    assert set(Path.cwd().iterdir()) == files


def test_trial_mixing_spark_and_duckdb_records_segments_in_order(
    pool: WorkerPool, data_directory: Path
) -> None:
    trial = run(pool, data_directory, Platform.DUCKDB, Platform.SPARK, Platform.DUCKDB)
    assert measured(trial).runtime_seconds > 0
    assert [each.platform for each in trial.segments] == [
        Platform.DUCKDB,
        Platform.SPARK,
        Platform.DUCKDB,
    ]
