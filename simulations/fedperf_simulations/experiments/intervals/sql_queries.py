"""SQL that was committed before it was measured: 62 queries at two scales, Parquet and native.

The predicting model is trained for this alone: without the TPC-H family of the measured set, and
without any workload that has a plan of the shape of a held-out query. It is compared with the
pretrained model, with the analytic cost model alone, and with a regression of log time on log
scanned rows. The regression is fitted on the other queries of the same engine and storage.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.prediction import Floats
from fedperf_client.sources.history_file import executions_of
from fedperf_engines.workloads.families import Family
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.baselines.cost_models import TrainingPlan, train_ggfn
from fedperf_simulations.baselines.regressions import regressions_without
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, BOTH, ESTIMATED, queries_with
from fedperf_simulations.corpus.pretraining import EPOCHS
from fedperf_simulations.corpus.sql.session_draws import HELD_OUT_ROWS
from fedperf_simulations.corpus.sql.tables import held_out_queries
from fedperf_simulations.corpus.training_set import Measurements
from fedperf_simulations.data.datasets import HELD_OUT_SESSIONS, at_one_speed, measured_files
from fedperf_simulations.experiments.intervals.figures import (
    NOTHING,
    OURS,
    SITUATION,
    Cases,
    EvaluationPart,
    PredictionLabel,
    by,
    labels,
    least_target,
    log_q,
    most_target,
    shipped_model,
    tables,
    where,
    with_pretrained_model,
)
from fedperf_simulations.harness.experiment import Row, Settings, Target
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.model.ggfn import save_model

QUICK_EPOCHS, QUICK_PLANS = 1, 200

ON_DUCKDB, ON_SPARK = "judged SQL on DuckDB", "judged SQL on Spark"
SHIPPED, ANALYTIC = "the pretrained model", "analytic cost model alone"
ON_ROWS = "regression on scanned rows, other queries"

MOST_Q50, MOST_Q90 = 1.7, 4.0
RUNS_ON_DUCKDB = 2 * len(HELD_OUT_ROWS) * len(held_out_queries())
"""Runs of every query in two storages, including failed and cancelled runs."""

NOTES = (
    "judged SQL: fedperf is a model trained without the TPC-H family and without the judged "
    "shapes; so are the prices of the analytic model, which it corrects: relational jobs of the "
    "measured set and drawn sessions without the judged shapes",
)


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationRun:
    """One query that ran.

    Attributes:
        execution: its workload is the query.
        storage: how its tables lay.
        table_rows: of the largest table, about.
    """

    execution: Execution
    storage: str
    table_rows: int

    @property
    def situation(self) -> str:
        """The situation, named by its engine."""
        return ON_SPARK if Platform.SPARK in self.execution.plan.platforms else ON_DUCKDB

    @property
    def query(self) -> str:
        """The query's name, equal at all scales, in all storages and on all engines."""
        return self.execution.workload

    @property
    def family(self) -> str:
        """`tpch`, `orders` or `telemetry`."""
        return self.query.split("/")[1]

    @property
    def seconds(self) -> float:
        """The seconds that it took."""
        return self.execution.runtime_seconds


def held_out_runs() -> list[EvaluationRun]:
    """Return all that ended well. Raises the errors of `measured_executions`."""
    from pyarrow import parquet

    runs = []
    for path in measured_files(HELD_OUT_SESSIONS):
        rows = parquet.read_table(path, columns=["storage", "table_rows"]).to_pylist()
        for execution, row in zip(at_one_speed(executions_of(path)), rows, strict=True):
            if execution.is_ok:
                runs.append(EvaluationRun(execution, row["storage"], row["table_rows"]))
    return runs


def training_without(measurements: Measurements, shapes: Collection[str]) -> TrainingPlan:
    """The training data of a model without the TPC-H family and without any of the shapes.

    A workload is left out as a whole if one of its plans, or of their prefixes, has such a shape.
    """
    workloads = measurements.workloads_of(shapes)

    def is_training(workload: str) -> bool:
        return workload.partition("-")[0] != Family.TPCH and workload not in workloads

    return measurements.training_plan(is_training)


def all_cases(settings: Settings) -> Cases:
    """Return a row per run, predictor and information."""
    measured_files(HELD_OUT_SESSIONS)
    return settings.cases("judged-sql", partial(_cases, settings))


