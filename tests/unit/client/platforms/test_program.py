import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Filter,
    InvalidProgramError,
    Join,
    KMeans,
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
from fedperf_engines.platforms.program import (
    Program,
    Step,
    StepStatistics,
    from_json,
    to_json,
    to_workflow,
)
from fedperf_engines.workloads.families import Family, draw_program
from fedperf_shared.workflow.graph import SourceStatistics
from fedperf_shared.workflow.vocabulary import Complexity, OperatorClass, OperatorKind

K, V, T = (
    Column("k", ColumnType.INTEGER),
    Column("v", ColumnType.FLOAT),
    Column("t", ColumnType.TEXT),
)
ROWS: Schema = (K, V, T)
READ = Step(ReadParquet("d", ROWS))


def chain(*operations: AnyOperation) -> Program:
    steps = [READ]
    for operation in operations:
        steps.append(Step(operation, (len(steps) - 1,)))
    return Program(tuple(steps))


@given(family=st.sampled_from(Family), seed=st.integers(0, 2**32 - 1))
def test_program_round_trips_through_json(family: Family, seed: int) -> None:
    program = draw_program(family, rng=np.random.default_rng(seed), rows=1_000)
    assert from_json(to_json(program)) == program


def test_json_round_trip_preserves_integer_and_float_literals() -> None:
    program = chain(Filter("k", Comparison.LESS, 5), Filter("v", Comparison.LESS, 5.0), Sink())
    literals = [step.operation.literal for step in from_json(to_json(program)).steps[1:3]]  # type: ignore[union-attr]
    assert [type(each) for each in literals] == [int, float]


@given(text=st.binary(max_size=60))
def test_from_json_of_arbitrary_bytes_raises_invalid_program_error(text: bytes) -> None:
    with pytest.raises(InvalidProgramError):
        from_json(text)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (b'"sink"', b'"drain"', "drain"),
        (b'"count":3', b'"count":"3"', "count"),
        (b'"count":3', b'"count":3,"more":1', "more"),
        (b'"count":3', b'"count":0', "got 0"),
        (b'"inputs":[1]', b'"inputs":[2]', "step 2"),
        (b'"inputs":[1]', b'"inputs":[-1]', "step -1"),
        (b'"inputs":[1]', b'"inputs":[0]', "unused"),
        (b'"column":"v"', b'"column":"w"', "no column 'w'"),
        (b'"dataset":"d"', b'"dataset":"../d"', "plain name"),
        (b"}]}", b"}]", "JSON"),
    ],
)
def test_from_json_of_damaged_program_names_the_defect(
    before: bytes, after: bytes, told: str
) -> None:
    text = to_json(chain(TopK((Order("v"),), 3), Sink()))
    assert before in text
    with pytest.raises(InvalidProgramError, match=told):
        from_json(text.replace(before, after))


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ((), "1 to 512"),
        ((READ,), "sink"),
        ((READ, Step(Sink(), (0,)), Step(Sort((Order("k"),)), (0,))), "unused"),
        ((READ, Step(Sink(), (0,)), Step(Sink(), (1,))), "reads a sink"),
        ((READ, Step(Sink(), ())), "reads 1 inputs, got 0"),
        ((READ, Step(Union(), (0,)), Step(Sink(), (1,))), "reads 2 inputs, got 1"),
        ((Step(Sink(), (0,)),), "only earlier"),
    ],
)
def test_program_with_malformed_graph_is_refused(steps: tuple[Step, ...], told: str) -> None:
    with pytest.raises(InvalidProgramError, match=told):
        Program(steps)


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (lambda: Filter("t", Comparison.LESS, 3), "text column 't'"),
        (lambda: Filter("v", Comparison.LESS, "3"), "float column 'v'"),
        (lambda: Filter("v", Comparison.LESS, float("nan")), "nan"),
        (lambda: Project(("k", "k")), "twice"),
        (lambda: Project(()), "at least one column"),
        (lambda: Project(("k",), (ComputedColumn("w", "t"),)), "text"),
        (lambda: Arithmetic(ArithmeticOperator.ADD, float("inf")), "inf"),
        (lambda: Aggregate((), ()), "at least one key"),
        (lambda: Aggregation(AggregateFunction.SUM, "s"), "every other function one"),
        (lambda: Aggregation(AggregateFunction.COUNT, "n", "k"), "count takes no column"),
        (
            lambda: Aggregate(("k",), (Aggregation(AggregateFunction.MEAN, "m", "t"),)),
            "text",
        ),
        (lambda: Distinct(("q",)), "no column 'q'"),
        (lambda: Sort(()), "at least one key"),
        (lambda: Window(WindowFunction.RUNNING_SUM, ("k",), (Order("v"),), "w"), "running sum"),
        (lambda: Tokenize("k"), "tokenize reads text"),
        (lambda: PageRank("k", "v"), "integer nodes"),
        (lambda: PageRank("k", "k", 0), "rounds"),
        (lambda: PageRank("k", "k", damping=1.0), "damping"),
        (lambda: KMeans(("v",), 0, 1), "clusters"),
        (lambda: KMeans(("t",), 2, 1), "text"),
        (lambda: LinearRegression(("v",), "k", penalty=float("nan")), "penalty"),
        (lambda: Column("a b", ColumnType.TEXT), "identifier"),
    ],
)
def test_operation_with_invalid_parameters_is_refused(operation: object, told: str) -> None:
    with pytest.raises(InvalidProgramError, match=told):
        chain(operation(), Sink())  # type: ignore[operator]


