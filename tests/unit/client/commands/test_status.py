"""`fedperf status`, `init` and `join` tell dates, the daemon's life, and what would change them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedperf_client import cli
from fedperf_client.commands.views.expectations import ExpectedCalendar, keep_calendar
from fedperf_client.daemon.period_start import open_ledger
from fedperf_client.home.config import Home
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.policy import load_policy
from fedperf_shared.programs.process_lock import process_lock
from fedperf_shared.releases.period import default_timetable
from tests.unit.client.public import install_start
from tests.unit.shared.console_programs import Ended, run

NOW = datetime(2026, 11, 25, 9, 30, tzinfo=UTC)
CALENDAR = default_timetable(datetime(2026, 11, 2, tzinfo=UTC))


class Organization:
    """A home and a clock."""

    def __init__(self, home: Home, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        self._patch = patch
        self.at(NOW)

    def at(self, moment: datetime) -> None:
        self._patch.setattr("fedperf_client.cli._now", lambda: moment)
        self._patch.setattr("fedperf_client.commands.status.now", lambda: moment)

    def __call__(self, *arguments: object) -> Ended:
        return run(cli.main, "--home", self.home.directory, *arguments)

    def begin(self) -> PrivacyLedger:
        return open_ledger(self.home, load_policy(self.home.policy), CALENDAR, now=NOW)

    def status(self) -> dict[str, object]:
        found = self("status", "--json").json()
        assert isinstance(found, dict)
        return found


@pytest.fixture
def organization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Organization:
    install_start(tmp_path, monkeypatch)
    return Organization(Home(tmp_path / "home"), monkeypatch)


def test_init_says_when_the_first_release_leaves_and_what_would_change_it(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = organization("init", "--size", "small", "--workloads", 200).out
    assert "your first release leaves on 30 November 2026" in said
    assert "what is stored by 29 November 2026, 00:00 UTC" in said
    assert "the default calendar" in said
    for change in ("epsilon = 2", "nominal_workloads = 400", "2 more members like this one"):
        assert change in said


def test_programs_read_the_same_and_within_eight_days(organization: Organization) -> None:
    facts = organization("init", "--json").json()
    assert isinstance(facts, dict)
    first = datetime.fromisoformat(str(facts["first_release"]))
    assert first - NOW <= timedelta(days=8)
    assert facts["calendar"] == "default"
    changes = facts["changes"]
    assert isinstance(changes, list)
    more = next(each for each in changes if "members" in each["change"])
    assert more["expected_error"] < facts["expected_error"]
    assert more["reports"] == facts["reports"]
    assert organization.status()["first_release"] == facts["first_release"]


def test_who_declares_too_little_is_told_that_nothing_leaves_and_what_would_help(
    organization: Organization,
) -> None:
    said = organization("init", "--workloads", 20).out
    assert "nothing would leave: " in said
    assert "signal-to-noise" in said
    assert "more workloads or a larger epsilon" in said


def test_a_period_in_which_nothing_leaves_says_why(organization: Organization) -> None:
    organization("init", "--workloads", 20)
    organization.begin()
    assert "why: fedperf release slots" in organization("status").out
    said = organization("release", "slots").out
    assert "nothing is planned to leave in this period" in said
    assert "why: " in said
    assert "signal-to-noise: 20 declared workloads" in said


def test_after_joining_the_coordinators_calendar_counts(organization: Organization) -> None:
    organization("init")
    keep_calendar(organization.home, ExpectedCalendar(CALENDAR, is_default=False))
    assert organization.status()["first_release"] == "2026-11-28T00:00:00+00:00"
    assert "the coordinator's calendar" in organization("status").out
    organization.at(CALENDAR.period.end)
    assert "the default calendar" in organization("status").out, "it is over"


def test_status_says_whether_the_daemon_lives_and_when_it_heard_of_the_coordinator(
    organization: Organization,
) -> None:
    organization("init")
    assert organization.status()["daemon_runs"] is False
    assert "the daemon does not run" in organization("status").out
    organization.home.contact.write_text("2026-11-25T09:29:00+00:00\n")
    with process_lock(organization.home.lock, "the home"):
        assert organization.status()["daemon_runs"] is True
        said = organization("status").out
    assert "the daemon runs" in said
    assert "last contact with the coordinator: 25 November 2026, 09:29 UTC" in said


def test_status_says_what_comes_next_through_the_period(organization: Organization) -> None:
    organization("init")
    ledger = organization.begin()
    first, second, _ = (slot.key for slot in ledger.schedule.slots)
    said = organization("status").out
    assert "your first release leaves on 28 November 2026" in said
    assert "next: report-0-6 is drawn on 27 November 2026, 00:00 UTC and leaves" in said
    organization.at(ledger.schedule.opens_at(first) + timedelta(hours=1))
    ledger.reserve(first, ledger.schedule.opens_at(first))
    assert "next: report-0-6" in organization("status").out, "it is drawn and has not left"
    organization.at(ledger.schedule.replies_at(first) + timedelta(hours=1))
    said = organization("status").out
    assert "your first release was due on 28 November 2026" in said
    assert f"next: report-1-{second.index}" in said
    organization.at(CALENDAR.period.end - timedelta(days=1))
    assert "nothing more leaves in this period" in organization("status").out


def test_a_policy_that_was_changed_says_from_when_it_counts(organization: Organization) -> None:
    organization("init")
    organization.begin()
    assert organization.status()["policy_changes"] == []
    text = organization.home.policy.read_text()
    organization.home.policy.write_text(text.replace("epsilon = 1.0", "epsilon = 2.0", 1))
    assert organization.status()["policy_changes"] == ["epsilon 1 -> 2"]
    said = organization("status").out
    assert "policy: epsilon 1 -> 2 counts from 1 November 2027 on, with the next period" in said
    assert "counts from 2027-11-01 on" in organization("doctor").out
