"""The gain from joining: an organization's errors with and without it, on held-out executions.

`gain_on` evaluates on executions that never ran here. `gain_curve` evaluates on own workloads over
the number of own executions. Workloads are split into folds. Those of a fold are predicted from
some executions of the others: none, three, five and so on, whole workloads in random order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.ensemble import OnProgress
from fedperf_client.prediction.ensemble.predictor import LearnerPool, PersonalizedEnsemble
from fedperf_client.prediction.ensemble.training_data import MOST_TRAINING_RUNS
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    REFERENCE,
    SHARED,
    Learner,
    local_learners,
    public_learners,
)
from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution
from fedperf_shared.model.metrics import median_q_error

# Ways to predict: from own executions, from a pretrained model, from both, and from everything.
LOCAL, PUBLIC_AS_IS, PUBLIC_ENSEMBLE, AS_IS, PERSONALIZED = (
    "local_only",
    "public_start_as_is",
    "with_public_start",
    "shared_as_is",
    "personalized",
)


@dataclass(frozen=True, slots=True)
class GainPoint:
    """Median q-errors with so many own executions."""

    executions: int  # own ones in the training data
    predictions: int  # number of predicted executions of other workloads
    # Median q-error by way to predict; NaN for local predictions without executions.
    errors: Mapping[str, float]
    # Share of them inside the personalized 90 % interval; None where not evaluated.
    coverage: float | None = None


def gain_on(
    history: History, workloads: Iterable[str], held_out: Iterable[Execution], models: FetchedModels
) -> GainPoint:
    """Compare on executions of workloads that never ran here.

    Args:
        history: own executions to train on.
        workloads: all own ones.
        held_out: executions to predict.
        models: fetched ones.

    Raises:
        InvalidInputError: nothing was held out, or a held-out workload is among the own.
    """
    test = History.from_executions(held_out)
    overlap = set(workloads) & set(test.workloads)
    if not len(test):
        raise InvalidInputError(
            "no held-out execution ended well with known rows; there is nothing to predict"
        )
    if overlap:
        raise InvalidInputError(
            f"{len(overlap)} of the {len(set(test.workloads))} held-out workloads ran here too, "
            f"such as {min(overlap)!r}; --held-out is for jobs that did not, and without it "
            "fedperf evaluate holds own workloads out"
        )
    base_models = models.base_models()
    joined, local = models.learners(), local_learners()
    candidates = LearnerPool.from_history(history, base_models, every_one([*joined, *local]))
    predictions = PersonalizedEnsemble.of(candidates, joined).predict(test.queries)
    seconds = np.exp(test.log_seconds)
    inside = [
        prediction.covers(measured)
        for prediction, measured in zip(predictions, seconds, strict=True)
    ]

    def error_of(log_seconds: Floats) -> float:
        return median_q_error(np.exp(log_seconds), seconds)

    errors = {
        LOCAL: error_of(PersonalizedEnsemble.of(candidates, local).predict_log(test.queries)),
        PUBLIC_AS_IS: error_of(base_models[PUBLIC](test.queries)),
        AS_IS: error_of(base_models.get(SHARED, base_models[REFERENCE])(test.queries)),
        PERSONALIZED: median_q_error(
            np.array([each.median_seconds for each in predictions]), seconds
        ),
    }
    return GainPoint(len(history), len(test), errors, coverage=float(np.mean(inside)))


def every_one(learners: Iterable[Learner]) -> list[Learner]:
    """Return the first learner of each name."""
    return list({learner.name: learner for learner in reversed(list(learners))}.values())[::-1]


# Numbers of own executions to evaluate, as far as there are so many.
STEPS = (0, 3, 5, 10, 30, 100, 300, 1000, 3000)

FEWEST_WORKLOADS = 5
MAX_PREDICTED = 150  # executions of a fold that are predicted at most
# Pairs of most own executions and folds. Beyond them one fold: it takes long and varies little.
_FOLDS_UP_TO = ((30, 5), (300, 3))

_FOLDS_OF_MANY = _FOLDS_UP_TO[:1]  # the same in a home of more than `MOST_TRAINING_RUNS` executions


def gain_curve(
    groups: NDArray[np.int64],
    history_of: Callable[[NDArray[np.int64]], History],
    models: FetchedModels,
    *,
    on_progress: OnProgress,
    seed: int = 0,
) -> list[GainPoint]:
    """Errors over the number of own executions, each on workloads that are left out.

    Args:
        groups: number of the workload of each own execution, in the order in which they finished.
        history_of: returns own executions by their rows, ascending; called once.
        models: fetched ones.
        on_progress: called after each fold.
        seed: of folds and of the order of workloads.

    Raises:
        InvalidInputError: too few workloads to leave some out.
    """
    if len(np.unique(groups)) < FEWEST_WORKLOADS:
        raise InvalidInputError(
            f"the gain is evaluated on at least {FEWEST_WORKLOADS} own workloads, and there "
            f"are {len(np.unique(groups))}; take executions in with: fedperf ingest FILE, or run "
            "some with: fedperf calibrate"
        )
    parts = list(_parts(groups, seed))
    most = min(len(training) for training, _ in parts)
    steps = [step for step in STEPS if step <= most]
    folds = _FOLDS_UP_TO if len(groups) <= MOST_TRAINING_RUNS else _FOLDS_OF_MANY
    work = [
        (training[:step], test)
        for step in steps
        for training, test in parts[: next((count for limit, count in folds if step <= limit), 1)]
    ]
    needed = np.unique(np.concatenate([rows for each in work for rows in each]))
    history = history_of(needed)
    base_models = {
        name: _remembered(model, history) for name, model in models.base_models().items()
    }
    errors: dict[int, list[dict[str, Floats]]] = {}
    for number, each in enumerate(work):
        training, test = (history.take(np.searchsorted(needed, rows)) for rows in each)
        errors.setdefault(len(training), []).append(
            errors_by_way(training, test, base_models, models)
        )
        on_progress(number + 1, len(work))
    return [_point(step, errors[step]) for step in steps]


def errors_by_way(
    own: History, test: History, base_models: Mapping[str, PredictLog], models: FetchedModels
) -> dict[str, Floats]:
    """Return absolute log errors by way to predict, [test].

    Args:
        own: executions to train on.
        test: executions of other workloads, to predict.
        base_models: pretrained models by name.
        models: fetched ones.
    """
    joined, public, local = models.learners(), public_learners(), local_learners()
    candidates = LearnerPool.from_history(own, base_models, every_one([*public, *joined, *local]))
    ways: dict[str, PredictLog] = {
        LOCAL: PersonalizedEnsemble.of(candidates, local).predict_log,
        PUBLIC_ENSEMBLE: PersonalizedEnsemble.of(candidates, public).predict_log,
        AS_IS: base_models.get(SHARED, base_models[REFERENCE]),
        PERSONALIZED: PersonalizedEnsemble.of(candidates, joined).predict_log,
    }
    errors = {
        name: np.abs(predict(test.queries) - test.log_seconds) for name, predict in ways.items()
    }
    return errors if len(own) else errors | {LOCAL: np.full(len(test), np.nan)}


def _parts(
    groups: NDArray[np.int64], seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield training rows of each fold, workload by workload, and the rows to predict."""
    count = int(groups.max()) + 1
    fold_of_group = np.random.default_rng([seed, 1]).permutation(np.arange(count) % 5)
    for fold in range(5):
        rng = np.random.default_rng([seed, 2, fold])
        rank = rng.permutation(count)
        held = fold_of_group[groups] == fold
        training = np.flatnonzero(~held)
        test = rng.permutation(np.flatnonzero(held))[:MAX_PREDICTED]
        yield training[np.argsort(rank[groups[training]], kind="stable")], test


def _point(step: int, folds: Sequence[Mapping[str, Floats]]) -> GainPoint:
    together = {name: np.concatenate([fold[name] for fold in folds]) for name in folds[0]}
    return GainPoint(
        step,
        len(together[LOCAL]),
        {name: float(np.exp(np.median(errors))) for name, errors in together.items()},
    )


def _remembered(model: PredictLog, history: History) -> PredictLog:
    """Predict every query of the history once; the result looks its queries up."""
    predictions = dict(zip(map(id, history.queries), model(history.queries), strict=True))
    return lambda queries: np.array([predictions[id(each)] for each in queries])
