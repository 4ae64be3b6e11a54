"""At home: other workloads than own ones, sizes between and beyond them, more cores.

Each organization of the measured set predicts at home from its own executions and the public model.
The queries are executions that it has not seen: of other workloads, drawn like its own; of inputs
of sizes between its own; of larger inputs than its own; on more cores than its own. Each is
predicted with actual and with estimated cardinalities. An execution outside of the training support
is flagged as extrapolating.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_memory.paired import interval_by_groups
from fedperf_shared.execution import Execution
from fedperf_shared.model.metrics import median_q_error
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, BOTH, queries_with
from fedperf_simulations.corpus.organizations import WorkloadPart, organization, split
from fedperf_simulations.data.datasets import measured_executions, measured_files
from fedperf_simulations.experiments.intervals.figures import (
    INFORMATION,
    LEVEL,
    OURS,
    PREDICTOR,
    SITUATION,
    Cases,
    EvaluationPart,
    ends,
    where,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import Row, Settings, Target, Value
from fedperf_simulations.harness.side_by_side import computed

SEEDS, QUICK_SEEDS = 3, 1
QUICK_EXECUTIONS = 60
MOST_QUERIES = 500

GAP = (0.4, 0.6)
LARGEST = (0.8, 1.0)
"""Shares of the executions by input size that are held out for sizes between, and beyond."""

LEAST_IN_RANGE, MOST_IN_RANGE, LEAST_BEYOND = 0.88, 0.95, 0.85

ORGANIZATIONS = (WorkloadPart.ALDER, WorkloadPart.BIRCH, WorkloadPart.CEDAR)
IN_RANGE, BETWEEN = "other workloads", "sizes between"
LARGER, MORE_CORES = "larger inputs", "more cores"

COUNTED = ("asked", "flagged", "within", "within, flagged", "below P90")

NOTES = (
    "at home: the pretrained model was trained on executions of these organizations, so q50 there "
    "is no figure for unseen workloads; what intervals cover is judged by it all the same",
)

Divided = tuple[Sequence[Execution], Sequence[Execution]]
"""Training executions and queries."""


def _all_cases(settings: Settings) -> list[Row]:
    """Return a row per organization, way to ask, seed and information."""
    tasks = [(regime, part) for regime in WAYS for part in ORGANIZATIONS]
    by_task = computed(partial(_cell, settings), tasks, "organizations", jobs=settings.jobs)
    return [row for rows in by_task for row in rows]


def _cell(settings: Settings, task: tuple[str, WorkloadPart]) -> Sequence[Row]:
    regime, part = task
    key = f"{regime.replace(' ', '-')}-{part}"
    return settings.cases(key, partial(_cases, settings, regime, part))


@dataclass(frozen=True, slots=True)
class _HeldOutPredictions:
    """Predictions for queries, by one regime, seed and information.

    Attributes:
        information: that was given.
        covered: whether the interval covered the measured time, [queries].
        below: whether the measured time was below P90, [queries].
        flagged: whether the prediction is flagged as extrapolating, [queries].
        q_error: median.
    """

    information: str
    covered: NDArray[np.bool_]
    below: NDArray[np.bool_]
    flagged: NDArray[np.bool_]
    q_error: float


def _cases(settings: Settings, regime: str, part: WorkloadPart) -> list[Row]:
    """Return a row per seed and information."""
    rows: list[Row] = []
    for seed in range(settings.seed, settings.seed + (QUICK_SEEDS if settings.quick else SEEDS)):
        rows += [
            {
                SITUATION: f"at home: {regime}",
                PREDICTOR: OURS,
                INFORMATION: each.information,
                "organization": part.value,
                "seed": seed,
                "asked": len(each.covered),
                "flagged": int(each.flagged.sum()),
                "within": int(each.covered[~each.flagged].sum()),
                "within, flagged": int(each.covered[each.flagged].sum()),
                "below P90": int(each.below[~each.flagged].sum()),
                "q50": each.q_error,
            }
            for each in _held_out_predictions(
                *WAYS[regime](part, seed), quick=settings.quick, seed=seed
            )
        ]
    return rows


def _held_out_predictions(
    training: Sequence[Execution], held_out: Sequence[Execution], *, quick: bool, seed: int
) -> Iterator[_HeldOutPredictions]:
    rng = np.random.default_rng(seed)
    most = QUICK_EXECUTIONS if quick else MOST_QUERIES
    history = History.from_executions(
        _some(training, rng, QUICK_EXECUTIONS if quick else len(training))
    )
    queries = History.from_executions(_some(held_out, rng, most))
    nothing_fetched = FetchedModels(Path())
    mix = fit_personalized_ensemble(
        history,
        nothing_fetched.base_models(),
        nothing_fetched.learners(),
        seed=seed,
        confidence_level=LEVEL,
    )
    seconds = np.exp(queries.log_seconds)
    for information in BOTH:
        predictions = mix.predict(queries_with(queries.queries, information))
        yield _HeldOutPredictions(
            information,
            np.array(
                [
                    prediction.covers(took)
                    for prediction, took in zip(predictions, seconds, strict=True)
                ]
            ),
            seconds <= np.array([each.p90_seconds for each in predictions]),
            np.array([prediction.extrapolating for prediction in predictions]),
            median_q_error(
                np.array([prediction.median_seconds for prediction in predictions]), seconds
            ),
        )


def _some(
    executions: Sequence[Execution], rng: np.random.Generator, count: int
) -> Iterator[Execution]:
    places = np.sort(rng.permutation(len(executions))[:count])
    return (executions[place] for place in places)


@cache
def _parts() -> Mapping[WorkloadPart, tuple[Execution, ...]]:
    return split(measured_executions())


def _other_workloads(part: WorkloadPart, seed: int) -> Divided:
    whole = organization(part, _parts()[part], seed=seed)
    return _measured(whole.history), _measured(whole.held_out)


def _sizes(shares: tuple[float, float], part: WorkloadPart, seed: int) -> Divided:
    executions = _measured(organization(part, _parts()[part], seed=seed).history)
    sizes = np.array([each.plan.workflow.source_rows for each in executions])
    low, high = np.quantile(sizes, shares)
    return _divided(executions, (sizes > low) & (sizes <= high))


def _more_cores(part: WorkloadPart, seed: int) -> Divided:
    executions = _measured(organization(part, _parts()[part], seed=seed).history)
    return _divided(executions, np.array([each.cluster.cores > 1 for each in executions]))


WAYS: Mapping[str, Callable[[WorkloadPart, int], Divided]] = {
    IN_RANGE: _other_workloads,
    BETWEEN: partial(_sizes, GAP),
    LARGER: partial(_sizes, LARGEST),
    MORE_CORES: _more_cores,
}


def _measured(executions: Sequence[Execution]) -> list[Execution]:
    return [each for each in executions if each.is_ok]


def _divided(executions: Sequence[Execution], is_query: NDArray[np.bool_]) -> Divided:
    training = [each for each, has_query in zip(executions, is_query, strict=True) if not has_query]
    return training, [
        each for each, has_query in zip(executions, is_query, strict=True) if has_query
    ]


def _rows(cases: Cases) -> list[Row]:
    """Return a row per way to ask, information and organization, and one over all organizations."""
    rows = []
    for regime, information in product(WAYS, BOTH):
        of_way = where(cases, situation=f"at home: {regime}", information=information)
        for part in ORGANIZATIONS:
            rows.append(_pooled(where(of_way, organization=part.value), part.value))
        rows.append(_pooled(of_way, "all"))
    return rows


def _pooled(cases: Cases, organization: str) -> Row:
    """Return summed counts, the mean of the median q-errors, and the coverage without flags."""
    row: dict[str, Value] = {
        SITUATION: cases[0][SITUATION],
        PREDICTOR: OURS,
        INFORMATION: cases[0][INFORMATION],
        "organization": organization,
    }
    for name in COUNTED:
        row[name] = sum(int(str(case[name])) for case in cases)
    row["q50"] = float(np.mean([number(case["q50"]) for case in cases]))
    shares = np.array([_share_covered(case) for case in cases])
    interval = interval_by_groups(shares, range(len(shares)))
    return {**row, "covered": _share_covered(row), **ends("covered", interval)}


def _targets(cases: Cases, rows: Sequence[Row]) -> list[Target]:
    """With the rows that a run counted."""
    del cases
    counted = where(rows, organization="all", information=ACTUAL)
    by_situation = {row[SITUATION]: row for row in counted}
    inside = f"at home: {IN_RANGE}"
    share = _share_covered(by_situation[inside])
    return [
        Target(f"{inside}: covered, not flagged", LEAST_IN_RANGE, share, at_most=False),
        Target(f"{inside}: covered, not flagged", MOST_IN_RANGE, share),
        *(
            Target(
                f"{regime}: covered, not flagged", LEAST_BEYOND, _share_covered(row), at_most=False
            )
            for regime, row in by_situation.items()
            if regime != inside
        ),
    ]


def _share_covered(row: Row) -> float:
    """Return the covered share of predictions without a flag, or 1 if all are flagged."""
    queries, flagged, covered = (number(row[key]) for key in ("asked", "flagged", "within"))
    return covered / (queries - flagged) if queries > flagged else 1.0


PART = EvaluationPart(
    "at home", lambda _: measured_files(), _all_cases, _rows, _targets, notes=NOTES
)
