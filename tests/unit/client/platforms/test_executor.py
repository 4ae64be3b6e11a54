import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedperf_engines.platforms import executor
from fedperf_engines.platforms.engine import Engine, UnsupportedOperationError, open_engine
from fedperf_engines.platforms.executor import (
    DatasetMissingError,
    RunResult,
    dataset_path,
    run_plan,
)
from fedperf_engines.platforms.operations import (
    Aggregate,
    AggregateFunction,
    Aggregation,
    Column,
    ColumnType,
    Comparison,
    Filter,
    InvalidProgramError,
    Join,
    KMeans,
    Order,
    ReadParquet,
    Sink,
    Window,
    WindowFunction,
)
from fedperf_engines.platforms.program import Program, Step, StepStatistics, to_json
from fedperf_engines.platforms.statistics import count_rows
from fedperf_shared.workflow.vocabulary import Platform

D, P, N, S = Platform.DUCKDB, Platform.POLARS, Platform.PANDAS, Platform.SKLEARN
ROWS = (
    Column("k", ColumnType.INTEGER),
    Column("v", ColumnType.FLOAT),
    Column("t", ColumnType.TEXT),
)
COUNT = Aggregation(AggregateFunction.COUNT, "n")

SHARED = Program(
    (
        Step(ReadParquet("d", ROWS)),
        Step(Filter("v", Comparison.GREATER, 0.0), (0,)),
        Step(Aggregate(("k",), (COUNT,)), (1,)),
        Step(Join("k", "k"), (1, 2)),
        Step(Sink(), (3,)),
        Step(Sink(), (2,)),
    )
)
"""Filter and aggregate are both read twice. The aggregate is also a result."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    rows = {"k": [1, 1, 2, 3], "v": [1.0, 2.0, 3.0, -1.0], "t": ["a", "bc", "", "defg"]}
    pq.write_table(pa.table(rows), dataset_path(tmp_path, "d"))
    return tmp_path


def run(directory: Path, *platforms: Platform) -> RunResult:
    return run_plan(SHARED, platforms, data_directory=directory, threads=1)


def segments(result: RunResult) -> list[tuple[Platform, tuple[int, ...]]]:
    return [(each.platform, each.steps) for each in result.segment_timings]


def test_run_plan_returns_tables_of_all_sinks_in_step_order(directory: Path) -> None:
    result = run(directory, *[P] * 6)
    assert sorted(result.table.to_pylist(), key=lambda row: row["v"]) == [
        {"k": 1, "v": 1.0, "t": "a", "n": 2},
        {"k": 1, "v": 2.0, "t": "bc", "n": 2},
        {"k": 2, "v": 3.0, "t": "", "n": 1},
    ]
    assert sorted(result.tables[1].to_pylist(), key=lambda row: row["k"]) == [
        {"k": 1, "n": 2},
        {"k": 2, "n": 1},
    ]


@pytest.mark.parametrize("platform", [D, P, N])
def test_segments_on_one_platform_end_at_shared_results_and_sinks(
    directory: Path, platform: Platform
) -> None:
    found = segments(run(directory, *[platform] * 6))
    assert found == [(platform, (0, 1)), (platform, (2,)), (platform, (3, 4)), (platform, (5,))]


def test_segments_end_at_platform_switches(directory: Path) -> None:
    found = segments(run(directory, D, P, N, D, D, N))
    assert found == [(D, (0,)), (P, (1,)), (N, (2,)), (D, (3, 4)), (N, (5,))]


def test_segment_timings_cover_every_step_exactly_once(directory: Path) -> None:
    result = run(directory, P, P, N, P, D, P)
    steps = [step for each in result.segment_timings for step in each.steps]
    assert sorted(steps) == list(range(6))
    assert all(each.seconds > 0 for each in result.segment_timings)
    assert result.seconds >= sum(each.seconds for each in result.segment_timings)


ENGINES = {
    D: "duckdb_engine.DuckDbEngine",
    P: "polars_engine.PolarsEngine",
    N: "pandas_engine.PandasEngine",
}


@pytest.mark.parametrize("platform", ENGINES)
def test_shared_result_is_materialized_and_each_operation_applied_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch, platform: Platform
) -> None:
    calls: list[str] = []
    module, _, name = f"fedperf_engines.platforms.{ENGINES[platform]}".rpartition(".")
    engine = getattr(import_module(module), name)

    def counted(method: str) -> None:
        original = getattr(engine, method)

        def counting(self: object, *arguments: object) -> object:
            calls.append(method)
            return original(self, *arguments)

        monkeypatch.setattr(engine, method, counting)

    for method in ("apply", "keep", "collect"):
        counted(method)
    run(directory, *[platform] * 6)
    assert calls == ["apply", "keep", "apply", "keep", "apply", "collect", "collect"]


def test_missing_data_set_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissingError, match="'d' is missing"):
        run(tmp_path, *[P] * 6)
    with pytest.raises(DatasetMissingError):
        count_rows(SHARED, data_directory=tmp_path)


def test_unsupported_plan_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Platform] = []

    def opening(platform: Platform, *, threads: int, memory_bytes: int | None) -> Engine[Any]:
        opened.append(platform)
        return open_engine(platform, threads=threads, memory_bytes=memory_bytes)

    monkeypatch.setattr(executor, "open_engine", opening)
    with pytest.raises(UnsupportedOperationError, match="SKLEARN cannot run join"):
        run(directory, P, P, P, S, P, P)
    with pytest.raises(UnsupportedOperationError, match="FLINK"):
        run(directory, *[Platform.FLINK] * 6)
    with pytest.raises(InvalidProgramError, match="6 steps"):
        run(directory, P)
    assert opened == []
    run(directory, *[P] * 6)
    assert opened == [P]


def test_open_engine_of_platform_without_engine_is_refused() -> None:
    with pytest.raises(UnsupportedOperationError, match="FLINK"):
        open_engine(Platform.FLINK, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize("platform", [D, P])
def test_run_plan_imports_only_engines_of_the_plan(directory: Path, platform: Platform) -> None:
    program = Program(
        (
            Step(ReadParquet("d", ROWS)),
            Step(KMeans(("v",), 2, 2), (0,)),
            Step(Sink(), (1,)),
        )
    )
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedperf_engines.platforms.executor import run_plan\n"
        "from fedperf_engines.platforms.program import from_json\n"
        "from fedperf_shared.workflow.vocabulary import Platform\n"
        f"run_plan(from_json({to_json(program)!r}), [Platform({int(platform)})] * 3, "
        f"data_directory=Path({str(directory)!r}), threads=1)\n"
        "print(*sorted({'duckdb', 'polars', 'pandas', 'sklearn'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [platform.name.lower()]


def test_count_rows_matches_numbers_worked_out_by_hand(directory: Path) -> None:
    # Filtered rows: k = 1, 1, 2. Texts have 1, 2 and 0 bytes, each with an offset of 4 bytes.
    assert count_rows(SHARED, data_directory=directory) == (
        StepStatistics(4, 8 + 8 + 4 + 7 / 4),
        StepStatistics(3, 8 + 8 + 4 + 1),
        StepStatistics(2, 16.0, 2 / 3),
        StepStatistics(3, 8 + 8 + 4 + 1 + 8, (2 + 2) / 5),
        StepStatistics(3, 8 + 8 + 4 + 1 + 8),
        StepStatistics(2, 16.0),
    )


def test_count_rows_of_window_uses_partitions_as_keys(directory: Path) -> None:
    window = Window(WindowFunction.ROW_NUMBER, ("k",), (Order("v"),), "w")
    program = Program((Step(ReadParquet("d", ROWS)), Step(window, (0,)), Step(Sink(), (1,))))
    assert count_rows(program, data_directory=directory)[1].key_distinct_ratio == 3 / 4


def test_count_rows_of_empty_steps_has_zero_rows_and_width(directory: Path) -> None:
    nothing = Filter("v", Comparison.GREATER, 99.0)
    count = Aggregate(("t",), (COUNT,))
    program = Program(
        (Step(ReadParquet("d", ROWS)), Step(nothing, (0,)), Step(count, (1,)), Step(Sink(), (2,)))
    )
    assert count_rows(program, data_directory=directory)[1:] == (StepStatistics(0, 0.0),) * 3
