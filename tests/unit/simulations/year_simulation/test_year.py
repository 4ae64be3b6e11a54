"""Tests of preparing a simulated year: its dates, policy and calendar."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_memory.year_simulation.year import (
    PeriodPassedError,
    YearSettings,
    approve_all,
    simulated_calendar,
)
from fedperf_shared.releases.period import default_calendar
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SizeClass,
    Slot,
    SlotKey,
)

START = datetime(2026, 12, 1, tzinfo=UTC)
TABLE = default_calendar(START)
SMALL = Policy(size_class=SizeClass.SMALL, nominal_workloads=200)


def test_year_settings_joining_after_calendar_end_are_refused() -> None:
    YearSettings(SMALL, TABLE, TABLE.period.end - timedelta(days=1), (), 0)
    with pytest.raises(PeriodPassedError, match="2027-11-30 00:00 UTC"):
        YearSettings(SMALL, TABLE, TABLE.period.end, (), 0)


def test_approve_all_turns_ask_into_auto_and_keeps_never() -> None:
    asks = replace(SMALL, residual_report=ReleaseMode.ASK, model_update=ReleaseMode.NEVER)
    found = approve_all(asks)
    assert found.residual_report is ReleaseMode.AUTO
    assert found.model_update is ReleaseMode.NEVER
    assert approve_all(SMALL) == SMALL


def test_simulated_calendar_drops_model_rounds_without_planned_updates() -> None:
    report = Slot(SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 3), ReportParameters(6.0, 1.5))
    update = Slot(SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0), LinearizedParameters(6.0, 3000.0))
    without, together = Schedule(TABLE, (report,)), Schedule(TABLE, (report, update))
    found = simulated_calendar(TABLE, [without, without])
    assert (found.model_times, found.report_times) == ((), TABLE.report_times)
    assert simulated_calendar(TABLE, [without, together]) == TABLE
