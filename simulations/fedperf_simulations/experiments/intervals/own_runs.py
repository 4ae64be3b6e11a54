"""Exact repeats: predictions of a job by a home that holds its own runs.

Every execution of the public Spark logs, and some of the measured set on DuckDB and Polars, is
predicted at the size that it ran with. First it is alone in a home, with and without row counts.
Then the home holds the whole log: a workload that ran three times and more is predicted with all
its runs, and with the judged run left out.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.prediction import Prediction
from fedperf_client.prediction.serving.predictor_cache import load_or_fit
from fedperf_client.prediction.serving.what_if import predict_plan
from fedperf_client.sources import UnknownSourceError, read_source
from fedperf_shared.execution import Execution, KnownJob
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.data.datasets import measured_executions, measured_files, public_files
from fedperf_simulations.experiments.intervals.figures import (
    OURS,
    SITUATION,
    Cases,
    EvaluationPart,
    PredictionLabel,
    by,
    figures,
    least_target,
    log_q,
    most_target,
    where,
)
from fedperf_simulations.experiments.intervals.spark_logs import FOLDER
from fedperf_simulations.harness.experiment import Row, Settings, Target
from fedperf_simulations.harness.side_by_side import computed

ALONE_WITH_ROWS, ALONE_UNKNOWN = "an own run alone, rows known", "an own run alone, rows unknown"
ALONE_HERE = "an own run alone, DuckDB and Polars"
ALONE = (ALONE_WITH_ROWS, ALONE_UNKNOWN, ALONE_HERE)
WHOLE, LEFT_OUT = "three own runs and more", "three own runs and more, the judged one left out"

OF_PLATFORM, THREE = 20, 3
LEFT_OUT_AT_ONCE = 12

NEAR, MOST_NEAR = 1.1, "within 1.1"
LEAST_NEAR = 0.95
MOST_RATIO = 9.4
"""Median of upper over lower end for one own run with row counts, before runs without row counts
were used.
"""
LEAST_COVERED, MOST_COVERED = 0.85, 0.95

NOTES = (
    "own runs: an execution alone in a home predicts itself, so its interval covers it "
    "unless a row states otherwise; predictions of the next run are judged by leaving one out",
)


def files(data: Path | None) -> list[Path]:
    """Return the logs and the measured set. Raises `MissingDataError` without them."""
    [folder] = public_files(data, str(FOLDER))
    return [*sorted(each for each in folder.rglob("*") if each.is_file()), *measured_files()]


def logged(data: Path | None) -> list[Execution]:
    """Return the executions of all logs that ended well, each once."""
    [folder] = public_files(data, str(FOLDER))
    executions: dict[str, Execution] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        try:
            read = list(read_source(path))
        except UnknownSourceError:
            continue  # no log, as some of them are on purpose
        executions |= {e.execution_id: e for e in read if isinstance(e, Execution) and e.is_ok}
    return list(executions.values())


def measured_here() -> list[Execution]:
    """Executions of the measured set on one engine alone, of as many workloads as there are."""
    executions: list[Execution] = []
    for platform in (Platform.DUCKDB, Platform.POLARS):
        of_one = (
            e for e in measured_executions() if e.is_ok and set(e.plan.platforms) == {platform}
        )
        firsts: dict[str, Execution] = {}
        for each in of_one:
            firsts.setdefault(each.workload, each)
            if len(firsts) == OF_PLATFORM:
                break
        executions += firsts.values()
    return executions


def predictions_for(
    training: Sequence[Execution], queries: Sequence[Execution]
) -> list[Prediction]:
    """Return a home's predictions of executions at the sizes that they ran with."""
    with TemporaryDirectory() as place, ExecutionStore.open(Path(place, "store")) as store:
        store.add(training)
        ensemble = load_or_fit(Path(place, "kept"), store, FetchedModels(Path(place, "models")))
        return [
            predict_plan(ensemble.predictor, e.plan, e.cluster, [e.cluster], job=KnownJob.of(e))[
                0
            ].estimate
            for e in queries
        ]


