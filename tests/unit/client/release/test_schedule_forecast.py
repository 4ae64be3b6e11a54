"""Tests of the schedule forecast: its counts and dates equal those of the schedule."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_client.release.schedule import forecast, forecast_alternatives, plan_schedule
from fedperf_shared.releases.period import default_calendar
from fedperf_shared.releases.release import ReleaseKind, SizeClass

CALENDAR = default_calendar(datetime(2026, 11, 25, tzinfo=UTC))
JOINED = CALENDAR.period.start + timedelta(days=9)
SMALL = Policy(size_class=SizeClass.SMALL, nominal_workloads=200)
LARGE = Policy(size_class=SizeClass.LARGE, nominal_workloads=3000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [SMALL, LARGE, replace(LARGE, report_share=1.0), replace(SMALL, nominal_workloads=9)]
)
def test_forecast_matches_counts_and_first_date_of_schedule(policy: Policy) -> None:
    found = forecast(policy, CALENDAR, at=JOINED)
    schedule = plan_schedule(policy, CALENDAR, at=JOINED).schedule
    counts = {
        kind: sum(s.key.kind is kind and not schedule.is_extra(s.key) for s in schedule.slots)
        for kind in ReleaseKind
    }
    assert found.reports == counts[ReleaseKind.RESIDUAL_REPORT]
    assert found.updates == counts[ReleaseKind.MODEL_UPDATE]
    leaves = [schedule.replies_at(slot.key) for slot in schedule.slots]
    assert found.first_leaves_at == min(leaves, default=None)


def test_forecast_alternatives_with_more_evidence_reduce_expected_error() -> None:
    as_it_is = forecast(SMALL, CALENDAR, at=JOINED).expected_error
    by_change = forecast_alternatives(SMALL, CALENDAR, at=JOINED)
    for change in ("epsilon = 2", "nominal_workloads = 400", "2 more organizations like this one"):
        assert by_change[change].expected_error < as_it_is
    assert "workloads_per_window = 200" in by_change


def test_forecast_alternatives_omit_undeclarable_changes() -> None:
    most = replace(SMALL, nominal_workloads=60_000, workloads_per_window=60_000)
    changes = forecast_alternatives(most, CALENDAR, at=JOINED)
    assert list(changes) == ["epsilon = 2", "2 more organizations like this one"]
    bounded = replace(SMALL, epsilon=2.0, lifetime_epsilon=2.0)
    assert "epsilon = 4" in forecast_alternatives(bounded, CALENDAR, at=JOINED)


def test_forecast_without_reports_expects_error_factor_of_e() -> None:
    silent = replace(SMALL, residual_report=ReleaseMode.NEVER)
    found = forecast(silent, CALENDAR, at=JOINED)
    assert (found.first_leaves_at, found.reports, found.updates) == (None, 0, 0)
    assert found.expected_error == pytest.approx(2.71828, abs=1e-4)
