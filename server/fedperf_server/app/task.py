"""A coordinator's learning task: GGFN learns the run times of operator plans.

A task holds the model's format, the way rounds train it, and its public data: the plans by which
versions are judged and on which synthetic rows lie. GGFN starts from the public start. Rounds step
at its tangent on the public plans that ship with fedperf. What a window's rounds made is judged
before the next ones
(`desks.promotion`). Organizations weight the models that they fetch by their own executions. So the
error on public plans only has to catch a model that went astray.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_server.rehearsal.synthetic_rows import PredictLog
from fedperf_server.rounds.next_model import Evaluate
from fedperf_server.rounds.round_strategy import RoundStrategy
from fedperf_server.rounds.tangent_avg import TangentAvg
from fedperf_server.state.registry import GgfnFormat, ModelFormat
from fedperf_shared.execution import MeasuredPlan, SizedPlan
from fedperf_shared.model.architecture import Weights, named_arrays, weights_of
from fedperf_shared.model.checkpoint import decode_checkpoint, model_from_arrays
from fedperf_shared.model.fit import predict
from fedperf_shared.model.metrics import median_q_error
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.model.public_start import load_public_start
from fedperf_shared.workflow.features import featurize


@dataclass(frozen=True, slots=True)
class Task:
    """A model to learn, and what is public about it.

    Attributes:
        start: weights of version 1.
        model_format: how a version is stored.
        strategy: how rounds train it.
        evaluate: a version's error on public data.
        predict_with: from a checkpoint's bytes to its predictions, log seconds.
        plans: public measured plans.
    """

    start: Weights
    model_format: ModelFormat
    strategy: RoundStrategy
    evaluate: Evaluate
    predict_with: Callable[[bytes], PredictLog]
    plans: Sequence[MeasuredPlan]


def ggfn_task() -> Task:
    """GGFN on run times of plans."""
    plans, start = load_public_plans(), load_public_start()
    return Task(
        weights_of(start.arrays),
        GgfnFormat(),
        TangentAvg([featurize(each.plan, each.cluster) for each in anchors_of(plans)]),
        public_error(plans),
        predict_with,
        plans,
    )


def public_error(plans: Sequence[MeasuredPlan]) -> Evaluate:
    """Median q-error on `plans` as a function of GGFN's arrays."""
    graphs = [featurize(each.plan, each.cluster) for each in plans]
    seconds = np.exp([each.log_seconds for each in plans])

    def error(arrays: Weights) -> float:
        model = model_from_arrays(named_arrays(arrays))
        return median_q_error(np.exp(predict(model, graphs)), seconds)

    return error


def predict_with(checkpoint: bytes) -> PredictLog:
    """A checkpoint's predictions on entries of the catalogue."""
    model = model_from_arrays(decode_checkpoint(checkpoint).arrays)

    def predict_log(entries: Sequence[SizedPlan]) -> NDArray[np.float64]:
        return predict(model, [each.features for each in entries])

    return predict_log
