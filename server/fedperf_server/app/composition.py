"""The server's composition root: what makes one coordinator, on whatever carries its messages.

A process puts it behind sockets (`process`), a simulation behind function calls.

A task holds the model's format, the way rounds train it, and its public data: the plans by which
versions are judged and on which synthetic rows lie. GGFN starts from the public start. Rounds step
at its tangent on the public plans that ship with fedperf. What a window's rounds made is judged
before the next ones
(`desks.promotion`). Organizations weight the models that they fetch by their own executions. So the
error on public plans only has to catch a model that went astray.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray

from fedperf_server.config import ServerConfig
from fedperf_server.controllers.drift import DriftController
from fedperf_server.controllers.missing_reports import MissingReportController
from fedperf_server.controllers.promotion import PromotionController
from fedperf_server.controllers.queries import QueryController
from fedperf_server.controllers.regime_releases import SnapshotReader
from fedperf_server.controllers.reports import PublicationController
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.rounds.coordinator import Controller, Coordinator
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_server.rounds.model_rounds import Evaluate, ModelRounds
from fedperf_server.rounds.open_round import Fleet, RoundRules
from fedperf_server.rounds.round_strategy import RoundStrategy
from fedperf_server.state import registry
from fedperf_server.state.database import Database
from fedperf_server.state.registry import GgfnFormat, ModelFormat
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.model.architecture import Weights, named_arrays, weights_of
from fedperf_shared.model.checkpoint import decode_checkpoint, model_from_arrays
from fedperf_shared.model.fit import predict
from fedperf_shared.model.metrics import median_q_error
from fedperf_shared.model.pretrained_model import load_pretrained_model
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.runtime.failure_tracker import FailureTracker
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
    plans, start = load_public_plans(), load_pretrained_model()
    return Task(
        weights_of(start.arrays),
        GgfnFormat(),
        LinearizedAvg([featurize(each.plan, each.cluster) for each in anchors_of(plans)]),
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

    def predict_log(entries: Sequence[PlanOnCluster]) -> NDArray[np.float64]:
        return predict(model, [each.features for each in entries])

    return predict_log


def coordinator_of(
    config: ServerConfig,
    database: Database,
    enrollment: Enrollment,
    fleet: Fleet,
    task: Task,
    *,
    signing_key: ec.EllipticCurvePrivateKey,
    since: datetime,
    rules: RoundRules | None = None,
    troubles: FailureTracker | None = None,
) -> Coordinator:
    """The coordinator of `config`'s calendar, with the task's start model in its registry.

    Args:
        config: its calendar and rules.
        database: its memory.
        enrollment: its members.
        fleet: what carries the messages of rounds.
        task: what is learned.
        signing_key: of receipts.
        since: now; whoever was absent before is not named.
        rules: of rounds; the configured ones by default.
        troubles: of the process.
    """
    store_start_model(database, task.model_format, task.start, at=since, evaluate=task.evaluate)
    calendar, grace = config.calendar, config.grace
    rounds = ModelRounds(
        database,
        enrollment,
        fleet,
        calendar=calendar,
        rules=rules or RoundRules(config.quorum, grace),
        model_format=task.model_format,
        signing_key=signing_key,
        strategy=task.strategy,
        evaluate=task.evaluate,
    )
    judged_by = task.plans, task.predict_with
    desks: dict[str, Controller] = {
        "asking questions": QueryController(database, calendar),
        "evaluating reports": PublicationController(database, calendar, *judged_by, grace=grace),
        "judging versions": PromotionController(database, calendar, *judged_by, grace=grace),
        "reading drift": DriftController(database, calendar, grace=grace),
        "looking for absent reports": MissingReportController(
            database, calendar, grace=grace, since=since
        ),
    }
    return Coordinator(SnapshotReader(database, calendar.period), desks, rounds, troubles=troubles)


def store_start_model(
    database: Database,
    model_format: ModelFormat,
    arrays: Weights,
    *,
    at: datetime,
    evaluate: Evaluate | None = None,
) -> None:
    """Make `arrays` version 1, promoted, unless the registry holds a model already."""
    with database.transaction() as session:
        if registry.known_versions(session):
            return
    error = None if evaluate is None else evaluate(arrays)
    with database.transaction() as session:
        registry.add_version(
            session, model_format, arrays, at=at, public_error=error, promoted=True
        )
