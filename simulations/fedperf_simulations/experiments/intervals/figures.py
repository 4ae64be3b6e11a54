"""Predictions of executions as raw rows, and their figures by situation.

A row holds the situation of a prediction, its predictor, its information (actual cardinalities or
estimates before the run) and the group of its case. Bootstraps resample groups. A part of the
experiment (`EvaluationPart`) has one held-out set or one kind of query.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedperf_client.charts.kit import FAINT, INK, svg
from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.learners.base_learners import PUBLIC, local_learners, public_learners
from fedperf_client.prediction.prediction import Floats, Prediction, PredictLog
from fedperf_memory.paired import Interval, interval_by_groups
from fedperf_shared.execution import PlanOnCluster
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.charts import chart
from fedperf_simulations.harness.experiment import Row, Settings, Target, Value
from fedperf_simulations.harness.paired import PairedComparison

Cases = Sequence[Row]


@dataclass(frozen=True, slots=True)
class EvaluationPart:
    """A part of the experiment, as `experiment` runs it.

    Attributes:
        name: of what is judged.
        files: of that, in the folder of public data sets or among what ships; a part whose
            files are missing raises `MissingDataError`.
        cases: computes the raw rows, by cells.
        rows: the table that cases come to.
        targets: what was promised, of cases and rows.
        notes: what a reader must know.
    """

    name: str
    files: Callable[[Path | None], Sequence[Path]]
    cases: Callable[[Settings], Cases]
    rows: Callable[[Cases], list[Row]]
    targets: Callable[[Cases, list[Row]], list[Target]]
    notes: tuple[str, ...] = ()


LEVEL = 0.9
"""Confidence level of all intervals here."""

SITUATION, PREDICTOR, INFORMATION, GROUP = "situation", "predictor", "information", "group"
SECONDS, MEDIAN, LOWER, UPPER = "seconds", "median", "lower", "upper"

OURS = "fedperf"
"""The predictor of the product."""


@dataclass(frozen=True, slots=True)
class PredictionLabel:
    """The labels of a prediction's row.

    Attributes:
        situation: the available data.
        predictor: its name.
        group: of the case.
        information: of a plan; empty where there is none.
    """

    situation: str
    predictor: str
    group: str
    information: str = ""

    def labelled_row(self, seconds: float, median: float, **more: Value) -> Row:
        """Return the row of a prediction without an interval."""
        about: dict[str, Value] = {
            SITUATION: self.situation,
            PREDICTOR: self.predictor,
            INFORMATION: self.information,
            GROUP: self.group,
        }
        return {**about, **more, SECONDS: seconds, MEDIAN: median, LOWER: None, UPPER: None}

    def predicted(self, seconds: float, prediction: Prediction, **more: Value) -> Row:
        """Return the row of a prediction with its interval."""
        ends = {LOWER: prediction.lower_seconds, UPPER: prediction.upper_seconds}
        return {**self.labelled_row(seconds, prediction.median_seconds, **more), **ends}


def log_ratio(cases: Sequence[Row]) -> Floats:
    """Return log of what was predicted over what was measured, [cases]."""
    return np.log(column(cases, MEDIAN)) - np.log(column(cases, SECONDS))


def log_q(cases: Sequence[Row]) -> Floats:
    """Return log of the q-error, [cases]."""
    return np.abs(log_ratio(cases))


def covered(cases: Sequence[Row]) -> Floats:
    """1 where the interval holds what was measured, else 0, [cases]."""
    seconds = column(cases, SECONDS)
    return ((column(cases, LOWER) <= seconds) & (seconds <= column(cases, UPPER))).astype(float)


def log_width(cases: Sequence[Row]) -> Floats:
    """Return log of upper over lower end, [cases]."""
    return np.log(column(cases, UPPER)) - np.log(column(cases, LOWER))


def interval_score(cases: Sequence[Row]) -> Floats:
    """Scores of log-second intervals, [cases]: length, and 2 / (1 - level) times the miss.

    Source: Gneiting and Raftery 2007, section 6.2.
    """
    seconds = np.log(column(cases, SECONDS))
    below = np.maximum(np.log(column(cases, LOWER)) - seconds, 0.0)
    above = np.maximum(seconds - np.log(column(cases, UPPER)), 0.0)
    return np.asarray(log_width(cases) + 2 / (1 - LEVEL) * (below + above))


def q_row(cases: Sequence[Row]) -> Row:
    """Return median and 90th percentile of the q-error with bootstrap intervals over groups.

    Beside them the same with the same weight for each group.
    """
    errors, groups = np.exp(log_q(cases)), labels(cases)
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    row: dict[str, Value] = {"cases": len(cases), "groups": len(sizes)}
    for name, share in (("q50", 0.5), ("q90", 0.9)):
        row[name] = float(np.quantile(errors, share))
        row |= ends(name, interval_by_groups(errors, groups, share=share))
        alike = np.quantile(errors, share, weights=1 / sizes[group], method="inverted_cdf")
        row[f"{name}, groups alike"] = float(alike)
    return row


def cover_row(cases: Sequence[Row]) -> Row:
    """Share covered with its bootstrap interval over groups, widths, interval score."""
    if any(each[LOWER] is None for each in cases):
        return {}
    hits, groups = covered(cases), labels(cases)
    return {
        "cases": len(cases),
        "groups": len(set(groups)),
        "covered": float(hits.mean()),
        **ends("covered", interval_by_groups(hits, groups)),
        "upper / lower": float(np.exp(np.median(log_width(cases)))),
        "interval score": float(interval_score(cases).mean()),
    }


def figures(cases: Sequence[Row]) -> Row:
    """Both, of cases of one situation, predictor and information."""
    about = {name: cases[0][name] for name in (SITUATION, PREDICTOR, INFORMATION)}
    return {**about, **q_row(cases), **cover_row(cases)}


def tables(cases: Sequence[Row]) -> list[Row]:
    """`figures` of every situation, predictor and information, in their order."""
    return [figures(of_one) for of_one in by(cases, SITUATION, PREDICTOR, INFORMATION).values()]


def by(cases: Iterable[Row], *names: str) -> dict[tuple[Value, ...], list[Row]]:
    """Return the cases by their values under these names."""
    groups: dict[tuple[Value, ...], list[Row]] = defaultdict(list)
    for each in cases:
        groups[tuple(each[name] for name in names)].append(each)
    return dict(groups)


def where(rows: Iterable[Row], **values: Value) -> list[Row]:
    """Return the rows whose columns have the wanted values."""
    return [each for each in rows if all(each.get(name) == to for name, to in values.items())]


def column(cases: Sequence[Row], name: str) -> Floats:
    """[cases]. What is missing is no number."""
    return np.array([number(each.get(name)) for each in cases])


def labels(cases: Sequence[Row]) -> list[str]:
    """Return the group of each case."""
    return [str(each[GROUP]) for each in cases]


def ends(name: str, interval: Interval | None) -> dict[str, Value]:
    """Columns of a bootstrap interval."""
    low, high = interval or (None, None)
    return {f"{name} low": low, f"{name} high": high}


def exponentials(interval: Interval | None) -> Interval | None:
    """Return the interval of a ratio, from that of its log."""
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def least_target(what: str, row: Row | None, name: str, limit: float) -> Target:
    """Return a figure of a row that must be at least so. NaN where there is no such row."""
    return Target(what, limit, number(row.get(name) if row else None), at_most=False)


def most_target(what: str, row: Row | None, name: str, limit: float) -> Target:
    """Return a figure of a row that may be at most so. NaN where there is no such row."""
    return Target(what, limit, number(row.get(name) if row else None))


def worst_case_target(what: str, limit: float, change: PairedComparison) -> Target:
    """Return the target that bounds the upper end of the bootstrap interval of a mean."""
    return Target(what, limit, change.interval[1] if change.interval else math.nan, paired=change)


NOTHING = History((), (), np.zeros(0))
"""The history of a new home."""


def shipped_model() -> PredictLog:
    """Return the pretrained model."""
    return FetchedModels(Path()).base_models()[PUBLIC]


def with_pretrained_model(
    home: History, queries: Sequence[PlanOnCluster], pretrained: PredictLog, *, seed: int = 0
) -> list[Prediction]:
    """Predictions of a home that did not join: by the pretrained model and any own executions."""
    mix = fit_personalized_ensemble(
        home, {PUBLIC: pretrained}, public_learners(), seed=seed, confidence_level=LEVEL
    )
    return mix.predict(queries)


def local_only(
    home: History, queries: Sequence[PlanOnCluster], *, seed: int = 0
) -> list[Prediction]:
    """Answers by own executions alone, with the same code."""
    return fit_personalized_ensemble(
        home, {}, local_learners(), seed=seed, confidence_level=LEVEL
    ).predict(queries)


WIDTH, ROW_HEIGHT, MARGIN = 8.6, 0.24, 1.1
PERCENT = 100


def coverage_chart(rows: Sequence[Row], path: Path) -> Path | None:
    """Write it: a dot for what the product's intervals cover, a bar for its bootstrap interval.

    None where no row has a coverage.
    """
    covered = [each for each in rows if _has_coverage(each)]
    if not covered:
        return None
    with chart(WIDTH, MARGIN + ROW_HEIGHT * len(covered), grid="x") as (figure, axes):
        for height, row in enumerate(reversed(covered)):
            share = PERCENT * number(row["covered"])
            if row.get("covered low") is not None:
                low, high = (PERCENT * number(row[f"covered {end}"]) for end in ("low", "high"))
                axes.plot([low, high], [height, height], color=FAINT, linewidth=1.2, zorder=2)
            axes.plot([share], [height], "o", color=INK, markersize=4, zorder=3)
        axes.axvline(PERCENT * LEVEL, color=FAINT, linestyle="--", linewidth=1, zorder=1)
        axes.set_ylim(-1, len(covered))
        axes.set_yticks(range(len(covered)), [_label(each) for each in reversed(covered)])
        axes.set_xlim(
            left=min(50.0, *(PERCENT * number(each["covered"]) for each in covered)), right=101
        )
        axes.set_xlabel("executions inside of 90 % intervals, %")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(svg(figure), encoding="utf-8")
    return path


def _has_coverage(row: Row) -> bool:
    is_all = row.get("organization") in (None, "all")
    return row.get(PREDICTOR) == OURS and is_all and row.get("covered") is not None


def _label(row: Row) -> str:
    information = row.get(INFORMATION)
    return f"{row[SITUATION]}, {information}" if information else str(row[SITUATION])
