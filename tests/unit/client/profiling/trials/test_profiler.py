"""The real worker with real engines, on data that is small enough for the fast tests."""

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fedperf_engines.platforms.operations import (
    Aggregate,
    AggregateFunction,
    Aggregation,
    Column,
    ColumnType,
    Comparison,
    Filter,
    ReadParquet,
    Sink,
)
from fedperf_engines.platforms.program import Program, Step
from fedperf_engines.trials.profiler import (
    Profiler,
    TrialLimits,
    UncountableProgramError,
    WorkerPool,
)
from fedperf_shared.execution import ClusterConfig, ExecutionStatus
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CLUSTER = ClusterConfig(1, 1, 8_000_000_000)


@pytest.fixture(scope="module")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    table = pa.table({"key": [n % 4 for n in range(100)], "value": [n / 8 for n in range(100)]})
    parquet.write_table(table, directory / "numbers.parquet")
    return directory


@pytest.fixture(scope="module")
def profiler(data_directory: Path) -> Iterator[Profiler]:
    numbers = itertools.count()
    with WorkerPool() as pool:
        yield Profiler(
            pool,
            data_directory=data_directory,
            limits=TrialLimits(60.0, 4_000_000_000),
            clock=lambda: NOW,
            new_id=lambda: f"execution-{next(numbers)}",
        )


def program(dataset: str = "numbers") -> Program:
    columns = (Column("key", ColumnType.INTEGER), Column("value", ColumnType.FLOAT))
    total = Aggregation(AggregateFunction.SUM, "total", "value")
    return Program(
        (
            Step(ReadParquet(dataset, columns)),
            Step(Filter("value", Comparison.GREATER_OR_EQUAL, 5.0), (0,)),
            Step(Aggregate(("key",), (total,)), (1,)),
            Step(Sink(), (2,)),
        )
    )


@pytest.mark.parametrize(
    "platforms",
    [
        (Platform.DUCKDB,) * 4,
        (Platform.PANDAS, Platform.POLARS, Platform.POLARS, Platform.POLARS),
    ],
    ids=["one platform", "two platforms"],
)
def test_profiler_records_execution_with_actual_cardinalities(
    profiler: Profiler, platforms: tuple[Platform, ...]
) -> None:
    began = time.perf_counter()
    execution = profiler.profile(program(), platforms, CLUSTER, workload="totals")
    whole_seconds = time.perf_counter() - began
    assert execution.status is ExecutionStatus.OK
    assert execution.plan.platforms == platforms
    assert [o.output_rows for o in execution.plan.workflow.operators] == [100, 60, 4, 4]
    assert execution.plan.workflow.operators[2].kind is OperatorKind.AGGREGATE
    assert execution.plan.workflow.sources.columns == 2
    assert (execution.workload, execution.finished_at) == ("totals", NOW)
    assert execution.measurement is not None
    assert 0 < execution.measurement.runtime_seconds < whole_seconds
    assert execution.measurement.read_bytes > 0
    assert 20e6 < execution.measurement.peak_memory_bytes < 1e9


def test_profiler_trial_segments_list_their_platforms(profiler: Profiler) -> None:
    mixed = (Platform.PANDAS, Platform.POLARS, Platform.POLARS, Platform.POLARS)
    trial = profiler.trial(program(), mixed, threads=1)
    assert [segment.platform for segment in trial.segments] == [Platform.PANDAS, Platform.POLARS]
    assert trial.measurement is not None
    total = sum(segment.seconds for segment in trial.segments)
    assert 0 < total <= trial.measurement.runtime_seconds


@pytest.mark.slow
def test_profiler_with_unsuitable_platform_records_failed_execution(profiler: Profiler) -> None:
    execution = profiler.profile(program(), (Platform.SKLEARN,) * 4, CLUSTER, workload="totals")
    assert execution.status is ExecutionStatus.FAILED


@pytest.mark.slow
def test_profiler_with_missing_data_raises_uncountable_program(profiler: Profiler) -> None:
    with pytest.raises(UncountableProgramError, match="missing"):
        profiler.profile(program("nothing"), (Platform.DUCKDB,) * 4, CLUSTER, workload="w")


@pytest.mark.slow
def test_profiler_counts_rows_of_a_program_once(profiler: Profiler) -> None:
    assert profiler.workflow(program()) is profiler.workflow(program())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "foreign"),
    [
        (Platform.DUCKDB, {"polars", "pandas", "sklearn", "torch"}),
        (Platform.POLARS, {"duckdb", "pandas", "sklearn", "torch"}),
    ],
)
def test_worker_imports_only_engines_of_its_platforms(
    platform: Platform, foreign: set[str]
) -> None:
    code = (
        "import sys, fedperf_engines.trials.worker as w; "
        "from fedperf_shared.workflow.vocabulary "
        f"import Platform; w.EnginesOfPlatforms().warm_up([Platform({int(platform)})], 1, None); "
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert platform.name.lower() in modules
    assert modules & foreign == set()
