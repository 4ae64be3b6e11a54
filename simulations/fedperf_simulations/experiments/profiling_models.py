"""Experiment: predictions for configurations that never ran, from those of the same job that did.

Fifteen C3O scenarios (`fedperf_simulations.data.c3o`), one candidate list
(`fedperf_campaigns.tables.learners`), three ways to use it:

* ours: configurations as the median of their repeats; candidates mixed by their errors on folds
  that match the query;
* published rule: every execution a row, one candidate chosen by its error on a random fifth of the
  rows, which then learns from all of them. Repeats of its queries are among its training rows;
* original: what aMLLibrary chose from its own candidates in the same scenarios, one run, figures as
  published.

The error is MAPE in percent over every held-out execution, the mean over seeds. A seed draws the
published rule's fifth and the forest; the rest of ours depends on no seed. CPU seconds are those of
our selection and fit, the longest over the seeds.

These are development figures. Candidates and features were compared by errors inside the training
parts, but the scenarios had been looked at by others. These rows were looked at four times (mean of
ours 7.0, 6.1, 7.1 and 5.8 %). Meanwhile two things were settled: the way folds reach beyond the
training support, and the features that hold shares of the input.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedperf_campaigns.tables.layout import TableLayout, distinct_rows
from fedperf_campaigns.tables.learners import table_learners
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize, TrainingSet
from fedperf_client.prediction.learners.base_learners import Learner
from fedperf_client.prediction.prediction import Floats, QueryRegime
from fedperf_simulations.baselines.table_mixture import mixed_for
from fedperf_simulations.data.c3o import (
    NODES,
    SCENARIOS,
    SIZE,
    RequestedRange,
    Scenario,
    files,
    parts,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target, Value
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.harness.side_by_side import computed

SEEDS, QUICK_SEEDS = 10, 1
"""Of three, the published rule's choices would decide who wins where both are nearly equal:
with other draws ours was better in 10, 11 and 12 of 15."""
QUICK_SCENARIOS = SCENARIOS[:3]

HOLD_OUT = 0.2
"""Share of the rows by which the published rule chooses."""

SHOWN = 3
"""Members of a mix that a row names, those of most weight."""

OURS, RULE, ORIGINAL = "ours", "published rule", "original"

ORIGINAL_ERRORS: Mapping[RequestedRange, Mapping[str, float]] = {
    RequestedRange.NODES_BETWEEN: {
        "sort": 28.4,
        "grep": 8.3,
        "sgd": 30.7,
        "kmeans": 160.2,
        "pagerank": 6.0,
    },
    RequestedRange.NODES_BEYOND: {
        "sort": 11.0,
        "grep": 5.7,
        "sgd": 8.1,
        "kmeans": 13.7,
        "pagerank": 4.1,
    },
    RequestedRange.SIZE_BEYOND: {
        "sort": 19.8,
        "grep": 12.1,
        "sgd": 19.2,
        "kmeans": 15.9,
        "pagerank": 19.9,
    },
}
"""MAPE of aMLLibrary (bceb894), 38 settings of six techniques, its own selection."""

KINDS = {
    RequestedRange.NODES_BETWEEN: QueryRegime.BETWEEN_SCALES,
    RequestedRange.NODES_BEYOND: QueryRegime.BEYOND_SCALES,
    RequestedRange.SIZE_BEYOND: QueryRegime.BEYOND_SIZES,
}

WORST, MEAN, WINS, CPU_SECONDS = 30.0, 9.5, 12, 5.0
MEDIANS = {
    RequestedRange.NODES_BETWEEN: 7.5,
    RequestedRange.NODES_BEYOND: 6.5,
    RequestedRange.SIZE_BEYOND: 12.0,
}


NOTES = (
    "development figures: the rows were looked at four times while features and folds were settled",
    f"the published rule is judged by the mean of {SEEDS} draws; with three, draws decide who wins",
)


class ProfilingModels:
    """The experiment."""

    name = "profiling_models"
    claim = "run times of configurations that never ran are predicted to less than 30 % MAPE"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return one row per scenario. Each has a cell per seed."""
        used = self.public_files(settings.data)
        scenarios = QUICK_SCENARIOS if settings.quick else SCENARIOS
        compute = partial(_scenario_cases, settings)
        results = list(computed(compute, scenarios, "scenarios", jobs=settings.jobs))
        rows = [_row(scenario, cases) for scenario, cases in zip(scenarios, results, strict=True)]
        cases = [case for of_scenario in results for case in of_scenario]
        notes = (*NOTES, _wins_by_draw(cases))
        return ExperimentOutcome(rows, _targets(rows), used, cases=cases, notes=notes)

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Files of the C3O jobs."""
        return files(data)


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """A scenario in numbers: rows with repeats, for training and held out."""

    layout: TableLayout
    training: EncodedQueries
    log_seconds: Floats
    queries: EncodedQueries
    seconds: Floats

    @classmethod
    def of(cls, settings: Settings, scenario: Scenario) -> "_Task":
        split = parts(settings.data, scenario)
        layout = TableLayout.of(split.training.table, scale=NODES, size=SIZE)
        return cls(
            layout,
            layout.samples(split.training.table),
            np.log(split.training.seconds),
            layout.samples(split.held_out.table),
            split.held_out.seconds,
        )

    def places(self, samples: EncodedQueries) -> ScaleAndSize:
        features = samples.features
        return ScaleAndSize(
            features[:, self.layout.scale_feature], features[:, self.layout.size_feature]
        )

    def error(self, log_seconds: Floats) -> float:
        return _percent(np.exp(log_seconds), self.seconds)


def _scenario_cases(settings: Settings, scenario: Scenario) -> list[Row]:
    """Return a row per draw."""
    about: Row = {"job": scenario.job, "asked": scenario.requested.value}
    return [
        {
            **about,
            "draw": each,
            **settings.cell(
                f"{scenario.key}-{each}", partial(_scenario_row, settings, scenario, each)
            ),
        }
        for each in range(QUICK_SEEDS if settings.quick else SEEDS)
    ]


def _row(scenario: Scenario, repeats: Sequence[Row]) -> Row:
    errors = {what: [number(each[what]) for each in repeats] for what in (OURS, RULE)}
    return {
        "job": scenario.job,
        "asked": scenario.requested.value,
        **{what: round(float(np.mean(values)), 2) for what, values in errors.items()},
        "spread of published rule": round(float(np.std(errors[RULE])), 2),
        ORIGINAL: ORIGINAL_ERRORS[scenario.requested][scenario.job],
        "mixed": repeats[0]["mixed"],
        "rule chose": ", ".join(sorted({str(each["rule chose"]) for each in repeats})),
        "cpu seconds": max(number(each["cpu seconds"]) for each in repeats),
    }


def _scenario_row(settings: Settings, scenario: Scenario, seed: int) -> Row:
    task = _Task.of(settings, scenario)
    rng = np.random.default_rng([settings.seed, seed, SCENARIOS.index(scenario)])
    learners = table_learners(task.layout, seed=int(rng.integers(2**31)))
    begun = time.process_time()
    ours, mixed = _ours(task, KINDS[scenario.requested], learners)
    spent = time.process_time() - begun
    rule, choice = _published_rule(task, learners, rng)
    return {
        OURS: task.error(ours),
        RULE: task.error(rule),
        "mixed": mixed,
        "rule chose": choice,
        "cpu seconds": round(spent, 2),
    }


def _ours(task: _Task, kind: QueryRegime, learners: Sequence[Learner]) -> tuple[Floats, str]:
    """Return log seconds of the queries, and the weights."""
    samples, log_seconds = median_of_repeats(task.training, task.log_seconds)
    training = TrainingSet(samples, log_seconds, task.places(samples), np.arange(len(samples)))
    weights, fitted = mixed_for(kind, task.places(task.queries), training, learners)
    most = sorted(weights.members, key=lambda member: -member.weight)[:SHOWN]
    mixed = ", ".join(f"{_short(each.name)} {each.weight:.2f}" for each in most if each.weight > 0)
    return fitted(task.queries), mixed


def _published_rule(
    task: _Task, learners: Sequence[Learner], rng: np.random.Generator
) -> tuple[Floats, str]:
    """Return log seconds of the queries, and the chosen candidate."""
    order = rng.permutation(len(task.training))
    held_out, training_places = np.split(order, [round(HOLD_OUT * len(order))])
    training, queries = task.training.take(training_places), task.training.take(held_out)
    seconds = np.exp(task.log_seconds[held_out])

    def error(learner: Learner) -> float:
        fitted = learner.fit(training, task.log_seconds[training_places])
        return _percent(np.exp(fitted(queries)), seconds)

    choice = min(learners, key=error)
    return choice.fit(task.training, task.log_seconds)(task.queries), _short(choice.name)


def _short(name: str) -> str:
    return name.removeprefix("local ")


def _targets(rows: Sequence[Row]) -> list[Target]:
    def of(requested: RequestedRange) -> list[float]:
        return [number(row[OURS]) for row in rows if row["asked"] == requested.value]

    errors = [number(row[OURS]) for row in rows]
    return [
        Target("worst scenario, MAPE %", WORST, max(errors)),
        *(
            Target(f"median of {requested.value}, MAPE %", limit, float(np.median(of(requested))))
            for requested, limit in MEDIANS.items()
        ),
        Target(
            "mean of all, MAPE %",
            MEAN,
            float(np.mean(errors)),
            paired=PairedComparison.points(errors),
        ),
        _wins(rows, RULE, "the published rule"),
        _wins(rows, ORIGINAL, "the original's figures"),
        Target(
            "CPU seconds of the slowest scenario",
            CPU_SECONDS,
            max(number(row["cpu seconds"]) for row in rows),
        ),
    ]


def _wins(rows: Sequence[Row], rival: str, named: str) -> Target:
    won = sum(number(row[OURS]) < number(row[rival]) for row in rows)
    return Target(f"scenarios of {len(rows)} better than {named}", WINS, won, at_most=False)


def _wins_by_draw(cases: Sequence[Row]) -> str:
    """Return the number of scenarios in which each draw of the published rule loses."""
    won: dict[Value, int] = {}
    for case in cases:
        won[case["draw"]] = won.get(case["draw"], 0) + (number(case[OURS]) < number(case[RULE]))
    return f"by single draws better than the published rule in {sorted(won.values())} scenarios"


def _percent(predicted: Floats, measured: Floats) -> float:
    """MAPE."""
    return 100 * float(np.mean(np.abs(predicted / measured - 1)))


EXPERIMENT = ProfilingModels()


def median_of_repeats(
    samples: EncodedQueries, log_seconds: Floats
) -> tuple[EncodedQueries, Floats]:
    """Return one row for each distinct row of features, with the median of its log seconds.

    As rows of their own, repeats of one configuration would stand on both sides of a fold, and
    weigh a configuration by how often it ran.
    """
    first, place = distinct_rows(samples.features)
    medians = [float(np.median(log_seconds[place == each])) for each in range(len(first))]
    return samples.take(first), np.array(medians)
