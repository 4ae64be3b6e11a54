"""Local jobs of other kinds never override a better pretrained model.

The query is the README's example, in data directories with mixed jobs.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fedperf_client.home.config import Home, write_private
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.serving.predictor_cache import USUAL_CLUSTER, load_or_fit
from fedperf_client.sources.history_file import executions_of
from fedperf_engines.platforms.program import to_json
from fedperf_shared.execution import ClusterConfig, Execution, Measurement
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.pages import ENGINEER
from tests.public_data import public_data
from tests.unit.client.data_directories import fedperf, made_home
from tests.unit.client.executions import make_execution
from tests.unit.client.profiling.trials.test_profiler import program

ROOT = Path(__file__).parents[5]
NIGHTLY = ROOT / "tests" / "cases" / "nightly" / "executions.parquet"
TRUTH_SECONDS = 2e-3
"""True seconds of the example on a machine with two cores: 1.6 to 2.7 ms."""

SPARK = ClusterConfig(nodes=8, cores=128, memory_bytes=400 * 2**30)


def example() -> str:
    """Return the workflow on the engineer's page."""
    found = re.search(r'```json\n(\{"platform": "polars",.*?)```', ENGINEER.read_text(), re.S)
    if found is None:
        pytest.fail("the engineer's page shows no workflow of Polars")
    return found[1]


def spark_query(number: int) -> Execution:
    """Return a query of minutes: a scan, a filter and an aggregation of many rows."""
    rows = 1e9 * (1 + number % 5)
    operators = (
        Operator(OperatorKind.FILE_SOURCE, OperatorClass.RELATIONAL, (), rows, 96),
        Operator(OperatorKind.FILTER, OperatorClass.RELATIONAL, (0,), rows / 2, 96),
        Operator(OperatorKind.AGGREGATE, OperatorClass.RELATIONAL, (1,), rows / 1000, 16),
    )
    plan = Plan(Workflow(operators), (Platform.SPARK,) * len(operators))
    measured = Measurement(60.0 + 45 * (number % 5) + number % 3, 5_000.0, 0, 10, 20)
    return replace(
        make_execution(number, workload=f"nds/{number % 10}"),
        plan=plan,
        cluster=SPARK,
        measurement=measured,
    )


def chain(
    number: int,
    kinds: Sequence[OperatorKind],
    rows: float,
    seconds: float,
    kept: Sequence[float] = (1.0, 1.0),
) -> Execution:
    """Return a Polars job on a laptop: a table and a chain of `kinds`.

    `kept` holds the rows after each operator, as shares of the table.
    """
    steps = enumerate(zip((OperatorKind.TABLE_SOURCE, *kinds), (1.0, *kept), strict=False))
    operators = tuple(
        Operator(kind, OperatorClass.RELATIONAL, (at - 1,) if at else (), rows * share, 96.0)
        for at, (kind, share) in steps
    )
    return replace(
        make_execution(number, workload=f"local/{number}"),
        plan=Plan.on_one_platform(Workflow(operators), Platform.POLARS),
        cluster=USUAL_CLUSTER,
        measurement=Measurement(seconds, 1.5 * seconds, 0, 10, 20),
    )


def sorts(count: int) -> list[Execution]:
    """Return sorts of 100,000 to 400,000 rows at 60 ns per row, plus or minus a tenth."""
    parts = [1 + number % 4 for number in range(count)]
    return [
        chain(n, [OperatorKind.SORT], 1e5 * part, 6e-3 * part * (0.9 + 0.05 * (n % 5)))
        for n, part in enumerate(parts)
    ]


def large(kinds: Sequence[OperatorKind]) -> list[Execution]:
    """Return jobs of these kinds on 100 million rows, about half a minute each."""
    return [chain(number, kinds, 1e8, 30.0 + number) for number in range(20)]


