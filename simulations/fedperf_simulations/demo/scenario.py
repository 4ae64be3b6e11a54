"""The demo's world: who the organizations are, what each knows, and the calendar they share.

Everything that is drawn is a function of the measured set and the seed. No workload
that an organization runs, before or live, is among its held-out ones. A calendar that
this machine cannot keep is not made: it is fitted to the measured pace, with margin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from fedperf_client.profiling.trials.shipped_workloads import draw
from fedperf_client.workloads.families import Family, workload_name
from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.execution import Execution
from fedperf_shared.releases.period import Period, SlotTimes, Timetable
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.measured_set.organizations import (
    OrganizationPart,
    WorkloadPart,
    organization,
    split,
)

HISTORY_SHARE = 0.9
"""Of the workloads that an organization could have had, those that a seed lets it have."""

POLL_SECONDS = 0.5
REPORT_MARGIN, MODEL_MARGIN = 3.0, 2.0
"""Factors on what was measured: the coordinator and a third organization work as well."""

PROMOTION_WINDOWS = 2
"""Windows that a promotion needs: one makes a version, the reports of the next one judge it."""

_SEEDS_PER_SEED = 16


@dataclass(frozen=True, slots=True)
class Character:
    """What an organization runs live: families (none: all), the largest input, threads."""

    families: tuple[Family, ...]
    max_rows: int
    threads: int = 1


CHARACTERS: Mapping[WorkloadPart, Character] = {
    WorkloadPart.ALDER: Character((Family.WORD_COUNT, Family.PAGERANK, Family.RELATIONAL), 100_000),
    WorkloadPart.BIRCH: Character((Family.CREDIT, Family.TPCH), 100_000),
    WorkloadPart.CEDAR: Character((), 100_000),
}


@dataclass(frozen=True, slots=True)
class DemoSize:
    """How large the demo is; the defaults are what `make demo` shows.

    Attributes:
        live_executions: that each organization profiles.
        history_workloads: at most, of each organization.
        held_out: executions that each organization needs at least.
        windows: of the compressed period, each with one report and one model slot.
        rounds_seconds: what all windows together may take, where it is enough for a promotion.
        spare_seconds: of each release, beside every factor on what was measured: for
            messages, and for a machine that pauses.
        choice_rows: size of the new workflow's largest source.
        repeats: runs of each plan that is compared.
    """

    live_executions: int = 110
    history_workloads: int = 2000
    held_out: int = 100
    windows: int = 5
    rounds_seconds: float = 240.0
    spare_seconds: float = 1.5
    choice_rows: int = 300_000
    repeats: int = 3

    def __post_init__(self) -> None:
        wrong = [
            f"{name} must be at least 1, got {value!r}"
            for name in ("live_executions", "history_workloads", "repeats")
            if not (value := getattr(self, name)) >= 1
        ]
        if not self.windows >= PROMOTION_WINDOWS:
            wrong.append(f"windows must be at least {PROMOTION_WINDOWS}, got {self.windows!r}")
        if wrong:
            raise ConfigurationError("demo: " + "; ".join(wrong))


QUICK = DemoSize(
    live_executions=6,
    history_workloads=150,
    held_out=30,
    windows=2,
    rounds_seconds=150.0,
    spare_seconds=5.0,
    choice_rows=10_000,
    repeats=1,
)


class TooFewExecutionsError(InvalidInputError):
    """The measured set leaves an organization without enough to be judged by."""

    def __init__(self, name: str, found: int, needed: int) -> None:
        super().__init__(
            f"{name} has {found} held-out executions and needs {needed}; "
            "measure a larger set with: fedperf-sim measure"
        )
        self.name = name


@dataclass(frozen=True, slots=True)
class DemoMember:
    """One organization of the demo.

    Attributes:
        name: who it is.
        size_class: what its policy declares.
        nominal_workloads: what its policy declares.
        character: what it runs live.
        live_seed: of what it runs live.
        history: executions from before the period.
        held_out: executions of workloads that it never runs.
    """

    name: str
    size_class: SizeClass
    nominal_workloads: int
    character: Character
    live_seed: int
    history: tuple[Execution, ...]
    held_out: tuple[Execution, ...]


def participants(
    executions: Sequence[Execution], *, seed: int, size: DemoSize
) -> tuple[DemoMember, ...]:
    """Alder, birch and cedar with what `seed` lets each of them know.

    Raises:
        TooFewExecutionsError: an organization would have too few held-out executions.
    """
    parts = split(executions)
    return tuple(
        participant(part, organization(part, parts[part], seed=seed), seed=seed, size=size)
        for part in CHARACTERS
    )


def participant(
    part: WorkloadPart, whole: OrganizationPart, *, seed: int, size: DemoSize
) -> DemoMember:
    """One organization's share of its part; errors as `participants`."""
    place = list(CHARACTERS).index(part)
    character = CHARACTERS[part]
    live_seed = seed * _SEEDS_PER_SEED + place
    known = _drawn_workloads(whole.history, [seed, 11, place], size.history_workloads)
    live = live_workloads(character, count=size.live_executions, seed=live_seed)
    held_out = tuple(e for e in whole.held_out if e.is_ok and e.workload not in live)
    if len(held_out) < size.held_out:
        raise TooFewExecutionsError(whole.name, len(held_out), size.held_out)
    return DemoMember(
        name=whole.name,
        size_class=whole.size_class,
        nominal_workloads=whole.nominal_workloads,
        character=character,
        live_seed=live_seed,
        history=tuple(e for e in whole.history if e.workload in known),
        held_out=held_out,
    )