@pytest.mark.parametrize(("left", "right"), [("v", "k"), ("k", "t"), ("v", "v")])
def test_join_on_keys_of_unsuitable_types_is_refused(left: str, right: str) -> None:
    join = Step(Join(left, right, right_suffix="_r"), (0, 0))
    with pytest.raises(InvalidProgramError, match="both keys"):
        Program((READ, join, Step(Sink(), (1,))))


def test_to_workflow_preserves_shape_and_statistics_of_the_program() -> None:
    steps = (Arithmetic(ArithmeticOperator.ADD, 7.0), Arithmetic(ArithmeticOperator.ADD, "k"))
    program = chain(
        Project(("k", "v"), (ComputedColumn("w", "v", steps),)),
        KMeans(("v", "w"), clusters=3, iterations=4),
        Sink(),
    )
    sizes = [StepStatistics(100, 30.0), StepStatistics(100, 24.0), *[StepStatistics(3, 24.0)] * 2]
    workflow = to_workflow(program, sizes, SourceStatistics(columns=3))
    assert [each.kind for each in workflow.operators] == [
        OperatorKind.FILE_SOURCE,
        OperatorKind.MAP,
        OperatorKind.ML_TRAIN,
        OperatorKind.SINK,
    ]
    project, train = workflow.operators[1:3]
    assert (project.code_steps, project.complexity) == (2, Complexity.LINEAR)
    assert (train.code_steps, train.iterations, train.operator_class) == (6, 4, OperatorClass.ML)
    assert [each.output_rows for each in workflow.operators] == [100, 100, 3, 3]
    assert workflow.sources.columns == 3


def test_to_workflow_with_missing_statistics_is_refused() -> None:
    with pytest.raises(InvalidProgramError, match="2 steps"):
        to_workflow(chain(Sink()), [StepStatistics(1, 8.0)])


def test_kmeans_initial_centers_are_distinct_in_every_column() -> None:
    starts = np.array(KMeans(tuple("abcdefgh"), 8, 1).starting_fractions())
    assert starts.shape == (8, 8)
    assert ((starts > 0) & (starts < 1)).all()
    assert all(len(np.unique(column.round(6))) == 8 for column in starts.T)


def test_importing_programs_and_support_imports_no_engine() -> None:
    code = (
        "import sys, fedperf_engines.platforms.program, fedperf_engines.platforms.engine, "
        "fedperf_engines.platforms.executor, fedperf_engines.workloads.families\n"
        "heavy = {'duckdb', 'polars', 'pandas', 'pyarrow', 'sklearn', 'scipy', 'torch'}\n"
        "print(*sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
