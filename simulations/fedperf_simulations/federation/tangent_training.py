"""Organizations that train a model in private steps at its tangent: one window of model rounds.

A federation in memory (`memory_federation`) whose calendar has one window with as many model
slots as there are steps. Coordinator, members, ledgers and messages are the product's; every
organization adds up the same workloads in every step. No report is due before the window ends,
so the steps follow each other and what they lead to is nobody's version in force yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fedperf_client.learning.residuals import LabelledGraph
from fedperf_server.app.task import Task, predict_with
from fedperf_server.config import ServerConfig
from fedperf_server.rounds.tangent_rounds import MISFIT, TangentRounds
from fedperf_server.state import registry
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.execution import SizedPlan
from fedperf_shared.model.architecture import weights_of
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.checkpoint import decode_checkpoint, model_from_arrays, state_to_arrays
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.releases.period import Period, SlotTimes, Timetable
from fedperf_shared.releases.release import (
    ReleaseKind,
    Schedule,
    Slot,
    SlotKey,
    TangentParameters,
)
from fedperf_simulations.federation.histories import HistoryCompute, SharedAnswers
from fedperf_simulations.federation.memory_federation import (
    HOST,
    Clock,
    NewMember,
    directory_in_memory,
    least_budget,
    memory_federation,
)
from fedperf_simulations.federation.seeded_noise import noise_of
from fedperf_simulations.measured_set.new_platform import MeasuredTimes

START = datetime(2027, 1, 4, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class MeasuredHistory:
    """Workloads that were measured once, before everything (`histories.MemberHistory`)."""

    executed: tuple[LabelledGraph, ...]

    @classmethod
    def of(cls, measured: MeasuredTimes) -> "MeasuredHistory":
        """Each plan a workload of its own."""
        times = enumerate(zip(measured.graphs, measured.log_seconds.tolist(), strict=True))
        return cls(tuple(LabelledGraph(str(n), graph, 0, each) for n, (graph, each) in times))

    def between(self, since: datetime | None, until: datetime) -> Sequence[LabelledGraph]:
        """All of them."""
        del since, until
        return self.executed


def private_steps(
    model: GGFN,
    organizations: Sequence[MeasuredTimes],
    anchors: Sequence[SizedPlan],
    parameters: TangentParameters,
    *,
    steps: int,
    seed: Sequence[int],
    misfit: float = MISFIT,
) -> GGFN:
    """The model after so many steps; each organization's workloads are in every one.

    Args:
        model: where they start.
        organizations: who adds up its workloads, each with noise of its own.
        anchors: public plans at which the tangent is taken.
        parameters: of every organization in every step.
        steps: releases of each organization.
        seed: of everybody's noise, independent in every slot.
        misfit: as of `TangentRounds`.
    """
    table = _one_window(steps)
    keys = [SlotKey(ReleaseKind.MODEL_UPDATE, 0, index) for index in range(steps)]
    schedule = Schedule(table, tuple(Slot(key, parameters) for key in keys))
    task = Task(
        weights_of(state_to_arrays(model)),
        GgfnFormat(),
        TangentRounds([PlanGraph.of(*each) for each in anchors], misfit=misfit),
        _unjudged,
        predict_with,
        (),
    )
    clock, shared, budget = Clock(START), SharedAnswers(), least_budget(schedule)
    newcomers = [
        NewMember(
            f"organization-{number}",
            budget,
            schedule,
            noise_of(seed, number),
            HistoryCompute(MeasuredHistory.of(measured), shared, clock),
            anchors=anchors,
        )
        for number, measured in enumerate(organizations)
    ]
    with directory_in_memory() as place:
        quorum = min(2, len(organizations))
        config = ServerConfig(place / "coordinator", HOST, table, quorum=quorum)
        with memory_federation(config, task, newcomers, clock=clock) as federation:
            federation.live(table.period.end)
            with federation.database.transaction() as session:
                newest = registry.newest_version(session)
    return model_from_arrays(decode_checkpoint(newest.checkpoint).arrays)


def _one_window(steps: int) -> Timetable:
    slots = tuple(SlotTimes(2 * each * HOUR, (2 * each + 1) * HOUR) for each in range(steps))
    return Timetable(Period(START, 2 * steps * HOUR, 1), (), slots)


def _unjudged(arrays: object) -> float:
    """No version is judged here: the experiment does that."""
    del arrays
    return 0.0