def _cases(settings: Settings) -> list[Row]:
    runs = held_out_runs()
    plans = [PlanOnCluster(each.execution.plan, each.execution.cluster) for each in runs]
    starts = {OURS: predictor(load_checkpoint(_trained(settings, runs))), SHIPPED: shipped_model()}
    rows: list[Row] = []
    for information in BOTH:
        questions = queries_with(plans, information)
        for name, pretrained in starts.items():
            predictions = with_pretrained_model(NOTHING, questions, pretrained)
            rows += [
                _label(each, name, information).predicted(each.seconds, prediction, **_about(each))
                for each, prediction in zip(runs, predictions, strict=True)
            ]
        analytic = np.array([each.features.analytic_log_seconds for each in questions])
        rows += _point_rows(runs, ANALYTIC, information, analytic)
    # What a scan reads is in a plan before it runs as well.
    scanned = np.log1p([each.plan.workflow.source_rows for each in plans])
    return [*rows, *_point_rows(runs, ON_ROWS, ESTIMATED, _regressed(runs, scanned))]


def _regressed(runs: Sequence[EvaluationRun], scanned: Floats) -> Floats:
    log_seconds = np.log([each.seconds for each in runs])
    alike = [f"{each.situation} {each.storage}" for each in runs]
    predictions = np.zeros(len(runs))
    for label in dict.fromkeys(alike):
        rows = np.flatnonzero([each == label for each in alike])
        queries = [runs[row].query for row in rows.tolist()]
        predictions[rows] = regressions_without(queries, scanned[rows], log_seconds[rows])
    return predictions


def _point_rows(
    runs: Sequence[EvaluationRun], predictor_name: str, information: str, predictions: Floats
) -> Iterator[Row]:
    for each, prediction in zip(runs, np.exp(predictions).tolist(), strict=True):
        label = _label(each, predictor_name, information)
        yield label.labelled_row(each.seconds, prediction, **_about(each))


def _label(run: EvaluationRun, name: str, information: str) -> PredictionLabel:
    return PredictionLabel(run.situation, name, run.query, information)


def _about(run: EvaluationRun) -> dict[str, str | int]:
    return {"family": run.family, "storage": run.storage, "table rows": run.table_rows}


def _trained(settings: Settings, runs: Sequence[EvaluationRun]) -> Path:
    """Return the file of the model, trained where it is missing."""
    path = settings.models / "without-judged.safetensors"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        shapes = {fingerprint(each.execution.plan.workflow) for each in runs}
        training_plan = training_without(Measurements.read(settings.seed), shapes)
        epochs = EPOCHS
        if settings.quick:
            few = slice(QUICK_PLANS)
            training_plan = TrainingPlan(
                training_plan.queries[few],
                training_plan.log_seconds[few],
                training_plan.query_numbers[few],
            )
            epochs = QUICK_EPOCHS
        model = train_ggfn(training_plan, epochs=epochs, seed=settings.seed)
        save_model(path, model, model_version=1)
    return path


def rows_of(cases: Cases) -> list[Row]:
    """Figures of each engine, and on DuckDB of each family, storage and size."""
    rows = tables(cases)
    on_duckdb = where(cases, situation=ON_DUCKDB)
    for name in ("family", "storage", "table rows"):
        for (value,), group in by(on_duckdb, name).items():
            words = f"{value:,} rows" if isinstance(value, int) else value
            rows += [{**row, SITUATION: f"{ON_DUCKDB}, {words}"} for row in tables(group)]
    return rows


def targets_of(cases: Cases, rows: Sequence[Row]) -> list[Target]:
    """Return the targets on DuckDB. Limits are for actual cardinalities."""
    [row] = where(rows, situation=ON_DUCKDB, predictor=OURS, information=ACTUAL)
    rival = where(cases, situation=ON_DUCKDB, predictor=ON_ROWS)
    targets = []
    for information in BOTH:
        ours = where(cases, situation=ON_DUCKDB, predictor=OURS, information=information)
        change = PairedComparison.by_groups(log_q(ours), log_q(rival), groups=labels(ours))
        what = f"{ON_DUCKDB}, {information}: log q-error less that of the {ON_ROWS}"
        targets.append(Target(what, 0.0, change.mean, paired=change))
    return [
        least_target(f"{ON_DUCKDB}: runs of {RUNS_ON_DUCKDB}", row, "cases", RUNS_ON_DUCKDB),
        most_target(f"{ON_DUCKDB}: median q-error", row, "q50", MOST_Q50),
        most_target(f"{ON_DUCKDB}: p90 q-error", row, "q90", MOST_Q90),
        *targets,
    ]


PART = EvaluationPart(
    "judged SQL",
    lambda _: measured_files(HELD_OUT_SESSIONS),
    all_cases,
    rows_of,
    targets_of,
    NOTES,
)
