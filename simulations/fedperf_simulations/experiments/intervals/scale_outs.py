"""C3O with 1, 2 or 3 own configurations: the errors of predictions for all others.

The 18 slices are judged, 20 draws each; a configuration's time is the median of its repeats. The
product has no other job here. Its pretrained model for tables is priors on slopes, whose sources
are laws. Baselines are Ernest, ridge in logs, a prior on slopes alone and two Gaussian processes,
all of which predict from one configuration on. An error is the mean absolute percentage error over
the slice's other configurations; ratios are of these.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from zlib import crc32

import numpy as np

from fedperf_campaigns.tables.layout import TableLayout
from fedperf_campaigns.tables.predictor import MeasuredTable, TablePredictor
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.learners.base_learners import LocalProcess
from fedperf_client.prediction.prediction import Floats, Prediction
from fedperf_memory.paired import interval_by_groups
from fedperf_shared.model.metrics import mape
from fedperf_simulations.baselines.home_models import process, ridge
from fedperf_simulations.baselines.regressions import ernest_parts, slope_prior
from fedperf_simulations.data import c3o
from fedperf_simulations.data.c3o import JobSlice, ScaleAndSize, slices
from fedperf_simulations.experiments.intervals.figures import (
    GROUP,
    OURS,
    PREDICTOR,
    SITUATION,
    Cases,
    EvaluationPart,
    by,
    column,
    ends,
    exponentials,
    labels,
    least_target,
    where,
    worst_case_target,
)
from fedperf_simulations.harness.experiment import Row, Settings, Target, Value
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.harness.side_by_side import computed

OWN_CONFIGURATIONS = (1, 2, 3)
DRAWS, QUICK_DRAWS = 20, 1
QUICK_SLICES = 2

MAPE, LOG_ERROR = "MAPE, %", "mean absolute log error"
COVERED, RATIO, CHOSEN = "covered", "upper / lower", "covered, chosen"
SET_ASIDE: Row = {"neither judged nor learnt from": "C3O's 48 published runs and its job sort"}
"""Columns of every row."""

MOST_RATIO = float(np.log(1.10))
TWICE, MOST_TWICE = 2.0, 0.05
LEAST_CHOSEN = 0.85

ERNEST, RIDGE = "Ernest", "ridge in logs"
SLOPES, PROCESS = "slope prior", "Gaussian process"
OWN_PROCESS = "Gaussian process of the client"


def ernest(layout: TableLayout, training: Floats, logs: Floats, queries: Floats) -> Floats:
    """Ernest on machines and size, [queries]."""
    read = [layout.scale_feature, layout.size_feature]
    return ernest_parts(training[:, read], logs, queries[:, read])


def slopes(layout: TableLayout, training: Floats, logs: Floats, queries: Floats) -> Floats:
    """The prior on slopes. Columns of the layout's other numbers in their deviations, [queries]."""
    first = [layout.scale_feature, layout.size_feature]
    both = np.concatenate([training, queries])
    left = np.delete(both, [*first, layout.scale_feature + 1], axis=1)
    deviation = left.std(axis=0)
    others = (left - left.mean(axis=0))[:, deviation > 0] / deviation[deviation > 0]
    columns = np.column_stack([both[:, first], others])
    return slope_prior(columns[: len(training)], logs, columns[len(training) :])


Baseline = Callable[[TableLayout, Floats, Floats, Floats], Floats]
BASELINES: Mapping[str, Baseline] = {
    ERNEST: ernest,
    RIDGE: lambda _, training, logs, queries: ridge(training, logs, queries),
    SLOPES: slopes,
    PROCESS: lambda _, training, logs, queries: process(training, logs, queries),
    OWN_PROCESS: lambda _, training, logs, queries: LocalProcess().fit(_rows(training), logs)(
        _rows(queries)
    ),
}
"""Log seconds from a layout, training features, their logs and query features."""


def _rows(features: Floats) -> EncodedQueries:
    return EncodedQueries(features, np.zeros(len(features), np.int64), {})


def situation(count: int) -> str:
    """Return the situation, named by the number of own configurations."""
    return f"C3O, {count} known"


def home_of(one: JobSlice, training: ScaleAndSize) -> TablePredictor:
    """Return the product's predictor with those configurations as own runs."""
    seconds = one.configurations.seconds[training]
    return TablePredictor(MeasuredTable(one.layout, one.rows(training), seconds))


def predictions(home: TablePredictor, one: JobSlice, queries: ScaleAndSize) -> list[Prediction]:
    """Return its predictions for other configurations."""
    return home.predict(one.rows(queries))


def slice_cells(
    settings: Settings, name: str, *, compute: Callable[[Settings, JobSlice], list[Row]]
) -> list[Row]:
    """Return the rows of every slice, each slice a cell.

    Args:
        settings: of the run.
        name: of the part, in the names of cells.
        compute: a function of a module, as other processes are handed it.
    """
    names = [each.name for each in _slices(settings.data)]
    tasks = names[: QUICK_SLICES if settings.quick else None]
    cell = partial(_cell, settings, name, compute)
    return [row for rows in computed(cell, tasks, "slices", jobs=settings.jobs) for row in rows]


@cache
def _slices(data: Path | None) -> tuple[JobSlice, ...]:
    """Read once by each process."""
    return slices(data)


