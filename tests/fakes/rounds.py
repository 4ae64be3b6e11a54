"""Strategies of model rounds for tests that are not about learning."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from fedperf_server.app.task import Task
from fedperf_server.rehearsal.synthetic_rows import PredictLog
from fedperf_server.rounds.accepted_update import AcceptedUpdate
from fedperf_server.rounds.dp_sgd_avg import Aggregate, DpSgdAvg
from fedperf_server.rounds.next_model import Evaluate
from fedperf_server.rounds.round_strategy import RoundStrategy
from fedperf_server.rounds.tangent_avg import TangentAvg
from fedperf_server.state import registry
from fedperf_server.state.registry import GgfnFormat, ModelFormat, ModelVersion, VersionStanding
from fedperf_server.state.validation import UpdateLimits
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.model.architecture import Weights
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.questions import TangentQuestion
from fedperf_shared.releases.release import Slot, Update


def dp_sgd_avg(model_format: ModelFormat, norm_bound: float, aggregate: Aggregate) -> DpSgdAvg:
    """Rounds of DP-SGD for any model, with any aggregation."""
    limits = UpdateLimits(model_format.architecture, model_format.shapes, norm_bound)
    return DpSgdAvg(limits, aggregate)


def newest_version(session: Session) -> ModelVersion:
    """The newest version that was not rejected."""
    *_, newest = (
        each for each in registry.versions(session) if each.standing is not VersionStanding.REJECTED
    )
    return newest


def task_of(
    strategy: RoundStrategy,
    *,
    model_format: ModelFormat | None = None,
    evaluate: Evaluate = lambda arrays: 1.0,
    start: Weights | None = None,
) -> Task:
    """A task without public plans, of a model that predicts nought; GGFN by default."""
    form = model_format or GgfnFormat()
    zeros = [np.zeros(shape, dtype=np.float32) for shape in form.shapes]
    return Task(start or zeros, form, strategy, evaluate, _nought, ())


def _nought(checkpoint: bytes) -> PredictLog:
    del checkpoint
    return lambda entries: np.zeros(len(entries))


def tangent_avg() -> TangentAvg:
    """Rounds at the tangent on the public plans that ship with fedperf."""
    anchors = anchors_of(load_public_plans())
    return TangentAvg([PlanGraph.of(each.plan, each.cluster) for each in anchors])


@dataclass(eq=False)
class Keeping(RoundStrategy):
    """Asks and checks as another strategy, keeps what it gets and leaves the model."""

    strategy: RoundStrategy
    answers: list[AcceptedUpdate] = field(default_factory=list)

    @property
    def rehearses_at_home(self) -> bool:
        return self.strategy.rehearses_at_home

    def question(self, current: Weights, *, steps_made: int) -> TangentQuestion | None:
        return self.strategy.question(current, steps_made=steps_made)

    def check(self, update: Update, slot: Slot) -> None:
        self.strategy.check(update, slot)

    def next(
        self,
        current: Weights,
        answers: Sequence[AcceptedUpdate],
        question: TangentQuestion | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        del question, rehearsed
        self.answers.extend(answers)
        return current
