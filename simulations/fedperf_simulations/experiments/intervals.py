"""Whether 90 % intervals hold what they promise, and say so where they can promise nothing.

Each organization of the measured set predicts at home from its own executions and the public
start, and is asked about executions that it has not seen: of other workloads, drawn like its
own; of inputs of sizes between those that it knows; of larger ones than all it knows; on more
cores than it knows. An execution outside of
what folds of the known ones can speak for is flagged as extrapolating.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.base_models import FetchedModels
from fedperf_client.prediction.evidence import History
from fedperf_client.prediction.mixture.intervals import source_rows
from fedperf_client.prediction.mixture.personal import personalize
from fedperf_shared.execution import Execution
from fedperf_shared.model.metrics import median_q_error
from fedperf_simulations.data.datasets import measured_executions, measured_files
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target, Value
from fedperf_simulations.measured_set.organizations import WorkloadPart, organization, split

SEEDS, QUICK_SEEDS = 3, 1
QUICK_EXECUTIONS = 60
MOST_ASKED = 500

GAP = (0.4, 0.6)
LARGEST = (0.8, 1.0)
"""Of the executions, by input size: who are asked about where sizes lie between, and beyond."""

LEVEL = 0.9
LEAST_IN_RANGE, MOST_IN_RANGE, LEAST_BEYOND = 0.88, 0.95, 0.85

ORGANIZATIONS = (WorkloadPart.ALDER, WorkloadPart.BIRCH, WorkloadPart.CEDAR)
IN_RANGE, BETWEEN = "other workloads", "sizes between"
LARGER, MORE_CORES = "larger inputs", "more cores"

COUNTED = ("asked", "flagged", "covered", "covered, flagged", "below P90")

NOTES = (
    "the start that ships was trained on all of these executions but those of nobody, so q50 here "
    "is no figure for unseen workloads; what intervals cover is judged by it all the same",
)

Divided = tuple[Sequence[Execution], Sequence[Execution]]
"""What is known, and what is asked about."""


class Intervals:
    """The experiment."""

    name = "intervals"
    claim = "90 % intervals cover 88 to 95 % in range; elsewhere 85 %, or they are flagged"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """A row per organization and way to ask, and one over all organizations."""
        rows: list[Row] = []
        cases: list[Row] = []
        for asks in WAYS:
            of_way: list[Row] = []
            for part in ORGANIZATIONS:
                key = f"{asks.replace(' ', '-')}-{part}"
                found = settings.cases(key, partial(_cases, settings, asks, part))
                rows.append(_pooled(found, part.value))
                of_way += found
            rows.append(_pooled(of_way, "all"))
            cases += of_way
        return ExperimentOutcome(rows, _targets(rows), measured_files(), cases=cases, notes=NOTES)


@dataclass(frozen=True, slots=True)
class _Judged:
    """Answers to questions, one way and seed.

    Attributes:
        covered: whether the interval held what was measured, [asked].
        below: whether P90 did, [asked].
        flagged: whether the answer says that it extrapolates, [asked].
        q_error: median.
    """

    covered: NDArray[np.bool_]
    below: NDArray[np.bool_]
    flagged: NDArray[np.bool_]
    q_error: float


def _cases(settings: Settings, asks: str, part: WorkloadPart) -> list[Row]:
    """A row per seed."""
    rows: list[Row] = []
    for seed in range(settings.seed, settings.seed + (QUICK_SEEDS if settings.quick else SEEDS)):
        found = _judged(*WAYS[asks](part, seed), quick=settings.quick, seed=seed)
        rows.append(
            {
                "asks about": asks,
                "organization": part.value,
                "seed": seed,
                "asked": len(found.covered),
                "flagged": int(found.flagged.sum()),
                "covered": int(found.covered[~found.flagged].sum()),
                "covered, flagged": int(found.covered[found.flagged].sum()),
                "below P90": int(found.below[~found.flagged].sum()),
                "q50": found.q_error,
            }
        )
    return rows


def _judged(
    known: Sequence[Execution], asked: Sequence[Execution], *, quick: bool, seed: int
) -> _Judged:
    rng = np.random.default_rng(seed)
    most = QUICK_EXECUTIONS if quick else MOST_ASKED
    history = History.from_executions(_some(known, rng, QUICK_EXECUTIONS if quick else len(known)))
    questions = History.from_executions(_some(asked, rng, most))
    nothing_fetched = FetchedModels(Path())
    mix = personalize(
        history, nothing_fetched.starts(), nothing_fetched.learners(), seed=seed, level=LEVEL
    )
    found = mix.estimate(questions.questions)
    seconds = np.exp(questions.log_seconds)
    answers = [each.prediction for each in found]
    return _Judged(
        np.array([answer.covers(took) for answer, took in zip(answers, seconds, strict=True)]),
        seconds <= np.array([each.p90_seconds for each in found]),
        np.array([answer.extrapolating for answer in answers]),
        median_q_error(np.array([answer.median_seconds for answer in answers]), seconds),
    )


def _some(
    executions: Sequence[Execution], rng: np.random.Generator, count: int
) -> Iterator[Execution]:
    chosen = np.sort(rng.permutation(len(executions))[:count])
    return (executions[place] for place in chosen)


@cache
def _parts() -> Mapping[WorkloadPart, tuple[Execution, ...]]:
    return split(measured_executions())


def _other_workloads(part: WorkloadPart, seed: int) -> Divided:
    whole = organization(part, _parts()[part], seed=seed)
    return _measured(whole.history), _measured(whole.held_out)


def _sizes(shares: tuple[float, float], part: WorkloadPart, seed: int) -> Divided:
    executions = _measured(organization(part, _parts()[part], seed=seed).history)
    sizes = np.array([source_rows(each.plan) for each in executions])
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


def _divided(executions: Sequence[Execution], asked: NDArray[np.bool_]) -> Divided:
    known = [each for each, is_asked in zip(executions, asked, strict=True) if not is_asked]
    return known, [each for each, is_asked in zip(executions, asked, strict=True) if is_asked]


def _pooled(cases: Sequence[Row], organization: str) -> Row:
    """Counts together; of the median q-error the mean."""
    row: dict[str, Value] = {"asks about": cases[0]["asks about"], "organization": organization}
    for name in COUNTED:
        row[name] = sum(int(str(case[name])) for case in cases)
    return row | {"q50": float(np.mean([float(str(case["q50"])) for case in cases]))}


def _targets(rows: Sequence[Row]) -> list[Target]:
    found = {row["asks about"]: row for row in rows if row["organization"] == "all"}
    share = _share_covered(found[IN_RANGE])
    return [
        Target(f"{IN_RANGE}: covered, not flagged", LEAST_IN_RANGE, share, at_most=False),
        Target(f"{IN_RANGE}: covered, not flagged", MOST_IN_RANGE, share),
        *(
            Target(
                f"{asks}: covered, not flagged", LEAST_BEYOND, _share_covered(row), at_most=False
            )
            for asks, row in found.items()
            if asks != IN_RANGE
        ),
    ]


def _share_covered(row: Row) -> float:
    """Of the answers without a flag; where all are flagged nothing was promised."""
    asked, flagged, covered = (row[key] for key in ("asked", "flagged", "covered"))
    unflagged = float(asked or 0) - float(flagged or 0)
    return float(covered or 0) / unflagged if unflagged else 1.0


EXPERIMENT = Intervals()
