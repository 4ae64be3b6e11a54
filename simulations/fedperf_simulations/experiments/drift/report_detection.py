"""What the coordinator sees of a drift in reports at epsilon 1 a year, over the workloads.

A year of the default calendar: organizations with recurring workloads on three platforms
declare the default policy, plan their schedules by it, report by the client's mechanism,
and answer the coordinator's questions; the coordinator reads drifts from that alone
(`fedperf_server.inference.drift_evidence`). One platform gets slower or faster for
everybody at a random moment after the fourth window, or nothing happens. A drift counts as
found within four windows of its moment, from the reports that have left by then. In a year
without one every alarm is false; in one with, every alarm on another platform or in the
other direction or before.

Noise is seeded, so that it can be repeated: for simulations, never for a release.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import plan_schedule
from fedperf_server.config import default_timetable
from fedperf_server.inference.cell_directions import (
    CHANGE,
    AnsweredQuestion,
    DirectedAnswer,
    ask_cells,
    learn_cells,
)
from fedperf_server.inference.corrections import ReceivedReport
from fedperf_server.inference.drift_evidence import SHIFT, PlatformDrift, read_drifts
from fedperf_shared.releases.kinds import DIRECTED_REPORT, RESIDUAL_REPORT, kind_of
from fedperf_shared.releases.release import Schedule, SizeClass, Slot, SlotKey
from fedperf_simulations.experiments.drift.recurring_workloads import (
    REFERENCE,
    USED,
    PlatformShift,
    RecurringYear,
    draw_executions,
    draw_organizations,
)
from fedperf_simulations.federation.channel import SeededNoise
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import Row, Settings, Target
from fedperf_simulations.harness.side_by_side import computed

PART = "reports"

HISTORY = 13.0
"""Windows before the period whose executions the first report is about as well."""

FIRST, LAST = 4.0, 9.0
"""Windows between which a platform changes: four are left after the last."""

IN_TIME = 4.0
"""Windows in which a drift is to be found."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Year:
    """What left the organizations in a year."""

    plain: tuple[ReceivedReport, ...]
    answered: tuple[AnsweredQuestion, ...]


@dataclass(frozen=True, slots=True)
class DetectedYear:
    """What the coordinator saw of a year.

    Attributes:
        delay: windows from the shift until it was found; None if it was not, or there was none.
        shared: whether it was found to be shared within `IN_TIME`.
        log_factor: how far it was believed to be, where it was found.
        false_alarms: drifts that were none; a shared one counts beside those it is made of.
        false_shared: those of them that would have started an epoch.
    """

    delay: float | None
    shared: bool
    log_factor: float | None
    false_alarms: int
    false_shared: int


def rows(settings: Settings) -> list[Row]:
    """One row per condition."""
    tasks = [partial(_row, settings, each) for each in CONDITIONS]
    return list(computed(_called, tasks, "drift in reports", jobs=settings.jobs))


def targets(found: Sequence[Row]) -> list[Target]:
    """What was promised for `ENOUGH` workloads, from `rows`."""
    promised = []
    for row in found:
        if row["part"] != PART or row["workloads per platform"] != ENOUGH:
            continue
        who = f"reports of {row['organizations']}, {ENOUGH} workloads per platform"
        if row["shift"] == 0:
            what, limit, value = f"{who}: false alarms a year", FALSE_ALARMS_A_YEAR, "false alarms"
            promised.append(Target(what, limit, _number(row, value)))
        elif abs(_number(row, "shift")) == SHIFT:
            what = f"{who}: shifts by {row['shift']:+g} found of 20 within four windows"
            share = _number(row, "found") / _number(row, "years")
            promised.append(Target(what, FOUND_OF_20, 20 * share, at_most=False))
    return promised


def plotted(out: Path, found: Sequence[Row]) -> Path:
    """A chart of shifts found and of false alarms over the number of workloads."""
    out.mkdir(parents=True, exist_ok=True)
    mine = [row for row in found if row["part"] == PART]
    groups = sorted({int(_number(row, "organizations")) for row in mine})
    counts = sorted({int(_number(row, "workloads per platform")) for row in mine})
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


def year_of_reports(
    workloads: int, organizations: int, shifts: Sequence[PlatformShift], seed: Sequence[int]
) -> Year:
    """A year in which `organizations` with `workloads` on each platform report as planned."""
    rng = np.random.default_rng([*seed, 1])
    noise = SeededNoise([*seed, 2])
    group = draw_organizations(organizations, workloads, rng)

    def lived(since: float, window: int) -> list[RecurringYear]:
        return [draw_executions(each, since, window, shifts, rng) for each in group]

    return reported(schedule_of(workloads), lived, noise)


def reported(
    schedule: Schedule, lived_in: Callable[[float, int], list[RecurringYear]], noise: SeededNoise
) -> Year:
    """What leaves organizations by `schedule`.

    Args:
        schedule: of all of them.
        lived_in: what each executed from a moment, in windows, until a window.
        noise: of the releases.
    """
    windows = sorted({slot.key.window for slot in schedule.slots})
    plain: list[ReceivedReport] = []
    answered: list[AnsweredQuestion] = []
    for since, window in zip([-HISTORY, *windows], windows, strict=False):
        lived = lived_in(since, window)
        for slot in schedule.slots:
            if slot.key.window != window:
                continue
            if kind_of(slot.parameters).has_question:
                answered.append(_asked_and_answered(plain, answered, lived, slot, noise))
            else:
                parameters = RESIDUAL_REPORT.as_parameters(slot.parameters)
                plain += [each.plain(slot.key, parameters, noise) for each in lived]
    return Year(tuple(plain), tuple(answered))


