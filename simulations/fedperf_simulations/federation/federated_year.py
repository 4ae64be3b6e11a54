"""A year of model rounds of large organizations, in one process.

Real are: the calendar, the schedule with its noise (calibrated by the accountant over all
releases of the year together), what organizations release, what the coordinator asks, believes,
rehearses and makes of it, and when. Left out: sockets, signatures, ledgers and the judgement
of candidates, since every version is promoted. Noise is seeded, and features are computed for
many plans at once, which moves last digits.

Every organization adds up the workloads that finished until a round opens, each of them once.
What a workload adds is computed once for all that share it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedperf_client.learning.residuals import LabelledGraph
from fedperf_client.privacy.tangent_update import update_from_sum
from fedperf_client.release.schedule import PlannedSchedule
from fedperf_server.rehearsal.synthetic_rows import Catalogue
from fedperf_server.rounds.round_method import AcceptedUpdate
from fedperf_server.rounds.tangent_rounds import TangentRounds
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.period import Timetable
from fedperf_shared.releases.release import ReleaseKind, Slot, TangentParameters
from fedperf_simulations.federation.channel import SeededNoise
from fedperf_simulations.federation.reported_epochs import Reports
from fedperf_simulations.federation.tangent_training import grid_vectors
from fedperf_simulations.measured_set.drifting_platforms import (
    DriftingYear,
    first_windows,
    measured_of,
)

UNNOTICED = 0.01
"""Noise that nobody would notice, where nothing is private."""


@dataclass(frozen=True, slots=True)
class Way:
    """How the years of a row learn.

    Attributes:
        own_history: workloads of earlier epochs stay in the sums; else only those of now.
        rehearses: synthetic rows of earlier epochs are rehearsed.
        private: with the noise of the schedule.
    """

    own_history: bool
    rehearses: bool
    private: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class FederatedWorld:
    """What everybody knows, and who takes part.

    Attributes:
        start: the model that the year begins with.
        catalogue: public plans on public clusters, by cell.
        anchors: public plans at which tangents are taken.
        planned: the schedule of every organization.
        organizations: what each executes.
    """

    start: GGFN
    catalogue: Catalogue
    anchors: Sequence[PlanGraph]
    planned: PlannedSchedule
    organizations: Sequence[DriftingYear]

    @property
    def timetable(self) -> Timetable:
        """The calendar."""
        return self.planned.schedule.timetable


class FederatedYear:
    """One year; `models` lives through it, once."""

    def __init__(self, world: FederatedWorld, way: Way, *, seed: Sequence[int]) -> None:
        """At the start; noise follows from `seed` alone, so that two ways can be compared."""
        self._world, self._way, self._seed = world, way, tuple(seed)
        self._begins = first_windows(world.timetable.period.windows)
        self._rounds = TangentRounds(world.anchors)
        self._model = world.start
        self._steps = 0
        self._reports = Reports(
            world.planned.schedule,
            {str(number): each for number, each in enumerate(world.organizations)},
            world.catalogue,
            SeededNoise([*self._seed, 0]),
        )

    def models(self) -> Iterator[GGFN]:
        """The model after each window."""
        period = self._world.timetable.period
        for window in range(period.windows):
            if window in self._begins:
                self._reports.begin_epoch(self._model)
                self._steps = 0
            if self._way.rehearses:
                self._reports.report(window)
            for slot in self._slots(window):
                self._round(slot)
            yield self._model

    def _slots(self, window: int) -> list[Slot]:
        """The window's model slots in the order in which they open."""
        schedule, timetable = self._world.planned.schedule, self._world.timetable
        # The first epoch began before the year, so it brings no extra rounds.
        extra = window in self._begins[1 : 1 + timetable.extra_windows]
        slots = [
            each
            for each in schedule.slots
            if each.key.kind is ReleaseKind.MODEL_UPDATE and each.key.window == window
        ]
        wanted = [each for each in slots if extra or not schedule.is_extra(each.key)]
        return sorted(wanted, key=lambda each: schedule.opens_at(each.key))

    def _round(self, slot: Slot) -> None:
        question, tangent = self._rounds.asked_at(self._model, steps_made=self._steps)
        epoch = bisect_right(self._begins, slot.key.window) - 1
        known = [self._known(each, slot, epoch) for each in self._world.organizations]
        pool = list({each.workload: each for members in known for each in members}.values())
        vectors = grid_vectors(tangent, self._model, measured_of(pool), question.clip)
        place = {each.workload: place for place, each in enumerate(pool)}
        asked = replace(slot, parameters=self._parameters(slot))
        answers = [
            AcceptedUpdate(
                update_from_sum(
                    vectors[[place[each.workload] for each in members]].sum(axis=0),
                    self._noise(slot, number),
                    slot=slot.key,
                    parameters=self._parameters(slot),
                    base_version=1,
                ),
                asked,
            )
            for number, members in enumerate(known)
        ]
        rehearsed = self._reports.buffer.rows if self._way.rehearses else ()
        self._model = self._rounds.stepped(
            self._model, tangent, answers, question, rehearsed=rehearsed
        )
        self._steps += 1

    def _noise(self, slot: Slot, organization: int) -> SeededNoise:
        """Of one release; whatever else differs, two ways have the same."""
        return SeededNoise([*self._seed, 1, slot.key.window, slot.key.index, organization])

    def _known(self, lived: DriftingYear, slot: Slot, epoch: int) -> list[LabelledGraph]:
        until = self._world.planned.schedule.opens_at(slot.key)
        known = lived.between(None, until)
        return known if self._way.own_history else [each for each in known if each.epoch == epoch]

    def _parameters(self, slot: Slot) -> TangentParameters:
        """As planned; who sends the workloads of one epoch alone declares no more than these."""
        planned = TANGENT_UPDATE.as_parameters(slot.parameters)
        share = 1.0 if self._way.own_history else 1 / len(self._begins)
        noise = planned.noise_multiplier if self._way.private else UNNOTICED
        return TangentParameters(noise, share * planned.nominal_workloads)
