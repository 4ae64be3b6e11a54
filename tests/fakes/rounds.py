"""Methods of model rounds for tests that are not about learning."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedperf_server.app.task import Task
from fedperf_server.rehearsal.synthetic_rows import PredictLog
from fedperf_server.rounds.dp_sgd_rounds import Aggregate, DpSgdRounds
from fedperf_server.rounds.next_model import Evaluate
from fedperf_server.rounds.round_method import AcceptedUpdate, RoundMethod
from fedperf_server.rounds.tangent_rounds import TangentRounds
from fedperf_server.state.registry import GgfnFormat, ModelFormat
from fedperf_server.state.validation import UpdateLimits
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.model.architecture import Weights
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.questions import TangentQuestion
from fedperf_shared.releases.release import Slot, Update


def dp_sgd_rounds(
    model_format: ModelFormat, norm_bound: float, aggregate: Aggregate
) -> DpSgdRounds:
    """Rounds of DP-SGD for any model, with any aggregation."""
    limits = UpdateLimits(model_format.architecture, model_format.shapes, norm_bound)
    return DpSgdRounds(limits, aggregate)


def task_of(
    method: RoundMethod,
    *,
    model_format: ModelFormat | None = None,
    evaluate: Evaluate = lambda arrays: 1.0,
    start: Weights | None = None,
) -> Task:
    """A task without public plans, of a model that predicts nought; GGFN by default."""
    form = model_format or GgfnFormat()
    zeros = [np.zeros(shape, dtype=np.float32) for shape in form.shapes]
    return Task(start or zeros, form, method, evaluate, _nought, ())


def _nought(checkpoint: bytes) -> PredictLog:
    del checkpoint
    return lambda entries: np.zeros(len(entries))


def tangent_rounds() -> TangentRounds:
    """Rounds at the tangent on the public plans that ship with fedperf."""
    anchors = anchors_of(load_public_plans())
    return TangentRounds([PlanGraph.of(plan, cluster) for plan, cluster in anchors])


@dataclass
class Keeping:
    """A method that asks and checks as another one, keeps what it gets and leaves the model."""

    method: RoundMethod
    answers: list[AcceptedUpdate] = field(default_factory=list)

    @property
    def rehearses_at_home(self) -> bool:
        return self.method.rehearses_at_home

    def question(self, current: Weights, *, steps_made: int) -> TangentQuestion | None:
        return self.method.question(current, steps_made=steps_made)

    def check(self, update: Update, slot: Slot) -> None:
        self.method.check(update, slot)

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
