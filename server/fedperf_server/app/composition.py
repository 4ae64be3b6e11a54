"""The coordinator and its composition root, for any message transport.

A coordinator runs its controllers and the model round in ticks, in one thread. A tick reads the
stored evidence once. Then it runs every controller on it, each after those whose results it needs.
At the end it advances the model round that is due. A tick may compute but never waits. A controller
stores its results in one transaction, so that a killed coordinator loses nothing: the next tick
computes them again. If a controller or the round fails, the others continue. A process runs the
coordinator behind sockets (`process`), a simulation behind function calls.

A task holds the model's format, the training strategy, and public data: the plans for evaluating
versions and for synthetic rows. GGFN starts from the pretrained model. Rounds make linearized steps
on the public plans that ship with fedperf. The candidate of a window is decided before the next
rounds (`controllers.promotion`). Organizations weight the fetched models by their own executions,
so the error on public plans only has to detect a degenerate model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray

from fedperf_server.config import ServerConfig
from fedperf_server.controllers.drift import DriftController
from fedperf_server.controllers.promotion import PromotionController
from fedperf_server.controllers.reports import (
    MissingReportController,
    PublicationController,
    design_queries,
)
from fedperf_server.controllers.snapshot import Snapshot, SnapshotReader
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_server.rounds.model_rounds import Evaluate, ModelRounds
from fedperf_server.rounds.open_round import Fleet, RoundRules, RoundStrategy
from fedperf_server.state import registry
from fedperf_server.state.database import DATABASE, Database, DatabaseError
from fedperf_server.state.registry import GgfnFormat, ModelFormat
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.model.architecture import Weights, named_arrays, weights_of
from fedperf_shared.model.checkpoint import decode_checkpoint
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.metrics import median_q_error
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.runtime.failure_tracker import FailureTracker
from fedperf_shared.workflow.features import featurize

T = TypeVar("T")

# A periodic step: does what is due at the snapshot's time, and returns events for the operator
Controller = Callable[[Snapshot], Sequence[object]]


class Coordinator:
    """Runs the controllers and the rounds, tick by tick."""

    def __init__(
        self,
        snapshots: SnapshotReader,
        controllers: Mapping[str, Controller],
        rounds: ModelRounds,
        *,
        failures: FailureTracker | None = None,
    ) -> None:
        """Make a coordinator of `controllers`, run in their order. Failures are tracked by key."""
        self._snapshots = snapshots
        self._controllers = controllers
        self._rounds = rounds
        self._failures = failures or FailureTracker()

    def tick(self, now: datetime) -> Sequence[object]:
        """Do what is due at `now`, and return events for the operator in order."""
        if self._failures.in_backoff(DATABASE):
            return ()
        events: list[object] = []
        try:
            snapshots = self._try("reading releases", lambda: [self._snapshots.read(at=now)])
            for snapshot in snapshots:
                for name, controller in self._controllers.items():
                    events += self._try(name, partial(controller, snapshot))
            events += self._try("holding rounds", partial(self._rounds.run_once, at=now))
        except DatabaseError as error:
            self._failures.failed(DATABASE, error)
        else:
            self._failures.worked(DATABASE)
        return events

    def stop(self) -> None:
        """Interrupt the open round, which is run again after the next start."""
        self._rounds.interrupt()

    def _try(self, name: str, step: Callable[[], Sequence[T]]) -> Sequence[T]:
        """Return the result of `step`, nothing if it failed now or is in backoff."""
        if self._failures.in_backoff(name):
            return ()
        try:
            result = step()
        except DatabaseError:
            raise
        except Exception as error:
            self._failures.failed(name, error)
            return ()
        self._failures.worked(name)
        return result


@dataclass(frozen=True, slots=True)
class Task:
    """A model to train, and its public data."""

    pretrained: Weights  # weights of version 1
    model_format: ModelFormat  # storage format of a version
    strategy: RoundStrategy  # training strategy of the rounds
    evaluate: Evaluate  # returns a version's error on public data
    # Maps a checkpoint's bytes to its predictions, log seconds.
    predict_with: Callable[[bytes], PredictLog]
    plans: Sequence[MeasuredPlan]  # public measured plans


def ggfn_task() -> Task:
    """Return the task of training GGFN on run times of plans."""
    plans, pretrained = load_public_plans(), load_pretrained_model()
    return Task(
        weights_of(pretrained.arrays),
        GgfnFormat(),
        LinearizedAvg([featurize(each.plan, each.cluster) for each in anchors_of(plans)]),
        public_error(plans),
        predict_with,
        plans,
    )


def public_error(plans: Sequence[MeasuredPlan]) -> Evaluate:
    """Return a function from GGFN's arrays to the median q-error on `plans`."""
    graphs = [featurize(each.plan, each.cluster) for each in plans]
    seconds = np.exp([each.log_seconds for each in plans])

    def error(arrays: Weights) -> float:
        model = GgfnArrays.from_arrays(named_arrays(arrays))
        return median_q_error(np.exp(model.log_seconds(graphs)), seconds)

    return error


def predict_with(checkpoint: bytes) -> PredictLog:
    """Return a function that predicts catalogue entries by the checkpoint."""
    model = GgfnArrays.of(decode_checkpoint(checkpoint))

    def predict_log(entries: Sequence[PlanOnCluster]) -> NDArray[np.float64]:
        return model.log_seconds([each.features for each in entries])

    return predict_log


def build_coordinator(
    config: ServerConfig,
    database: Database,
    enrollment: Enrollment,
    fleet: Fleet,
    task: Task,
    *,
    signing_key: ec.EllipticCurvePrivateKey,
    since: datetime,
    rules: RoundRules | None = None,
    failures: FailureTracker | None = None,
) -> Coordinator:
    """Build the coordinator of `config`'s calendar, with the pretrained model in its registry.

    Args:
        config: calendar and rules.
        database: storage.
        enrollment: members.
        fleet: transport for the messages of rounds.
        task: model to train.
        signing_key: key for signing receipts.
        since: current time; reports that were due before are not listed as missing.
        rules: rules of rounds, by default the configured ones.
        failures: failure tracker of the process.
    """
    store_first_version(
        database, task.model_format, task.pretrained, at=since, evaluate=task.evaluate
    )
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
    evaluation = task.plans, task.predict_with
    controllers: dict[str, Controller] = {
        "designing linear queries": design_queries,
        "publishing corrections": PublicationController(*evaluation).run_once,
        "deciding promotions": PromotionController(*evaluation).run_once,
        "detecting drift": DriftController().run_once,
        "listing missing reports": MissingReportController(since=since).run_once,
    }
    snapshots = SnapshotReader(database, calendar, grace=grace)
    return Coordinator(snapshots, controllers, rounds, failures=failures)


def store_first_version(
    database: Database,
    model_format: ModelFormat,
    arrays: Weights,
    *,
    at: datetime,
    evaluate: Evaluate | None = None,
) -> None:
    """Store `arrays` as version 1, promoted, unless the registry holds a model already."""
    with database.transaction() as session:
        if registry.version_numbers(session):
            return
    error = None if evaluate is None else evaluate(arrays)
    with database.transaction() as session:
        registry.add_version(
            session, model_format, arrays, at=at, public_error=error, promoted=True
        )
