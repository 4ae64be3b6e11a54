"""A year in memory of large organizations whose platforms drift.

Coordinator, members, ledgers, gate, controllers and calendar are the product's
(`memory_federation`). Reports give synthetic rows for rehearsal, rounds give candidates, and the
next window's reports decide about them. The operator announces every segment of the year as a
regime, a day before it begins. Without announcements a regime begins when reports show a drift.
Noise is seeded.

At each slot an organization sums over the workloads that finished before the slot opened, each
counted once. Members that share a workload share its computation. The gradients at the public
plans are also computed once for all.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import LabelledGraph
from fedperf_client.release.schedule import PlannedSchedule
from fedperf_memory.histories import HistoryCompute, SharedContributions, SharedGradients
from fedperf_memory.memory_federation import (
    HOST,
    Clock,
    Federation,
    NewMember,
    directory_in_memory,
    least_budget,
    memory_federation,
)
from fedperf_memory.seeded_noise import noise_of
from fedperf_server.app.composition import Task, predict_with, public_error
from fedperf_server.config import ServerConfig
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_server.rounds.open_round import AcceptedUpdate
from fedperf_server.state import registry
from fedperf_server.state.database import PromotionRecord, RegimeTrigger, VersionStatus
from fedperf_server.state.drift_regimes import declare
from fedperf_server.state.registry import GgfnFormat
from fedperf_server.state.round_calendar import candidates_after
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.model.architecture import Weights, weights_of
from fedperf_shared.model.checkpoint import decode_checkpoint
from fedperf_shared.releases.kinds import TANGENT_UPDATE, kind_of
from fedperf_shared.releases.linear_queries import LinearizedQuery
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import LinearizedParameters, Schedule, Slot
from fedperf_simulations.corpus.organizations import DriftingYear
from fedperf_simulations.model.ggfn import GGFN, model_from_arrays, state_to_arrays

UNNOTICED = 0.02
"""Negligible noise for years without privacy. The ledger admits a year of it."""

BEFORE = timedelta(days=1)
"""Time between the announcement and the beginning of a regime."""


@dataclass(frozen=True, slots=True)
class TrainingMode:
    """The way in which the years of a row learn.

    Attributes:
        own_history: workloads of earlier regimes stay in the sums; else only current ones.
        rehearses: synthetic rows of earlier regimes are rehearsed.
        private: with the noise of the schedule.
        is_evaluated: versions come into force by the product's verdicts; else the newest one is in
            force at the end of its window, without evaluation.
    """

    own_history: bool
    rehearses: bool
    private: bool = True
    is_evaluated: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class FederationFixture:
    """The public part of a year, and its organizations.

    Attributes:
        base_model: the model that the year begins with.
        plans: public measured plans: synthetic rows lie on them, versions are judged by them.
        anchors: public plans at which tangents are taken.
        planned: the schedule of every organization.
        organizations: what each executes.
    """

    base_model: GGFN
    plans: Sequence[MeasuredPlan]
    anchors: Sequence[PlanOnCluster]
    planned: PlannedSchedule
    organizations: Sequence[DriftingYear]

    @property
    def calendar(self) -> ReleaseCalendar:
        """The calendar."""
        return self.planned.schedule.calendar


@dataclass(frozen=True, slots=True)
class CurrentRegimeHistory:
    """A history without workloads that finished in earlier regimes (`histories.MemberHistory`)."""

    lived: DriftingYear

    def between(self, since: datetime | None, until: datetime) -> Sequence[LabelledGraph]:
        """Return the workloads that finished then, of the newest regime."""
        places = self.lived.between(since, until)
        newest = max((each.regime for each in places), default=0)
        return [each for each in places if each.regime == newest]


class WithoutRehearsal(LinearizedAvg):
    """Rounds at a tangent that rehearse nothing."""

    __slots__ = ()

    def next(
        self,
        current: Weights,
        replies: Sequence[AcceptedUpdate],
        query: LinearizedQuery | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        """Return the next weights as `LinearizedAvg` does, without the rehearsed rows."""
        del rehearsed
        return LinearizedAvg.next(self, current, replies, query)


@dataclass(frozen=True, slots=True)
class FederatedYear:
    """One year. Noise follows from `seed` alone, so that two ways can be compared.

    Attributes:
        world: the public part and the organizations.
        way: how it learns.
        seed: of the noise.
        is_announced: whether the operator announces the segments.
    """

    world: FederationFixture
    way: TrainingMode
    seed: Sequence[int]
    is_announced: bool = True

    def models(self) -> Iterator[GGFN]:
        """Yield the version in force at the end of each window."""
        return (promoted_model(federation) for federation in self.lived())

    def lived(self) -> Generator[Federation]:
        """Yield the federation at the end of each window. It is gone once the iterator is."""
        world, period = self.world, self.world.calendar.period
        announced = self._begins() if self.is_announced else ()
        with directory_in_memory() as place:
            config = ServerConfig(place / "coordinator", HOST, world.calendar)
            clock, gradients = Clock(period.start), SharedGradients()
            task, new_participants = self._task(gradients), self._new_participants(clock, gradients)
            with memory_federation(config, task, new_participants, clock=clock) as federation:
                for window in range(period.windows):
                    end = period.window_start(window + 1)
                    if end in announced:
                        _announce(federation, end - BEFORE)
                    federation.live(end)
                    if not self.way.is_evaluated:
                        _put_in_force(federation)
                    yield federation

    def _begins(self) -> tuple[datetime, ...]:
        """The beginnings of the segments after the first one."""
        return self.world.organizations[0].begins[1:]

    def _task(self, gradients: SharedGradients) -> Task:
        world = self.world
        rounds = LinearizedAvg if self.way.rehearses else WithoutRehearsal
        return Task(
            weights_of(state_to_arrays(world.base_model)),
            GgfnFormat(),
            rounds(
                [each.features for each in world.anchors],
                gradients=gradients,
            ),
            public_error(world.plans),
            predict_with,
            world.plans,
        )

    def _new_participants(self, clock: Clock, gradients: SharedGradients) -> list[NewMember]:
        schedule, shared = self._schedule(), SharedContributions(gradients=gradients)
        budget = least_budget(schedule, delta=self.world.planned.budget.delta)
        return [
            NewMember(
                f"organization-{number}",
                budget,
                schedule,
                noise_of(self.seed, number),
                HistoryCompute(
                    lived if self.way.own_history else CurrentRegimeHistory(lived), shared, clock
                ),
                anchors=self.world.anchors,
            )
            for number, lived in enumerate(self.world.organizations)
        ]

    def _schedule(self) -> Schedule:
        """Return the planned schedule. Declared workloads are those of the sent regimes."""
        schedule = self.world.planned.schedule
        return replace(schedule, slots=tuple(map(self._planned, schedule.slots)))

    def _planned(self, slot: Slot) -> Slot:
        if kind_of(slot.parameters) is not TANGENT_UPDATE:
            return slot
        planned = TANGENT_UPDATE.as_parameters(slot.parameters)
        share = 1.0 if self.way.own_history else 1 / (1 + len(self._begins()))
        noise = planned.noise_multiplier if self.way.private else UNNOTICED
        return replace(
            slot, parameters=LinearizedParameters(noise, share * planned.nominal_workloads)
        )


def promoted_model(federation: Federation) -> GGFN:
    """Return the newest promoted version."""
    with federation.database.transaction() as session:
        checkpoint = registry.get_version(session, 0).checkpoint
    return model_from_arrays(decode_checkpoint(checkpoint).arrays)


def _announce(federation: Federation, at: datetime) -> None:
    federation.live(at)
    federation.clock.now = at
    period = federation.config.calendar.period
    with federation.database.transaction() as session:
        declare(session, period, RegimeTrigger.DECLARED, at=at)


def _put_in_force(federation: Federation) -> None:
    """The newest version, before reports can speak of it."""
    at, reason = federation.clock.now, "the newest version is in force"
    with federation.database.transaction() as session:
        made = candidates_after(session, registry.current_version(session))
        for version in made[-1:]:
            verdict = PromotionRecord(
                version=version,
                status=VersionStatus.PROMOTED,
                reason=reason,
                by_segment={},
                decided_at=at,
            )
            registry.decide(session, verdict)
