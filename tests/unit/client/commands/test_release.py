"""`fedperf release`: previews without cost, stored decisions, verified receipts."""

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
from fedperf_client.release.gate import ReleaseGate, WithheldError
from fedperf_client.release.history import receipt_path
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.policy import ReleaseMode, load_policy, store_modes
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
from fedperf_shared.wire.codec import decode_signed_receipt, encode_receipt, encode_signed_receipt
from tests.fakes.cell_queries import DIRECTED
from tests.fakes.coordinator import membership_with
from tests.fakes.empty_reports import empty_report
from tests.fakes.linearized_queries import install_plans
from tests.fakes.released import release_now
from tests.unit.client.contributions.seeded_noise import seeded
from tests.unit.client.data_directories import made_home
from tests.unit.client.pretrained_model import install_start
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
    """An organization's data directory and a clock."""

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
        """Set this mode for reports in the policy."""
        text = self.home.policy.read_text()
        self.home.policy.write_text(text.replace('report = "auto"', f'report = "{mode}"'))

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """Simulate a running daemon that has read the current policy."""
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
            ledger.confirm(exchange.confirmed(decode_signed_receipt(signed), MEMBERSHIP))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    install_start(tmp_path, monkeypatch)
    return Scene(made_home(tmp_path / "home", workloads=4000), monkeypatch)


def test_preview_shows_next_slot_of_each_kind_and_changes_no_file(scene: Scene) -> None:
    ledger = scene.begin()
    release_now(scene.gate(ledger), report_key(0), empty_report, at=open_at(0))
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


