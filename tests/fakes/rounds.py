"""Strategies of model rounds for tests that do not test learning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from fedperf_server.app.composition import Task
from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_server.rounds.model_rounds import Evaluate
from fedperf_server.rounds.open_round import AcceptedUpdate, RoundStrategy
from fedperf_server.state import registry
from fedperf_server.state.database import VersionStatus
from fedperf_server.state.registry import GgfnFormat, ModelFormat, ModelVersion
from fedperf_server.state.validation import ReportContext, check_contents
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.model.architecture import Weights
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.linear_queries import DIRECTIONS, LinearizedQuery
from fedperf_shared.releases.release import LinearizedUpdate, Slot, SlotKey, Update
from fedperf_shared.workflow.features import featurize

Aggregate = Callable[[Weights, Sequence[Weights]], Sequence[NDArray[np.float32]]]
"""Computes the next model from (current, changes)."""

_GRID = -20


@dataclass(eq=False)
class SumsOfWeights(RoundStrategy):
    """A strategy for a tiny model: the changes of its weights are the first numbers of a sum.

    Attributes:
        shapes: shapes of the model's arrays.
        aggregate: function that computes the next model.
        rows: number of rehearsed rows of each round, in order.
    """

    shapes: Sequence[tuple[int, ...]]
    aggregate: Aggregate
    rows: list[int] = field(default_factory=list)

    def design_query(self, current: Weights, *, steps_made: int) -> None:
        del current, steps_made

    def check(self, update: Update, slot: Slot) -> None:
        check_contents(update, slot, ReportContext(), kind=TANGENT_UPDATE)

    def next(
        self,
        current: Weights,
        answers: Sequence[AcceptedUpdate],
        question: LinearizedQuery | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        del question
        self.rows.append(len(rehearsed))
        return self.aggregate(current, [self._change(each.update) for each in answers])

    def _change(self, update: LinearizedUpdate) -> Weights:
        values, arrays = update.natural(), []
        for shape in self.shapes:
            size = int(np.prod(shape))
            arrays.append(values[:size].reshape(shape).astype(np.float32))
            values = values[size:]
        return arrays


def sum_of_weights(key: SlotKey, base_version: int, arrays: Weights) -> LinearizedUpdate:
    """Return the update that encodes these changes for `SumsOfWeights`.

    Numbers are rounded to 2**-20. Those beyond `DIRECTIONS` are dropped.
    """
    flat = np.concatenate([each.ravel() for each in arrays])[:DIRECTIONS].astype(np.float64)
    values = np.zeros(DIRECTIONS, dtype=np.int64)
    values[: len(flat)] = np.rint(np.ldexp(flat, -_GRID))
    return LinearizedUpdate(key, base_version, _GRID, values)


def mean_of(current: Weights, changes: Sequence[Weights]) -> Weights:
    """Return the model plus the mean of the changes."""
    return [
        (array + np.mean([each[place] for each in changes], axis=0)).astype(np.float32)
        for place, array in enumerate(current)
    ]


def newest_version(session: Session) -> ModelVersion:
    """Return the newest version that was not rejected."""
    *_, newest = (
        each for each in registry.versions(session) if each.status is not VersionStatus.REJECTED
    )
    return newest


def task_of(
    strategy: RoundStrategy,
    *,
    model_format: ModelFormat | None = None,
    evaluate: Evaluate = lambda arrays: 1.0,
    start: Weights | None = None,
) -> Task:
    """Return a task without public plans, whose model predicts zero. GGFN by default."""
    form = model_format or GgfnFormat()
    zeros = [np.zeros(shape, dtype=np.float32) for shape in form.shapes]
    return Task(start or zeros, form, strategy, evaluate, _nought, ())


def _nought(checkpoint: bytes) -> PredictLog:
    del checkpoint
    return lambda entries: np.zeros(len(entries))


def tangent_avg() -> LinearizedAvg:
    """Return the strategy of linearized rounds on the public plans that ship with fedperf."""
    anchors = anchors_of(load_public_plans())
    return LinearizedAvg([featurize(each.plan, each.cluster) for each in anchors])


@dataclass(eq=False)
class Keeping(RoundStrategy):
    """A strategy that wraps another one, stores the updates and leaves the model unchanged."""

    strategy: RoundStrategy
    answers: list[AcceptedUpdate] = field(default_factory=list)

    def design_query(self, current: Weights, *, steps_made: int) -> LinearizedQuery | None:
        return self.strategy.design_query(current, steps_made=steps_made)

    def check(self, update: Update, slot: Slot) -> None:
        self.strategy.check(update, slot)

    def next(
        self,
        current: Weights,
        answers: Sequence[AcceptedUpdate],
        question: LinearizedQuery | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        del question, rehearsed
        self.answers.extend(answers)
        return current
