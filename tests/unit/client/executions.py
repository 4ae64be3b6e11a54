"""Executions for tests of modules that store or transfer them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    Measurement,
)
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import (
    RESERVED_KINDS,
    Complexity,
    OperatorClass,
    OperatorKind,
    Platform,
)

START = datetime(2026, 3, 1, tzinfo=UTC)


def chain_plan(length: int = 3, platform: Platform = Platform.DUCKDB) -> Plan:
    """Return a plan of a source and `length - 1` maps."""
    operators = tuple(
        Operator(
            OperatorKind.MAP if position else OperatorKind.TABLE_SOURCE,
            OperatorClass.RELATIONAL,
            (position - 1,) if position else (),
            output_rows=1000.0 * (position + 1),
            row_bytes=12.5,
        )
        for position in range(length)
    )
    return Plan.on_one_platform(Workflow(operators, SourceStatistics(columns=4)), platform)


def make_execution(number: int = 0, *, workload: str | None = None, **changes: object) -> Execution:
    """Return the `number`-th execution. Consecutive ones finish a second apart."""
    values: dict[str, object] = {
        "execution_id": f"execution-{number}",
        "workload": workload or f"workload-{number}",
        "plan": chain_plan(),
        "cluster": ClusterConfig(1, 2, 8_000_000_000, 1.25, 7),
        "status": ExecutionStatus.OK,
        "measurement": Measurement(0.5 + number, 0.25, 1_000_000, 10, 20, 1.5),
        "finished_at": START + timedelta(seconds=number),
    }
    return Execution(**{**values, **changes})  # type: ignore[arg-type]


def executions() -> st.SearchStrategy[Execution]:
    """Return a strategy for valid executions of one operator or a short chain."""
    text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
    sizes = st.integers(0, 2**63 - 1)
    cluster = st.builds(
        ClusterConfig,
        st.integers(1, 1000),
        st.integers(1, 1000),
        st.integers(1, 2**60),
        st.floats(0.01, 100),
    )
    measurement = st.builds(
        Measurement, st.floats(1e-6, 1e6), st.floats(0, 1e9), sizes, sizes, sizes
    )
    moments = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
    words = st.text(st.characters(codec="utf-8"), max_size=20)
    remarks = st.sets(st.sampled_from(ExecutionWarning)).map(lambda found: tuple(sorted(found)))
    origin = st.builds(
        ExecutionMetadata, words, words, words, st.floats(0, 1), remarks, *[words] * 6
    )
    origin = st.builds(replace, origin, rows_within=st.floats(1, 1e6), tasks=st.integers(0, 10**9))
    ok = st.builds(
        Execution,
        text,
        text,
        _plans(),
        cluster,
        st.just(ExecutionStatus.OK),
        measurement,
        moments,
        origin,
    ).flatmap(_timed)
    other = st.builds(
        Execution,
        text,
        text,
        _plans(),
        cluster,
        st.sampled_from([s for s in ExecutionStatus if s is not ExecutionStatus.OK]),
        st.none() | measurement,
        moments,
    )
    return ok | other


def _timed(execution: Execution) -> st.SearchStrategy[Execution]:
    """Return a strategy for the execution with or without seconds and keys of its operators."""
    count = len(execution.plan.workflow.operators)
    seconds = st.lists(st.none() | st.floats(0, 1e9), min_size=count, max_size=count)
    keys = st.lists(st.sampled_from(["", "0" * 16, "a1" * 8]), min_size=count, max_size=count)
    both = st.tuples(st.just(()) | seconds.map(tuple), st.just(()) | keys.map(tuple))
    return both.map(
        lambda each: replace(
            execution,
            origin=replace(execution.origin, operator_seconds=each[0], operator_keys=each[1]),
        )
    )


@st.composite
def _plans(draw: st.DrawFn) -> Plan:
    kinds = [kind for kind in OperatorKind if kind not in RESERVED_KINDS]
    count = draw(st.integers(1, 4))
    operators = tuple(
        Operator(
            draw(st.sampled_from(kinds)),
            draw(st.sampled_from(list(OperatorClass))),
            (position - 1,) if position else (),
            draw(st.floats(0, 1e12)),
            draw(st.floats(0, 1e6)),
            draw(st.sampled_from(list(Complexity))),
            draw(st.integers(0, 10_000)),
            draw(st.integers(0, 10_000)),
            draw(st.floats(0, 1)),
            draw(st.integers(0, 10_000)),
        )
        for position in range(count)
    )
    platforms = [Platform.DUCKDB, Platform.POLARS, Platform.PANDAS, Platform.OTHER]
    return Plan(
        Workflow(operators, SourceStatistics(draw(st.integers(0, 100)), draw(st.floats(0, 1)))),
        tuple(draw(st.sampled_from(platforms)) for _ in range(count)),
    )
