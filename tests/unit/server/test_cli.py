"""Tests of the `fedperf-server` command line: documentation, light imports, clear messages."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from sqlalchemy import select

from fedperf_client.node.enrollment import _request
from fedperf_server import cli
from fedperf_server.app.process import require_ready
from fedperf_server.config import FILE_NAME, ServerConfig, load_calendar, load_config
from fedperf_server.membership.authority import KeyRing
from fedperf_server.membership.enrollment import Enrollment, EnrollmentRefusedError
from fedperf_server.state import registry
from fedperf_server.state.database import Database, DriftRow, Member, PromotionRecord, VersionStatus
from fedperf_server.state.registry import GgfnFormat
from fedperf_server.state.releases import count_rejection, declare_schedule
from fedperf_server.state.validation import Reason
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.release import Schedule
from fedperf_shared.runtime.command_line import RENAMED
from fedperf_shared.workflow.vocabulary import Platform
from tests.pages import OPERATOR
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.unit.shared.console_programs import Ended, commands, contents, nothing_lost, run

HEAVY = ("torch", "flwr", "sdv", "pandas", "sqlalchemy", "grpc", "scipy", "sklearn")
COMMANDS = dict(commands(typer.main.get_command(cli.app)))
SHOWS_NOTHING = {"run"}
AT = datetime(2027, 1, 1, tzinfo=UTC)


def server(directory: Path, *arguments: object) -> Ended:
    return run(cli.main, "--directory", directory, *arguments)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "server"
    assert server(path, "init", "--host", "127.0.0.1").code == 0
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_server_command_has_help_and_json_if_it_prints_a_result(name: str) -> None:
    ended = run(cli.main, *name.split(), "--help")
    assert ended.code == 0
    assert COMMANDS[name].help
    assert ("--json" in ended.out) == (name not in SHOWS_NOTHING)


@pytest.mark.parametrize("name", COMMANDS)
def test_server_command_is_documented_on_the_operator_page(name: str) -> None:
    assert f"fedperf-server {name}" in OPERATOR.read_text(encoding="utf-8")


@pytest.mark.parametrize("old", [each for each in RENAMED if each.startswith("fedperf-server ")])
def test_renamed_command_names_the_new_one_in_a_line_and_ends_with_2(
    old: str, tmp_path: Path
) -> None:
    ended = server(tmp_path, *old.split()[1:], "x")
    assert (ended.code, ended.out) == (2, "")
    assert RENAMED[old] in ended.complaint()
    assert RENAMED[old].removeprefix("fedperf-server ") in COMMANDS


def test_server_help_imports_no_heavy_module() -> None:
    program = (
        "import sys\n"
        "from fedperf_server import cli\n"
        "sys.argv = ['fedperf-server', '--help']\n"
        "try:\n    cli.main()\n"
        f"finally:\n    print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stderr.strip() == "[]"


def test_server_init_creates_private_key_files_and_a_one_year_calendar(directory: Path) -> None:
    for path in directory.glob("*.key.pem"):
        assert path.stat().st_mode & 0o077 == 0
    period = load_config(directory).calendar.period
    assert (period.end - period.start).days == 364
    assert period.start.hour == period.start.minute == 0


def test_server_init_with_other_options_is_refused_and_changes_no_files(directory: Path) -> None:
    before = contents(directory)
    ended = server(directory, "init", "--host", "other.example")
    assert ended.code == 3
    said = ended.complaint()
    assert "holds a server with host 127.0.0.1, not other.example" in said
    assert str(directory / FILE_NAME) in said
    ended = server(directory, "init", "--host", "127.0.0.1", "--period-start", "2027-05-01")
    assert "period_start" in ended.complaint()
    assert "not 2027-05-01" in ended.complaint()
    assert contents(directory) == before


def test_server_init_repeated_with_same_options_changes_no_files(directory: Path) -> None:
    before = contents(directory)
    ended = server(directory, "init", "--host", "127.0.0.1")
    assert ended.code == 0
    assert f"{directory} holds a server already" in ended.err
    assert contents(directory) == before


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-11-23", datetime(2026, 11, 23, tzinfo=UTC)),
        ("2026-11-23T09:12:00", datetime(2026, 11, 23, 9, 12, tzinfo=UTC)),
        ("2026-11-23 09:12:13", datetime(2026, 11, 23, 9, 12, 13, tzinfo=UTC)),
        ("2026-11-23T09:12:00Z", datetime(2026, 11, 23, 9, 12, tzinfo=UTC)),
        ("2026-11-23T00:12+01:00", datetime(2026, 11, 22, 23, 12, tzinfo=UTC)),
    ],
)
def test_server_init_period_start_accepts_dates_and_timestamps_with_offset(
    tmp_path: Path, given: str, kept: datetime
) -> None:
    assert server(tmp_path, "init", "--host", "127.0.0.1", "--period-start", given).code == 0
    assert load_config(tmp_path).calendar.period.start == kept


def test_org_add_returns_join_url_without_the_organization_name(directory: Path) -> None:
    invited = server(directory, "org", "add", "Acme", "--json").json()
    assert isinstance(invited, dict)
    assert str(invited["join_url"]).startswith("fedperf://127.0.0.1:8752/#")
    assert "Acme" not in str(invited["join_url"])


def test_org_list_shows_invited_and_joined_organizations(directory: Path) -> None:
    assert server(directory, "org", "list", "--json").json() == []
    assert server(directory, "org", "list").out == "no organization has joined or is invited yet\n"
    invited = server(directory, "org", "add", "Acme", "--json").json()
    assert isinstance(invited, dict)
    (row,) = server(directory, "org", "list", "--json").rows()
    assert (row["name"], row["state"]) == ("Acme", "invited")
    assert row["expires_at"] == invited["expires_at"][:23] + "000" + invited["expires_at"][26:]
    assert str(invited["join_url"]) not in server(directory, "org", "list").out
    join(directory, "Birch")
    birch = {row["name"]: row for row in server(directory, "org", "list", "--json").rows()}["Birch"]
    assert (birch["state"], birch["last_seen"]) == ("member", None)


def test_org_revoke_withdraws_unused_invitation_and_its_token(directory: Path) -> None:
    invited = server(directory, "org", "add", "Acme", "--json").json()
    assert isinstance(invited, dict)
    assert server(directory, "org", "revoke", "Acme").out.startswith("withdrawn: Acme\n")
    assert server(directory, "org", "list", "--json").json() == []
    token = bytes.fromhex(str(invited["join_url"]).rsplit(".", 1)[1])
    with pytest.raises(EnrollmentRefusedError, match="token_unknown"):
        with_enrollment(directory, lambda each: each.join(token, _request(new_private_key())))
    assert server(directory, "org", "revoke", "Acme").code == 3


@pytest.mark.parametrize("name", ["", " ", "two  blanks", " Acme", "a\nb", "x" * 101])
def test_org_add_with_unprintable_or_overlong_name_is_refused(directory: Path, name: str) -> None:
    ended = server(directory, "org", "add", name)
    assert ended.code == 3
    assert "1 to 100 printable characters" in ended.complaint()
    assert server(directory, "org", "list", "--json").json() == []


def test_server_run_with_host_not_covered_by_its_certificate_is_refused(directory: Path) -> None:
    config_with("127.0.0.1", "elsewhere.example")(directory)
    ended = server(directory, "run")
    assert ended.code == 3
    assert "is for '127.0.0.1'" in ended.complaint()


def test_server_run_with_invalid_certificate_names_the_file(directory: Path) -> None:
    KeyRing(directory).certificate_path("server").write_text("junk")
    ended = server(directory, "run")
    assert (ended.code, "server.pem is not a certificate" in ended.complaint()) == (4, True)


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("2027-01-01T", "2027-02-01T", "period_start 2027-02-01"),
        ("windows = 13", "windows = 12", "windows 12, not 13"),
        ("extra_round_windows = 2", "extra_round_windows = 1", "other slots"),
    ],
)
def test_calendar_with_declared_schedules_cannot_change_before_its_end(
    tmp_path: Path, right: str, wrong: str, says: str
) -> None:
    directory = tmp_path / "server"
    begun = ("init", "--host", "127.0.0.1", "--period-start", "2027-01-01")
    assert server(directory, *begun).code == 0
    join(directory, "Acme")
    config = load_config(directory)
    config_with(right, wrong)(directory)
    require_ready(load_config(directory))
    declare(config)
    require_ready(config)
    with pytest.raises(ConfigurationError, match=says):
        require_ready(load_config(directory))
    assert server(directory, "run").code == 3
    end = config.calendar.period.end
    config_with("period_start = 2027-0", f"period_start = {end.isoformat()} # ")(directory)
    require_ready(load_config(directory))
    assert server(directory, "org", "revoke", "Acme").code == 0
    config_with(f"{end.isoformat()} #", "2027-03-01T00:00:00Z #")(directory)
    require_ready(load_config(directory))


def test_org_list_prints_fingerprint_unwrapped_on_narrow_terminal(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    join(directory, "Acme Analytics of the North")
    (row,) = server(directory, "org", "list", "--json").rows()
    assert str(row["fingerprint"]) in server(directory, "org", "list").out


def test_org_list_shows_last_seen_updated_at_most_once_per_minute(directory: Path) -> None:
    join(directory, "Acme")
    config, moment = load_config(directory), AT
    database = Database(config.database_url)
    enrollment = Enrollment(database, KeyRing(directory), config, clock=lambda: moment)
    (member,) = enrollment.members()
    enrollment.record_call(member)
    moment = AT + timedelta(seconds=59)
    enrollment.record_call(member)
    assert enrollment.last_seen() == {member.organization_id: AT}, "not a write for every call"
    moment = AT + timedelta(seconds=61)
    enrollment.record_call(member)
    database.close()
    (row,) = server(directory, "org", "list", "--json").rows()
    assert row["last_seen"] == moment.isoformat()
    assert "2027-01-01 00:01" in server(directory, "org", "list").out


def test_calendar_command_shows_dates_and_writes_a_file_that_loads_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    directory, file = tmp_path / "server", tmp_path / "calendar.toml"
    begun = ("init", "--host", "127.0.0.1", "--period-start", "2026-11-25")
    assert server(directory, *begun).code == 0
    rows = server(directory, "calendar", "--out", file, "--json").rows()
    assert len(rows) == 13
    assert rows[0]["begins_at"] == "2026-11-25T00:00:00+00:00"
    firsts = rows[0]["first_reports"]
    assert isinstance(firsts, list)
    assert firsts[0]["send_at"] == "2026-11-30T00:00:00+00:00"
    text = server(directory, "calendar").out
    assert "30 Nov, 7, 14, 21 Dec" in text
    assert "the period ends on 24 November 2027" in text
    assert load_calendar(file) == load_config(directory).calendar
    file.write_text(file.read_text().replace("2026-11-25", "2027-11-24"))
    (first, *_) = server(directory, "calendar", "--read", file, "--json").rows()
    assert first["begins_at"] == "2027-11-24T00:00:00+00:00"


@pytest.mark.parametrize("text", ["", "calendar = 3", "[calendar]\nwindows = 0", "[calendar"])
def test_load_calendar_of_invalid_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "calendar.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"calendar\.toml"):
        load_calendar(file)


def test_calendar_to_unwritable_path_prints_one_line_error(directory: Path) -> None:
    ended = server(directory, "calendar", "--out", directory / "nowhere" / "calendar.toml")
    assert ended.code == 4
    assert "No such file" in ended.complaint()


def test_org_list_counts_refused_releases_by_kind_and_reason(directory: Path) -> None:
    join(directory, "Acme")
    config = load_config(directory)
    database = Database(config.database_url)
    (row,) = server(directory, "org", "list", "--json").rows()
    with database.transaction() as session:
        for reason in (Reason.RANGE, Reason.RANGE, Reason.SIZE):
            count_rejection(session, bytes.fromhex(str(row["organization_id"])), "report", reason)
    database.close()
    (row,) = server(directory, "org", "list", "--json").rows()
    assert (row["name"], row["accepted"]) == ("Acme", 0)
    assert row["refused"] == {"report/range": 2, "report/size": 1}
    ended = server(directory, "org", "revoke", "Acme", "--json")
    assert ended.json() == {"revoked": "Acme", "fingerprint": row["fingerprint"]}
    assert server(directory, "org", "list", "--json").rows() == []


def test_models_command_lists_versions_in_order_with_status_and_reason(directory: Path) -> None:
    assert server(directory, "models", "--json").json() == []
    database = Database(load_config(directory).database_url)
    arrays = [*seeded_checkpoint().arrays.values()]
    with database.transaction() as session:
        registry.add_version(session, GgfnFormat(), arrays, at=AT, promoted=True)
        registry.add_version(session, GgfnFormat(), arrays, at=AT, public_error=1.5)
    database.close()
    first, second = server(directory, "models", "--json").rows()
    unjudged = {"gain": None, "gain_error": None}
    assert first == {
        "version": 1,
        "standing": "promoted",
        "promoted": True,
        "public_error": None,
        **unjudged,
        "reason": "the start",
    }
    assert second == {
        "version": 2,
        "standing": "candidate",
        "promoted": False,
        "public_error": 1.5,
        **unjudged,
        "reason": "waits for the next window's reports",
    }
    assert server(directory, "rounds", "--json").json() == []


def test_rollback_rejects_running_version_and_models_table_shows_it(directory: Path) -> None:
    database = Database(load_config(directory).database_url)
    arrays = [*seeded_checkpoint().arrays.values()]
    with database.transaction() as session:
        registry.add_version(session, GgfnFormat(), arrays, at=AT, promoted=True)
    ended = server(directory, "rollback", "slow")
    assert ended.code == 3
    assert "no other version was promoted before it" in ended.complaint()
    with database.transaction() as session:
        registry.add_version(session, GgfnFormat(), arrays, at=AT, public_error=1.5)
        judged = PromotionRecord(
            version=2,
            status=VersionStatus.PROMOTED,
            reason="good",
            gain=0.1,
            gain_error=0.02,
            by_segment={Platform.SPARK: 0.25},
            decided_at=AT,
        )
        registry.decide(session, judged)
    database.close()
    found = server(directory, "models", "--json").rows()[-1]
    assert (found["standing"], found["gain"], found["spark"]) == ("promoted", 0.1, 0.25)
    ended = server(directory, "rollback", "slow", "--json")
    assert ended.json() == {"taken_back": 2, "promoted": 1}
    found = server(directory, "models", "--json").rows()[-1]
    assert (found["standing"], found["reason"]) == ("rejected", "taken back: slow")
    table = server(directory, "models").out
    assert "slow" in table
    assert "+0.100 ± 0.020" in table
    assert "0.250" in table


def test_models_reasons_explain_superseded_and_rolled_back_versions(directory: Path) -> None:
    database = Database(load_config(directory).database_url)
    arrays = [*seeded_checkpoint().arrays.values()]
    with database.transaction() as session:
        for number in range(4):
            registry.add_version(session, GgfnFormat(), arrays, at=AT, promoted=not number)
        registry.decide(
            session,
            PromotionRecord(
                version=3,
                status=VersionStatus.PROMOTED,
                reason="good",
                by_segment={},
                decided_at=AT,
            ),
        )
    database.close()

    def reasons() -> list[object]:
        return [row["reason"] for row in server(directory, "models", "--json").rows()]

    passed_over = "passed over: a later version was promoted"
    waits = "waits for the next window's reports"
    assert reasons() == ["the start", passed_over, "good", waits]
    assert server(directory, "rollback", "slow").code == 0
    goes_with = "goes with version 3, which was taken back"
    assert reasons() == ["the start", goes_with, "taken back: slow", goes_with]


def test_declare_change_starts_drift_regime_at_the_next_window(directory: Path) -> None:
    ended = server(directory, "declare-change", "Spark 4.1", "--platform", "spark")
    assert ended.code == 3
    assert "no model is in force yet" in ended.complaint()
    database = Database(load_config(directory).database_url)
    with database.transaction() as session:
        arrays = [*seeded_checkpoint().arrays.values()]
        registry.add_version(session, GgfnFormat(), arrays, at=AT, promoted=True)
    database.close()
    declared = server(
        directory, "declare-change", "Spark 4.1", "--platform", "Spark", "--json"
    ).json()
    assert isinstance(declared, dict)
    period = load_config(directory).calendar.period
    assert declared == {
        "regime": 2,
        "begins_at": period.window_start(1).isoformat(),
        "cause": "announced",
        "platforms": ["spark"],
        "reference_version": 1,
        "note": "Spark 4.1",
    }
    first, second = server(directory, "regimes", "--json").rows()
    assert (first["regime"], first["begins_at"], second) == (1, None, declared)
    said_again = server(directory, "declare-change", "Spark 4.1", "--platform", "spark", "--json")
    assert said_again.json() == declared
    ended = server(directory, "declare-change", "DuckDB 3", "--platform", "duckdb")
    assert ended.code == 3
    assert "already (announced, platforms: spark, note: 'Spark 4.1')" in ended.complaint()
    assert server(directory, "regimes", "--json").rows() == [first, second]
    ended = server(directory, "declare-change", "x", "--platform", "sparkle")
    assert ended.code == 3
    assert "expected one of duckdb" in ended.complaint()


def test_drifts_command_lists_sizes_and_affected_organizations(directory: Path) -> None:
    assert server(directory, "drifts", "--json").json() == []
    assert server(directory, "drifts").out == "no drift was detected\n"
    join(directory, "Acme")
    (member,) = server(directory, "org", "list", "--json").rows()
    config = load_config(directory)
    database = Database(config.database_url)
    with database.transaction() as session:
        session.add(
            DriftRow(
                number=1,
                period_start=config.calendar.period.start,
                regime_begins_at=AT,
                platform=Platform.SPARK,
                since=4,
                detected_in=5,
                log_factor=0.5,
                standard_error=0.1,
                organizations=(str(member["organization_id"]), "gone"),
                shared=False,
                seen_at=AT,
            )
        )
    database.close()
    (row,) = server(directory, "drifts", "--json").rows()
    assert row == {
        "platform": "spark",
        "since_window": 4,
        "found_in_window": 5,
        "log_factor": 0.5,
        "standard_error": 0.1,
        "shared": False,
        "organizations": ["Acme", "gone"],
    }
    table = server(directory, "drifts").out
    for text in ("+0.50±0.10", "1.65", "Acme", "gone"):
        assert text in table


def join(directory: Path, name: str) -> None:
    """Join as a client does, without the network."""

    def joined(enrollment: Enrollment) -> None:
        url = enrollment.add_organization(name).url
        enrollment.join(bytes.fromhex(url.rsplit(".", 1)[1]), _request(new_private_key()))

    with_enrollment(directory, joined)


def with_enrollment(directory: Path, act: Callable[[Enrollment], object]) -> None:
    config = load_config(directory)
    database = Database(config.database_url)
    try:
        act(Enrollment(database, KeyRing(directory), config, clock=lambda: AT))
    finally:
        database.close()


def declare(config: ServerConfig) -> None:
    """Declare an empty schedule for the only member."""
    database = Database(config.database_url)
    with database.transaction() as session:
        (organization_id,) = session.scalars(select(Member.organization_id))
        declare_schedule(session, organization_id, Schedule(config.calendar, ()), at=AT)
    database.close()


Spoil = Callable[[Path], None]


def config_with(old: str, new: str) -> Spoil:
    def spoil(directory: Path) -> None:
        path = directory / FILE_NAME
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return spoil


def database_is(content: bytes) -> Spoil:

    def spoil(directory: Path) -> None:
        (directory / "coordinator.sqlite").write_bytes(content)

    return spoil


def database_is_lost(directory: Path) -> None:
    for each in directory.glob("coordinator.sqlite*"):
        each.unlink()


def key_is_lost(directory: Path) -> None:
    (directory / "enrollment.pem").unlink()


def nothing(directory: Path) -> None:
    del directory


BAD = {
    "broken TOML": (config_with("[calendar]", "[calendar"), ["rounds"], 3, "not TOML"),
    "unknown key": (config_with("quorum", "qorum"), ["rounds"], 3, "qorum"),
    "quorum 0": (config_with("quorum = 2", "quorum = 0"), ["org", "list"], 3, "quorum"),
    "grace NaN": (config_with("grace_seconds = 300.0", "grace_seconds = nan"), ["run"], 3, "grace"),
    "port taken twice": (config_with("8752", "8751"), ["run"], 3, "must differ"),
    "unreadable database": (database_is(b"hello" * 1000), ["org", "list"], 4, "database"),
    "lost database": (database_is_lost, ["org", "list"], 4, "restore it from a backup"),
    "lost database, to serve": (database_is_lost, ["run"], 4, "restore it from a backup"),
    "a lost key": (key_is_lost, ["org", "add", "X"], 3, "enrollment.pem does not exist; restore"),
    "a word for a moment": (
        nothing,
        ["init", "--host", "h", "--period-start", "tomorrow"],
        3,
        "is not a date such as 2027-01-01",
    ),
    "no platform": (
        nothing,
        ["declare-change", "x", "--platform", "unassigned"],
        3,
        "expected an engine",
    ),
    "no batch": (nothing, ["synthesize"], 3, "no synthetic batch is published yet"),
    "unknown organization": (nothing, ["org", "revoke", "Nobody"], 3, "Nobody"),
}


@pytest.mark.parametrize("case", BAD)
def test_server_command_with_bad_input_prints_one_line_and_loses_no_data(
    case: str, directory: Path
) -> None:
    spoil, command, code, says = BAD[case]
    spoil(directory)
    before = contents(directory)
    ended = server(directory, *command)
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.complaint()
    assert nothing_lost(before, directory)


@pytest.mark.parametrize("command", ["run", "org list", "rounds", "models", "org add X"])
def test_server_command_on_missing_directory_names_init_and_creates_no_files(
    command: str, tmp_path: Path
) -> None:
    ended = server(tmp_path / "missing", *command.split())
    assert ended.code == 3
    assert "fedperf-server init" in ended.complaint()
    assert not (tmp_path / "missing").exists()


def test_server_init_on_unwritable_directory_names_the_directory_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = server(tmp_path / "file" / "server", "init", "--host", "h")
    assert ended.code == 4
    assert "--directory" in ended.complaint()


def test_server_init_with_invalid_host_creates_no_directory(tmp_path: Path) -> None:
    ended = server(tmp_path / "server", "init", "--host", "two words")
    assert ended.code == 3
    assert "host" in ended.complaint()
    assert not any(tmp_path.iterdir())
