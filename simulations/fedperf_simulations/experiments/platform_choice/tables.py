"""Tables of models' predictions for measured cases: their errors, and the plans they would choose.

A model predicts the log seconds of each plan of a case, in their order.

Labels between measured sizes follow each rule of `cold_start`, in the published setting: all
workflows run on small inputs, few on medium and large ones. Of every plan of a series the rule gets
the sizes in `TRAINING_ROWS` and labels the others.

The charts are like figures 6 to 9 of the GGFN paper: run time per platform over input size, one
per task of the paper: word count, PageRank, embeddings of words, credit analysis. Every
line is a plan that really ran at every size; a ring marks what a model that has never seen
the program chooses at that size.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_engines.workloads.families import Family
from fedperf_memory.paired import interval_by_groups
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.metrics import q_error, relative_errors
from fedperf_shared.model.pretrained import pretrained_half_width
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.baselines.cold_start import RULES, Floats, Rule
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, ESTIMATED, workflow_with
from fedperf_simulations.corpus.comparisons import Case
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import Row
from fedperf_simulations.harness.paired import PairedComparison

ALL = "all"
LOG_COLUMNS: Mapping[str, str] = {
    ACTUAL: "log seconds",
    ESTIMATED: "log seconds, known before",
}
"""Columns of a model's predictions, by its information."""

INFORMATION = "information"
ERROR, RATIO = "relative error", "times the fastest"
NEAR = 0.10
"""A choice within a tenth of the best counts as well chosen."""

FAILED = 100.0
"""Regret of a plan that did not end well, in comparisons."""