def _cell(
    settings: Settings, name: str, compute: Callable[[Settings, JobSlice], list[Row]], of: str
) -> Cases:
    [one] = [each for each in _slices(settings.data) if each.name == of]
    return settings.cases(f"{name}-{of.replace(' ', '-')}", lambda: compute(settings, one))


def of_slice(settings: Settings, one: JobSlice) -> list[Row]:
    """Return a row per number of own configurations, draw and predictor."""
    rows: list[Row] = []
    for draw in range(QUICK_DRAWS if settings.quick else DRAWS):
        rng = np.random.default_rng([settings.seed, draw, crc32(one.name.encode())])
        order = rng.permutation(len(one))
        for count in OWN_CONFIGURATIONS:
            training, queries = order[:count], order[count:]
            about: dict[str, Value] = {SITUATION: situation(count), GROUP: one.name, "draw": draw}
            rows += [{**about, **row} for row in _held_out_rows(one, training, queries)]
    return rows


def _held_out_rows(one: JobSlice, training: ScaleAndSize, queries: ScaleAndSize) -> list[Row]:
    layout, seconds = one.layout, one.configurations.seconds
    features = layout.samples(one.configurations.table).features
    own_predictions = predictions(home_of(one, training), one, queries)
    truth = seconds[queries]
    held = np.array(
        [each.covers(took) for each, took in zip(own_predictions, truth.tolist(), strict=True)]
    )
    medians = np.array([each.median_seconds for each in own_predictions])
    widths = [each.upper_seconds / each.lower_seconds for each in own_predictions]
    rows: list[Row] = [
        {
            **_errors(OURS, medians, truth),
            COVERED: float(held.mean()),
            RATIO: float(np.median(widths)),
            CHOSEN: float(held[int(np.argmin(medians))]),
        }
    ]
    for name, baseline in BASELINES.items():
        predicted = baseline(
            layout, features[training], np.log(seconds[training]), features[queries]
        )
        rows.append(_errors(name, np.exp(predicted), truth))
    return rows


def _errors(name: str, predicted: Floats, truth: Floats) -> Row:
    logs = np.abs(np.log(predicted) - np.log(truth))
    return {PREDICTOR: name, MAPE: 100 * mape(predicted, truth), LOG_ERROR: float(logs.mean())}


def rows_of(cases: Cases) -> list[Row]:
    """Return a row per number of own configurations and predictor."""
    rows: list[Row] = []
    for (of, name), group in by(cases, SITUATION, PREDICTOR).items():
        errors, groups = column(group, MAPE), labels(group)
        row: dict[str, Value] = {SITUATION: of, PREDICTOR: name, **SET_ASIDE, "cases": len(group)}
        row |= {"groups": len(set(groups)), f"median {MAPE}": float(np.median(errors))}
        row |= {f"worst {MAPE}": float(errors.max())}
        row[LOG_ERROR] = float(column(group, LOG_ERROR).mean())
        if name == OURS:
            hits = column(group, COVERED)
            row |= {COVERED: float(hits.mean()), **ends(COVERED, interval_by_groups(hits, groups))}
            row |= {RATIO: float(np.median(column(group, RATIO)))}
            row |= {CHOSEN: float(column(group, CHOSEN).mean())}
        else:
            change = _against(cases, of, str(name))
            row["fedperf, times it"] = float(np.exp(change.mean))
            row |= ends("fedperf, times it", exponentials(change.interval))
        rows.append(row)
    return rows


def _against(cases: Cases, of: Value, rival: str) -> PairedComparison:
    """Return log of our error over that of a rival, case by case, slices resampled."""
    ours, theirs = (where(cases, situation=of, predictor=name) for name in (OURS, rival))
    logs = (np.log(column(each, MAPE)) for each in (ours, theirs))
    return PairedComparison.by_groups(*logs, groups=labels(ours))


def targets_of(cases: Cases, rows: Sequence[Row]) -> list[Target]:
    """Against each opponent at each number, against the best of them, and on what is chosen."""
    targets = []
    for count in OWN_CONFIGURATIONS:
        of = situation(count)
        for rival in BASELINES:
            what = f"{of}: upper end of log(MAPE / that of {rival})"
            targets.append(worst_case_target(what, MOST_RATIO, _against(cases, of, rival)))
        best, share = _twice_the_best(cases, of)
        what = f"{of}: share of cases above twice the error of {best}, the best opponent there"
        targets.append(Target(what, MOST_TWICE, share))
        [row] = where(rows, situation=of, predictor=OURS)
        what = f"{of}: covered, the configuration that looks fastest"
        targets.append(least_target(what, row, CHOSEN, LEAST_CHOSEN))
    return targets


def _twice_the_best(cases: Cases, of: str) -> tuple[str, float]:
    """The opponent of the least geometric mean, and how often we are above twice its error."""
    errors = {name: column(where(cases, situation=of, predictor=name), MAPE) for name in BASELINES}
    best = min(errors, key=lambda name: float(np.log(errors[name]).mean()))
    ours = column(where(cases, situation=of, predictor=OURS), MAPE)
    return best, float((ours > TWICE * errors[best]).mean())


PART = EvaluationPart(
    "C3O, few configurations",
    c3o.files,
    partial(slice_cells, name="scale-outs", compute=of_slice),
    rows_of,
    targets_of,
)
