"""Drift detection by the coordinator from reports at epsilon 1 a year, by number of workloads.

A year of the default calendar runs in memory (`federation.memory_federation`). Organizations with
recurring workloads on three platforms plan their schedules by the default policy, report, and reply
to queries by their participants. The coordinator's controllers read drifts from that alone. A
shared drift begins a regime. One platform gets slower or faster for all organizations at a random
moment after the fourth window, or nothing happens. A drift counts as found within four windows of
its moment, from the reports that have left by then. In a year without a drift every alarm is false.
In a year with one, an alarm is false on another platform, in the other direction, or before the
drift.

Residuals are drawn (`recurring_workloads`) and enter before a workload's contribution is bounded.
The coordinator's calendar has no model rounds here.

Organizations whose workloads run again and again, with residuals that are drawn.

Residuals come from no model and no engine. The truth of the cells is drawn from the coordinator's
own public prior. An organization's deviation from it and a workload's from its cell stay;
executions scatter.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import ReportTask
from fedperf_client.contributions.mechanisms import WorkloadResiduals
from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import plan_schedule
from fedperf_memory.histories import UnknownTaskError
from fedperf_memory.memory_federation import (
    HOST,
    NewMember,
    directory_in_memory,
    least_budget,
    memory_federation,
)
from fedperf_memory.seeded_noise import noise_of
from fedperf_server.app.composition import Task
from fedperf_server.config import ServerConfig
from fedperf_server.controllers.drift import stored_drifts
from fedperf_server.inference.corrections import DEFAULT_KERNEL
from fedperf_server.inference.drift_evidence import SHIFT, PlatformDrift
from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_shared.model.architecture import Weights
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_shared.releases.basis import ALL_CELLS, CELLS, PLATFORM_GROUPS
from fedperf_shared.releases.period import Period, default_calendar
from fedperf_shared.releases.release import Schedule, SizeClass
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import Row, Settings, Target, Value
from fedperf_simulations.harness.side_by_side import computed

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

USED = PLATFORM_GROUPS[:3]
"""Platforms that organizations use."""

CELLS_OF_A_PLATFORM = 8
"""Cells of each of them in which an organization has workloads."""

EXECUTIONS = 3.0
"""Mean executions of a workload in a window. A window may have none."""

WORKLOAD_SD = 0.4
"""Standard deviation of workloads around their cell, constant in time, log seconds."""

EXECUTION_SD = 0.3
"""Standard deviation of executions around their workload. Both give `Kernel.execution_sd`."""

REFERENCE = 1


@dataclass(frozen=True, slots=True)
class PlatformShift:
    """A platform that takes longer from a moment on.

    Attributes:
        platform: which.
        at: when, in windows after the start of the period.
        log_factor: log seconds by which its executions take longer.
        only: the organization whose platform it is; None for all organizations.
    """

    platform: Platform
    at: float
    log_factor: float
    only: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RecurringOrganization:
    """An organization: its workloads, each in one cell.

    Attributes:
        name: of the organization.
        cells: of each workload, [workloads].
        levels: log residual that each has on average, [workloads].
    """

    name: str
    cells: Positions
    levels: Floats


@dataclass(frozen=True, slots=True, eq=False)
class RecurringYear:
    """The executions of an organization in some windows.

    Attributes:
        organization: whose.
        workloads: of each execution, [executions].
        residuals: log measured minus log predicted seconds, [executions].
    """

    organization: RecurringOrganization
    workloads: Positions
    residuals: Floats

    def residuals_by_workload(self) -> list[WorkloadResiduals]:
        """Return the residuals in the form of the client's mechanism."""
        return [
            WorkloadResiduals(self._cells()[mine], self.residuals[mine])
            for each in np.unique(self.workloads)
            if len(mine := np.flatnonzero(self.workloads == each))
        ]

    def _cells(self) -> Positions:
        return self.organization.cells[self.workloads]


def draw_organizations(
    count: int, workloads: int, rng: np.random.Generator
) -> tuple[RecurringOrganization, ...]:
    """Organizations with `workloads` on each platform, in a world drawn from the public prior."""
    truth = np.linalg.cholesky(DEFAULT_KERNEL.matrix()) @ rng.standard_normal(CELLS)
    return tuple(_drawn(str(number), truth, workloads, rng) for number in range(count))


def draw_executions(
    organization: RecurringOrganization,
    since: float,
    until: float,
    shifts: Sequence[PlatformShift],
    rng: np.random.Generator,
) -> RecurringYear:
    """Draw an organization's executions from window `since` until window `until`."""
    many = rng.poisson(EXECUTIONS * (until - since), len(organization.cells))
    workloads = np.repeat(np.arange(len(many)), many)
    moments = rng.uniform(since, until, len(workloads))
    residuals = organization.levels[workloads]
    residuals = residuals + EXECUTION_SD * rng.standard_normal(len(workloads))
    for shift in shifts:
        platform = np.array([cell.platform is shift.platform for cell in ALL_CELLS])
        if shift.only in (None, organization.name):
            hit = platform[organization.cells[workloads]] & (moments >= shift.at)
            residuals += shift.log_factor * hit
    return RecurringYear(organization, workloads, residuals)