def test_preview_shows_progress_bar_only_on_a_terminal(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.begin()
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    assert scene("preview", "report").err == ""
    with on_a_terminal():
        assert "making samples" in scene("preview", "report").err
        assert scene("preview", "report", "--json").err == ""


@pytest.mark.slow
def test_preview_accepts_a_kind_or_a_slot_with_fresh_samples(scene: Scene) -> None:
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
    """A coordinator that only serves the calendar."""

    def __init__(self, *arguments: object) -> None:
        del arguments

    def __enter__(self) -> "FakeExchange":
        return self

    def __exit__(self, *arguments: object) -> None:
        del arguments

    def calendar(self) -> ReleaseCalendar:
        return calendar()


def test_preview_before_the_period_uses_the_coordinators_calendar(
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


def test_preview_before_joining_uses_default_calendar_with_a_note(
    scene: Scene,
) -> None:
    """Before joining, a security officer can preview all releases."""
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


def test_preview_with_incomplete_membership_is_refused(scene: Scene) -> None:
    scene.join()
    (scene.home.identity / "addresses.txt").unlink()
    assert scene("preview").code == 3


def test_sealed_release_is_shown_with_its_bytes_and_approved(scene: Scene, tmp_path: Path) -> None:
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


def test_list_shows_state_and_receipt_of_every_release(scene: Scene) -> None:
    scene.join()
    ledger = scene.begin()
    gate = scene.gate(ledger)
    for window in range(3):
        release_now(gate, report_key(window), empty_report, at=open_at(window))
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
def test_invalid_receipt_is_reported_with_its_problem(
    scene: Scene, changes: dict[str, object] | None, problem: str
) -> None:
    scene.join()
    ledger = scene.begin()
    release_now(scene.gate(ledger), report_key(0), empty_report, at=open_at(0))
    scene.confirm(ledger, report_key(0), **(changes or {"sequence": 1}))
    if changes is None:
        path = receipt_path(scene.home.receipts, ledger, report_key(0))
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
    shown = scene("show", "report-0-0", "--json").json()
    assert isinstance(shown, dict)
    assert (shown["state"], shown["receipt_valid"]) == ("handed out", False)
    assert problem in str(shown["receipt_problem"])


def test_receipts_with_duplicate_sequence_number_are_invalid(scene: Scene) -> None:
    scene.join()
    ledger = scene.begin()
    for window in range(2):
        release_now(scene.gate(ledger), report_key(window), empty_report, at=open_at(window))
        scene.confirm(ledger, report_key(window), sequence=1)
    assert [row["receipt"] for row in scene("list", "--json").rows()] == [False, False]


def test_preview_names_counts_sent_without_noise(scene: Scene) -> None:
    slot = Slot(report_key(0), ReportParameters(20.0, 3.0, public_counts=True))
    PrivacyLedger.create(scene.home.ledger(START), BUDGET, Schedule(calendar(2), (slot,)))
    (shown,) = scene("preview", "report-0-0", "--json").rows()
    assert shown["public_counts"] is True
    assert "96 exact numbers of workloads per cell, WITHOUT NOISE" in str(shown["schema"])
    assert "96 noisy integers" in str(shown["schema"])
    text = scene("preview", "report-0-0").out
    assert "WITHOUT NOISE: the policy declares configurations public" in text


def test_directed_report_keeps_its_kind_from_preview_to_show(scene: Scene) -> None:
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
        "slot, version of the linear query, grid exponent: public",
        "values: 16 noisy integers",
    ]
    assert (shown["noise_stddev"], shown["nominal_workloads"]) == (20.0, 60.0)
    kinds = [row["kind"] for row in scene("slots", "--json").rows()]
    assert kinds == ["residual_report", "directed_report"]
    release_now(scene.gate(ledger), DIRECTED, empty_report, at=planned.opens_at(DIRECTED))
    (row,) = scene("list", "--json").rows()
    assert (row["kind"], row["bytes"]) == ("directed_report", shown["bytes"])
    left = scene("show", "report-0-1", "--json").json()
    assert isinstance(left, dict)
    assert (left["kind"], left["question"], left["values"]) == ("directed_report", 1, 16)


def test_linearized_update_keeps_its_kind_from_preview_to_show(
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
        "slot, version of the model, grid exponent: public",
        "values: 256 noisy integers",
    ]
    assert (shown["noise_stddev"], shown["nominal_workloads"]) == (40.0, 2000.0)
    assert 0 < float(str(shown["epsilon"])) < float(str(shown["epsilon_replace_one"]))
    assert 8 * DIRECTIONS < int(str(shown["bytes"])) < 8 * DIRECTIONS + 200
    kinds = {row["kind"] for row in scene("slots", "--json").rows()}
    assert kinds == {"residual_report", "tangent_update"}
    release_now(scene.gate(ledger), update_key(0), example_release, at=open_at(0))
    (row,) = scene("list", "--json").rows()
    assert (row["kind"], row["bytes"]) == ("tangent_update", shown["bytes"])
    left = scene("show", "update-0-0", "--json").json()
    assert isinstance(left, dict)
    assert (left["kind"], left["base_version"], left["values"]) == ("tangent_update", 1, DIRECTIONS)


def test_list_includes_releases_of_an_older_period(scene: Scene) -> None:
    ledger = scene.begin()
    release_now(scene.gate(ledger), report_key(0), empty_report, at=open_at(0))
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
def test_release_command_with_invalid_slot_or_time_changes_no_file(
    scene: Scene, command: str, moment: datetime, code: int, says: str
) -> None:
    scene.begin()
    scene.at(moment)
    before = contents(scene.home.directory)
    ended = scene(*command.split())
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.complaint()
    assert contents(scene.home.directory) == before


def test_withhold_after_dispatch_is_refused(scene: Scene) -> None:
    ledger = scene.begin()
    release_now(scene.gate(ledger), report_key(0), empty_report, at=open_at(0))
    scene.at(open_at(0))
    ended = scene("withhold", "report-0-0")
    assert ended.code == 5
    assert "it has left" in ended.complaint()
    assert "it was released" in scene("preview", "report-0-0").complaint()


def test_decisions_before_any_period_are_refused(scene: Scene) -> None:
    for command in ("approve", "withhold", "show"):
        ended = scene(command, "report-0-0")
        assert ended.code == 3
        assert "no period has begun" in ended.complaint()


def test_approve_of_a_kind_with_mode_never_is_refused(scene: Scene) -> None:
    scene.begin()
    scene.says("never")
    ended = scene("approve", "report-0-0")
    assert ended.code == 3
    assert "to never; change that" in ended.complaint()


def test_release_tables_fit_80_columns(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ledger = scene.begin()
    release_now(scene.gate(ledger), report_key(0), empty_report, at=open_at(0))
    for command in ("slots", "list"):
        text = scene(command).out
        assert re.search(r"2027-01-2\d \d\d:\d\d ", text), "it is whole"
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= 80


def test_list_shows_withhold_reason_of_each_withheld_release(scene: Scene) -> None:
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


def test_mode_in_force_is_the_one_read_by_the_running_daemon(scene: Scene) -> None:
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


def test_approve_under_daemon_with_mode_never_notes_required_restart(
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


def test_slots_show_kind_mode_epsilon_and_missing_decision(
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


def test_withheld_slot_has_no_send_time(scene: Scene) -> None:
    scene.begin()
    assert scene("withhold", "report-1-0").code == 0
    rows = {row["slot"]: row for row in scene("slots", "--json").rows()}
    assert rows["report-1-0"]["send_at"] is None
    assert rows["report-0-0"]["send_at"] == LEAVES.isoformat()
    scene.says("never")
    rows = {row["slot"]: row for row in scene("slots", "--json").rows()}
    assert (rows["report-0-0"]["send_at"], rows["report-0-0"]["decision"]) == (None, "never")


def test_slots_explain_extra_first_report(scene: Scene) -> None:
    said = scene("slots").out
    assert "report-0-3 is an extra first report" in said
    scene.begin()
    assert "extra first" not in scene("slots").out, "it is the window's own"


@pytest.mark.parametrize("kind", ["residual_report", "report"])
def test_preview_accepts_displayed_kind_and_its_short_form(scene: Scene, kind: str) -> None:
    scene.begin()
    (shown,) = scene("preview", kind, "--json").rows()
    assert (shown["slot"], shown["kind"]) == ("report-0-0", "residual_report")


def test_preview_of_directed_report_shows_its_next_slot(scene: Scene) -> None:
    slots = (
        Slot(report_key(0), ReportParameters(20.0, 3.0)),
        Slot(DIRECTED, DirectedParameters(20.0, 60.0)),
    )
    planned = Schedule(calendar(2, reports=2), slots)
    PrivacyLedger.create(scene.home.ledger(START), BUDGET, planned)
    (shown,) = scene("preview", "directed_report", "--json").rows()
    assert shown["slot"] == "report-0-1"


@pytest.mark.parametrize("kind", ["update", "model_update", "tangent_update"])
def test_preview_of_unplanned_kind_gives_the_reason(scene: Scene, kind: str) -> None:
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
def test_release_commands_print_times_in_readable_form(
    scene: Scene, command: tuple[str, ...], times: set[str]
) -> None:
    ledger = scene.begin()
    release_now(scene.gate(ledger), report_key(0), empty_report, at=open_at(0))
    said = scene(*command).out
    found = re.findall(r"\d{4}-\d{2}-\d{2}\S*(?: \d\S*)?", said)
    assert times <= set(found)
    assert all(re.fullmatch(r"[\d-]{10} \d{2}:\d{2}", each) for each in found)
    assert "(UTC)" in said
