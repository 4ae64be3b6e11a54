from pathlib import Path

import numpy as np
import pytest

from fedperf_engines.platforms.engine import supports
from fedperf_engines.platforms.operations import (
    Aggregate,
    AggregateFunction,
    Aggregation,
    Column,
    ColumnType,
    Join,
    ReadParquet,
    Sink,
)
from fedperf_engines.platforms.program import Program, Step
from fedperf_engines.platforms.statistics import count_rows, source_statistics
from fedperf_engines.workloads.data import prepare
from fedperf_engines.workloads.families import (
    Family,
    draw_platforms,
    draw_program,
    single_platforms,
    workload_name,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.graph import SourceStatistics
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform


def draws(family: Family, count: int, rows: int = 1_000) -> list[Program]:
    rng = np.random.default_rng([7, *family.encode()])
    return [draw_program(family, rng=rng, rows=rows) for _ in range(count)]


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.mark.parametrize("family", Family)
def test_drawn_program_is_determined_by_the_seed(family: Family) -> None:
    one, same, other = (
        draw_program(family, rng=np.random.default_rng(seed), rows=1_000) for seed in (3, 3, 4)
    )
    assert one == same
    assert one != other


@pytest.mark.parametrize("count", [8, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", Family)
def test_drawn_programs_have_few_empty_results_and_bounded_row_counts(
    family: Family, count: int, directory: Path
) -> None:
    empty = 0
    for program in draws(family, count):
        prepare(program.datasets, directory)
        rows = [each.rows for each in count_rows(program, data_directory=directory)]
        assert max(rows) <= 2_500, f"{max(rows)} rows from 1000"
        empty += rows[program.sinks[0]] == 0
    assert empty <= 2


@pytest.mark.slow
def test_drawn_relational_programs_have_3_to_14_steps_and_thousands_of_shapes() -> None:
    programs = draws(Family.RELATIONAL, 3_000)
    sizes = {len(program.steps) for program in programs}
    shapes = {
        tuple((step.operation.kind, step.inputs) for step in program.steps) for program in programs
    }
    kinds = {step.operation.kind for program in programs for step in program.steps}
    assert sizes == set(range(3, 15))
    assert len(shapes) > 2_000
    assert kinds >= {
        OperatorKind.JOIN,
        OperatorKind.UNION,
        OperatorKind.WINDOW,
        OperatorKind.SORT,
        OperatorKind.TOPK,
        OperatorKind.DISTINCT,
        OperatorKind.GLOBAL_AGGREGATE,
    }


@pytest.mark.parametrize("family", Family)
def test_two_hundred_drawn_programs_have_at_least_180_workload_names(family: Family) -> None:
    names = {workload_name(program) for program in draws(family, 200)}
    assert len(names) >= 180
    assert all(name.startswith(f"{family.value}-") for name in names)


def test_workload_name_is_independent_of_data_scale() -> None:
    names = {
        workload_name(draw_program(Family.TPCH, rng=np.random.default_rng(5), rows=rows))
        for rows in (1_000, 10_000_000)
    }
    assert len(names) == 1


def test_draw_program_with_unknown_row_count_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="2000"):
        draw_program(Family.TPCH, rng=np.random.default_rng(1), rows=2_000)


@pytest.mark.parametrize("family", Family)
def test_drawn_platforms_support_their_steps_and_rarely_switch(family: Family) -> None:
    rng = np.random.default_rng(11)
    alone, switches = 0, []
    for program in draws(family, 300):
        plan = draw_platforms(program, rng=rng)
        pairs = list(zip(program.steps, plan, strict=True))
        assert all(supports(step.operation, platform) for step, platform in pairs)
        alone += len(set(plan)) == 1
        switches += [plan[p] is not platform for step, platform in pairs for p in step.inputs]
    assert 0.55 <= alone / 300 <= 0.85
    assert 0.02 <= np.mean(switches) <= 0.25


def test_drawn_platforms_of_pagerank_sometimes_include_sklearn() -> None:
    rng = np.random.default_rng(2)
    plans = [draw_platforms(program, rng=rng) for program in draws(Family.PAGERANK, 100)]
    assert 5 <= sum(Platform.SKLEARN in plan for plan in plans) <= 60


def test_single_platforms_are_those_that_run_every_step() -> None:
    for family in Family:
        (program,) = draws(family, 1)
        assert single_platforms(program) == (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)


def test_source_statistics_equal_values_computed_by_hand(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    left = pa.table({"v": [1.0, None, 3.0, 4.0], "k": [1, 1, 1, 2]})
    right = pa.table({"key": [1, 2]})
    pq.write_table(left, tmp_path / "left.parquet")
    pq.write_table(right, tmp_path / "right.parquet")
    v, k = Column("v", ColumnType.FLOAT), Column("k", ColumnType.INTEGER)
    program = Program(
        (
            Step(ReadParquet("left", (v, k))),
            Step(ReadParquet("right", (Column("key", ColumnType.INTEGER),))),
            Step(Join("k", "key"), (0, 1)),
            Step(Aggregate(("k",), (Aggregation(AggregateFunction.COUNT, "n"),)), (2,)),
            Step(Sink(), (3,)),
        )
    )
    assert source_statistics(program, tmp_path) == SourceStatistics(
        columns=3, top_key_share=3 / 4, distinct_ratio=(2 + 2) / 6, null_ratio=1 / 10
    )
