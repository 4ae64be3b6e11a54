"""Predictions of complete plans of one workflow, each asked for once."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from fedperf_client.prediction.prediction import Prediction
from fedperf_shared.errors import FedperfError
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.vocabulary import Platform

BATCH = 256
"""Questions per call of the predictor."""

Predict = Callable[[Sequence[SizedPlan]], Sequence[Prediction]]
"""Questions -> predictions in the same order."""

Assignment = tuple[Platform, ...]


class MissingPredictionsError(FedperfError):
    """The predictor answered another number of questions than it was asked."""


def ranked(
    workflow: Workflow,
    cluster: ClusterConfig,
    predict: Predict,
    assignments: Iterable[Assignment],
    *,
    startup_seconds: Callable[[Assignment], float],
) -> list[tuple[Assignment, Prediction, float]]:
    """Every plan once, fastest first, with its prediction and start-up seconds.

    Of equally fast ones the one that was named first comes first.

    Args:
        workflow: whose plans.
        cluster: what they are to run on.
        predict: asked in batches of up to `BATCH`.
        assignments: the plans.
        startup_seconds: of a plan, beside what is predicted.

    Raises:
        MissingPredictionsError: the predictor did not answer every question.
    """
    distinct, scored = (
        iter(dict.fromkeys(assignments)),
        list[tuple[Assignment, Prediction, float]](),
    )
    for batch in iter(lambda: list(islice(distinct, BATCH)), []):
        predictions = predict(SizedPlan.of(workflow, batch, cluster))
        if len(predictions) != len(batch):
            raise MissingPredictionsError(
                f"{len(batch)} plans were asked for, {len(predictions)} predictions came"
            )
        scored += [
            (each, prediction, startup_seconds(each))
            for each, prediction in zip(batch, predictions, strict=True)
        ]
    return sorted(scored, key=lambda each: each[1].median_seconds + each[2])
