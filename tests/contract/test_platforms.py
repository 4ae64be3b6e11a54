"""Contract of every platform: one result per operation, program and mixture of platforms.

Each operation has one case with a result written by hand. Every engine that supports the
operation must return this result, with rows and without. Spark takes part in the slow tests if
Spark and Java are installed; its own tests are in `test_spark_platform`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedperf_engines.platforms.engine import (
    EMBEDDED_PLATFORMS,
    ENGINES,
    UnsupportedOperationError,
    installed_platforms,
    supporting,
    supports,
)
from fedperf_engines.platforms.executor import arrow_schema, dataset_path, run_plan
from fedperf_engines.platforms.operations import (
    Aggregate,
    AggregateFunction,
    Aggregation,
    AnyOperation,
    Arithmetic,
    ArithmeticOperator,
    Column,
    ColumnType,
    Comparison,
    ComputedColumn,
    Distinct,
    Embed,
    Filter,
    GlobalAggregate,
    Join,
    KMeans,
    KMeansAssign,
    LinearPredict,
    LinearRegression,
    Order,
    PageRank,
    Project,
    ReadParquet,
    Schema,
    Sink,
    Sort,
    Tokenize,
    TopK,
    Union,
    Window,
    WindowFunction,
)
from fedperf_engines.platforms.program import Program, Step
from fedperf_engines.platforms.statistics import count_rows
from fedperf_engines.workloads.data import prepare
from fedperf_engines.workloads.families import (
    Family,
    draw_platforms,
    draw_program,
    single_platforms,
)
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from tests.fakes.arrow_tables import tables_equal

INTEGER, FLOAT, TEXT = ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.TEXT
SPARK_IS_HERE = Platform.SPARK in installed_platforms()
SLOW_WITH_SPARK = [
    pytest.mark.slow,
    pytest.mark.skipif(not SPARK_IS_HERE, reason="needs Java and the extra [spark]"),
]

Rows = dict[str, list[Any]]
ROWS: Schema = (Column("k", INTEGER), Column("v", FLOAT), Column("t", TEXT))
TABLE: Rows = {
    "k": [1, 2, 1, 3, 2],
    "v": [0.5, 2.0, 1.5, -4.0, 2.0],
    "t": ["b", "a", "it's", "", "a"],
}
OTHER: Schema = (Column("key", INTEGER), Column("v", FLOAT))
OTHER_TABLE: Rows = {"key": [2, 1, 2, 9], "v": [10.0, 20.0, 30.0, 40.0]}
CENTERS: Schema = (Column("cluster", INTEGER), Column("v", FLOAT))
COEFFICIENTS: Schema = (Column("coefficient_v", FLOAT), Column("intercept", FLOAT))
EDGES: Schema = (Column("a", INTEGER), Column("b", INTEGER))
POINTS: Schema = (Column("p", FLOAT), Column("q", INTEGER))


@dataclass(frozen=True)
class Case:
    operation: AnyOperation
    inputs: tuple[tuple[Schema, Rows], ...]
    expected: Rows
    expected_of_nothing: Rows


def case(
    operation: AnyOperation,
    expected: Rows,
    *inputs: tuple[Schema, Rows],
    of_nothing: Rows | None = None,
) -> Case:
    empty: Rows = {name: [] for name in expected}
    return Case(operation, inputs or ((ROWS, TABLE),), expected, of_nothing or empty)


def counted(name: str) -> Aggregation:
    return Aggregation(AggregateFunction.COUNT, name)


def figures(column: str) -> tuple[Aggregation, ...]:
    functions = ("sum", "mean", "min", "max")
    return tuple(Aggregation(AggregateFunction(each), each, column) for each in functions)


def steps(*pairs: tuple[str, str | float]) -> tuple[Arithmetic, ...]:
    return tuple(Arithmetic(ArithmeticOperator(sign), operand) for sign, operand in pairs)


def filtered(column: str, comparison: Comparison, literal: str | float, kept: list[int]) -> Case:
    expected: Rows = {name: [values[row] for row in kept] for name, values in TABLE.items()}
    return case(Filter(column, comparison, literal), expected)


CASES = {
    "project": case(
        Project(
            ("t", "k"),
            (
                ComputedColumn("w", "k", steps(("+", "v"), ("*", 2.0), ("-", 1))),
                ComputedColumn("c", "v"),
            ),
        ),
        {
            "t": TABLE["t"],
            "k": TABLE["k"],
            "w": [2.0, 7.0, 4.0, -3.0, 7.0],
            "c": TABLE["v"],
        },
    ),
    "filter ==": filtered("k", Comparison.EQUAL, 2, [1, 4]),
    "filter != text": filtered("t", Comparison.NOT_EQUAL, "it's", [0, 1, 3, 4]),
    "filter <": filtered("v", Comparison.LESS, 2, [0, 2, 3]),
    "filter <=": filtered("v", Comparison.LESS_OR_EQUAL, 2.0, [0, 1, 2, 3, 4]),
    "filter > on whole numbers": filtered("k", Comparison.GREATER, 1.5, [1, 3, 4]),
    "filter >= text": filtered("t", Comparison.GREATER_OR_EQUAL, "b", [0, 2]),
    "join": case(
        Join("k", "key", right_suffix="_o"),
        {
            "k": [1, 1, 2, 2, 2, 2],
            "v": [0.5, 1.5, 2.0, 2.0, 2.0, 2.0],
            "t": ["b", "it's", "a", "a", "a", "a"],
            "v_o": [20.0, 20.0, 10.0, 30.0, 10.0, 30.0],
        },
        (ROWS, TABLE),
        (OTHER, OTHER_TABLE),
    ),
    "aggregate": case(
        Aggregate(("k",), (counted("n"), *figures("v"))),
        {
            "k": [1, 2, 3],
            "n": [2, 2, 1],
            "sum": [2.0, 4.0, -4.0],
            "mean": [1.0, 2.0, -4.0],
            "min": [0.5, 2.0, -4.0],
            "max": [1.5, 2.0, -4.0],
        },
    ),
    "aggregate by two keys": case(
        Aggregate(
            ("t", "k"),
            (
                Aggregation(AggregateFunction.SUM, "sum", "k"),
                Aggregation(AggregateFunction.MAX, "last", "t"),
            ),
        ),
        {
            "t": ["b", "a", "it's", ""],
            "k": [1, 2, 1, 3],
            "sum": [1, 4, 1, 3],
            "last": ["b", "a", "it's", ""],
        },
    ),
    "global aggregate": case(
        GlobalAggregate((counted("n"), *figures("k"))),
        {"n": [5], "sum": [9], "mean": [1.8], "min": [1], "max": [3]},
    ),
    "distinct": case(Distinct(("t", "k")), {"t": ["b", "a", "it's", ""], "k": [1, 2, 1, 3]}),
    "sort": case(Sort((Order("t", descending=True), Order("k"))), dict(TABLE)),
    "top-k": case(
        TopK((Order("v", descending=True), Order("k", descending=True)), 3),
        {"k": [2, 2, 1], "v": [2.0, 2.0, 1.5], "t": ["a", "a", "it's"]},
    ),
    "top-k breaks ties by the other columns": case(
        TopK((Order("k"),), 2),
        {"k": [1, 1], "v": [0.5, 1.5], "t": ["c", "a"]},
        (ROWS, {"k": [1, 1, 1, 1], "v": [2.0, 1.5, 1.5, 0.5], "t": ["a", "b", "a", "c"]}),
    ),
    "union": case(
        Union(),
        {name: values + values for name, values in TABLE.items()},
        (ROWS, TABLE),
        (ROWS, TABLE),
    ),
    "row number": case(
        Window(WindowFunction.ROW_NUMBER, ("k",), (Order("v", descending=True),), "n"),
        {**TABLE, "n": [2, 1, 1, 1, 2]},
    ),
    "running sum": case(
        Window(WindowFunction.RUNNING_SUM, ("t",), (Order("v"),), "sum", column="k"),
        {**TABLE, "sum": [1, 2, 1, 3, 4]},
    ),
    "tokenize": case(
        Tokenize("t"),
        {"word": ["to", "be", "or", "not", "to", "be", "one"]},
        ((Column("t", TEXT),), {"t": ["to be  or not to be", "", " ", "one "]}),
    ),
    # Index vectors: a (0, 1), b (1, 0), c (-1, -1); d has no neighbours.
    "embed": case(
        Embed("t", dimensions=2, window=2),
        {
            "word": ["a", "b", "c", "d"],
            "e0": [1.0, 0.0, 0.0, 0.0],
            "e1": [1.0, 2.0, 1.0, 0.0],
        },
        ((Column("t", TEXT),), {"t": ["b a  a", "", " ", "a c", "d"]}),
    ),
    # Edges 1 -> 2 (twice), 1 -> 3, 2 -> 3. Node 3 has no outgoing edge.
    # Ranks after one iteration: 1/6, 5/18, 7/18.
    "page rank": case(
        PageRank("a", "b", iterations=2, damping=0.5),
        {
            "node": [1, 2, 3],
            "rank": [
                1 / 6,
                1 / 6 + 1 / 2 * 2 / 3 * 1 / 6,
                1 / 6 + 1 / 2 * (1 / 3 * 1 / 6 + 1 / 6 + 1 / 2 * 2 / 3 * 1 / 3),
            ],
        },
        (EDGES, {"a": [1, 1, 1, 2], "b": [2, 2, 3, 3]}),
    ),
    "k-means": case(
        KMeans(("p", "q"), clusters=2, iterations=6),
        {"cluster": [0, 1], "p": [0.25, 10.25], "q": [0.5, 10.5]},
        (POINTS, {"p": [0.0, 0.5, 10.0, 10.5], "q": [0, 1, 10, 11]}),
    ),
    "k-means assignment": case(
        KMeansAssign(("v",)),
        {**TABLE, "cluster": [1, 0, 0, 1, 0]},
        (ROWS, TABLE),
        (CENTERS, {"cluster": [1, 0], "v": [-1.0, 3.0]}),
    ),
    # Centered: q = (-1/2, 1/2), p = (-2, 2). The slope 2 / (1/2 + penalty) is 2,
    # and the line passes through (1/2, 5/2).
    "regression": case(
        LinearRegression(("q",), "p", penalty=0.5),
        {"coefficient_q": [2.0], "intercept": [1.5]},
        (POINTS, {"q": [0, 1], "p": [0.5, 4.5]}),
    ),
    "linear prediction": case(
        LinearPredict(("v",), name="y"),
        {**TABLE, "y": [2.0, 5.0, 4.0, -7.0, 5.0]},
        (ROWS, TABLE),
        (COEFFICIENTS, {"coefficient_v": [2.0], "intercept": [1.0]}),
    ),
}


def marks_of(platform: Platform) -> list[pytest.MarkDecorator]:
    return SLOW_WITH_SPARK if platform is Platform.SPARK else []


def on_every_platform() -> list[object]:
    return [
        pytest.param(platform, each, id=f"{name} on {platform.name}", marks=marks_of(platform))
        for name, each in CASES.items()
        for platform in supporting(each.operation, ENGINES)
    ]


def on_those_that_run(*kinds: OperatorKind) -> list[object]:
    return [
        pytest.param(each, id=each.name, marks=marks_of(each))
        for each in ENGINES
        if all(supports(kind, each) for kind in kinds)
    ]


def reader_for(platform: Platform) -> Platform:
    """Return the platform that reads files for this one."""
    return platform if supports(OperatorKind.FILE_SOURCE, platform) else Platform.POLARS


def program_of(one: Case) -> Program:
    count = len(one.inputs)
    sources = [
        Step(ReadParquet(f"input{number}", schema)) for number, (schema, _) in enumerate(one.inputs)
    ]
    operation = Step(one.operation, tuple(range(count)))
    return Program((*sources, operation, Step(Sink(), (count,))))


def run_case(one: Case, platform: Platform, directory: Path, *, with_rows: bool) -> pa.Table:
    for number, (schema, rows) in enumerate(one.inputs):
        table = pa.table(rows, schema=arrow_schema(schema))
        pq.write_table(
            table if with_rows else table.slice(0, 0), dataset_path(directory, f"input{number}")
        )
    sources = (reader_for(platform),) * len(one.inputs)
    platforms = (*sources, platform, platform)
    return run_plan(program_of(one), platforms, data_directory=directory, threads=1).table


def expected_table(one: Case, rows: Rows) -> pa.Table:
    return pa.table(rows, schema=arrow_schema(program_of(one).schemas()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "one"), on_every_platform())
def test_platform_operation_returns_result_worked_out_by_hand(
    platform: Platform, one: Case, tmp_path: Path
) -> None:
    result = run_case(one, platform, tmp_path, with_rows=True)
    expected = expected_table(one, one.expected)
    assert tables_equal(result, expected), f"{result.to_pydict()} != {expected.to_pydict()}"


@pytest.mark.parametrize(("platform", "one"), on_every_platform())
def test_platform_operation_on_empty_input_returns_expected_empty_result(
    platform: Platform, one: Case, tmp_path: Path
) -> None:
    result = run_case(one, platform, tmp_path, with_rows=False)
    assert tables_equal(result, expected_table(one, one.expected_of_nothing))


@pytest.mark.parametrize(
    "platform", on_those_that_run(OperatorKind.ML_TRAIN, OperatorKind.ML_PREDICT)
)
def test_untrained_model_assigns_cluster_minus_one_and_predicts_zero(
    platform: Platform, tmp_path: Path
) -> None:
    pq.write_table(pa.table(TABLE, schema=arrow_schema(ROWS)), dataset_path(tmp_path, "d"))
    program = Program(
        (
            Step(ReadParquet("d", ROWS)),
            Step(Filter("v", Comparison.GREATER, 1e6), (0,)),
            Step(KMeans(("v",), 2, 2), (1,)),
            Step(LinearRegression(("v",), "k"), (1,)),
            Step(KMeansAssign(("v",)), (0, 2)),
            Step(LinearPredict(("v",)), (4, 3)),
            Step(Sink(), (5,)),
        )
    )
    platforms = (*(reader_for(platform),) * 2, *(platform,) * 5)
    table = run_plan(program, platforms, data_directory=tmp_path, threads=1).table
    assert table.column("cluster").to_pylist() == [-1] * 5
    assert table.column("prediction").to_pylist() == [0.0] * 5


@pytest.mark.parametrize("platform", on_those_that_run(OperatorKind.SORT))
def test_final_sort_returns_rows_in_order(platform: Platform, tmp_path: Path) -> None:
    one = case(Sort((Order("v", descending=True), Order("t"))), dict(TABLE))
    result = run_case(one, platform, tmp_path, with_rows=True)
    assert result.column("v").to_pylist() == [2.0, 2.0, 1.5, 0.5, -4.0]


@pytest.mark.parametrize("platform", on_those_that_run(OperatorKind.ML_TRAIN))
def test_kmeans_center_without_rows_does_not_move(platform: Platform, tmp_path: Path) -> None:
    rows: Rows = {"p": [0.0, 0.0, 8.0], "q": [0, 0, 0]}
    one = case(KMeans(("p",), clusters=6, iterations=3), {}, (POINTS, rows))
    found = run_case(one, platform, tmp_path, with_rows=True).sort_by("cluster")
    starts = [8.0 * fraction for (fraction,) in KMeans(("p",), 6, 3).starting_fractions()]
    assert found.num_rows == 6
    stayed = [
        start == pytest.approx(end)
        for start, end in zip(starts, found.column("p").to_pylist(), strict=True)
    ]
    assert stayed.count(True) == 4


def test_every_operation_has_a_case_and_embedded_platforms_are_installed() -> None:
    covered = {type(each.operation) for each in CASES.values()} | {ReadParquet, Sink}
    assert {each.__name__ for each in covered} == {
        "ReadParquet", "Project", "Filter", "Join", "Aggregate", "GlobalAggregate", "Distinct",
        "Sort", "TopK", "Union", "Window", "Tokenize", "PageRank", "KMeans", "KMeansAssign",
        "LinearRegression", "LinearPredict", "Embed", "Sink",
    }  # fmt: skip
    assert installed_platforms(EMBEDDED_PLATFORMS) == EMBEDDED_PLATFORMS


@pytest.mark.parametrize("platform", on_those_that_run())
def test_engine_with_unsupported_operation_refuses_it(platform: Platform, tmp_path: Path) -> None:
    refused = [each for each in CASES.values() if not supports(each.operation, platform)]
    assert refused or platform is not Platform.SKLEARN
    for one in refused:
        with pytest.raises(UnsupportedOperationError, match=platform.name):
            run_case(one, platform, tmp_path, with_rows=True)


@pytest.fixture(scope="session")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(each, marks=pytest.mark.slow) for each in (3, 4, 5))]
)
def test_generated_program_gives_one_result_on_all_platforms_and_mixed_plans(
    family: Family, seed: int, data_directory: Path
) -> None:
    rng = np.random.default_rng([seed, *family.encode()])
    program = draw_program(family, rng=rng, rows=1_000)
    prepare(program.datasets, data_directory)
    plans = [(platform,) * len(program.steps) for platform in single_platforms(program)]
    plans += [draw_platforms(program, rng=rng) for _ in range(2)]
    tables = [
        run_plan(program, plan, data_directory=data_directory, threads=1).table for plan in plans
    ]
    for plan, table in zip(plans, tables, strict=True):
        names = "-".join(platform.name for platform in plan)
        assert tables_equal(tables[0], table), f"{names} differs from {plans[0][0].name}"
    counted_rows = count_rows(program, data_directory=data_directory)
    assert counted_rows[program.sinks[0]].rows == tables[0].num_rows