def all_cases(settings: Settings) -> list[Row]:
    """Return a row per execution and situation."""
    executions = logged(settings.data)
    rows = list(settings.cases("own-runs-alone", partial(_alone, executions)))
    rows += settings.cases("own-runs-whole", partial(_whole, executions))
    parts = range(1 if settings.quick else LEFT_OUT_AT_ONCE)
    cells = computed(partial(_cell, settings), [*parts], "runs left out", jobs=settings.jobs)
    return [*rows, *(row for of_one in cells for row in of_one)]


def _cell(settings: Settings, part: int) -> Cases:
    key = f"own-runs-left-out-{part}"
    return settings.cases(key, partial(_left_out, settings.data, part))


def _alone(executions: Sequence[Execution]) -> list[Row]:
    rows = []
    for each in executions:
        situation = ALONE_WITH_ROWS if KnownJob.of(each).has_rows else ALONE_UNKNOWN
        rows.append(_row(situation, each, predictions_for([each], [each])[0]))
    return rows + [
        _row(ALONE_HERE, each, predictions_for([each], [each])[0]) for each in measured_here()
    ]


def _whole(executions: Sequence[Execution]) -> list[Row]:
    queries = _often(executions)
    pairs = zip(queries, predictions_for(executions, queries), strict=True)
    return [_row(WHOLE, each, prediction) for each, prediction in pairs]


def _left_out(data: Path | None, part: int) -> list[Row]:
    executions = logged(data)
    rows = []
    for each in islice(_often(executions), part, None, LEFT_OUT_AT_ONCE):
        others = [other for other in executions if other is not each]
        rows.append(_row(LEFT_OUT, each, predictions_for(others, [each])[0]))
    return rows


def _often(executions: Sequence[Execution]) -> list[Execution]:
    runs = Counter(each.workload for each in executions)
    return [each for each in executions if runs[each.workload] >= THREE]


def _row(situation: str, execution: Execution, prediction: Prediction) -> Row:
    label = PredictionLabel(situation, OURS, execution.workload)
    return label.predicted(execution.runtime_seconds, prediction)


def rows_of(cases: Cases) -> list[Row]:
    """Figures of each situation, with the share of medians that are off by at most a tenth."""
    return [
        {**figures(of_one), MOST_NEAR: float((log_q(of_one) <= np.log(NEAR)).mean())}
        for of_one in by(cases, SITUATION).values()
    ]


def targets_of(cases: Cases, rows: Sequence[Row]) -> list[Target]:
    """Return what was promised of runs alone, and of workloads that ran often."""
    return [*_of_alone(rows), *_of_often(cases, rows)]


def _of_alone(rows: Sequence[Row]) -> Iterator[Target]:
    by_situation: Mapping[str, Row] = {str(each[SITUATION]): each for each in rows}
    for name in ALONE:
        row = by_situation.get(name)
        yield least_target(f"{name}: share of q-errors up to {NEAR}", row, MOST_NEAR, LEAST_NEAR)
        yield least_target(f"{name}: covered", row, "covered", 1.0)
        if row is not None:
            what = f"{name}: median of upper over lower end"
            yield most_target(what, row, "upper / lower", MOST_RATIO)


def _of_often(cases: Cases, rows: Sequence[Row]) -> Iterator[Target]:
    of_one = where(rows, situation=LEFT_OUT)
    row = of_one[0] if of_one else None
    yield least_target(f"{LEFT_OUT}: covered", row, "covered", LEAST_COVERED)
    yield least_target(f"{WHOLE}: covered", _first(rows, WHOLE), "covered", LEAST_COVERED)
    if row is not None:
        yield most_target(f"{LEFT_OUT}: covered, at most", row, "covered", MOST_COVERED)


def _first(rows: Sequence[Row], situation: str) -> Row | None:
    return next(iter(where(rows, situation=situation)), None)


PART = EvaluationPart("own runs of a job", files, all_cases, rows_of, targets_of, NOTES)
