"""`fedperf release`: looking ahead costs nothing, decisions are kept, the past is checked."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fedperf_client import cli
from fedperf_client.formatting import progress
from fedperf_client.home.config import Home, write_private
from fedperf_client.node import exchange
from fedperf_client.node.enrollment import load_or_create_key
from fedperf_client.release import preview as example_history
from fedperf_client.release.effective_policy import store_modes
from fedperf_client.release.gate import ReleaseGate, WithheldError
from fedperf_client.release.history import receipt_path
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.ledger_files import ConfirmedRelease
from fedperf_client.release.policy import ReleaseMode, load_policy
from fedperf_client.release.preview import example_release
from fedperf_client.release.schedule import plan_schedule
from fedperf_shared.exchange import Receipt, SignedReceipt
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.releases.linear_queries import DIRECTIONS
from fedperf_shared.releases.period import ModelMethod, ReleaseCalendar
from fedperf_shared.releases.release import (
    DirectedParameters,
    ReportParameters,
    Schedule,
    Slot,
    SlotKey,
)
from fedperf_shared.runtime.process import process_lock
from fedperf_shared.wire.codec import encode_receipt, encode_signed_receipt
from tests.fakes.coordinator import membership_with
from tests.fakes.empty_reports import empty_report
from tests.fakes.questions import DIRECTED
from tests.fakes.tangents import install_plans
from tests.unit.client.contributions.seeded_noise import seeded
from tests.unit.client.homes import made_home
from tests.unit.client.public import install_start
from tests.unit.client.release.periods import (
    BUDGET,
    START,
    calendar,
    open_at,
    report_key,
    schedule,
    update_key,
)
from tests.unit.client.terminals import on_a_terminal
from tests.unit.shared.console_programs import Ended, contents, run

LEAVES = START + timedelta(days=21)
COORDINATOR = new_private_key()
MEMBERSHIP = membership_with(COORDINATOR)


class Scene:
    """An organization's directory and a clock."""

    def __init__(self, home: Home, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        self._patch = patch
        self.at(START)

    def at(self, moment: datetime) -> None:
        self._patch.setattr("fedperf_client.commands.release.now", lambda: moment)

    def __call__(self, *arguments: object) -> Ended:
        return run(cli.main, "--home", self.home.directory, "release", *arguments)

    def join(self) -> None:
        load_or_create_key(self.home.identity)
        MEMBERSHIP.save(self.home.identity)

    def begin(self) -> PrivacyLedger:
        return PrivacyLedger.create(self.home.ledger(START), BUDGET, schedule())

    def asks(self) -> None:
        self.says("ask")

    def says(self, mode: str) -> None:
        """The policy has that mode for reports."""
        text = self.home.policy.read_text()
        self.home.policy.write_text(text.replace('report = "auto"', f'report = "{mode}"'))

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """A daemon runs that has read the policy as it is now."""
        with process_lock(self.home.lock, "the home"):
            store_modes(self.home, load_policy(self.home.policy))
            yield

    def gate(self, ledger: PrivacyLedger) -> ReleaseGate:
        return ReleaseGate(ledger, seeded(), load_or_create_key(self.home.identity))

    def confirm(self, ledger: PrivacyLedger, key: SlotKey, **changes: object) -> None:
        stored = ledger.stored(key)
        assert stored is not None
        values: dict[str, object] = {
            "organization_id": MEMBERSHIP.organization_id,
            "release_id": key.release_id(calendar().period),
            "payload_sha256": hashlib.sha256(stored.payload).digest(),
            "sequence": 1,
            "received_at": open_at(key.window),
        }
        content = encode_receipt(Receipt(**{**values, **changes}))  # type: ignore[arg-type]
        signed = encode_signed_receipt(SignedReceipt(content, sign(COORDINATOR, content)))
        write_private(receipt_path(self.home.receipts, ledger, key), signed)
        if not changes:
            receipt = exchange.read_receipt(signed, MEMBERSHIP)
            ledger.confirm(ConfirmedRelease.from_receipt(receipt, receipt.signed))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    install_start(tmp_path, monkeypatch)
    return Scene(made_home(tmp_path / "home", workloads=4000), monkeypatch)


def test_a_preview_shows_the_next_slot_of_each_kind_and_changes_no_byte(scene: Scene) -> None:
    ledger = scene.begin()
    scene.gate(ledger).release(report_key(0), empty_report, at=open_at(0))
    scene.at(open_at(0))
    before = contents(scene.home.directory)
    update, report = scene("preview", "--json").rows()
    assert contents(scene.home.directory) == before
    assert (update["slot"], report["slot"]) == ("update-1-0", "report-1-0")
    assert (report["mode"], report["unit"], report["noise_stddev"]) == ("auto", "workload", 20.0)
    assert 0 < report["epsilon_added"] < report["epsilon"]  # type: ignore[operator]
    spent = ledger.spent(open_at(0))
    assert report["remaining_before"] == 1.0 - spent
    assert report["remaining_after"] == 1.0 - spent - report["epsilon_added"]  # type: ignore[operator]
    assert (report["opens_at"], report["send_at"]) == (
        (START + timedelta(days=48)).isoformat(),
        (START + timedelta(days=49)).isoformat(),
    )
    assert report["sample_values"] == 192
    assert update["bytes"] > 4 * DIRECTIONS  # type: ignore[operator]
    assert update["sample_values"] == DIRECTIONS


def test_a_preview_shows_a_bar_on_a_terminal_and_nowhere_else(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.begin()
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    assert scene("preview", "report").err == ""
    with on_a_terminal():
        assert "making samples" in scene("preview", "report").err
        assert scene("preview", "report", "--json").err == ""


@pytest.mark.slow
def test_what_is_previewed_can_be_a_kind_or_a_slot(scene: Scene) -> None:
    scene.begin()
    (report,) = scene("preview", "report", "--json").rows()
    (again,) = scene("preview", "report-0-0", "--json").rows()
    (later,) = scene("preview", "report-4-0", "--json").rows()
    assert (report["slot"], later["slot"]) == ("report-0-0", "report-4-0")
    assert again["bytes"] == report["bytes"]
    assert again["sample_first_values"] != report["sample_first_values"]
    text = scene("preview", "report").out
    assert "192 noisy integers" in text
    assert "remaining before: 1\n" in text


class FakeExchange:
    """Knows the calendar, and nothing else is asked."""

    def __init__(self, *arguments: object) -> None:
        del arguments

    def __enter__(self) -> "FakeExchange":
        return self

    def __exit__(self, *arguments: object) -> None:
        del arguments

    def calendar(self) -> ReleaseCalendar:
        return calendar()


def test_before_the_period_the_coordinators_calendar_is_enough(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.join()
    monkeypatch.setattr(exchange, "ExchangeClient", FakeExchange)
    before = contents(scene.home.directory)
    (report,) = scene("preview", "--json").rows()
    assert report["slot"] == "report-0-0"
    assert report["remaining_before"] == 1.0
    assert contents(scene.home.directory) == before
    assert scene.home.ledgers == ()


def test_before_joining_all_is_shown_by_the_default_calendar_and_that_is_said(
    scene: Scene,
) -> None:
    """A security officer reads what would leave before there is any contract."""
    before = contents(scene.home.directory)
    shown = scene("preview", "--json")
    (report,) = shown.rows()
    assert (report["slot"], report["remaining_before"]) == ("report-0-3", 1.0)
    slots = scene("slots", "--json")
    assert slots.rows()[0]["slot"] == "report-0-3"
    budget = run(cli.main, "--home", scene.home.directory, "budget", "--json")
    assert [row["spent"] for row in budget.rows()] == [0, 0]
    for ended in (shown, slots, budget):
        assert "planned by the default calendar" in ended.err
    assert contents(scene.home.directory) == before
    assert "epsilon = 2" in scene("slots").out


def test_a_membership_of_which_a_part_is_lost_is_no_way_back_to_the_default(scene: Scene) -> None:
    scene.join()
    (scene.home.identity / "addresses.txt").unlink()
    assert scene("preview").code == 3


def test_a_sealed_release_can_be_seen_and_approved(scene: Scene, tmp_path: Path) -> None:
    scene.asks()
    scene.join()
    ledger = scene.begin()
    scene.at(open_at(0))
    sealed = scene.gate(ledger).seal(
        report_key(0), empty_report, at=open_at(0), mode=ReleaseMode.ASK
    )
    bytes_file = tmp_path / "seen"
    shown = scene("show", "report-0-0", "--payload", bytes_file, "--json").json()
    assert isinstance(shown, dict)
    assert bytes_file.read_bytes() == sealed.payload
    assert shown["payload_sha256"] == hashlib.sha256(sealed.payload).hexdigest()
    assert (shown["state"], shown["signature_valid"], shown["values"]) == ("sealed", True, 192)
    assert (shown["decision"], shown["receipt_valid"]) == (None, False)
    decided = scene("approve", "report-0-0", "--json").json()
    assert isinstance(decided, dict)
    assert (decided["decision"], decided["charged"]) == ("approved", True)
    assert decided["send_at"] == LEAVES.isoformat()
    assert scene.gate(ledger).dispatch(report_key(0), at=LEAVES, mode=ReleaseMode.ASK) == sealed


def test_the_list_says_how_far_every_release_came(scene: Scene) -> None:
    scene.join()
    ledger = scene.begin()
    gate = scene.gate(ledger)
    for window in range(3):
        gate.release(report_key(window), empty_report, at=open_at(window))
    scene.confirm(ledger, report_key(0))
    scene.confirm(ledger, report_key(1), sequence=2, payload_sha256=bytes(32))
    gate.seal(report_key(3), empty_report, at=open_at(3), mode=ReleaseMode.ASK)
    gate.seal(report_key(4), empty_report, at=open_at(4), mode=ReleaseMode.ASK)
    scene.at(open_at(4))
    assert scene("withhold", "report-4-0").code == 0
    ledger.reserve(report_key(5), open_at(5))
    rows = scene("list", "--json").rows()
    assert [(row["slot"], row["state"], row["receipt"]) for row in rows] == [
        ("report-0-0", "confirmed", True),
        ("report-1-0", "handed out", False),
        ("report-2-0", "handed out", False),
        ("report-3-0", "sealed", False),
        ("report-4-0", "withheld", False),
        ("report-5-0", "charged", False),
    ]
    assert all(row["epsilon"] == rows[0]["epsilon"] for row in rows)
    sizes = [row["bytes"] for row in rows]
    assert sizes[1:] == [sizes[1]] * 4 + [0]
    slots = {row["slot"]: row["decision"] for row in scene("slots", "--json").rows()}
    assert (slots["report-4-0"], slots["report-3-0"]) == ("withheld", None)
    assert scene("show", "report-5-0").code == 0
    assert "sha256" in scene("show", "report-0-0").out


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"release_id": bytes(32)}, "for another release"),
        ({"payload_sha256": bytes(32)}, "for other bytes"),
        ({"sequence": 0}, "sequence number is none"),
        ({"received_at": START}, "before the slot opened"),
        (None, "signature"),
    ],
)
def test_a_receipt_that_does_not_hold_is_said_to(
    scene: Scene, changes: dict[str, object] | None, problem: str
) -> None:
    scene.join()
    ledger = scene.begin()
    scene.gate(ledger).release(report_key(0), empty_report, at=open_at(0))
    scene.confirm(ledger, report_key(0), **(changes or {"sequence": 1}))
    if changes is None:
        path = receipt_path(scene.home.receipts, ledger, report_key(0))
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
    shown = scene("show", "report-0-0", "--json").json()
    assert isinstance(shown, dict)
    assert (shown["state"], shown["receipt_valid"]) == ("handed out", False)
    assert problem in str(shown["receipt_problem"])


