"""Public Spark logs of others: 66 queries in 21 groups by lineage, outside of all training sets.

Without an own run the pretrained model predicts with actual and with estimated cardinalities (the
sessions' earlier queries are given). It is compared with the analytic cost model alone, the earlier
pretrained model by its published figures, two constants of an own set, and regressions on these
logs without the query's group. With 3, 5 and 10 own runs of a group the home's ensemble is compared
with the same code without a pretrained model. Logs of runs of this project, and edited copies of
one log, are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np

from fedperf_client.prediction.encoding import History, is_training_example
from fedperf_client.prediction.prediction import Floats
from fedperf_client.sources import read_source
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.workflow.cardinality import plan_with_estimated_cardinalities
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorKind
from fedperf_simulations.baselines.regressions import regressions_without
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, BOTH, ESTIMATED, queries_with
from fedperf_simulations.data.datasets import public_files
from fedperf_simulations.experiments.intervals.figures import (
    GROUP,
    INFORMATION,
    LEVEL,
    NOTHING,
    OURS,
    PREDICTOR,
    SITUATION,
    Cases,
    EvaluationPart,
    PredictionLabel,
    by,
    ends,
    exponentials,
    figures,
    labels,
    local_only,
    log_q,
    most_target,
    shipped_model,
    tables,
    where,
    with_pretrained_model,
    worst_case_target,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import Row, Settings, Target
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.harness.side_by_side import computed

FOLDER = Path("spark-eventlogs") / "qualification"

_CLUSTER, _ATTEMPTS = "cluster_information/eventlog_", "multiple_attempts/attempt_"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "cluster_information": (
        f"{_CLUSTER}2nodes_8cores",
        f"{_CLUSTER}3nodes_12cores_multiple_executors",
        f"{_CLUSTER}4nodes_8cores_dynamic_alloc.zstd",
    ),
    "complex_dec": ("complex_dec_eventlog.zstd", "eventlog_complex_dec_nested"),
    "dsAndDf, gpu, udf_func": ("dsAndDf_eventlog.zstd", "gpu_eventlog", "udf_func_eventlog"),
    "multiple_attempts": tuple(f"{_ATTEMPTS}{each}_eventlog.zstd" for each in (1, 2, 3, 4)),
    "nested": ("eventlog_nested_dsv2", "nested_type_eventlog"),
    "aqeshuffle": ("aqeshuffle_eventlog.zstd",),
    "createdatasourcetable": ("createdatasourcetable_eventlog.zstd",),
    "customshuffle": ("customshuffle_eventlog.zstd",),
    "db_sim": ("db_sim_eventlog",),
    "db_subExecution_id": ("db_subExecution_id.zstd",),
    "global_local_limit": ("global_local_limit_eventlog.zstd",),
    "java_udf": ("java_udf_eventlog",),
    "jdbc": ("jdbc_eventlog.zstd",),
    "malformed_json": ("malformed_json_eventlog.zstd",),
    "nds_q72_dataproc_2_2": ("nds_q72_dataproc_2_2.zstd",),
    "pandas_execs": ("pandas_execs_eventlog.zstd",),
    "python_udf": ("python_udf_eventlog",),
    "rdd_only": ("rdd_only_eventlog",),
    "udf_dataset": ("udf_dataset_eventlog",),
    "writeformat": ("writeformat_eventlog",),
    "xgboost": ("xgboost_eventlog.zstd",),
}
"""Logs of one lineage."""

LISTED = 66
"""Queries that the list above was made of."""

OWN_RUNS, QUICK_OWN_RUNS = (3, 5, 10), (3,)
DRAWS, QUICK_DRAWS = 10, 1

NOTHING_OWN = "Spark logs, no own run"
FROM_FILES = "Spark logs, no own run, plans with file sources"
NO_FILES = "Spark logs, no own run, plans without file sources"

HAS_FILES = "has files"
ANALYTIC = "analytic cost model alone"
CONSTANTS = "two constants: 0.19 s x rows^0.22"
ON_ROWS, ON_BYTES = "regression on rows, other groups", "regression on bytes, other groups"
LOCAL = "local-only"
BEFORE = "the start of before, as published"
FIRST_TRY = "a first model of an own set, as published"
PUBLISHED: Mapping[tuple[str, str], tuple[float, float]] = {
    (BEFORE, ACTUAL): (13.5, 114.0),
    (FIRST_TRY, ACTUAL): (2.53, 5.4),
    (FIRST_TRY, ESTIMATED): (2.83, 7.2),
}
"""Median and 90th percentile of what is not there any more."""

MOST_Q: Mapping[str, tuple[float, float]] = {ACTUAL: (2.1, 5.5), ESTIMATED: (2.5, 7.0)}
"""Median and 90th percentile."""
MOST_RATIO = 40.0
MOST_HARM = float(np.log(1.1))

NOTES = (
    f"Spark logs: groups are lineages; the list that they are from counted {LISTED} queries, of "
    "dsAndDf_eventlog three; all four of it that ended well are judged",
    "Spark logs: regressions and constants read actual rows of all operators; the earlier "
    "pretrained model and the first model no longer exist, their rows hold published figures",
    "Spark logs: inputs before a run include the operators and joins of the last adaptive plan, "
    "rows of cached tables, of JDBC and of text files, and the mean cores of a query",
    "Spark logs: two groups alone have more than ten queries, so that the interval of ten own runs "
    "is of these",
)


def files(data: Path | None) -> list[Path]:
    """Return the logs.

    Raises:
        MissingDataError: there is no folder, or a log is not in it.
    """
    names = (f"{FOLDER}/{name}" for names in GROUPS.values() for name in names)
    paths = public_files(data, *names)
    return [each for path in paths for each in _inside(path)]


def _inside(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def queries(data: Path, group: str) -> list[Execution]:
    """The queries of a group that ended well, in the order of its logs.

    Raises the errors of `read_source`.

    A log without queries gives its jobs. In a log with queries, most jobs are Spark's own.
    """
    executions: list[Execution] = []
    for name in GROUPS[group]:
        read = read_source(data / FOLDER / name)
        ended = [each for each in read if isinstance(each, Execution) and each.is_ok]
        executions += [each for each in ended if each.origin.record.startswith("query ")] or ended
    return executions


def all_cases(settings: Settings) -> list[Row]:
    """Return a row per query, predictor and information. With own runs also per draw."""
    files(settings.data)
    data = settings.data or Path()
    nothing_own = settings.cases("spark-logs", partial(_nothing_own, data))
    sizes = {group: len(each) for (group,), each in by(_ours(nothing_own, ACTUAL), GROUP).items()}
    counts = QUICK_OWN_RUNS if settings.quick else OWN_RUNS
    tasks = [(str(group), own) for group in sizes for own in counts if sizes[group] > own]
    cells = computed(partial(_cell, settings, data), tasks, "own runs of logs", jobs=settings.jobs)
    return [*nothing_own, *(row for rows in cells for row in rows)]


def _ours(cases: Cases, information: str) -> list[Row]:
    return where(cases, situation=NOTHING_OWN, predictor=OURS, information=information)


def _cell(settings: Settings, data: Path, task: tuple[str, int]) -> Cases:
    group, own = task
    key = f"spark-logs-{group.replace(', ', '-')}-{own}"
    return settings.cases(key, partial(_own_runs, settings, data, group, own))


def _nothing_own(data: Path) -> list[Row]:
    group_queries = [(group, each) for group in GROUPS for each in queries(data, group)]
    groups = [group for group, _ in group_queries]
    plans = [PlanOnCluster(each.plan, each.cluster) for _, each in group_queries]
    seconds = np.array([each.runtime_seconds for _, each in group_queries])
    rows = list(_of_product(groups, plans, seconds))
    for name, model_predictions in _fixed_and_regressed(plans, np.log(seconds), groups).items():
        information = ESTIMATED if name == ON_BYTES else ACTUAL
        rows_of_groups = zip(
            groups, plans, seconds.tolist(), np.exp(model_predictions).tolist(), strict=True
        )
        for group, each, took, prediction in rows_of_groups:
            label, about = (
                PredictionLabel(NOTHING_OWN, name, group, information),
                _has_files(each.plan),
            )
            rows.append(label.labelled_row(took, prediction, **{HAS_FILES: about}))
    return rows


def _of_product(
    groups: Sequence[str], plans: Sequence[PlanOnCluster], took: Floats
) -> Iterator[Row]:
    """Yield predictions of the pretrained and the analytic model, with either information."""
    pretrained = shipped_model()
    for information in BOTH:
        inputs = queries_with(plans, information)
        model_predictions = with_pretrained_model(NOTHING, inputs, pretrained)
        for group, plan, seconds, prediction in zip(
            groups, inputs, took.tolist(), model_predictions, strict=True
        ):
            has_files = {HAS_FILES: _has_files(plan.plan)}
            label = PredictionLabel(NOTHING_OWN, OURS, group, information)
            yield label.predicted(seconds, prediction, **has_files)
            analytic = float(np.exp(plan.features.analytic_log_seconds))
            yield PredictionLabel(NOTHING_OWN, ANALYTIC, group, information).labelled_row(
                seconds, analytic, **has_files
            )


def _fixed_and_regressed(
    plans: Sequence[PlanOnCluster], log_seconds: Floats, groups: Sequence[str]
) -> dict[str, Floats]:
    """Return log seconds by what anybody would try, [queries]."""
    rows = np.log1p([_all_rows(each.plan) for each in plans])
    read = np.log1p(
        [plan_with_estimated_cardinalities(each.plan).workflow.source_bytes for each in plans]
    )
    return {
        CONSTANTS: np.log(0.19) + 0.22 * rows,
        ON_ROWS: regressions_without(groups, rows, log_seconds),
        ON_BYTES: regressions_without(groups, read, log_seconds),
    }


def _all_rows(plan: Plan) -> float:
    return sum(each.output_rows for each in plan.workflow.operators)


def _has_files(plan: Plan) -> bool:
    return any(each.kind is OperatorKind.FILE_SOURCE for each in plan.workflow.operators)


def _own_runs(settings: Settings, data: Path, group: str, own: int) -> list[Row]:
    executions, pretrained = queries(data, group), shipped_model()
    # A home learns nothing of others from the rest.
    usable = np.array([is_training_example(each) for each in executions])
    rows: list[Row] = []
    if usable.sum() < own:
        return rows
    for draw in range(QUICK_DRAWS if settings.quick else DRAWS):
        rng = np.random.default_rng([settings.seed, own, draw, crc32(group.encode())])
        order = rng.permutation(len(executions))
        order = order[np.argsort(~usable[order], kind="stable")]
        training, held_out = (
            [executions[place] for place in each] for each in np.split(order, [own])
        )
        home = History.from_executions(training)
        plans = [PlanOnCluster(each.plan, each.cluster) for each in held_out]
        for information in BOTH:
            inputs = queries_with(plans, information)
            predictions = {
                OURS: with_pretrained_model(home, inputs, pretrained),
                LOCAL: local_only(home, inputs),
            }
            for name, model_predictions in predictions.items():
                label = PredictionLabel(_situation(own), name, group, information)
                pairs = zip(held_out, model_predictions, strict=True)
                rows += [label.predicted(e.runtime_seconds, a, draw=draw) for e, a in pairs]
    return rows


def _situation(own: int) -> str:
    return f"Spark logs, {own} own runs"


def rows_of(cases: Cases) -> list[Row]:
    """Figures of all, of plans with and without file sources, and the published ones."""
    nothing_own = where(cases, situation=NOTHING_OWN)
    split: list[Row] = []
    for name, has_files in ((FROM_FILES, True), (NO_FILES, False)):
        selection = [each for each in nothing_own if each.get(HAS_FILES) is has_files]
        split += [{**row, SITUATION: name} for row in tables(selection)]
    return [*tables(nothing_own), *_published(), *split, *_with_own_runs(cases)]


def _published() -> Iterator[Row]:
    for (name, information), (median, upper) in PUBLISHED.items():
        about = {SITUATION: NOTHING_OWN, PREDICTOR: name, INFORMATION: information}
        yield {**about, "q50": median, "q90": upper}


def _with_own_runs(cases: Cases) -> Iterator[Row]:
    """Return the figures, and for ours the geometric mean of ours over local-only."""
    for own in OWN_RUNS:
        of_situation = where(cases, situation=_situation(own))
        for (name, information), of_one in by(of_situation, PREDICTOR, INFORMATION).items():
            row = figures(of_one)
            if name == OURS:
                change = _against_local(cases, [own], str(information))
                row = {
                    **row,
                    "times local-only": float(np.exp(change.mean)),
                    **ends("times local-only", exponentials(change.interval)),
                }
            yield row


def _against_local(cases: Cases, runs: Sequence[int], information: str) -> PairedComparison:
    """Return log of personalized over local-only q-errors, groups resampled."""
    situations = {_situation(own) for own in runs}
    selection = [
        each for each in where(cases, information=information) if each[SITUATION] in situations
    ]
    ours, local = where(selection, predictor=OURS), where(selection, predictor=LOCAL)
    return PairedComparison.by_groups(log_q(ours), log_q(local), groups=labels(ours))


def targets_of(cases: Cases, rows: Sequence[Row]) -> list[Target]:
    """Return the targets without an own run, and with some."""
    targets: list[Target] = []
    for information, (median, upper) in MOST_Q.items():
        [row] = where(rows, situation=NOTHING_OWN, predictor=OURS, information=information)
        what = f"{NOTHING_OWN}, {information}"
        targets += [
            most_target(f"{what}: median q-error", row, "q50", median),
            most_target(f"{what}: p90 q-error", row, "q90", upper),
            most_target(
                f"{what}: median of upper over lower end", row, "upper / lower", MOST_RATIO
            ),
            Target(
                f"{what}: coverage's interval is so far from 90 %", 0.0, _distance_from_level(row)
            ),
        ]
    ours = _ours(cases, ESTIMATED)
    bytes_read = where(cases, situation=NOTHING_OWN, predictor=ON_BYTES)
    change = PairedComparison.by_groups(log_q(ours), log_q(bytes_read), groups=labels(ours))
    what = f"{NOTHING_OWN}, {ESTIMATED}: log q-error less that of the {ON_BYTES}"
    targets.append(Target(what, 0.0, change.mean, paired=change))
    return [*targets, *_harm(cases)]


def _harm(cases: Cases) -> Iterator[Target]:
    """For each number of runs that several groups have, and for all together."""
    there = [own for own in OWN_RUNS if where(cases, situation=_situation(own))]
    named_runs = [(f"{own} own runs", [own]) for own in there]
    for words, runs in (*named_runs, ("all numbers of own runs", there)):
        change = _against_local(cases, runs, ACTUAL) if runs else None
        if change is not None:
            what = f"Spark logs, {words}: upper end of log(personalized / local-only)"
            yield worst_case_target(what, MOST_HARM, change)


def _distance_from_level(row: Row) -> float:
    """Return the distance of the level from the interval of the coverage."""
    low, high = number(row["covered low"]), number(row["covered high"])
    return max(low - LEVEL, LEVEL - high, 0.0)


PART = EvaluationPart("public Spark logs", files, all_cases, rows_of, targets_of, NOTES)
