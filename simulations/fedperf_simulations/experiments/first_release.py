"""Experiment: a small member spends its year's budget on its history at once, or at the year's end.

Members of 200 declared workloads at epsilon 1 run a year of the default calendar in memory
(`federation.memory_federation`). Ledgers, gate, controllers and queries are the product's. Under
the planned schedule (`release.schedule.plan_schedule`) all reports leave in the first week after
joining. Under the schedule of plans until 0.4.0 the same reports, with the same noise, leave in the
last window. All members of a year have the same kind of schedule.

A workload lies in one cell. Its mean log residual is the sum of its cell's, its organization's
deviation and its own scatter, all drawn from the public prior. The history holds 200 workloads.
They go on through the year, or half of them are replaced by new ones, each at a random moment. A
report is about those that ran in the time that it covers.

The error is the mean absolute log error of the published correction on the first member's workloads
of a week. Before the first publication it is that of the pretrained model. A case is a draw of
world and noise.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import ReportTask
from fedperf_client.contributions.mechanisms import WorkloadResiduals
from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule
from fedperf_memory.histories import UnknownTaskError
from fedperf_memory.memory_federation import (
    HOST,
    Federation,
    NewMember,
    directory_in_memory,
    memory_federation,
)
from fedperf_memory.seeded_noise import noise_of
from fedperf_server.app.composition import Task, ggfn_task
from fedperf_server.config import ServerConfig
from fedperf_server.inference.corrections import DEFAULT_KERNEL
from fedperf_server.state import registry
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.period import ReleaseCalendar, default_calendar
from fedperf_shared.releases.release import ReleaseKind, Schedule, SizeClass, Slot, SlotKey
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target, Value
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.harness.side_by_side import computed

T = TypeVar("T")
Floats = NDArray[np.float64]

WORKLOADS = 200
POLICY = Policy(size_class=SizeClass.SMALL, nominal_workloads=WORKLOADS)
DRAWS, QUICK_DRAWS = 20, 1
MEMBERS = (1, 4)
REPLACED = (0.0, 0.5)
"""Shares of the workloads that are replaced in the course of the year."""

JOINED = timedelta(hours=10)
"""After the start of the period."""

WEEK = timedelta(weeks=1)
PLANNED, LAST = "first week", "last window"
AVERAGED, AT_END, AT_START = "error over the year", "error at the end", "error of the start"
NOT_ABOVE_AT_END = 5.0
"""Percent."""

CATALOGUE = 60
"""Public plans on which synthetic rows lie. Nothing is rehearsed here."""


@dataclass(frozen=True, slots=True)
class YearCondition:
    """One row: which schedule, how many members, and how many of their workloads are new."""

    schedule: str
    members: int
    replaced: float

    @property
    def key(self) -> str:
        """Name of its cell."""
        return f"{self.schedule.replace(' ', '-')}-{self.members}-{self.replaced:g}"


CONDITIONS = tuple(
    YearCondition(schedule, members, replaced)
    for members in MEMBERS
    for replaced in REPLACED
    for schedule in (PLANNED, LAST)
)


@dataclass(frozen=True, slots=True, eq=False)
class LivingWorkloads:
    """An organization's workloads and when they run.

    Attributes:
        cells: of each workload, [workloads].
        levels: log residual of each, [workloads].
        begins: first moment of each, in periods after the start, [workloads].
        ends: last moment, [workloads].
    """

    cells: NDArray[np.int64]
    levels: Floats
    begins: Floats
    ends: Floats

    def between(self, since: float, until: float) -> NDArray[np.int64]:
        """Places of those that run from then until before then."""
        return np.flatnonzero((self.begins < until) & (self.ends > since))


@dataclass(frozen=True, slots=True)
class LivingCompute:
    """Sums of reports over what lived (`workers.computing_process.TaskRunner`)."""

    lived: LivingWorkloads
    calendar: ReleaseCalendar

    def __call__(self, task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        """Return the sum of a report. No other queries occur here."""
        del seconds
        if not isinstance(task, ReportTask):
            raise UnknownTaskError(type(task).__name__)
        since = -math.inf if task.since is None else _place(self.calendar, task.since)
        places = self.lived.between(since, _place(self.calendar, task.until))
        residuals = [
            WorkloadResiduals(self.lived.cells[[place]], self.lived.levels[[place]])
            for place in places.tolist()
        ]
        return cast("T", task.sum_of(residuals))


class FirstRelease:
    """The experiment."""

    name = "first_release"
    claim = "a small member's history, reported in the first week, serves it through the year"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return one row per condition, of the cases of its cell."""
        tasks = [partial(_kept, settings, each) for each in CONDITIONS]
        results = computed(_called, tasks, "years", jobs=settings.jobs)
        cases = dict(zip(CONDITIONS, results, strict=True))
        return ExperimentOutcome(
            [_row(each, rows) for each, rows in cases.items()],
            _targets(cases),
            self.public_files(settings.data),
            cases=[case for rows in cases.values() for case in rows],
        )

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """None: residuals are drawn."""
        del data
        return ()


def planned_schedule() -> PlannedSchedule:
    """Return the default policy's schedule for a member that joins on the first day."""
    start = datetime(2027, 1, 4, tzinfo=UTC)
    table = replace(default_calendar(start), model_slots=(), extra_slots=(), extra_windows=0)
    return plan_schedule(POLICY, table, at=start + JOINED)


def in_the_last_window(planned: Schedule) -> Schedule:
    """Return the same reports in the last window, where they lay until 0.4.0."""
    window = planned.calendar.period.windows - 1
    slots = tuple(
        Slot(SlotKey(ReleaseKind.RESIDUAL_REPORT, window, stage), slot.parameters)
        for stage, slot in enumerate(planned.slots)
    )
    return Schedule(planned.calendar, slots)