def test_a_sequence_number_counts_once(scene: Scene) -> None:
    scene.join()
    ledger = scene.begin()
    for window in range(2):
        scene.gate(ledger).release(report_key(window), empty_report, at=open_at(window))
        scene.confirm(ledger, report_key(window), sequence=1)
    assert [row["receipt"] for row in scene("list", "--json").rows()] == [False, False]


def test_a_preview_names_what_leaves_without_noise(scene: Scene) -> None:
    slot = Slot(report_key(0), ReportParameters(20.0, 3.0, public_counts=True))
    PrivacyLedger.create(scene.home.ledger(START), BUDGET, Schedule(calendar(2), (slot,)))
    (shown,) = scene("preview", "report-0-0", "--json").rows()
    assert shown["public_counts"] is True
    assert "96 exact numbers of workloads per cell, WITHOUT NOISE" in str(shown["schema"])
    assert "96 noisy integers" in str(shown["schema"])
    text = scene("preview", "report-0-0").out
    assert "WITHOUT NOISE: the policy declares configurations public" in text


def test_a_directed_slot_is_shown_as_one_before_and_after_it_leaves(scene: Scene) -> None:
    scene.join()
    slots = (
        Slot(report_key(0), ReportParameters(20.0, 3.0)),
        Slot(DIRECTED, DirectedParameters(20.0, 60.0)),
    )
    planned = Schedule(calendar(2, reports=2), slots)
    ledger = PrivacyLedger.create(scene.home.ledger(START), BUDGET, planned)
    (shown,) = scene("preview", "report-0-1", "--json").rows()
    assert (shown["kind"], shown["sample_values"]) == ("directed_report", 16)
    assert shown["schema"] == [
        "slot, number of the question, grid exponent: public",
        "values: 16 noisy integers",
    ]
    assert (shown["noise_stddev"], shown["nominal_workloads"]) == (20.0, 60.0)
    kinds = [row["kind"] for row in scene("slots", "--json").rows()]
    assert kinds == ["residual_report", "directed_report"]
    scene.gate(ledger).release(DIRECTED, empty_report, at=planned.opens_at(DIRECTED))
    (row,) = scene("list", "--json").rows()
    assert (row["kind"], row["bytes"]) == ("directed_report", shown["bytes"])
    left = scene("show", "report-0-1", "--json").json()
    assert isinstance(left, dict)
    assert (left["kind"], left["question"], left["values"]) == ("directed_report", 1, 16)


