"""Tests of the held-out SQL part: excluded training plans, predictors and comparisons."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedperf_shared.execution import Execution
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, ESTIMATED
from fedperf_simulations.corpus.sql.session_set import SqlRun, write_runs
from fedperf_simulations.corpus.sql.sessions import SqlStep
from fedperf_simulations.corpus.sql.tables import Storage, TableSet
from fedperf_simulations.corpus.training_set import Measurements
from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.intervals import sql_queries
from fedperf_simulations.experiments.intervals.figures import (
    GROUP,
    OURS,
    where,
)
from fedperf_simulations.experiments.intervals.sql_queries import (
    ANALYTIC,
    ON_DUCKDB,
    ON_ROWS,
    ON_SPARK,
    PART,
    SHIPPED,
    held_out_runs,
    training_without,
)
from fedperf_simulations.harness.experiment import Settings
from tests.unit.simulations.experiments.intervals.synthetic_queries import queries, query

SORT, JOIN = OperatorKind.SORT, OperatorKind.WINDOW


def measured(executions: Sequence[Execution]) -> Measurements:
    return Measurements((), tuple(executions), {}, 0)


def judged() -> list[SqlRun]:
    """Return three queries, one per family, at two sizes in two storages and once on Spark."""
    found = []
    for number, family in enumerate(("tpch", "orders", "telemetry")):
        name = f"judged/{family}/q{number}"
        for place, (rows, storage) in enumerate(
            (rows, storage)
            for rows in (10_000, 1_000_000)
            for storage in (Storage.PARQUET, Storage.NATIVE)
        ):
            for platform in (Platform.DUCKDB, Platform.SPARK):
                run = query(
                    10 * number + place,
                    rows=rows * (1 + number),
                    seconds=1e-6 * rows * (1 + number) + 0.01,
                    platform=platform,
                    workload=name,
                    kinds=(SORT, *[JOIN] * number),
                )
                step = SqlStep(name, "SELECT 1", TableSet("tpch", rows, storage))
                run = replace(run, execution_id=f"judged-00{place}-{number:03d}-{platform}")
                found.append(SqlRun(run, step, 0.0, (1.0, 1.1, 1.2)))
    return found


@pytest.fixture
def set_of_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "judged.parquet"
    write_runs(judged(), path, provenance={})
    monkeypatch.setattr(sql_queries, "measured_files", lambda _: (path,))
    own = [*queries(30, seed=0, platform=Platform.DUCKDB), *queries(10, seed=1)]
    monkeypatch.setattr(Measurements, "read", classmethod(lambda cls, seed: measured(own)))
    return tmp_path


def test_pretrained_model_for_held_out_sql_excludes_its_families_and_shapes() -> None:
    asked = query(0, rows=1e4, seconds=1.0, kinds=(SORT,))
    alike = query(1, rows=1e6, seconds=1.0, kinds=(SORT,), workload="relational-1")
    other_plan = replace(query(2, rows=10, seconds=1.0), workload="relational-1")
    family = query(3, rows=1e4, seconds=1.0, workload="tpch-7")
    kept = query(4, rows=1e4, seconds=1.0, workload="relational-2")
    session = query(5, rows=77, seconds=1.0, workload="drawn/9", kinds=(SORT, SORT))
    alike_session = query(6, rows=88, seconds=1.0, workload="drawn/10", kinds=(SORT,))
    measurements = replace(
        measured([alike, other_plan, family, kept]), sessions=(session, alike_session)
    )
    training_plan = training_without(measurements, {fingerprint(asked.plan.workflow)})
    assert {each.plan.workflow.operators[0].output_rows for each in training_plan.queries} == {
        1e4,
        77,
    }
    # A session's plan is used twice: with actual and with estimated cardinalities.
    assert len(training_plan.queries) == 3


def test_held_out_sql_runs_have_engine_family_and_storage(set_of_judged: Path) -> None:
    assert set_of_judged.is_dir()
    runs = held_out_runs()
    assert len(runs) == 24
    assert {each.situation for each in runs} == {ON_DUCKDB, ON_SPARK}
    assert {each.family for each in runs} == {"tpch", "orders", "telemetry"}
    assert {each.storage for each in runs} == {"parquet", "native"}


def test_held_out_sql_part_reports_errors_by_family_storage_and_size(
    set_of_judged: Path,
) -> None:
    settings = Settings(seed=0, out=set_of_judged, quick=True)
    cases = PART.cases(settings)
    for name in (OURS, SHIPPED, ANALYTIC):
        for information in (ACTUAL, ESTIMATED):
            assert len(where(cases, predictor=name, information=information)) == 24
    assert len(where(cases, predictor=ON_ROWS)) == 24
    assert {each[GROUP] for each in cases} == {
        "judged/tpch/q0",
        "judged/orders/q1",
        "judged/telemetry/q2",
    }
    rows = PART.rows(cases)
    told = {str(row["situation"]) for row in rows}
    assert told == {
        ON_DUCKDB,
        ON_SPARK,
        *(f"{ON_DUCKDB}, {each}" for each in ("tpch", "orders", "telemetry")),
        *(
            f"{ON_DUCKDB}, {each}"
            for each in ("parquet", "native", "10,000 rows", "1,000,000 rows")
        ),
    }
    targets = PART.targets(cases, rows)
    assert [each.limit for each in targets] == [248, 1.7, 4.0, 0.0, 0.0]
    assert (targets[0].value, targets[0].holds) == (12, False)
    assert all(np.isfinite(each.value) for each in targets)
    assert (settings.models / "without-judged.safetensors").is_file()


def test_held_out_sql_sessions_missing_are_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sql_queries, "HELD_OUT_SESSIONS", "no_such_sessions")
    with pytest.raises(MissingDataError, match="no_such_sessions"):
        PART.files(None)
