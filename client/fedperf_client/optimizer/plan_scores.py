"""Predictions of complete plans of one workflow, each asked for once."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from fedperf_client.prediction.prediction import Prediction
from fedperf_shared.errors import FedperfError
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import Platform

BATCH = 256
"""Questions per call of the predictor."""

Predict = Callable[[Sequence[SizedPlan]], Sequence[Prediction]]
"""Questions -> predictions in the same order."""

Assignment = tuple[Platform, ...]


class MissingPredictionsError(FedperfError):
    """The predictor answered another number of questions than it was asked."""


class Scores:
    """What the predictor said of each plan, in the order of asking.

    Args:
        workflow: whose plans.
        cluster: what they are to run on.
        predict: asked in batches of up to `BATCH`.
        startup_seconds: of a plan, beside what is predicted; none by default.
    """

    def __init__(
        self,
        workflow: Workflow,
        cluster: ClusterConfig,
        predict: Predict,
        *,
        startup_seconds: Callable[[Assignment], float] = lambda _: 0.0,
    ) -> None:
        self._workflow, self._cluster, self._predict = workflow, cluster, predict
        self._startup_seconds = startup_seconds
        self._known: dict[Assignment, tuple[Prediction, float]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def plan(self, assignment: Assignment) -> Plan:
        """The workflow on those platforms."""
        return Plan(self._workflow, assignment)

    def add(self, assignments: Iterable[Assignment]) -> None:
        """Score those that are new.

        Raises:
            MissingPredictionsError: the predictor did not answer every question.
        """
        new = iter([each for each in dict.fromkeys(assignments) if each not in self._known])
        for batch in iter(lambda: list(islice(new, BATCH)), []):
            predictions = self._predict(SizedPlan.of(self._workflow, batch, self._cluster))
            if len(predictions) != len(batch):
                raise MissingPredictionsError(
                    f"{len(batch)} plans were asked for, {len(predictions)} predictions came"
                )
            self._known.update(
                (each, (prediction, self._startup_seconds(each)))
                for each, prediction in zip(batch, predictions, strict=True)
            )

    def best(self, count: int) -> list[tuple[Assignment, Prediction, float]]:
        """The `count` fastest with their start-up seconds; of equally fast ones the first asked."""
        ranked = sorted(self._known, key=self._seconds)
        return [(each, *self._known[each]) for each in ranked[:count]]

    def _seconds(self, assignment: Assignment) -> float:
        prediction, startup_seconds = self._known[assignment]
        return prediction.median_seconds + startup_seconds
