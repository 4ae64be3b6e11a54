"""Predictions of SQL text against measured runs: 22 queries like TPC-H and 20 generated ones.

Every query ran three times, and three times with other constants. `pytest -s` prints the errors.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.prediction import Prediction
from fedperf_client.prediction.serving.predictor_cache import CachedPredictor, load_or_fit
from fedperf_client.prediction.serving.sql_query import RowsFrom, SqlQuery
from fedperf_client.prediction.serving.what_if import predict_plan
from fedperf_client.sources.duckdb.explain import QueryDatabase
from fedperf_client.sources.duckdb.profile_file import ProfileFile, workload_of
from fedperf_shared.execution import Execution, ExecutionMetadata
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import SOURCE_KINDS
from fedperf_simulations.corpus.sql.generated_queries import drawn_query
from fedperf_simulations.corpus.sql.tables import Storage, TableSet, prepare_tables, texts

duckdb = pytest.importorskip("duckdb", reason="DuckDB is of the extra engines")

ROWS = 200_000
RUNS = 3
FOLDS = 6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def with_other_constants(text: str) -> str:
    """Return a text with years one later, and fractions and numbers above 31 a fifth smaller."""
    later = re.sub(r"'(\d{4})-", lambda match: f"'{int(match[1]) + 1}-", text)

    def smaller(match: re.Match[str]) -> str:
        value = float(match[0])
        if "." in match[0]:
            return f"{0.8 * value:.3f}"
        return str(int(0.8 * value)) if value > 31 else match[0]

    return re.sub(r"(?<![\w'#.-])\d+(?:\.\d+)?(?![\w'.-])", smaller, later)


@dataclass(frozen=True)
class Query:
    """A query, explained, and its runs."""

    name: str
    is_other: bool  # whether it has other constants than the one of the same name
    explained: tuple[Workflow, ExecutionMetadata]
    runs: tuple[Execution, ...]

    @property
    def measured(self) -> Plan:
        return self.runs[-1].plan

    @property
    def seconds(self) -> float:
        return self.runs[-1].runtime_seconds


def measure(path: Path, text: str, profile: Path) -> Execution | None:
    """Run a query and return its execution; None if it has no profile."""
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute(f"SET enable_profiling = 'json'; SET profiling_output = '{profile}'")
        connection.execute(text).fetchall()
        connection.execute("PRAGMA disable_profiling")
    return next((e for e in ProfileFile(profile).read() if isinstance(e, Execution)), None)


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> list[Query]:
    directory = tmp_path_factory.mktemp("sql")
    asked = [("tpch", name, text) for name, text in texts("judged_tpch").items()]
    asked += [("shop", f"g{number}", drawn_query(number, 0).text) for number in range(20)]
    result = []
    for schema, name, text in asked:
        path = prepare_tables(TableSet(schema, ROWS, Storage.NATIVE), directory)
        for is_other, sql in ((False, text), (True, with_other_constants(text))):
            profiles = [directory / f"{name}-{is_other}-{run}.json" for run in range(RUNS)]
            runs = [measure(path, sql, profile) for profile in profiles]
            with QueryDatabase.open(path) as database:
                explained = database.explain(sql)
            done = tuple(each for each in runs if each is not None)
            assert len(done) == RUNS
            result.append(Query(name, is_other, explained, done))
    return result


def opened(
    directory: Path, name: str, known: Sequence[Execution]
) -> tuple[ExecutionStore, CachedPredictor]:
    store = ExecutionStore.open(directory / f"{name}.sqlite")
    store.add(known)
    return store, load_or_fit(directory / name, store, FetchedModels(directory / "models"))


def predicted(cached: CachedPredictor, sql: SqlQuery | None, query: Query) -> Prediction:
    """Return the prediction of a text, or of the measured plan."""
    cluster = query.runs[-1].cluster
    if sql is None:
        [found] = predict_plan(cached.predictor, query.measured, cluster, [cluster])
    else:
        [found] = predict_plan(
            cached.predictor,
            sql.query.plan,
            cluster,
            [cluster],
            inputs=sql.sizes(()),
            job=sql.query.job,
            load=sql.half_width,
        )
    return found.estimate


def template(query: Query) -> str:
    return query.explained[1].statement.partition("/")[0]


def row_errors(plan: Plan, query: Query) -> list[float]:
    """Return the q-errors of the rows of all operators but sources, which are counted."""
    measured = query.measured.workflow.operators
    pairs = zip(plan.workflow.operators, measured, strict=True)
    known = [(a.output_rows, b.output_rows) for a, b in pairs if a.kind not in SOURCE_KINDS]
    return [max((a + 1) / (b + 1), (b + 1) / (a + 1)) for a, b in known]


def q_errors(estimates: Sequence[float], asked: Sequence[Query]) -> NDArray[np.float64]:
    apart = np.log(estimates) - np.log([each.seconds for each in asked])
    return np.asarray(np.exp(np.abs(apart)))


def show(
    kind: str, rows: Sequence[float], by_text: NDArray[np.float64], by_plan: NDArray[np.float64]
) -> float:
    """Print the errors; return the median of those by text over the median of those by plan."""
    ratio = float(np.median(by_text) / np.median(by_plan))
    print(
        f"\n{kind}: rows {np.median(rows):.2f} / {np.quantile(rows, 0.9):.3g}; seconds by text "
        f"{np.median(by_text):.3f} / {np.quantile(by_text, 0.9):.2f}, by measured plan "
        f"{np.median(by_plan):.3f} / {np.quantile(by_plan, 0.9):.2f}, ratio {ratio:.3f}"
    )
    return ratio


def compared(
    store: ExecutionStore, cached: CachedPredictor, asked: Sequence[Query], want: set[RowsFrom]
) -> tuple[list[float], list[float], list[float]]:
    """Return row errors, seconds by text and seconds by plan of queries, each once."""
    rows, by_text, by_plan = list[float](), list[float](), list[float]()
    inside = 0
    for query in asked:
        sql = SqlQuery.read(store, *query.explained)
        assert sql.rows_from in want, (query.name, sql.rows_from)
        if fingerprint(sql.query.plan.workflow) == fingerprint(query.measured.workflow):
            rows += row_errors(sql.query.plan, query)
        of_text, of_plan = (predicted(cached, each, query) for each in (sql, None))
        by_text.append(of_text.median_seconds)
        by_plan.append(of_plan.median_seconds)
        inside += of_text.lower_seconds <= query.seconds <= of_text.upper_seconds
    print(f"\n{inside} of {len(asked)} in the 90 % interval")
    return rows, by_text, by_plan


def test_explained_queries_have_workload_and_keys_of_the_measured_run(queries: list[Query]) -> None:
    asked = [each for each in queries if not each.is_other]
    assert len(asked) == 42
    for query in queries:
        (workflow, origin), run = query.explained, query.runs[-1]
        assert workload_of(workflow) == run.workload, query.name
        assert origin.statement == run.origin.statement != "", query.name
        pairs = zip(origin.operator_keys, run.origin.operator_keys, strict=True)
        assert [b or a for a, b in pairs] == [*origin.operator_keys] != [], query.name


def test_queries_that_read_different_tables_share_no_rows(queries: list[Query]) -> None:
    def tables(query: Query) -> set[str]:
        operators, keys = query.measured.workflow.operators, query.runs[0].origin.operator_keys
        return {k for o, k in zip(operators, keys, strict=True) if k and not o.inputs}

    for one, other in combinations([each for each in queries if not each.is_other], 2):
        assert one.explained[1].statement != other.explained[1].statement
        if not tables(one) & tables(other):
            keys = set(one.runs[0].origin.operator_keys) & set(other.runs[0].origin.operator_keys)
            assert keys <= {""}, (one.name, other.name)


def test_same_query_is_predicted_as_well_as_its_measured_plan(
    queries: list[Query], tmp_path: Path
) -> None:
    asked = [each for each in queries if not each.is_other]
    store, cached = opened(tmp_path, "same", [run for each in asked for run in each.runs[:-1]])
    with store:
        rows, by_text, by_plan = compared(store, cached, asked, {RowsFrom.SAME_QUERY})
    assert np.median(rows) == 1
    assert show("same query", rows, q_errors(by_text, asked), q_errors(by_plan, asked)) <= 1.05


def test_query_with_other_constants_is_predicted_nearly_as_well(
    queries: list[Query], tmp_path: Path
) -> None:
    known = [run for each in queries if not each.is_other for run in each.runs]
    known_keys = {each.origin.statement for each in known}
    asked = [e for e in queries if e.is_other and e.explained[1].statement not in known_keys]
    print(f"\n{len(asked)} of 42 queries have other constants")
    store, cached = opened(tmp_path, "other", known)
    with store:
        rows, by_text, by_plan = compared(store, cached, asked, {RowsFrom.OTHER_CONSTANTS})
    assert show("other constants", rows, q_errors(by_text, asked), q_errors(by_plan, asked)) <= 1.3


def test_query_that_was_never_seen_shares_selectivities_or_has_estimates(
    queries: list[Query], tmp_path: Path
) -> None:
    same = [each for each in queries if not each.is_other]
    rows, by_text, by_plan, estimated = (list[float]() for _ in range(4))
    asked, kinds = list[Query](), dict[RowsFrom, int]()
    for fold in range(FOLDS):
        left_out = same[fold::FOLDS]
        # Texts that differ by constants alone are left out together.
        templates = {template(each) for each in left_out}
        known = [run for each in same if template(each) not in templates for run in each.runs]
        store, cached = opened(tmp_path, f"fold{fold}", known)
        with store:
            want = {RowsFrom.SHARED_OPERATORS, RowsFrom.ESTIMATES}
            fold_rows, fold_text, fold_plan = compared(store, cached, left_out, want)
            for each in left_out:
                rows_from = SqlQuery.read(store, *each.explained).rows_from
                kinds[rows_from] = kinds.get(rows_from, 0) + 1
                plan = Plan(each.explained[0], each.measured.platforms)
                estimated += row_errors(plan, each)
        rows, by_text, by_plan = rows + fold_rows, by_text + fold_text, by_plan + fold_plan
        asked += left_out
    print(f"\n{kinds}; DuckDB's estimates: {_quantiles(estimated)}")
    show("never seen", rows, q_errors(by_text, asked), q_errors(by_plan, asked))
    assert np.mean(np.log(rows)) <= np.mean(np.log(estimated))


def _quantiles(errors: Sequence[float]) -> Mapping[str, float]:
    return {"median": float(np.median(errors)), "P90": float(np.quantile(errors, 0.9))}