def _drawn(
    name: str, truth: Floats, workloads: int, rng: np.random.Generator
) -> RecurringOrganization:
    platforms = np.array([cell.platform for cell in ALL_CELLS])
    cells = np.concatenate(
        [
            rng.choice(
                rng.choice(np.flatnonzero(platforms == each), CELLS_OF_A_PLATFORM, replace=False),
                workloads,
            )
            for each in USED
        ]
    )
    own = truth + DEFAULT_KERNEL.organization_sd * rng.standard_normal(CELLS)
    return RecurringOrganization(
        name, cells, own[cells] + WORKLOAD_SD * rng.standard_normal(len(cells))
    )


T = TypeVar("T")

PART = "reports"

HISTORY = 13.0
"""Windows before the period whose executions the first report is about as well."""

FIRST, LAST = 4.0, 9.0
"""Windows between which a platform changes: four are left after the last."""

IN_TIME = 4.0
"""Windows in which a drift is to be found."""

CATALOGUE = 60
"""Public plans on which synthetic rows lie. Nothing is rehearsed here."""

ENOUGH = 200
"""Workloads on each platform for which the targets hold."""

FOUND_OF_20 = 18
FALSE_ALARMS_A_YEAR = 0.5


@dataclass(frozen=True, slots=True)
class DetectionCondition:
    """One row: years of the same kind.

    Attributes:
        workloads: of each organization on each platform.
        organizations: how many take part.
        log_factor: of the shift; 0 for none.
        years: how often.
    """

    workloads: int
    organizations: int
    log_factor: float
    years: int

    @property
    def key(self) -> str:
        """Name of its cell."""
        return f"{PART}-{self.workloads}-{self.organizations}-{self.log_factor:+g}"


CONDITIONS = (
    *(DetectionCondition(n, k, SHIFT, 20) for n in (25, 50, 100, 200, 400) for k in (1, 5)),
    *(DetectionCondition(ENOUGH, k, shift, 20) for shift in (-SHIFT, SHIFT / 2) for k in (1, 5)),
    *(DetectionCondition(n, 1, 0.0, 100 if n == ENOUGH else 20) for n in (25, 50, 100, 200, 400)),
    *(DetectionCondition(n, 5, 0.0, 60 if n == ENOUGH else 10) for n in (25, 50, 100, 200, 400)),
)
QUICK_YEARS = 1
CONDITION = ("workloads per platform", "organizations", "shift")


@dataclass(frozen=True, slots=True)
class DetectedYear:
    """The coordinator's findings in one year.

    Attributes:
        delay: windows from the shift until it was found; None if it was not, or there was none.
        shared: whether it was found to be shared within `IN_TIME`.
        log_factor: its estimated size, where it was found.
        false_alarms: detected drifts without a cause. A shared one counts in addition to its parts.
        false_shared: those of them that would have started a regime.
    """

    delay: float | None
    shared: bool
    log_factor: float | None
    false_alarms: int
    false_shared: int


def conditions(*, quick: bool) -> list[DetectionCondition]:
    """Return the conditions of a run. A quick one takes at most `ENOUGH` workloads in all."""
    return [e for e in CONDITIONS if not quick or e.organizations * e.workloads <= ENOUGH]


def cases(settings: Settings) -> list[Row]:
    """Return one row per condition and year."""
    tasks = [partial(_cases, settings, each) for each in conditions(quick=settings.quick)]
    by_condition = computed(_called, tasks, "drift in reports", jobs=settings.jobs)
    return [case for of_condition in by_condition for case in of_condition]


def rows(years: Sequence[Row]) -> list[Row]:
    """Return one row per condition, of the cases of its years."""
    by_condition: dict[tuple[Value, ...], list[Row]] = {}
    for case in years:
        by_condition.setdefault(tuple(case[name] for name in CONDITION), []).append(case)
    return [_row(each) for each in by_condition.values()]


def targets(table: Sequence[Row]) -> list[Target]:
    """Return the targets for `ENOUGH` workloads, from `rows`."""
    promised = []
    for row in table:
        if row["part"] != PART or row["workloads per platform"] != ENOUGH:
            continue
        who = f"reports of {row['organizations']}, {ENOUGH} workloads per platform"
        if row["shift"] == 0:
            what, limit, value = f"{who}: false alarms a year", FALSE_ALARMS_A_YEAR, "false alarms"
            promised.append(Target(what, limit, number(row[value])))
        elif abs(number(row["shift"])) == SHIFT:
            what = f"{who}: shifts by {row['shift']:+g} found of 20 within four windows"
            share = number(row["found"]) / number(row["years"])
            promised.append(Target(what, FOUND_OF_20, 20 * share, at_most=False))
    return promised


