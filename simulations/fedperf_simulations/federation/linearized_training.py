"""Training of a model by private steps at its tangent: one window of model rounds.

The calendar has one window, with one model slot per step. Coordinator, members, ledgers and
messages are the product's. Every organization sums over the same workloads in every step. No report
is due before the window ends, so each step begins with the candidate before it, and none of them
comes into force. The federation lives in memory (`memory_federation`) or on Flower's simulation
engine (`flower_app`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedperf_client.contributions.local_sums import LabelledGraph
from fedperf_memory.histories import HistoryCompute, SharedContributions
from fedperf_memory.memory_federation import (
    FIRST_VERSION,
    HOST,
    Clock,
    NewMember,
    directory_in_memory,
    least_budget,
    memory_federation,
)
from fedperf_memory.seeded_noise import noise_of
from fedperf_server.app.composition import Task, predict_with
from fedperf_server.config import ServerConfig
from fedperf_server.rounds.linearized_avg import MISFIT, LinearizedAvg
from fedperf_server.state import registry
from fedperf_server.state.database import Database
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.architecture import Weights, named_arrays, weights_of
from fedperf_shared.model.checkpoint import decode_checkpoint
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    Schedule,
    Slot,
    SlotKey,
)
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.corpus.organizations import MeasuredTimes
from fedperf_simulations.model.ggfn import GGFN, model_from_arrays, state_to_arrays

START = datetime(2027, 1, 4, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class MeasuredHistory:
    """Workloads that were measured once, before everything (`histories.MemberHistory`)."""

    executed: tuple[LabelledGraph, ...]

    @classmethod
    def of(cls, measured: MeasuredTimes) -> "MeasuredHistory":
        """Return each plan a workload of its own."""
        times = enumerate(zip(measured.graphs, measured.log_seconds.tolist(), strict=True))
        return cls(tuple(LabelledGraph(str(n), graph, 0, each) for n, (graph, each) in times))

    def between(self, since: datetime | None, until: datetime) -> Sequence[LabelledGraph]:
        """Return all of them."""
        del since, until
        return self.executed


@dataclass(frozen=True, slots=True, eq=False)
class LinearizedTraining:
    """Steps of organizations. Each adds up all its workloads in every one.

    Attributes:
        model: before the first step.
        anchors: public plans at which the tangent is taken.
        parameters: of every organization in every step.
        steps: releases of each organization.
        seed: of all noise, independent in every slot.
        misfit: as of `LinearizedAvg`.
    """

    model: GGFN
    anchors: Sequence[PlanOnCluster]
    parameters: LinearizedParameters
    steps: int
    seed: Sequence[int]
    misfit: float = MISFIT

    @property
    def schedule(self) -> Schedule:
        """The schedule of every organization."""
        keys = [SlotKey(ReleaseKind.MODEL_UPDATE, 0, index) for index in range(self.steps)]
        return Schedule(_one_window(self.steps), tuple(Slot(key, self.parameters) for key in keys))

    @property
    def task(self) -> Task:
        """The learning task of the coordinator."""
        return Task(
            weights_of(state_to_arrays(self.model)),
            GgfnFormat(),
            LinearizedAvg(
                [featurize(each.plan, each.cluster) for each in self.anchors], misfit=self.misfit
            ),
            _unjudged,
            predict_with,
            (),
        )

    def config(self, place: Path, *, organizations: int) -> ServerConfig:
        """The settings of a coordinator under `place`, which wants two replies where it can."""
        directory, table = place / "coordinator", self.schedule.calendar
        return ServerConfig(directory, HOST, table, quorum=min(2, organizations))

    def new_participant(
        self, number: int, history: MeasuredHistory, shared: SharedContributions, clock: Clock
    ) -> NewMember:
        """Return the organization with that number, and what it executed."""
        schedule = self.schedule
        return NewMember(
            f"organization-{number}",
            least_budget(schedule),
            schedule,
            noise_of(self.seed, number),
            HistoryCompute(history, shared, clock),
            anchors=self.anchors,
        )

    def candidates(self, histories: Sequence[MeasuredHistory]) -> list[Weights]:
        """Return the weights after each step, lived in memory."""
        clock, shared = Clock(START), SharedContributions()
        new_participants = [
            self.new_participant(number, each, shared, clock)
            for number, each in enumerate(histories)
        ]
        with directory_in_memory() as place:
            config = self.config(place, organizations=len(new_participants))
            with memory_federation(config, self.task, new_participants, clock=clock) as federation:
                federation.live(config.calendar.period.end)
                return versions_after(federation.database)


def versions_after(database: Database) -> list[Weights]:
    """Weights of all versions but the first, in their order."""
    with database.transaction() as session:
        return [
            weights_of(decode_checkpoint(each.checkpoint).arrays)
            for each in registry.versions(session)
            if each.version > FIRST_VERSION
        ]


def private_steps(
    model: GGFN,
    organizations: Sequence[MeasuredTimes],
    anchors: Sequence[PlanOnCluster],
    parameters: LinearizedParameters,
    *,
    steps: int,
    seed: Sequence[int],
    misfit: float = MISFIT,
) -> GGFN:
    """The model after the last step of a `LinearizedTraining` in memory. Unmoved without one."""
    training = LinearizedTraining(model, anchors, parameters, steps, seed, misfit)
    made = training.candidates([MeasuredHistory.of(each) for each in organizations])
    return model_from_arrays(named_arrays(made[-1])) if made else model


def _one_window(steps: int) -> ReleaseCalendar:
    slots = tuple(SlotTimes(2 * each * HOUR, (2 * each + 1) * HOUR) for each in range(steps))
    return ReleaseCalendar(Period(START, 2 * steps * HOUR, 1), (), slots)


def _unjudged(arrays: object) -> float:
    """No version is judged here: the experiment does that."""
    del arrays
    return 0.0