def other_work() -> list[Execution]:
    """Return filters followed by sorts at the example's rows. The filter occurs in both."""
    kinds = [OperatorKind.FILTER, OperatorKind.SORT]
    return [chain(number, kinds, 1e5 * (1 + number % 4), 8e-3) for number in range(30)]


def totals() -> list[Execution]:
    """Return the runs of README's `advise --execute`.

    One workload of a million rows ran 18 times.
    """
    kinds = (
        OperatorKind.FILE_SOURCE,
        OperatorKind.FILTER,
        OperatorKind.AGGREGATE,
        OperatorKind.SINK,
    )
    operators = tuple(
        Operator(kind, OperatorClass.RELATIONAL, (at - 1,) if at else (), rows, 16.0)
        for at, (kind, rows) in enumerate(zip(kinds, (1e6, 899_796, 997, 997), strict=True))
    )
    plan = Plan.on_one_platform(Workflow(operators), Platform.POLARS)
    return [
        replace(
            chain(number, [], 1e6, 0.018 + 0.001 * (number % 7)), plan=plan, workload="local/totals"
        )
        for number in range(18)
    ]


def campaign_on_polars() -> list[Execution]:
    found = executions_of(NIGHTLY)
    return [
        replace(each, plan=Plan.on_one_platform(each.plan.workflow, Platform.POLARS))
        for each in found
    ]


Fill = Callable[[Home, Path], None]


def with_campaign(home: Home, _work: Path) -> None:
    assert fedperf(home, "ingest", NIGHTLY).code == 0


def with_duckdb(home: Home, work: Path) -> None:
    table = pa.table({"key": [n % 4 for n in range(100)], "value": [n / 8 for n in range(100)]})
    (work / "data").mkdir()
    parquet.write_table(table, work / "data" / "numbers.parquet")
    (work / "totals.json").write_bytes(to_json(program()))
    asked = [work / "totals.json", "--data", work / "data", "--platforms", "duckdb", "--cores", "1"]
    assert fedperf(home, "advise", *asked, "--execute", "--repeats", "12").code == 0


def with_spark(home: Home, _work: Path) -> None:
    with ExecutionStore.open(home.store) as store:
        store.add([spark_query(number) for number in range(40)])


def with_spark_logs(home: Home, _work: Path) -> None:
    logs = public_data("spark-eventlogs") / "spark-eventlogs"
    assert fedperf(home, "ingest", logs).code == 0


def both(fill: Fill, more: Callable[[], list[Execution]]) -> Fill:
    """Return a function that calls `fill` and then stores more executions."""

    def filled(home: Home, work: Path) -> None:
        fill(home, work)
        with ExecutionStore.open(home.store) as store:
            store.add([replace(each, execution_id=f"local-{each.execution_id}") for each in more()])

    return filled


FILTERS = [OperatorKind.FILTER, OperatorKind.AGGREGATE]
MORE: dict[str, Callable[[], list[Execution]]] = {
    "3 sorts": partial(sorts, 3),
    "30 sorts": partial(sorts, 30),
    "large sorts": partial(large, [OperatorKind.SORT]),
    "large filters": partial(large, FILTERS),
    "filters and sorts": other_work,
    "totals": totals,
    "campaign on Polars": campaign_on_polars,
}
HOMES: dict[str, Fill] = {
    "campaign": with_campaign,
    "DuckDB": with_duckdb,
    "Spark": with_spark,
    "Spark logs": with_spark_logs,
    "campaign, 5 sorts": both(with_campaign, partial(sorts, 5)),
    **{f"Spark, {name}": both(with_spark, more) for name, more in MORE.items()},
    **{f"Spark logs, {name}": both(with_spark_logs, more) for name, more in MORE.items()},
}

MANY = {name for name in HOMES if name.startswith(("Spark,", "Spark logs"))}
"""Data directories that only the slow tests cover."""


def made(directory: Path) -> Home:
    return made_home(directory / "home")


