"""`fedperf status`, `init` and `join`: dates, daemon state and pending policy changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedperf_client import cli
from fedperf_client.commands.planned_releases import ExpectedCalendar, store_calendar
from fedperf_client.home.config import Contact, Home
from fedperf_client.node.participant import open_ledger
from fedperf_client.release.decisions import Decisions, Outcome
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.policy import load_policy, store_modes
from fedperf_shared.releases.period import default_calendar
from fedperf_shared.runtime.process import process_lock
from tests.unit.client.data_directories import with_history
from tests.unit.client.pretrained_model import install_start
from tests.unit.shared.console_programs import Ended, run

NOW = datetime(2026, 11, 25, 9, 30, tzinfo=UTC)
CALENDAR = default_calendar(datetime(2026, 11, 2, tzinfo=UTC))


class Organization:
    """A data directory and a clock."""

    def __init__(self, home: Home, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        self._patch = patch
        self.at(NOW)

    def at(self, moment: datetime) -> None:
        self._patch.setattr("fedperf_client.cli.now", lambda: moment)
        self._patch.setattr("fedperf_client.commands.status.now", lambda: moment)

    def __call__(self, *arguments: object) -> Ended:
        return run(cli.main, "--home", self.home.directory, *arguments)

    def begin(self) -> PrivacyLedger:
        return open_ledger(self.home, load_policy(self.home.policy), CALENDAR, now=NOW)

    def declare(self, old: str, new: str) -> None:
        """Replace a text in the policy."""
        text = self.home.policy.read_text()
        assert old in text
        self.home.policy.write_text(text.replace(old, new, 1))

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """Simulate a running daemon that has read the current policy."""
        with process_lock(self.home.lock, "the home"):
            store_modes(self.home, load_policy(self.home.policy))
            yield

    def status(self) -> dict[str, object]:
        found = self("status", "--json").json()
        assert isinstance(found, dict)
        return found


@pytest.fixture
def organization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Organization:
    install_start(tmp_path, monkeypatch)
    return Organization(Home(tmp_path / "home"), monkeypatch)


def test_init_shows_first_release_date_and_possible_changes(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = organization("init", "--size", "small", "--workloads", 200).out
    assert "First release: 30 November 2026." in said
    assert "runs stored before 29 November 2026, 00:00 UTC" in said
    assert "the default calendar" in said
    for change in ("epsilon = 2", "nominal_workloads = 400", "2 more organizations like this one"):
        assert change in said


def test_init_json_first_release_is_within_eight_days_and_matches_status(
    organization: Organization,
) -> None:
    facts = organization("init", "--json").json()
    assert isinstance(facts, dict)
    first = datetime.fromisoformat(str(facts["first_release"]))
    assert first - NOW <= timedelta(days=8)
    assert facts["calendar"] == "default"
    changes = facts["changes"]
    assert isinstance(changes, list)
    more = next(each for each in changes if "organizations" in each["change"])
    assert more["expected_error"] < facts["expected_error"]
    assert more["reports"] == facts["reports"]
    assert organization.status()["first_release"] == facts["first_release"]


def test_init_with_too_few_workloads_plans_no_release_and_suggests_changes(
    organization: Organization,
) -> None:
    said = organization("init", "--workloads", 20).out
    assert "No release is planned: " in said
    assert "signal-to-noise" in said
    assert "more workloads or a larger epsilon" in said


def test_period_without_planned_releases_gives_the_reason(organization: Organization) -> None:
    organization("init", "--workloads", 20)
    organization.begin()
    assert "Reasons: fedperf release slots" in organization("status").out
    said = organization("release", "slots").out
    assert "no release is planned in this period" in said
    assert "why: " in said
    assert "signal-to-noise: 20 declared workloads" in said


def test_status_after_joining_uses_the_coordinators_calendar(organization: Organization) -> None:
    organization("init")
    store_calendar(organization.home, ExpectedCalendar(CALENDAR, is_default=False))
    assert organization.status()["first_release"] == "2026-11-28T00:00:00+00:00"
    assert "the coordinator's calendar" in organization("status").out
    organization.at(CALENDAR.period.end)
    assert "the default calendar" in organization("status").out, "it is over"


def test_status_shows_daemon_state_and_last_contact(
    organization: Organization,
) -> None:
    organization("init")
    assert organization.status()["daemon_runs"] is False
    assert "The daemon is not running" in organization("status").out
    organization.home.contact.write_text("2026-11-25T09:29:00+00:00\n")
    with organization.daemon():
        assert organization.status()["daemon_runs"] is True
        said = organization("status").out
    assert "The daemon is running" in said
    assert "last contact (UTC): 2026-11-25 09:29" in said


def test_status_shows_next_release_throughout_the_period(organization: Organization) -> None:
    organization("init")
    ledger = organization.begin()
    first, second, _ = (slot.key for slot in ledger.schedule.slots)
    with organization.daemon():
        said = organization("status").out
    assert "Your first release is on 28 November 2026" in said
    assert "Next: report-0-6, sampled on 27 November 2026, 00:00 UTC, sent on" in said
    said = organization("status").out
    assert "Your first release would be on 28 November 2026" in said, "as nothing is sent now"
    assert ", if the daemon runs." in said
    organization.at(ledger.schedule.opens_at(first) + timedelta(hours=1))
    ledger.reserve(first, ledger.schedule.opens_at(first))
    assert "Next: report-0-6" in organization("status").out, "it is drawn and has not left"
    organization.at(ledger.schedule.replies_at(first) + timedelta(hours=1))
    said = organization("status").out
    assert "Your first release was due on 28 November 2026" in said
    assert f"Next: report-1-{second.index}" in said
    organization.at(CALENDAR.period.end - timedelta(days=1))
    assert "No further release in this period" in organization("status").out


def test_changed_policy_counts_from_the_next_period(organization: Organization) -> None:
    organization("init")
    organization.begin()
    assert organization.status()["policy_changes"] == []
    organization.declare("epsilon = 1.0", "epsilon = 2.0")
    assert organization.status()["policy_changes"] == ["epsilon 1 -> 2"]
    said = organization("status").out
    assert "policy: epsilon 1 -> 2 counts from 1 November 2027 on, with the next period" in said
    assert "counts from 1 November 2027 on" in organization("doctor").out


def test_changed_mode_counts_from_the_next_run_of_the_daemon(
    organization: Organization,
) -> None:
    organization("init")
    organization.begin()
    assert "release modes in force: residual_report auto" in organization("status").out
    with organization.daemon():
        organization.declare('residual_report = "auto"', 'residual_report = "never"')
        said = organization("status")
        assert "release modes in force: residual_report auto" in said.out
        pending = "residual_report auto -> never counts from the daemon's next start on"
        assert f"policy: {pending}" in said.out
        assert organization.status()["modes"] == {"residual_report": "auto"}
        assert organization.status()["policy_changes"] == ["residual_report auto -> never"]
        examined = organization("doctor").out
        assert f"warning  policy: policy.toml: {pending}" in examined
        assert "-> start the daemon again" in examined
    assert organization.status()["modes"] == {"residual_report": "never"}
    assert organization.status()["policy_changes"] == []


def test_changed_mode_without_slots_counts_from_the_next_period(
    organization: Organization,
) -> None:
    organization("init")
    organization.begin()
    with organization.daemon():
        organization.declare('model_update = "auto"', 'model_update = "ask"')
        said = organization("status").out
    assert "model_update auto -> ask counts from 1 November 2027 on, with the next period" in said


@pytest.mark.parametrize(
    ("old", "new", "does"),
    [
        ("epsilon = 1.0", "epsilon = 2.0", "may tell more of a workload"),
        ("delta = 1e-05", "delta = 1e-04", "the promise may fail more often"),
        ('"private"', '"public"', "leave without noise"),
        ('size_class = "small"', 'size_class = "large"', "model updates leave as well"),
    ],
)
def test_doctor_warns_of_policy_change_that_weakens_privacy(
    organization: Organization, old: str, new: str, does: str
) -> None:
    organization("init")
    organization.begin()
    organization.declare(old, new)
    (line,) = [
        each for each in organization("doctor").out.splitlines() if "->" in each and does in each
    ]
    assert line.startswith("warning  policy: ")
    assert "counts from 1 November 2027 on" in line
    organization.declare(new, old)
    organization.declare("epsilon = 1.0", "epsilon = 0.5")
    assert "ok       policy: policy.toml: epsilon 1 -> 0.5 counts" in organization("doctor").out


def test_changed_lifetime_budget_is_reported_as_ignored(organization: Organization) -> None:
    organization("init")
    organization.begin()
    organization.declare("# lifetime_epsilon = 10.0", "lifetime_epsilon = 20.0")
    assert "lifetime_epsilon none -> 20 counts never" in organization("status").out


def test_status_shows_revocation_until_the_coordinator_accepts_again(
    organization: Organization,
) -> None:
    organization("init")
    organization.begin()
    Contact(NOW, NOW + timedelta(hours=1)).note(organization.home)
    said = organization("status").out
    assert (
        "On 25 November 2026, 10:30 UTC the coordinator replied that it does not know this" in said
    )
    assert "join with a new invitation" in said
    assert "the coordinator accepts you again" in said
    assert organization.status()["refused_at"] == "2026-11-25T10:30:00+00:00"
    Contact(NOW + timedelta(hours=2)).note(organization.home)
    assert organization.status()["refused_at"] is None
    assert "does not know this organization" not in organization("status").out


def test_status_skips_withheld_slot_as_next_release(organization: Organization) -> None:
    organization("init")
    ledger = organization.begin()
    first, second, _ = (slot.key for slot in ledger.schedule.slots)
    Decisions(ledger).decide(first, Outcome.WITHHELD, at=NOW)
    with organization.daemon():
        assert f"Next: report-1-{second.index}, sampled" in organization("status").out
    organization.declare('residual_report = "auto"', 'residual_report = "never"')
    assert organization.status()["next"] is None
    assert "No further release in this period" in organization("status").out


def test_status_of_mode_ask_names_the_approve_command(organization: Organization) -> None:
    organization("init")
    organization.begin()
    organization.declare('residual_report = "auto"', 'residual_report = "ask"')
    with organization.daemon():
        said = organization("status").out
    assert "if you approve it before (fedperf release approve report-0-6)" in said


@pytest.mark.parametrize(
    ("declared", "says"),
    [(200, "is mostly noise"), (10, None), (5, "to get more reports")],
)
def test_status_compares_stored_workloads_with_declared_number(
    organization: Organization, declared: int, says: str | None
) -> None:
    organization("init", "--workloads", declared)
    with_history(organization.home)
    stored = organization.status()["workloads"]
    said = organization("status").out
    assert (f"{stored} workloads are stored" in said) == (says is not None)
    assert [each for each in ("is mostly noise", "to get more reports") if each in said] == (
        [says] if says else []
    )
