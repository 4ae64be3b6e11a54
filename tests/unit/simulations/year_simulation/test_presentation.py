"""Tests of the output of a simulation: dates, costs, omitted slots and gain."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.history import Spending
from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import OmittedSlots, PlannedSchedule
from fedperf_memory.year_simulation.presentation import YearView
from fedperf_memory.year_simulation.year import (
    ALONE,
    JOINED,
    WITH_PRETRAINED,
    ErrorChange,
    LocalGain,
    LocalHistory,
    SimulatedRelease,
    SimulatedYear,
    YearSettings,
)
from fedperf_shared.releases.period import default_calendar
from fedperf_shared.releases.release import ReleaseKind, Schedule, SizeClass
from tests.unit.client.executions import make_execution

JOINS = datetime(2026, 12, 1, tzinfo=UTC)
TABLE = default_calendar(JOINS)
DAY = timedelta(days=1)
AHEAD = YearSettings(
    Policy(size_class=SizeClass.SMALL, nominal_workloads=200),
    TABLE,
    JOINS,
    ([make_execution(1), make_execution(2)], [make_execution(3), make_execution(4)]),
    0,
)
RELEASE = SimulatedRelease(
    "report-0-3",
    "residual_report",
    charged_at=JOINS + 4 * DAY,
    leaves_at=JOINS + 5 * DAY,
    payload_bytes=1554,
    epsilon=0.9,
    replace_one_epsilon=1.9,
    spent=0.9,
    has_left=True,
)
GAIN = LocalGain(
    training=150,
    test=60,
    workloads=50,
    errors={ALONE: 1.4, WITH_PRETRAINED: 1.3, JOINED: 1.5},
    means={ALONE: 2.0, WITH_PRETRAINED: 1.82, JOINED: 1.8},
    changes={
        ALONE: ErrorChange(-10.0, (-15.0, -5.0)),
        WITH_PRETRAINED: ErrorChange(-1.0, (-3.0, 1.0)),
    },
)
YEAR = SimulatedYear(
    planned=PlannedSchedule(
        Schedule(TABLE, ()),
        PrivacyBudget(1.0, 1e-5),
        (OmittedSlots(ReleaseKind.MODEL_UPDATE, "too small"),),
        0.9,
        1.9,
    ),
    releases=(RELEASE,),
    spending=Spending(TABLE.period, PrivacyBudget(1.0, 1e-5), 0.9, 0.9, 1.9, slots=1, made=1),
    needs_approval=False,
    gain=GAIN,
)
VIEW = YearView(AHEAD, "the default calendar", LocalHistory(200, (), ()), YEAR)


def test_simulation_view_states_first_release_and_that_no_data_left() -> None:
    said = [*VIEW.beginning()]
    assert "nothing left this machine" in said[0]
    assert said[1] == "you join on 1 December 2026, 00:00 UTC, by the default calendar"
    assert said[2].startswith("2 simulated peers with 2 workloads each")
    assert said[3].startswith("first release: 6 December 2026; it covers runs stored before")


def test_simulation_view_shows_epsilon_for_both_privacy_units_and_omitted_slots() -> None:
    said = [*VIEW.costs()]
    assert said == [
        "together: epsilon 0.9000 of 1 at delta 1e-05 for one workload added or removed, which "
        "is what your policy promises; 1.9000 for one replaced",
        "not planned: model update: too small",
    ]
    (row,) = VIEW.release_rows()
    assert [row[name] for name in ("slot", "sent", "bytes", "sum")] == [
        *("report-0-3", "2026-12-06 00:00", 1554, "0.9000")
    ]


def test_simulation_view_mentions_extra_slots_and_required_approval() -> None:
    spending = replace(YEAR.spending, slots=4)
    other = replace(YEAR, spending=spending, needs_approval=True)
    said = "\n".join(replace(VIEW, year=other).costs())
    assert "3 more slots are charged" in said
    assert "a release without approval is charged and not sent" in said


def test_simulation_gain_rows_label_each_predictor_better_or_no_difference() -> None:
    verdicts = {row["predicts from"]: row["verdict"] for row in VIEW.gain_rows()}
    assert verdicts == {
        "local executions alone": "better",
        "with the pretrained model": "no difference",
        "joined": "",
    }
    changed = [row["change by joining"] for row in VIEW.gain_rows()]
    assert changed == ["-10.0 % (-15.0 to -5.0)", "-1.0 % (-3.0 to +1.0)", ""]
    assert "50 of your workloads" in VIEW.brought()


def test_simulation_gain_change_refers_to_the_geometric_mean() -> None:
    """A median may rise while the mean, to which the change refers, falls."""
    means = [float(str(row["geometric mean"])) for row in VIEW.gain_rows()]
    assert means == [2.0, 1.82, 1.8]
    assert 100 * (means[2] / means[0] - 1) == pytest.approx(GAIN.changes[ALONE].percent)


def test_simulation_gain_row_without_peers_is_labelled_without_others() -> None:
    alone = replace(VIEW, ahead=replace(AHEAD, others=()))
    assert alone.gain_rows()[-1]["predicts from"] == "joined, without others"


def test_simulation_view_without_releases_states_the_reason() -> None:
    nothing = replace(VIEW, year=replace(YEAR, releases=()))
    *_, last = nothing.beginning()
    assert last == "no release until 30 November 2027: too small"


def test_simulation_view_with_too_few_jobs_suggests_ingest() -> None:
    few = replace(VIEW, jobs=LocalHistory(2, (), ()), year=replace(YEAR, gain=None))
    assert few.gain_rows() == []
    assert "fedperf ingest" in few.brought()
    assert few.as_json()["gain"] is None


def test_simulation_json_contains_releases_and_gain_changes() -> None:
    facts = VIEW.as_json()
    assert facts["left_this_machine"] is False
    releases = facts["releases"]
    assert isinstance(releases, list)
    assert releases[0]["send_at"] == "2026-12-06T00:00:00+00:00"
    gain = facts["gain"]
    assert isinstance(gain, dict)
    assert gain["changes"][ALONE] == {
        "percent": -10.0,
        "interval": (-15.0, -5.0),
        "verdict": "better",
    }
