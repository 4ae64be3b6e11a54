"""Tables of what models say of measured cases: how far off, and what they would choose.

A model's say of a case is the log seconds of each of its plans, in their order.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedperf_client.prediction.prediction import Floats
from fedperf_shared.model.metrics import q_error, relative_errors
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.harness.experiment import Row
from fedperf_simulations.harness.paired import Paired
from fedperf_simulations.measured_set.comparisons import Case

ALL = "all"
SAID = "log seconds"
ERROR, RATIO = "relative error", "times the fastest"
NEAR = 0.10
"""What is within a tenth of the best counts as well chosen."""

Chooser = Callable[[Case], Platform | None]
"""The platform for everything; None where it has no run time, or cannot be."""


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """One model's say of cases.

    Attributes:
        model: its name.
        log_seconds: for every case by name, [plans].
    """

    model: str
    log_seconds: Mapping[str, Floats]

    @classmethod
    def of(cls, model: str, rows: Sequence[Row]) -> "Said":
        """From a row per plan, those of a case in their order."""
        found: dict[str, list[float]] = {}
        for row in rows:
            found.setdefault(str(row["case"]), []).append(float(str(row[SAID])))
        return cls(model, {case: np.array(values) for case, values in found.items()})

    def cheapest_platform(self, case: Case) -> Platform:
        """Of the plans on one platform, that of the smallest say."""
        single = [
            (said, plan[0])
            for said, plan in zip(self.log_seconds[case.name], case.seconds, strict=True)
            if len(set(plan)) == 1
        ]
        return min(single)[1]

    def errors(self, case: Case) -> tuple[Floats, Floats]:
        """Predicted and measured seconds of the plans that ended well."""
        measured = np.array(list(case.seconds.values()))
        ended = measured < math.inf
        return np.exp(self.log_seconds[case.name])[ended], measured[ended]


def accuracy_rows(said: Said, folds: Sequence[Sequence[Case]]) -> Iterator[Row]:
    """Errors over all plans of each fold, their mean over the folds; and per family of all."""
    per_fold = [_figures(said, cases) for cases in folds]
    spread = float(np.std([each["relative error"] for each in per_fold]))
    means = {name: float(np.mean([each[name] for each in per_fold])) for name in per_fold[0]}
    yield {"part": "accuracy", "model": said.model, "family": ALL, **means, "sd": spread}
    families: dict[str, list[Case]] = defaultdict(list)
    for case in (case for cases in folds for case in cases):
        families[case.family.value].append(case)
    for family in sorted(families):
        figures = _figures(said, families[family])
        yield {"part": "accuracy", "model": said.model, "family": family, **figures}


def case_rows(said: Said, cases: Sequence[Case]) -> Iterator[Row]:
    """Per case the mean relative error, and what the chosen platform takes: of one, the fastest."""
    told = {case.name for case in comparable(cases)}
    for case in cases:
        predicted, measured = said.errors(case)
        single = case.on_one_platform()
        ratio = _ratio(single, said.cheapest_platform(case)) if case.name in told else None
        yield {
            "model": said.model,
            "case": case.name,
            "family": case.family.value,
            "rows": case.rows,
            ERROR: float(np.mean(relative_errors(predicted, measured))) if len(measured) else None,
            RATIO: ratio,
        }


def paired_rows(asked: Sequence[Row], ours: str) -> Iterator[Row]:
    """Our model against each rival, case by case: change of the mean relative error, percent."""
    errors: dict[str, dict[str, float]] = defaultdict(dict)
    for row in asked:
        if row[ERROR] is not None:
            errors[str(row["model"])][str(row["case"])] = float(str(row[ERROR]))
    mine = list(errors[ours].values())
    for rival, theirs in errors.items():
        if rival != ours:
            change = Paired.percent(mine, list(theirs.values()))
            low, high = change.interval or (None, None)
            yield {
                "part": "paired",
                "rival": rival,
                "cases": change.cases,
                f"{ours} against it, %": change.mean,
                "low": low,
                "high": high,
                "median": change.median,
                "better": change.wins,
            }


def fastest_rows(cases: Sequence[Case]) -> Iterator[Row]:
    """How often each platform alone is the fastest, per family and size."""
    groups: dict[tuple[str, int], list[Case]] = defaultdict(list)
    for case in comparable(cases):
        groups[case.family.value, case.rows].append(case)
    for (family, rows), members in sorted(groups.items()):
        found = Counter(_fastest(case) for case in members)
        known = sorted({platform for case in members for platform in case.on_one_platform()})
        shares = {platform.name.lower(): found[platform] for platform in known}
        yield {"part": "fastest", "family": family, "rows": rows, "cases": len(members), **shares}


def one_platform_row(name: str, choose: Chooser, cases: Sequence[Case]) -> Row:
    """How well one platform for everything is chosen."""
    chosen = [(case.on_one_platform(), choose(case)) for case in comparable(cases)]
    ratios = np.array([_ratio(seconds, platform) for seconds, platform in chosen])
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


def comparable(cases: Sequence[Case]) -> list[Case]:
    """Those with run times on two platforms at least."""
    return [
        case
        for case in cases
        if sum(seconds < math.inf for seconds in case.on_one_platform().values()) > 1
    ]


def _fastest(case: Case) -> Platform:
    single = case.on_one_platform()
    return min(single, key=lambda platform: single[platform])


def _ratio(seconds: Mapping[Platform, float], chosen: Platform | None) -> float:
    if chosen is None:
        return math.inf
    return seconds.get(chosen, math.inf) / min(seconds.values())


def _figures(said: Said, cases: Sequence[Case]) -> dict[str, float]:
    pairs = [said.errors(case) for case in cases]
    predicted, measured = (np.concatenate(each) for each in zip(*pairs, strict=True))
    errors = q_error(predicted, measured)
    return {
        "relative error": float(np.mean(relative_errors(predicted, measured))),
        "absolute error s": float(np.mean(np.abs(predicted - measured))),
        "q50": float(np.median(errors)),
        "q90": float(np.percentile(errors, 90)),
    }