@lru_cache(maxsize=16)
def schedule_of(workloads: int) -> Schedule:
    """What the default policy plans for recurring workloads, the same in every window."""
    policy = Policy(
        size_class=SizeClass.SMALL,
        nominal_workloads=len(USED) * workloads,
        workloads_per_window=len(USED) * workloads,
    )
    return plan_schedule(policy, default_timetable(datetime(2027, 1, 4, tzinfo=UTC))).schedule


def judged(
    drifts: Sequence[PlatformDrift], shift: PlatformShift | None, schedule: Schedule
) -> DetectedYear:
    """What `drifts` say about a year in which there was `shift`."""
    right = [each for each in drifts if shift is not None and _is(each, shift)]
    delays = [(_left(each.found, schedule) - shift.at, each) for each in right if shift is not None]
    first = min(delays, key=lambda each: each[0], default=None)
    wrong = [each for each in drifts if each not in right]
    return DetectedYear(
        delay=first[0] if first else None,
        shared=any(each.shared and delay <= IN_TIME for delay, each in delays),
        log_factor=first[1].log_factor if first else None,
        false_alarms=len(wrong),
        false_shared=sum(each.shared for each in wrong),
    )


def _line(found: Sequence[Row], counts: Sequence[int], organizations: int, shift: float) -> Line:
    """What is found of a shift, or false alarms where it is 0, at the places of `counts`."""
    alike = [
        row for row in found if row["organizations"] == organizations and row["shift"] == shift
    ]
    who = "1 organization" if organizations == 1 else f"{organizations} organizations"
    across = [counts.index(int(_number(row, "workloads per platform"))) for row in alike]
    if not shift:
        heights = [_number(row, "false alarms") for row in alike]
        return Line(f"false alarms, {who}", across, heights, dashed=True)
    heights = [_number(row, "found") / _number(row, "years") for row in alike]
    return Line(f"found, {who}", across, heights)


def _is(drift: PlatformDrift, shift: PlatformShift) -> bool:
    right_way = drift.log_factor * shift.log_factor > 0
    return drift.platform is shift.platform and right_way and drift.found > shift.at


def _left(window: int, schedule: Schedule) -> float:
    """When the last report of a window has left, in windows after the start of the period."""
    period = schedule.timetable.period
    last = max(slot.key for slot in schedule.slots if slot.key.window == window)
    return (schedule.replies_at(last) - period.start) / period.window


def _asked_and_answered(
    plain: Sequence[ReceivedReport],
    answered: Sequence[AnsweredQuestion],
    lived: Sequence[RecurringYear],
    slot: Slot,
    noise: SeededNoise,
) -> AnsweredQuestion:
    learned = learn_cells(plain, answered, reference_version=REFERENCE)
    parameters = DIRECTED_REPORT.as_parameters(slot.parameters)
    question = ask_cells(
        learned.correction,
        [(learned.sums_of(each.organization.name, parameters), parameters) for each in lived],
        slot=slot.key,
        version=len(answered) + 1,
        change=CHANGE if _is_later(slot.key, plain) else 0.0,
    )
    answers: tuple[DirectedAnswer, ...] = tuple(
        each.answer(question, parameters, noise) for each in lived
    )
    return AnsweredQuestion(question, answers)


def _is_later(key: SlotKey, plain: Sequence[ReceivedReport]) -> bool:
    return any(each.report.slot.window < key.window for each in plain)


def _called(task: "partial[Row]") -> Row:
    return task()


def _row(settings: Settings, condition: DetectionCondition) -> Row:
    return settings.cell(condition.key, lambda: _computed(settings, condition))


def _computed(settings: Settings, condition: DetectionCondition) -> Row:
    years = QUICK_YEARS if settings.quick else condition.years
    seen = [_seen(condition, [settings.seed, number]) for number in range(years)]
    in_time = [each for each in seen if each.delay is not None and each.delay <= IN_TIME]
    delays = [each.delay for each in seen if each.delay is not None]
    factors = [each.log_factor for each in seen if each.log_factor is not None]
    shifted = condition.log_factor != 0
    planned = {slot.key.window for slot in schedule_of(condition.workloads).slots}
    return {
        "part": PART,
        "workloads per platform": condition.workloads,
        "organizations": condition.organizations,
        "windows with reports": len(planned),
        "shift": condition.log_factor,
        "years": years,
        "found": len(in_time) if shifted else None,
        "found as shared": sum(each.shared for each in seen) if shifted else None,
        "median delay": float(np.median(delays)) if delays else None,
        "mean log factor": float(np.mean(factors)) if factors else None,
        "false alarms": sum(each.false_alarms for each in seen) / years,
        "false epochs": sum(each.false_shared for each in seen) / years,
    }


def _seen(condition: DetectionCondition, seed: Sequence[int]) -> DetectedYear:
    # The same worlds and moments whatever happens in them.
    key = [*seed, condition.workloads, condition.organizations]
    rng = np.random.default_rng(key)
    shift = None
    if condition.log_factor:
        platform = USED[int(rng.integers(len(USED)))]
        shift = PlatformShift(platform, float(rng.uniform(FIRST, LAST)), condition.log_factor)
    year = year_of_reports(
        condition.workloads,
        condition.organizations,
        [shift] if shift else [],
        key,
    )
    drifts = read_drifts(year.plain, year.answered)
    return judged(drifts, shift, schedule_of(condition.workloads))


def _number(row: Row, name: str) -> float:
    value = row[name]
    if not isinstance(value, int | float):
        raise TypeError(f"{name!r} of a row is {value!r}")
    return float(value)