Chooser = Callable[[Case], Platform | None]
"""The platform for everything. None where it has no run time, or cannot be."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelPredictions:
    """One model's predictions of cases.

    Attributes:
        model: its name.
        log_seconds: for every case by name, [plans].
        information: that it was given.
    """

    model: str
    log_seconds: Mapping[str, Floats]
    information: str = ACTUAL

    @classmethod
    def of(cls, model: str, rows: Sequence[Row], information: str = ACTUAL) -> "ModelPredictions":
        """Return the predictions from a row per plan, those of a case in their order."""
        by_case: dict[str, list[float]] = {}
        for row in rows:
            by_case.setdefault(str(row["case"]), []).append(number(row[LOG_COLUMNS[information]]))
        logs = {case: np.array(values) for case, values in by_case.items()}
        return cls(model, logs, information)

    @property
    def about(self) -> Row:
        """The columns that its rows begin with."""
        return {"model": self.model, INFORMATION: self.information}

    def cheapest_platform(self, case: Case) -> Platform:
        """Return the platform of the one-platform plan with the smallest prediction."""
        single = [
            (predicted, plan[0])
            for predicted, plan in zip(self.log_seconds[case.name], case.seconds, strict=True)
            if len(set(plan)) == 1
        ]
        return min(single)[1]

    def errors(self, case: Case) -> tuple[Floats, Floats]:
        """Predicted and measured seconds of the plans that ended well."""
        measured = np.array(list(case.seconds.values()))
        ended = measured < math.inf
        return np.exp(self.log_seconds[case.name])[ended], measured[ended]


def accuracy_rows(predictions: ModelPredictions, folds: Sequence[Sequence[Case]]) -> Iterator[Row]:
    """Errors over all plans of each fold, their mean over the folds, and all per family."""
    per_fold = [_figures(predictions, cases) for cases in folds]
    spread = float(np.std([each["relative error"] for each in per_fold]))
    means = {name: float(np.mean([each[name] for each in per_fold])) for name in per_fold[0]}
    yield {"part": "accuracy", **predictions.about, "family": ALL, **means, "sd": spread}
    families: dict[str, list[Case]] = defaultdict(list)
    for case in (case for cases in folds for case in cases):
        families[case.family.value].append(case)
    for family in sorted(families):
        figures = _figures(predictions, families[family])
        yield {"part": "accuracy", **predictions.about, "family": family, **figures}


def case_rows(predictions: ModelPredictions, cases: Sequence[Case]) -> Iterator[Row]:
    """Per case the mean relative error, and what the chosen platform takes: of one, the fastest."""
    names = {case.name for case in comparable(cases)}
    for case in cases:
        predicted, measured = predictions.errors(case)
        ratio = None
        if case.name in names:
            platform = predictions.cheapest_platform(case)
            ratio = min(_ratio(case.on_one_platform(), platform), 1 + FAILED)
        yield {
            **predictions.about,
            "case": case.name,
            "workload": case.workload,
            "family": case.family.value,
            "rows": case.rows,
            ERROR: float(np.mean(relative_errors(predicted, measured))) if len(measured) else None,
            RATIO: ratio,
        }


def paired_rows(model_rows: Sequence[Row], ours: str) -> Iterator[Row]:
    """Our model less each rival, case by case. Workloads, with all their sizes, are resampled.

    Of the mean relative error, and of what the chosen platforms take, in times the fastest.
    """
    for information in dict.fromkeys(str(row[INFORMATION]) for row in model_rows):
        rows = [row for row in model_rows if row[INFORMATION] == information]
        workloads = {str(row["case"]): str(row["workload"]) for row in rows}
        for metric in (ERROR, RATIO):
            by_model = _by_model(rows, metric)
            for rival in by_model:
                if rival != ours:
                    pair = _paired_row(by_model[ours], by_model[rival], workloads)
                    about = {"rival": rival, INFORMATION: information, "less": metric}
                    yield {"part": "paired", **about, **pair}


def chosen_row(predictions: ModelPredictions, cases: Sequence[Case]) -> Row:
    """Return the coverage of the chosen platforms by the pretrained model's 90 % intervals.

    The row also has the coverage of every plan on one platform: the best prediction is often an
    underestimate.
    """
    choices, every = _hits(predictions, comparable(cases))
    hits, workloads = np.array([hit for hit, _ in choices]), [workload for _, workload in choices]
    low, high = interval_by_groups(hits, workloads) or (None, None)
    return {
        "part": "chosen",
        **predictions.about,
        "cases": len(hits),
        "covered": float(hits.mean()),
        "low": low,
        "high": high,
        "covered, all platforms": float(np.mean(every)),
    }


def fastest_rows(cases: Sequence[Case]) -> Iterator[Row]:
    """Shares of cases in which each platform alone is the fastest, per family and size."""
    groups: dict[tuple[str, int], list[Case]] = defaultdict(list)
    for case in comparable(cases):
        groups[case.family.value, case.rows].append(case)
    for (family, rows), members in sorted(groups.items()):
        counts = Counter(_fastest(case) for case in members)
        platforms = sorted({platform for case in members for platform in case.on_one_platform()})
        shares = {platform.name.lower(): counts[platform] for platform in platforms}
        yield {"part": "fastest", "family": family, "rows": rows, "cases": len(members), **shares}


def one_platform_row(name: str, choose: Chooser, cases: Sequence[Case]) -> Row:
    """Return the quality of the choice of one platform for everything."""
    choices = [(case.on_one_platform(), choose(case)) for case in comparable(cases)]
    ratios = np.array([_ratio(seconds, platform) for seconds, platform in choices])
    ended = ratios[ratios < math.inf]
    return {
        "part": "one platform",
        "chooser": name,
        "cases": len(ratios),
        "best": float(np.mean(ratios <= 1)),
        "within a tenth": float(np.mean(ratios <= 1 + NEAR)),
        "failed": int(np.sum(ratios == math.inf)),
        "mean regret": float(np.mean(ended) - 1) if len(ended) else None,
    }


def _by_model(model_rows: Sequence[Row], metric: str) -> dict[str, dict[str, float]]:
    """Return the figures by model and case."""
    by_model: dict[str, dict[str, float]] = defaultdict(dict)
    for row in model_rows:
        if row[metric] is not None:
            by_model[str(row["model"])][str(row["case"])] = number(row[metric])
    return by_model


def _paired_row(
    ours: Mapping[str, float], theirs: Mapping[str, float], workloads: Mapping[str, str]
) -> Row:
    """Compare the cases for which both have a figure."""
    shared = [case for case in ours if case in theirs]
    change = PairedComparison.by_groups(
        [ours[case] for case in shared],
        [theirs[case] for case in shared],
        groups=[workloads[case] for case in shared],
    )
    low, high = change.interval or (None, None)
    median_low, median_high = change.median_interval or (None, None)
    return {
        "cases": change.cases,
        "mean": change.mean,
        "low": low,
        "high": high,
        "median": change.median,
        "median low": median_low,
        "median high": median_high,
        "better": change.wins,
    }


def _hits(
    predictions: ModelPredictions, cases: Sequence[Case]
) -> tuple[list[tuple[float, str]], list[float]]:
    """Whether intervals hold what was measured: of chosen platforms with workloads, and of all."""
    choices, every = [], []
    for case in cases:
        best = predictions.cheapest_platform(case)
        queries, logs = (
            case_queries(case, predictions.information),
            predictions.log_seconds[case.name].tolist(),
        )
        for (plan, seconds), query, log in zip(case.seconds.items(), queries, logs, strict=True):
            if len(set(plan)) == 1 and seconds < math.inf:
                hit = float(abs(log - math.log(seconds)) <= pretrained_half_width(query))
                every.append(hit)
                if plan[0] is best:
                    choices.append((hit, case.workload))
    return choices, every


def case_queries(case: Case, information: str) -> list[PlanOnCluster]:
    """Return one per measured plan, in their order."""
    workflow = workflow_with(case.workflow, information)
    return PlanOnCluster.of(workflow, list(case.seconds), case.cluster)


def comparable(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with run times on two platforms at least."""
    return [
        case
        for case in cases
        if sum(seconds < math.inf for seconds in case.on_one_platform().values()) > 1
    ]