def draw_members(
    members: int, replaced: float, rng: np.random.Generator
) -> tuple[LivingWorkloads, ...]:
    """Organizations of one world.

    Their history is the same for every share of replaced workloads.
    """
    truth = np.linalg.cholesky(DEFAULT_KERNEL.matrix()) @ rng.standard_normal(CELLS)
    places = rng.choice(CELLS, POLICY.occupied_cells, replace=False)
    drawn_members = []
    for _ in range(members):
        own = truth + DEFAULT_KERNEL.organization_sd * rng.standard_normal(CELLS)
        cells = rng.choice(places, 2 * WORKLOADS)
        levels = own[cells] + DEFAULT_KERNEL.execution_sd * rng.standard_normal(len(cells))
        moments = rng.uniform(size=WORKLOADS)
        goes_on = np.arange(WORKLOADS) >= replaced * WORKLOADS
        ends = np.where(goes_on, math.inf, moments)
        begins = np.where(goes_on, math.inf, moments)
        drawn_members.append(
            LivingWorkloads(
                cells,
                levels,
                np.concatenate([np.full(WORKLOADS, -math.inf), begins]),
                np.concatenate([ends, np.full(WORKLOADS, math.inf)]),
            )
        )
    return tuple(drawn_members)


def year(condition: YearCondition, seed: Sequence[int]) -> Row:
    """Return the first member's errors, week after week, in a drawn year."""
    planned = planned_schedule()
    schedule = planned.schedule
    if condition.schedule == LAST:
        schedule = in_the_last_window(schedule)
    rng = np.random.default_rng([*seed, 1])
    group = draw_members(condition.members, condition.replaced, rng)
    new_participants = [
        NewMember(
            f"organization-{number}",
            planned.budget,
            schedule,
            noise_of([*seed, 2], number),
            LivingCompute(lived, schedule.calendar),
            policy=POLICY,
        )
        for number, lived in enumerate(group)
    ]
    with directory_in_memory() as place:
        config = ServerConfig(place / "coordinator", HOST, schedule.calendar)
        with memory_federation(config, _task(), new_participants) as federation:
            errors = [*_errors(federation, group[0])]
            end = schedule.calendar.period.end
            spent = max(each.ledger.spent(end) for each in federation.members)
    first = min(map(schedule.replies_at, (slot.key for slot in schedule.slots)))
    return {
        "schedule": condition.schedule,
        "members": condition.members,
        "replaced": condition.replaced,
        "first release, days": (first - schedule.calendar.period.start) / timedelta(days=1),
        "epsilon": spent,
        AT_START: errors[0],
        AVERAGED: float(np.mean(errors)),
        AT_END: errors[-1],
    }


def _errors(federation: Federation, lived: LivingWorkloads) -> Sequence[float]:
    """Return the errors at the start of every week of the period, and at its end."""
    table, errors = federation.config.calendar, []
    moment = table.period.start
    while moment <= table.period.end:
        federation.live(moment)
        with federation.database.transaction() as session:
            correction = registry.published_correction(session)
        mean = np.zeros(CELLS) if correction is None else correction.mean
        now = _place(table, moment)
        running = lived.between(now, now + WEEK / (table.period.end - table.period.start))
        errors.append(float(np.mean(np.abs(lived.levels - mean[lived.cells])[running])))
        moment += WEEK
    return errors


def _place(table: ReleaseCalendar, moment: datetime) -> float:
    """Return the moment in periods after the start."""
    return (moment - table.period.start) / (table.period.end - table.period.start)


@cache
def _task() -> Task:
    whole = ggfn_task()
    return replace(whole, plans=whole.plans[:CATALOGUE])


def _called(task: "partial[Sequence[Row]]") -> Sequence[Row]:
    return task()


def _kept(settings: Settings, condition: YearCondition) -> Sequence[Row]:
    return settings.cases(condition.key, lambda: _cases(settings, condition))


def _cases(settings: Settings, condition: YearCondition) -> list[Row]:
    """Return a row per draw: the same worlds and noise for both schedules."""
    draws = range(QUICK_DRAWS if settings.quick else DRAWS)
    return [{"draw": draw, **year(condition, [settings.seed, draw])} for draw in draws]


def _values(cases: Sequence[Row], name: str) -> Floats:
    return np.array([cast("float", case[name]) for case in cases])


def _row(condition: YearCondition, cases: Sequence[Row]) -> Row:
    errors: dict[str, Value] = {}
    for name in (AT_START, AVERAGED, AT_END):
        comparison = PairedComparison.points(_values(cases, name))
        low, high = comparison.median_interval or (None, None)
        errors |= {f"{name}, median": comparison.median, f"{name}, low": low, f"{name}, high": high}
    return {
        "members": condition.members,
        "replaced": condition.replaced,
        "schedule": condition.schedule,
        "first release, days": cases[0]["first release, days"],
        "epsilon": float(_values(cases, "epsilon").max()),
        **errors,
    }


def _targets(cases: Mapping[YearCondition, Sequence[Row]]) -> list[Target]:
    """Return what was promised, of the median over draws."""
    targets = []
    for members in MEMBERS:
        for replaced in REPLACED:
            ours, theirs = (
                cases[YearCondition(each, members, replaced)] for each in (PLANNED, LAST)
            )
            who = f"{members} members, {100 * replaced:g} % of workloads new"
            for name, limit in ((AVERAGED, 0.0), (AT_END, NOT_ABOVE_AT_END)):
                change = PairedComparison.percent(_values(ours, name), _values(theirs, name))
                what = f"{who}: {name} against reports in the last window, median %"
                targets.append(Target(what, limit, change.median, paired=change))
    return targets


EXPERIMENT = FirstRelease()