@dataclass(frozen=True)
class Answered:
    """The interval that a data directory predicts for the example, with the shipped model."""

    median: float
    lower: float
    upper: float
    is_inside: bool

    @classmethod
    def by(cls, home: Home) -> "Answered":
        asked = home.directory.parent / "example.json"
        asked.write_text(example())
        ended = fedperf(home, "predict", asked, "--json")
        assert ended.code == 0, ended.err
        [row] = json.loads(ended.out)["predictions"]
        median, lower, upper = (row[f"{name}_seconds"] for name in ("p50", "lower", "upper"))
        return cls(median, lower, upper, not row["extrapolating"])


@pytest.fixture(scope="module")
def of_empty_home(tmp_path_factory: pytest.TempPathFactory) -> Answered:
    return Answered.by(made(tmp_path_factory.mktemp("empty")))


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] if each in MANY else []) for each in HOMES],
)
def test_unrelated_local_jobs_do_not_worsen_the_pretrained_prediction(
    name: str, of_empty_home: Answered, tmp_path: Path
) -> None:
    home, empty = made(tmp_path), of_empty_home
    HOMES[name](home, tmp_path)
    found = Answered.by(home)
    near = abs(math.log(found.median / empty.median)) <= math.log(2)
    off, of_empty = (abs(math.log(each.median / TRUTH_SECONDS)) for each in (found, empty))
    assert near or off <= of_empty, f"{found}, in an empty home {empty}"
    assert found.lower <= TRUTH_SECONDS <= found.upper, found
    assert empty.lower / 10 <= found.lower, f"{found}, in an empty home {empty}"
    assert found.upper <= 10 * empty.upper, f"{found}, in an empty home {empty}"
    # The interval stays wide where two of the example's three operators ran on Polars.
    assert not found.is_inside or "filters and sorts" in name


def filters_of_tables(kept: Sequence[float]) -> list[Execution]:
    return [chain(n, FILTERS, 1e5 * (1 + n % 4), 1e-3 * (2 + n % 4), kept) for n in range(30)]


@pytest.mark.slow
def test_local_jobs_of_the_same_kind_determine_the_prediction(tmp_path: Path) -> None:
    home = made(tmp_path)
    both(with_spark, partial(filters_of_tables, (0.43, 0.099)))(home, tmp_path)
    found = Answered.by(home)
    assert found.median == pytest.approx(TRUTH_SECONDS, rel=0.25)
    assert found.is_inside
    assert found.upper < 2 * found.median


@pytest.mark.slow
def test_interval_covers_truth_where_ensemble_members_disagree(tmp_path: Path) -> None:
    home = made(tmp_path)
    # These jobs differ by a filter that keeps all rows. Only some ensemble members react to it.
    both(with_spark, partial(filters_of_tables, (1.0, 1.0)))(home, tmp_path)
    found = Answered.by(home)
    assert found.lower <= TRUTH_SECONDS <= found.upper
    assert found.is_inside
    assert found.upper > 2 * found.median  # less where members agree, as above


def test_typical_cluster_is_that_of_the_platform_of_the_plan(tmp_path: Path) -> None:
    polars = replace(spark_query(0).plan, platforms=(Platform.POLARS,) * 3)
    with ExecutionStore.open(tmp_path / "executions.sqlite") as store:
        store.add([spark_query(number) for number in range(3)])
        kept = load_or_fit(tmp_path / "kept", store, FetchedModels(tmp_path / "models"))
    kept.save(write_private)
    with ExecutionStore.open(tmp_path / "executions.sqlite") as store:
        again = load_or_fit(tmp_path / "kept", store, FetchedModels(tmp_path / "models"))
    for each in (kept, again):
        assert each.typical_cluster(spark_query(0).plan) == SPARK
        assert each.typical_cluster(polars) == USUAL_CLUSTER
        assert each.typical_cluster(replace(polars, platforms=(Platform.UNASSIGNED,) * 3)) == SPARK