def _fastest(case: Case) -> Platform:
    single = case.on_one_platform()
    return min(single, key=lambda platform: single[platform])


def _ratio(seconds: Mapping[Platform, float], choice: Platform | None) -> float:
    if choice is None:
        return math.inf
    return seconds.get(choice, math.inf) / min(seconds.values())


def _figures(predictions: ModelPredictions, cases: Sequence[Case]) -> dict[str, float]:
    pairs = [predictions.errors(case) for case in cases]
    predicted, measured = (np.concatenate(each) for each in zip(*pairs, strict=True))
    errors = q_error(predicted, measured)
    return {
        "relative error": float(np.mean(relative_errors(predicted, measured))),
        "absolute error s": float(np.mean(np.abs(predicted - measured))),
        "q50": float(np.median(errors)),
        "q90": float(np.percentile(errors, 90)),
    }


TRAINING_ROWS = (1_000, 3_000, 10_000, 30_000, 100_000, 10_000_000)
"""Many small sizes and one large: the degree-5 polynomial needs six."""


def label_rows(series: Sequence[Case]) -> Iterator[Row]:
    """Yield one row per rule."""
    curves = list(_curves(series))
    for name, rule in RULES.items():
        errors, negative = _rule_ratios(rule, curves)
        yield {
            "part": "labels",
            "rule": name,
            "labels": len(errors),
            "negative": negative,
            "relative error": float(np.mean(errors)) if len(errors) else None,
            "median relative error": float(np.median(errors)) if len(errors) else None,
        }


def _rule_ratios(rule: Rule, curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, int]:
    errors: list[Floats] = []
    negative = 0
    for rows, seconds in curves:
        is_training = np.isin(rows, TRAINING_ROWS)
        labels = rule(rows[is_training], seconds[is_training], rows[~is_training])
        negative += int(np.sum(~(labels > 0)))
        errors.append(np.abs(labels / seconds[~is_training] - 1))
    return np.concatenate(errors) if errors else np.empty(0), negative


def _curves(series: Sequence[Case]) -> Iterator[tuple[Floats, Floats]]:
    """Rows and seconds of every plan that ended well, at training sizes and at others."""
    curves: dict[tuple[str, Assignment], dict[int, float]] = defaultdict(dict)
    for case in series:
        for plan, seconds in case.seconds.items():
            if seconds < math.inf:
                curves[case.workload, plan][case.rows] = seconds
    for sizes in curves.values():
        if set(TRAINING_ROWS) < sizes.keys():
            rows = np.array(sorted(sizes), dtype=np.float64)
            yield rows, np.array([sizes[int(each)] for each in rows])


TASKS = (Family.WORD_COUNT, Family.PAGERANK, Family.EMBEDDINGS, Family.CREDIT)
RING = "our choice"


def size_charts(series: Sequence[Case], predictions: ModelPredictions, out: Path) -> list[Path]:
    """Write an SVG per task whose series is there. The first program of each."""
    paths: list[Path] = []
    for family in TASKS:
        of_family = [case for case in series if case.family is family]
        if of_family:
            first = [case for case in of_family if case.workload == of_family[0].workload]
            path = out / f"sizes_{family.value}.svg"
            path.write_text(_chart(sorted(first, key=lambda case: case.rows), predictions))
            paths.append(path)
    return paths


def plan_name(plan: Assignment) -> str:
    """Return the platforms of a plan, the most frequent first."""
    return " + ".join(platform.name.lower() for platform, _ in Counter(plan).most_common())


def _chart(cases: Sequence[Case], predictions: ModelPredictions) -> str:
    measured: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for case in cases:
        for plan, seconds in case.seconds.items():
            if seconds < math.inf:
                measured[plan_name(plan)].append((case.rows, seconds))
    lines = [
        Line(name, [rows for rows, _ in points], [seconds for _, seconds in points])
        for name, points in measured.items()
    ]
    choices = [(float(case.rows), _chosen_seconds(case, predictions)) for case in cases]
    rings = [(rows, seconds) for rows, seconds in choices if seconds < math.inf]
    return lines_chart(
        lines,
        f"{cases[0].family.value.replace('_', ' ')}: rows of the largest source",
        "measured seconds",
        is_log=True,
        is_log_across=True,
        rings=(RING, rings),
    )


def _chosen_seconds(case: Case, predictions: ModelPredictions) -> float:
    plans = list(case.seconds)
    return case.seconds[plans[int(np.argmin(predictions.log_seconds[case.name]))]]