def live_workloads(character: Character, *, count: int, seed: int) -> set[str]:
    """Names of the workloads that `fedperf calibrate` will draw with these options."""
    drawn = draw(count, families=character.families, max_rows=character.max_rows, seed=seed)
    return {workload_name(program) for program, _ in drawn}


def _drawn_workloads(
    executions: Sequence[Execution], seed: Sequence[int], at_most: int
) -> set[str]:
    names = sorted({each.workload for each in executions})
    count = min(at_most, round(HISTORY_SHARE * len(names)))
    chosen = np.random.default_rng(seed).choice(len(names), count, replace=False)
    return {names[place] for place in chosen.tolist()}


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast this machine works for one large organization while another works beside it.

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
    def slowest(cls, paces: Sequence["Pace"]) -> "Pace":
        """The worst of each figure."""
        return cls(*(max(getattr(pace, name) for pace in paces) for name in cls.__slots__))

    def report_seconds(self) -> float:
        """From a report slot's opening to its release, with margin."""
        return REPORT_MARGIN * (self.reading_seconds + self.residuals_seconds)

    def update_seconds(self, *, live: int, anchors: int) -> float:
        """From a model slot's opening to its release, with margin.

        The coordinator looks at the anchors before it asks, an organization before it answers.
        """
        own = self.reading_seconds + (self.executions + live) * self.plan_seconds
        return MODEL_MARGIN * (own + 2 * anchors * self.anchor_seconds)


@dataclass(frozen=True, slots=True)
class Calendar:
    """A compressed period. Reports come first in a window, then the model round.

    Between them the last window's version is judged, so that the round starts from what was
    promoted.

    Attributes:
        windows: number of windows.
        report_seconds: the report's reply, after the start of the window.
        grace_seconds: how late a reply may be.
        opens_seconds: the model slot opens, after the start of the window.
        model_seconds: the update's reply, after the start of the window.
        window_seconds: length of a window.
    """

    windows: int
    report_seconds: float
    grace_seconds: float
    opens_seconds: float
    model_seconds: float
    window_seconds: float

    def timetable(self, start: datetime) -> Timetable:
        """The calendar as the coordinator publishes it."""
        report, opens, model = (
            timedelta(seconds=each)
            for each in (self.report_seconds, self.opens_seconds, self.model_seconds)
        )
        return Timetable(
            Period(start, timedelta(seconds=self.window_seconds), self.windows),
            report_slots=(SlotTimes(timedelta(seconds=0.25), report),),
            model_slots=(SlotTimes(opens, model),),
        )


def fitted_calendar(pace: Pace, *, anchors: int, size: DemoSize) -> Calendar:
    """The calendar with the most windows that keeps to `size.rounds_seconds`.

    The windows that a promotion needs stay, however long they are: a slow machine takes longer.
    """
    report = round(pace.report_seconds() + size.spare_seconds, 1)
    update = pace.update_seconds(live=size.live_executions, anchors=anchors)
    grace = 2 * size.spare_seconds
    opens = round(report + grace + size.spare_seconds, 1)
    model = round(opens + update + size.spare_seconds, 1)
    window = round(model + size.spare_seconds, 1)
    windows = min(size.windows, max(PROMOTION_WINDOWS, int(size.rounds_seconds / window)))
    return Calendar(windows, report, grace, opens, model, window)