def plotted(out: Path, table: Sequence[Row]) -> Path:
    """Return a chart of shifts found and of false alarms over the number of workloads."""
    out.mkdir(parents=True, exist_ok=True)
    mine = [row for row in table if row["part"] == PART]
    groups = sorted({int(number(row["organizations"])) for row in mine})
    counts = sorted({int(number(row["workloads per platform"])) for row in mine})
    lines = [_line(mine, counts, each, shift) for shift in (SHIFT, 0.0) for each in groups]
    chart = lines_chart(
        lines,
        "workloads per platform of each organization",
        "share of shifts found, or false alarms a year",
        marks=[str(each) for each in counts],
    )
    path = out / "drift_reports.svg"
    path.write_text(chart, encoding="utf-8")
    return path


def drifts_of_a_year(
    workloads: int, organizations: int, shifts: Sequence[PlatformShift], seed: Sequence[int]
) -> tuple[PlatformDrift, ...]:
    """The coordinator's findings in a year of `organizations`, `workloads` on each platform."""
    schedule, plans = schedule_of(workloads), load_public_plans()[:CATALOGUE]
    if not schedule.slots:
        return ()
    group = draw_organizations(organizations, workloads, np.random.default_rng([*seed, 1]))
    budget = least_budget(schedule)
    new_participants = [
        NewMember(
            each.name,
            budget,
            schedule,
            noise_of([*seed, 2], number),
            DrawnResiduals(each, shifts, schedule.calendar.period, [*seed, 3, number]),
        )
        for number, each in enumerate(group)
    ]
    task = Task(
        [np.zeros(1, dtype=np.float32)], UntrainedFormat(), _no_rounds(), _nought, _nowhere, plans
    )
    with directory_in_memory() as place:
        config = ServerConfig(place / "coordinator", HOST, schedule.calendar)
        with memory_federation(config, task, new_participants) as federation:
            federation.live(schedule.calendar.period.end)
            names = {
                each.member.organization_id.hex(): each.member.name for each in federation.members
            }
            with federation.database.transaction() as session:
                drifts = stored_drifts(session, schedule.calendar.period)
    return tuple(
        replace(each.drift, organizations=tuple(names[who] for who in each.drift.organizations))
        for each in drifts
    )


