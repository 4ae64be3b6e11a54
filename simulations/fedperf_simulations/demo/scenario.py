"""Line (c) of the demo: the organizations that run as programs, their histories, their calendar.

Everything that is drawn is a function of the measured set and the seed. A calendar that this
machine cannot keep is not made: it is fitted to the measured pace, with margin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import Execution
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.corpus.organizations import (
    OrganizationPart,
    WorkloadPart,
    organization,
    split,
)

PARTS = (WorkloadPart.ALDER, WorkloadPart.BIRCH, WorkloadPart.CEDAR)

POLL_SECONDS = 0.5
REPORT_MARGIN, MODEL_MARGIN = 3.0, 2.0
"""Factors on what was measured: the coordinator and a third organization work as well."""


@dataclass(frozen=True, slots=True)
class DemoSize:
    """The size of the programs' part of the demo.

    What leaves, and for how much, does not depend on it: only declared figures count.

    Attributes:
        history_workloads: at most, of each organization.
        spare_seconds: of each release, added to the scaled measurements: for messages, and for a
            machine that pauses.
    """

    history_workloads: int = 400
    spare_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not self.history_workloads >= 1:
            raise ConfigurationError(
                f"demo: history_workloads must be at least 1, got {self.history_workloads!r}"
            )


QUICK = DemoSize(history_workloads=150, spare_seconds=5.0)


@dataclass(frozen=True, slots=True)
class DemoMember:
    """One organization of the demo.

    Attributes:
        name: who it is.
        size_class: what its policy declares.
        nominal_workloads: what its policy declares.
        history: executions from before the period.
    """

    name: str
    size_class: SizeClass
    nominal_workloads: int
    history: tuple[Execution, ...]


def participants(
    executions: Sequence[Execution], *, seed: int, size: DemoSize
) -> tuple[DemoMember, ...]:
    """Alder, birch and cedar with the history that `seed` draws for each of them."""
    parts = split(executions)
    return tuple(
        participant(organization(part, parts[part], seed=seed), seed=[seed, place], size=size)
        for place, part in enumerate(PARTS)
    )


def participant(whole: OrganizationPart, *, seed: Sequence[int], size: DemoSize) -> DemoMember:
    """One organization's share of its part: workloads are drawn with all their executions."""
    names = sorted({each.workload for each in whole.history})
    order = np.random.default_rng(seed).permutation(len(names))[: size.history_workloads]
    history = {names[place] for place in order.tolist()}
    return DemoMember(
        name=whole.name,
        size_class=whole.size_class,
        nominal_workloads=whole.nominal_workloads,
        history=tuple(e for e in whole.history if e.workload in history),
    )


@dataclass(frozen=True, slots=True)
class MachineTimings:
    """The pace of this machine for one large organization while another runs at the same time.

    Attributes:
        startup_seconds: until a program with all its imports is ready.
        reading_seconds: reading the history and computing its features.
        residuals_seconds: predictions of the reference model on it.
        executions: how many of the history have a run time.
        anchor_seconds: what one anchor of a tangent takes.
        plan_seconds: what a tangent's features of one own plan take.
    """

    startup_seconds: float
    reading_seconds: float
    residuals_seconds: float
    executions: float
    anchor_seconds: float
    plan_seconds: float

    @classmethod
    def slowest(cls, paces: Sequence["MachineTimings"]) -> "MachineTimings":
        """Return the worst of each figure."""
        return cls(*(max(getattr(pace, name) for pace in paces) for name in cls.__slots__))

    def report_seconds(self) -> float:
        """Seconds from a report slot's opening to its release, with margin."""
        return REPORT_MARGIN * (self.reading_seconds + self.residuals_seconds)

    def update_seconds(self, *, anchors: int) -> float:
        """Seconds from a model slot's opening to its release, with margin.

        The coordinator evaluates the anchors before it sends a query, an organization before it
        replies.
        """
        own = self.reading_seconds + self.executions * self.plan_seconds
        return MODEL_MARGIN * (own + 2 * anchors * self.anchor_seconds)


@dataclass(frozen=True, slots=True)
class Calendar:
    """A compressed period of one window. The report comes first, then the model round.

    Attributes:
        report_seconds: the report's reply, after the start of the window.
        grace_seconds: how late a reply may be.
        opens_seconds: the model slot opens, after the start of the window.
        model_seconds: the update's reply, after the start of the window.
        window_seconds: length of the window.
    """

    report_seconds: float
    grace_seconds: float
    opens_seconds: float
    model_seconds: float
    window_seconds: float

    def to_release_calendar(self, start: datetime) -> ReleaseCalendar:
        """Return the calendar as the coordinator publishes it."""
        report, opens, model = (
            timedelta(seconds=each)
            for each in (self.report_seconds, self.opens_seconds, self.model_seconds)
        )
        return ReleaseCalendar(
            Period(start, timedelta(seconds=self.window_seconds), 1),
            report_slots=(SlotTimes(timedelta(seconds=0.25), report),),
            model_slots=(SlotTimes(opens, model),),
        )


def fitted_calendar(pace: MachineTimings, *, anchors: int, size: DemoSize) -> Calendar:
    """The shortest window that leaves time for what was measured. A slow machine takes longer."""
    report = round(pace.report_seconds() + size.spare_seconds, 1)
    update = pace.update_seconds(anchors=anchors)
    grace = 2 * size.spare_seconds
    opens = round(report + grace + size.spare_seconds, 1)
    model = round(opens + update + size.spare_seconds, 1)
    # A reply may be late by its grace, and is still in the window.
    window = round(model + grace + size.spare_seconds, 1)
    return Calendar(report, grace, opens, model, window)