def test_a_step_at_a_tangent_is_shown_as_one_before_and_after_it_leaves(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plans(tmp_path, monkeypatch)
    monkeypatch.setattr(example_history, "_COPIES", 1)
    scene.join()
    planned = schedule(2, method=ModelMethod.TANGENT)
    ledger = PrivacyLedger.create(scene.home.ledger(START), BUDGET, planned)
    (shown,) = scene("preview", "update-0-0", "--json").rows()
    assert (shown["kind"], shown["sample_values"]) == ("tangent_update", DIRECTIONS)
    assert shown["schema"] == [
        "slot, base version, grid exponent: public",
        "values: 256 noisy integers",
    ]
    assert (shown["noise_stddev"], shown["nominal_workloads"]) == (40.0, 2000.0)
    assert 0 < float(str(shown["epsilon"])) < float(str(shown["epsilon_replace_one"]))
    assert 8 * DIRECTIONS < int(str(shown["bytes"])) < 8 * DIRECTIONS + 200
    kinds = {row["kind"] for row in scene("slots", "--json").rows()}
    assert kinds == {"residual_report", "tangent_update"}
    scene.gate(ledger).release(update_key(0), example_release, at=open_at(0))
    (row,) = scene("list", "--json").rows()
    assert (row["kind"], row["bytes"]) == ("tangent_update", shown["bytes"])
    left = scene("show", "update-0-0", "--json").json()
    assert isinstance(left, dict)
    assert (left["kind"], left["base_version"], left["values"]) == ("tangent_update", 1, DIRECTIONS)


def test_releases_of_an_older_period_stay_in_sight(scene: Scene) -> None:
    ledger = scene.begin()
    scene.gate(ledger).release(report_key(0), empty_report, at=open_at(0))
    later = START + timedelta(days=400)
    moved = replace(calendar(models=0), period=replace(calendar().period, start=later))
    planned = plan_schedule(load_policy(scene.home.policy), moved)
    PrivacyLedger.create(scene.home.ledger(later), planned.budget, planned.schedule)
    (row,) = scene("list", "--json").rows()
    assert row["slot"] == "report-0-0@20270101T000000"
    shown = scene("show", row["slot"], "--json").json()
    assert isinstance(shown, dict)
    assert shown["state"] == "handed out"
    assert scene("show", "report-0-0").code == 3


WRONG = [
    ("approve report-77-0", START, 3, "does not have it"),
    ("withhold nonsense", START, 3, "looks like report-3-0"),
    ("show report-0-0@20200101T000000", START, 3, "no period began then"),
    ("show report-0-0", START, 3, "has no release yet"),
    ("preview report-77-0", START, 3, "does not have it"),
    ("preview report-0-0", LEAVES, 3, "its time ended on"),
    ("preview models", START, 3, "looks like report-3-0"),
    ("approve report-0-0", LEAVES, 5, "cannot be approved any more: its time to leave was"),
    ("withhold report-0-0", START + timedelta(days=168), 5, "its period ended"),
]


@pytest.mark.parametrize(("command", "moment", "code", "says"), WRONG)
def test_what_cannot_be_is_one_clear_line_and_changes_nothing(
    scene: Scene, command: str, moment: datetime, code: int, says: str
) -> None:
    scene.begin()
    scene.at(moment)
    before = contents(scene.home.directory)
    ended = scene(*command.split())
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.complaint()
    assert contents(scene.home.directory) == before


def test_what_has_left_cannot_be_called_back(scene: Scene) -> None:
    ledger = scene.begin()
    scene.gate(ledger).release(report_key(0), empty_report, at=open_at(0))
    scene.at(open_at(0))
    ended = scene("withhold", "report-0-0")
    assert ended.code == 5
    assert "it has left" in ended.complaint()
    assert "it was released" in scene("preview", "report-0-0").complaint()


def test_before_a_period_there_is_nothing_to_decide(scene: Scene) -> None:
    for command in ("approve", "withhold", "show"):
        ended = scene(command, "report-0-0")
        assert ended.code == 3
        assert "no period has begun" in ended.complaint()


def test_a_kind_that_never_leaves_is_not_approved(scene: Scene) -> None:
    scene.begin()
    scene.says("never")
    ended = scene("approve", "report-0-0")
    assert ended.code == 3
    assert "to never; change that" in ended.complaint()


def test_tables_fit_a_terminal(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ledger = scene.begin()
    scene.gate(ledger).release(report_key(0), empty_report, at=open_at(0))
    for command in ("slots", "list"):
        text = scene(command).out
        assert re.search(r"2027-01-2\d \d\d:\d\d ", text), "it is whole"
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= 80


def test_what_did_not_leave_says_why_in_place_of_a_receipt(scene: Scene) -> None:
    ledger = scene.begin()
    gate = scene.gate(ledger)
    for window, mode in enumerate((ReleaseMode.AUTO, ReleaseMode.ASK, ReleaseMode.NEVER)):
        gate.seal(report_key(window), empty_report, at=open_at(window), mode=ReleaseMode.AUTO)
        if mode is ReleaseMode.AUTO:
            gate.withhold(report_key(window), at=open_at(window))
        else:
            over = ledger.schedule.replies_at(report_key(window))
            with pytest.raises(WithheldError):
                gate.dispatch(report_key(window), at=over, mode=mode)
    ledger.reserve(report_key(3), open_at(3))
    why = ["too_late", "undecided", "policy", "not_drawn"]
    rows = scene("list", "--json").rows()
    assert [row["because"] for row in rows] == why
    assert not any(row["receipt"] for row in rows)
    text = scene("list").out
    assert all(each in text for each in why)
    assert max(map(len, text.splitlines())) <= 80


def test_the_mode_in_force_is_the_one_that_the_running_daemon_has_read(scene: Scene) -> None:
    scene.begin()
    with scene.daemon():
        scene.says("ask")
        (shown,) = scene("preview", "report", "--json").rows()
        assert shown["mode"] == "auto"
        assert shown["mode_changes"] == [
            "residual_report auto -> ask counts from the daemon's next start on"
        ]
        assert "counts from the daemon's next start on" in scene("preview", "report").out
        assert "counts from the daemon's next start on" in scene("slots").out
        assert {row["mode"] for row in scene("slots", "--json").rows()} == {"auto"}
    (shown,) = scene("preview", "report", "--json").rows()
    assert (shown["mode"], shown["mode_changes"]) == ("ask", [])


def test_a_release_that_a_running_daemon_never_lets_out_is_approved_with_a_note(
    scene: Scene,
) -> None:
    scene.begin()
    scene.says("never")
    with scene.daemon():
        text = scene.home.policy.read_text()
        scene.home.policy.write_text(text.replace('report = "never"', 'report = "auto"'))
        ended = scene("approve", "report-0-0")
    assert ended.code == 0
    assert "so restart it to send report-0-0" in ended.err


def test_slots_say_kind_mode_and_cost_and_what_is_undecided(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    scene.begin()
    scene.asks()
    reports = [row for row in scene("slots", "--json").rows() if row["kind"] == "residual_report"]
    assert {(row["mode"], row["decision"]) for row in reports} == {("ask", "undecided")}
    assert all(0 < float(str(row["epsilon"])) < 1 for row in reports)
    said = scene("slots").out
    (line,) = [each for each in said.splitlines() if "report-0-0" in each]
    assert [each.strip() for each in line.split("│")[2:5]] == [
        *("residual_report", "ask", "undecided")
    ]
    assert "not sent unless you approve it in time: fedperf release approve SLOT" in said


def test_a_slot_that_stays_here_shows_no_time_to_leave(scene: Scene) -> None:
    scene.begin()
    assert scene("withhold", "report-1-0").code == 0
    rows = {row["slot"]: row for row in scene("slots", "--json").rows()}
    assert rows["report-1-0"]["send_at"] is None
    assert rows["report-0-0"]["send_at"] == LEAVES.isoformat()
    scene.says("never")
    rows = {row["slot"]: row for row in scene("slots", "--json").rows()}
    assert (rows["report-0-0"]["send_at"], rows["report-0-0"]["decision"]) == (None, "never")


def test_a_first_report_that_is_no_slot_of_every_window_is_explained(scene: Scene) -> None:
    said = scene("slots").out
    assert "report-0-3 is an extra first report" in said
    scene.begin()
    assert "extra first" not in scene("slots").out, "it is the window's own"


@pytest.mark.parametrize("kind", ["residual_report", "report"])
def test_a_preview_takes_the_kinds_that_are_shown(scene: Scene, kind: str) -> None:
    scene.begin()
    (shown,) = scene("preview", kind, "--json").rows()
    assert (shown["slot"], shown["kind"]) == ("report-0-0", "residual_report")


def test_a_preview_of_a_kind_within_a_slots_kind_shows_the_next_of_it(scene: Scene) -> None:
    slots = (
        Slot(report_key(0), ReportParameters(20.0, 3.0)),
        Slot(DIRECTED, DirectedParameters(20.0, 60.0)),
    )
    planned = Schedule(calendar(2, reports=2), slots)
    PrivacyLedger.create(scene.home.ledger(START), BUDGET, planned)
    (shown,) = scene("preview", "directed_report", "--json").rows()
    assert shown["slot"] == "report-0-1"


@pytest.mark.parametrize("kind", ["update", "model_update", "tangent_update"])
def test_what_is_not_planned_says_why(scene: Scene, kind: str) -> None:
    said = scene("preview", kind).out
    assert said.startswith(f"No release of {kind} is planned: size class")
    assert "below about 2,000 workloads" in said


@pytest.mark.parametrize(
    ("command", "times"),
    [
        (("slots",), {"2027-01-21 00:00", "2027-02-18 00:00"}),
        (("list",), {"2027-01-21 01:00"}),
        (("show", "report-0-0"), {"2027-01-21 01:00", "2027-01-21 00:00", "2027-01-22 00:00"}),
        (("preview", "report-1-0"), {"2027-02-18 00:00", "2027-02-19 00:00"}),
    ],
)
def test_times_are_in_words_or_as_a_table_has_room(
    scene: Scene, command: tuple[str, ...], times: set[str]
) -> None:
    ledger = scene.begin()
    scene.gate(ledger).release(report_key(0), empty_report, at=open_at(0))
    said = scene(*command).out
    found = re.findall(r"\d{4}-\d{2}-\d{2}\S*(?: \d\S*)?", said)
    assert times <= set(found)
    assert all(re.fullmatch(r"[\d-]{10} \d{2}:\d{2}", each) for each in found)
    assert "(UTC)" in said