@dataclass(slots=True)
class DrawnResiduals:
    """An organization's residuals, drawn when a report needs them (`TaskRunner`).

    Attributes:
        organization: whose.
        shifts: of platforms.
        period: its calendar.
        seed: of what it executed between any two moments.
    """

    organization: RecurringOrganization
    shifts: Sequence[PlatformShift]
    period: Period
    seed: Sequence[int]

    def __call__(self, task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        """Return the sum of a report. No other queries occur here."""
        del seconds
        if not isinstance(task, ReportTask):
            raise UnknownTaskError(type(task).__name__)
        until = self._window(task.until)
        since = until - HISTORY if task.since is None else self._window(task.since)
        rng = np.random.default_rng([*self.seed, round(until * 1000)])
        lived = draw_executions(self.organization, since, until, self.shifts, rng)
        return cast("T", task.sum_of(lived.residuals_by_workload()))

    def _window(self, moment: datetime) -> float:
        return (moment - self.period.start) / self.period.window


@dataclass(frozen=True, slots=True)
class UntrainedFormat:
    """The format of a model that is never trained (`registry.ModelFormat`)."""

    architecture: int = 1
    shapes: Sequence[tuple[int, ...]] = ((1,),)

    def encode(self, arrays: Weights, version: int) -> bytes:
        """Its bytes."""
        del version
        return arrays[0].tobytes()

    def decode(self, checkpoint: bytes) -> Weights:
        """Return the other way round."""
        return [np.frombuffer(checkpoint, dtype=np.float32).copy()]


def _no_rounds() -> LinearizedAvg:
    """Return the strategy of a calendar without model slots."""
    return LinearizedAvg(())


def _nought(arrays: object) -> float:
    del arrays
    return 0.0


def _nowhere(checkpoint: bytes) -> PredictLog:
    """Return a reference that predicts a second everywhere: residuals are drawn, not measured."""
    del checkpoint
    return lambda entries: np.zeros(len(entries))


@lru_cache(maxsize=16)
def schedule_of(workloads: int) -> Schedule:
    """Return the default policy's schedule for recurring workloads, the same in every window."""
    policy = Policy(
        size_class=SizeClass.SMALL,
        nominal_workloads=len(USED) * workloads,
        workloads_per_window=len(USED) * workloads,
    )
    whole = default_calendar(datetime(2027, 1, 4, tzinfo=UTC))
    reports_alone = replace(whole, model_slots=(), extra_slots=(), extra_windows=0)
    return plan_schedule(policy, reports_alone).schedule


def detections(
    drifts: Sequence[PlatformDrift], shift: PlatformShift | None, schedule: Schedule
) -> DetectedYear:
    """Return the judgement of `drifts` in a year in which there was `shift`."""
    right = [each for each in drifts if shift is not None and _is(each, shift)]
    delays = [
        (_left(each.detected_in, schedule) - shift.at, each) for each in right if shift is not None
    ]
    first = min(delays, key=lambda each: each[0], default=None)
    wrong = [each for each in drifts if each not in right]
    return DetectedYear(
        delay=first[0] if first else None,
        shared=any(each.shared and delay <= IN_TIME for delay, each in delays),
        log_factor=first[1].log_factor if first else None,
        false_alarms=len(wrong),
        false_shared=sum(each.shared for each in wrong),
    )


def _line(table: Sequence[Row], counts: Sequence[int], organizations: int, shift: float) -> Line:
    """Return what is found of a shift, or false alarms where it is 0, at the places of `counts`."""
    alike = [
        row for row in table if row["organizations"] == organizations and row["shift"] == shift
    ]
    who = "1 organization" if organizations == 1 else f"{organizations} organizations"
    across = [counts.index(int(number(row["workloads per platform"]))) for row in alike]
    if not shift:
        heights = [number(row["false alarms"]) for row in alike]
        return Line(f"false alarms, {who}", across, heights, dashed=True)
    heights = [number(row["found"]) / number(row["years"]) for row in alike]
    return Line(f"found, {who}", across, heights)


def _is(drift: PlatformDrift, shift: PlatformShift) -> bool:
    right_way = drift.log_factor * shift.log_factor > 0
    return drift.platform is shift.platform and right_way and drift.detected_in > shift.at


def _left(window: int, schedule: Schedule) -> float:
    """Return the time of a window's last report, in windows after the start of the period."""
    period = schedule.calendar.period
    last = max(slot.key for slot in schedule.slots if slot.key.window == window)
    return (schedule.replies_at(last) - period.start) / period.window


def _called(task: "partial[Sequence[Row]]") -> Sequence[Row]:
    return task()


def _cases(settings: Settings, condition: DetectionCondition) -> Sequence[Row]:
    return settings.cases(condition.key, lambda: list(_years(settings, condition)))


def _years(settings: Settings, condition: DetectionCondition) -> Iterator[Row]:
    windows = len({slot.key.window for slot in schedule_of(condition.workloads).slots})
    for year in range(QUICK_YEARS if settings.quick else condition.years):
        observed = _seen(condition, [settings.seed, year])
        yield {
            "part": PART,
            "workloads per platform": condition.workloads,
            "organizations": condition.organizations,
            "shift": condition.log_factor,
            "windows with reports": windows,
            "year": year,
            "delay": observed.delay,
            "shared": observed.shared,
            "log factor": observed.log_factor,
            "false alarms": observed.false_alarms,
            "false epochs": observed.false_shared,
        }


def _row(years: Sequence[Row]) -> Row:
    delays = [number(each["delay"]) for each in years if each["delay"] is not None]
    factors = [number(each["log factor"]) for each in years if each["log factor"] is not None]
    shifted = years[0]["shift"] != 0
    return {
        "part": PART,
        **{name: years[0][name] for name in (*CONDITION[:2], "windows with reports", "shift")},
        "years": len(years),
        "found": sum(each <= IN_TIME for each in delays) if shifted else None,
        "found as shared": sum(bool(each["shared"]) for each in years) if shifted else None,
        "median delay": float(np.median(delays)) if delays else None,
        "mean log factor": float(np.mean(factors)) if factors else None,
        "false alarms": float(np.mean([number(each["false alarms"]) for each in years])),
        "false epochs": float(np.mean([number(each["false epochs"]) for each in years])),
    }


def _seen(condition: DetectionCondition, seed: Sequence[int]) -> DetectedYear:
    # The same worlds and moments for every scenario.
    key = [*seed, condition.workloads, condition.organizations]
    rng = np.random.default_rng(key)
    shift = None
    if condition.log_factor:
        platform = USED[int(rng.integers(len(USED)))]
        shift = PlatformShift(platform, float(rng.uniform(FIRST, LAST)), condition.log_factor)
    shifts = [shift] if shift else []
    drifts = drifts_of_a_year(condition.workloads, condition.organizations, shifts, key)
    return detections(drifts, shift, schedule_of(condition.workloads))
