"""Tests of a simulated year of reports: client sums, the real schedule and detections."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.contributions.mechanisms import sum_cell_query, sum_residuals
from fedperf_server.inference.corrections import DEFAULT_KERNEL
from fedperf_server.inference.drift_evidence import SHIFT, PlatformDrift
from fedperf_shared.releases.release import ReportParameters, SlotKey
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.experiments.drift import report_detection
from fedperf_simulations.experiments.drift.report_detection import (
    EXECUTION_SD,
    PART,
    WORKLOAD_SD,
    DetectionCondition,
    PlatformShift,
    cases,
    detections,
    draw_executions,
    draw_organizations,
    plotted,
    rows,
    schedule_of,
    targets,
)
from fedperf_simulations.harness.experiment import Row, Settings
from tests.fakes.cell_queries import make_cell_query
from tests.fakes.report_years import fast_cell_sum, plain_sum, year_of_reports

SLOWER = PlatformShift(Platform.POLARS, 5.2, SHIFT)
FOUND = PlatformDrift(Platform.POLARS, 6, 7, 0.35, 0.1, ("0",), shared=False)


def test_simulated_report_sums_equal_those_of_the_client_mechanism() -> None:
    rng = np.random.default_rng(1)
    (organization,) = draw_organizations(1, 40, rng)
    lived = draw_executions(organization, 0.0, 1.0, [], rng)
    own = lived.residuals_by_workload()
    question = make_cell_query(center=0.3, clip=0.7)
    one_step_each = len(organization.cells)  # rounding of a mean may cross a step
    plain = np.abs(plain_sum(lived, 1.5) - sum_residuals(own, 1.5))
    asked = np.abs(fast_cell_sum(lived, question) - sum_cell_query(own, question))
    assert max(plain.max(), asked.max()) <= one_step_each
    assert 80 < len(own) < 120  # some workloads do not run in a window


def test_simulated_shift_affects_later_runs_of_one_platform_and_organization() -> None:
    def residuals(*shifts: PlatformShift) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(2)
        group = draw_organizations(2, 40, rng)
        lived = [draw_executions(each, 4.7, 5.7, shifts, rng) for each in group]
        return {each.organization.name: each.residuals for each in lived}

    before, after = residuals(), residuals(replace(SLOWER, only="1"))
    moved = {name: after[name] - before[name] for name in before}
    assert not moved["0"].any()
    assert set(np.round(moved["1"], 9)) == {0.0, SHIFT}
    assert 0.08 < np.mean(moved["1"] > 0) < 0.26  # half of the time, a third of the workloads


def test_simulated_workload_and_execution_deviation_combine_to_one_half() -> None:
    supposed = DEFAULT_KERNEL.execution_sd
    assert np.hypot(WORKLOAD_SD, EXECUTION_SD) == pytest.approx(supposed)


def test_simulated_reports_follow_the_default_policy_and_calendar() -> None:
    schedule = schedule_of(200)
    assert len(schedule.slots) == 39
    year = year_of_reports(200, 2, [], [3])
    assert len(year.plain) == 26
    assert [len(each.responses) for each in year.query_responses] == [2] * 26
    key: SlotKey = year.plain[0].report.slot
    slot = schedule.slot(key)
    assert slot is not None
    assert isinstance(slot.parameters, ReportParameters)
    assert year.plain[0].parameters == slot.parameters
    assert [schedule_of(n).slots for n in (25,)] == [()]


def test_detection_delay_runs_from_shift_to_departure_of_its_reports() -> None:
    seen = detections([FOUND], SLOWER, schedule_of(200))
    assert seen.delay == pytest.approx(7 + 9 / 28 - 5.2)
    assert (seen.false_alarms, seen.log_factor, seen.shared) == (0, 0.35, False)
    shared = replace(FOUND, shared=True)
    assert detections([shared], SLOWER, schedule_of(200)).shared
    assert not detections([replace(shared, detected_in=10)], SLOWER, schedule_of(200)).shared


@pytest.mark.parametrize(
    "wrong",
    [
        replace(FOUND, platform=Platform.DUCKDB),
        replace(FOUND, log_factor=-0.35),
        replace(FOUND, detected_in=5),
    ],
)
def test_detection_that_does_not_match_the_shift_is_a_false_alarm(wrong: PlatformDrift) -> None:
    seen = detections([wrong], SLOWER, schedule_of(200))
    assert (seen.delay, seen.false_alarms) == (None, 1)
    assert detections([FOUND], None, schedule_of(200)).false_alarms == 1


@pytest.mark.slow
def test_report_detection_reuses_stored_cases_and_derives_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = (DetectionCondition(25, 1, SHIFT, 20), DetectionCondition(200, 1, SHIFT, 20))
    monkeypatch.setattr(report_detection, "CONDITIONS", conditions)
    settings = Settings(seed=5, out=tmp_path, quick=True)
    years = cases(settings)
    found = rows(years)
    assert cases(replace(settings, stored_results=tmp_path)) == years
    assert [row["windows with reports"] for row in found] == [0, 13]
    assert found[0]["found"] == 0
    (target,) = targets(found)
    assert target.limit == 18
    assert target.value in (0, 20)
    quiet = {**found[1], "shift": 0.0, "found": None, "false alarms": 0.6}
    assert not targets([quiet])[0].holds


def test_report_detection_chart_shows_detections_and_false_alarms(tmp_path: Path) -> None:
    def row(workloads: int, organizations: int, shift: float, count: float) -> Row:
        found, false = (count, 0.0) if shift else (None, count)
        return {
            "part": PART,
            "workloads per platform": workloads,
            "organizations": organizations,
            "shift": shift,
            "years": 20,
            "found": found,
            "false alarms": false,
        }

    rows = [row(n, k, shift, 5) for shift in (SHIFT, -SHIFT, 0.0) for k in (1, 5) for n in (25, 50)]
    found, quiet = (report_detection._line(rows, [25, 50], 5, shift) for shift in (SHIFT, 0.0))
    assert (found.across, found.heights, found.dashed) == ([0, 1], [0.25, 0.25], False)
    assert (quiet.across, quiet.heights, quiet.dashed) == ([0, 1], [5, 5], True)
    chart = plotted(tmp_path, rows).read_text(encoding="utf-8")
    for text in ("found, 1 organization", "found, 5 organizations", "false alarms, 1 organization"):
        assert text in chart
