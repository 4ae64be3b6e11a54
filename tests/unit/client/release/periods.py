"""Fixtures of the release path: a short period with its policies, schedules and ledgers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    Slot,
    SlotKey,
    TrainingParameters,
)

START = datetime(2027, 1, 1, tzinfo=UTC)
BUDGET = PrivacyBudget(1.0, 1e-5)
REPORT = ReportParameters(20.0, 1.5)
UPDATE = TrainingParameters(4.0, 0.05, 10, 0.5, 2000)
TANGENT_UPDATE = LinearizedParameters(40.0, 2000)


def calendar(
    windows: int = 6,
    *,
    reports: int = 1,
    models: int = 1,
    method: ModelMethod = ModelMethod.TANGENT,
    extra: int = 0,
    extra_windows: int = 0,
) -> ReleaseCalendar:
    return ReleaseCalendar(
        Period(START, timedelta(days=28), windows),
        tuple(SlotTimes(timedelta(days=20 + i), timedelta(days=21 + i)) for i in range(reports)),
        tuple(SlotTimes(timedelta(days=10 + i), timedelta(days=11 + i)) for i in range(models)),
        method,
        tuple(SlotTimes(timedelta(days=15 + i), timedelta(days=16 + i)) for i in range(extra)),
        extra_windows,
    )


def report_key(window: int) -> SlotKey:
    return SlotKey(ReleaseKind.RESIDUAL_REPORT, window, 0)


def update_key(window: int) -> SlotKey:
    return SlotKey(ReleaseKind.MODEL_UPDATE, window, 0)


def schedule(
    windows: int = 6,
    *,
    report: ReportParameters = REPORT,
    method: ModelMethod = ModelMethod.TANGENT,
) -> Schedule:
    update = UPDATE if method is ModelMethod.UNSPECIFIED else TANGENT_UPDATE
    slots = [Slot(report_key(window), report) for window in range(windows)]
    slots += [Slot(update_key(window), update) for window in range(windows)]
    return Schedule(calendar(windows, method=method), tuple(slots))


def with_extra_slots(windows: int = 6, *, extra_windows: int = 2) -> Schedule:
    """Return a schedule with one extra update slot per window.

    At most `extra_windows` of the extra slots may be charged.
    """
    table = calendar(windows, reports=0, extra=1, extra_windows=extra_windows)
    keys = [SlotKey(ReleaseKind.MODEL_UPDATE, w, index) for w in range(windows) for index in (0, 1)]
    return Schedule(table, tuple(Slot(key, TANGENT_UPDATE) for key in keys))


def extra_key(window: int) -> SlotKey:
    return SlotKey(ReleaseKind.MODEL_UPDATE, window, 1)


def open_at(window: int) -> datetime:
    """Return a timestamp at which both slots of the window are open."""
    return START + timedelta(days=28 * window + 20, hours=1)


def new_ledger(directory: Path, *, method: ModelMethod = ModelMethod.TANGENT) -> PrivacyLedger:
    return PrivacyLedger.create(directory / "ledger.sqlite", BUDGET, schedule(method=method))
