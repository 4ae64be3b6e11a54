"""`fedperf diagnose`: findings from event logs, without a data directory."""

from pathlib import Path

import pytest
import zstandard

from fedperf_client import cli
from fedperf_client.commands.diagnose import MOST_NOTES
from fedperf_client.sources.spark.reader import ONLY_A_COMMAND
from tests.fakes.measured_logs import FakeTask, log_of
from tests.fakes.spark_logs import node
from tests.pages import ENGINEER
from tests.public_data import public_data
from tests.unit.client.data_directories import fedperf, made_home
from tests.unit.shared.console_programs import Ended, run

SKEWED = [*[FakeTask(1000, 3000, fetched=2**20)] * 7, FakeTask(1000, 11_000, fetched=2**26)]


def diagnose(*arguments: object) -> Ended:
    return run(cli.main, "diagnose", *arguments)


def test_diagnose_directory_of_logs_reports_findings_and_unread_files(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    log_of(SKEWED).write(logs / "app-1")
    (logs / "notes.txt").write_text("no log")
    ended = diagnose(logs)
    assert ended.code == 0
    assert "1. skew, stage 0: at most 7 s of 10 s, 56 core-seconds" in ended.out
    assert "the longest of 8 tasks took 10 s, the median 2 s" in ended.out
    assert "--conf spark.sql.adaptive.skewJoin.enabled=true" in ended.out
    assert "1 finished job in 1 log, 1 with findings" in ended.out
    assert "1 of 1 shown, largest potential saving in core-seconds first. " in ended.out
    assert f"not read: {logs / 'notes.txt'}: not a Spark event log" in ended.out


def test_diagnose_with_prices_converts_core_seconds_to_cost(tmp_path: Path) -> None:
    log = log_of(SKEWED).write(tmp_path / "app-1")
    prices = tmp_path / "prices.toml"
    prices.write_text("core = 3600")
    found = diagnose(log, "--prices", prices, "--json").json()
    assert isinstance(found, dict)
    (job,) = found["diagnoses"]
    assert job["cost"] == 80.0
    assert job["findings"][0]["cost_at_most"] == 56.0
    assert job["findings"][0]["figures"]["longest_seconds"] == 10.0


def test_diagnose_with_invalid_or_missing_log_fails_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no log")
    for named, told in (("notes.txt", "not a Spark event log"), ("none", "no such file")):
        ended = diagnose(tmp_path / named)
        assert ended.code == 3
        assert told in ended.complaint()


def test_diagnose_top_counts_omitted_findings(tmp_path: Path) -> None:
    logs = [log_of(SKEWED).write(tmp_path / f"app-{number}") for number in range(3)]
    ended = diagnose(*logs, "--top", 2)
    assert "2 of 3 shown, largest potential saving in core-seconds first (--top shows" in ended.out


def test_diagnose_counts_jobs_without_tasks_separately(tmp_path: Path) -> None:
    log = log_of(SKEWED)
    log.start(5, node("Execute CreateTable")).finish(5)
    log.write(tmp_path / "app-1")
    assert "2 finished jobs in 1 log, 1 without a task" in diagnose(tmp_path).out
    found = diagnose(tmp_path, "--json").json()
    assert isinstance(found, dict)
    assert (found["jobs"], found["without_tasks"]) == (2, 1)


@pytest.mark.slow
def test_diagnose_and_ingest_counts_agree_and_match_the_engineer_page(
    tmp_path: Path,
) -> None:
    logs = public_data("spark-eventlogs") / "spark-eventlogs" / "qualification"
    found = diagnose(logs, "--json").json()
    taken = fedperf(made_home(tmp_path / "home"), "ingest", logs, "--jobs", 1, "--json").json()
    assert isinstance(found, dict)
    assert isinstance(taken, dict)
    skipped = taken["skipped"]
    commands, unknown = skipped[ONLY_A_COMMAND], skipped["no executor is known for its time"]
    assert found["jobs"] == taken["read"] + commands + unknown
    page = ENGINEER.read_text(encoding="utf-8")
    assert (
        f"`diagnose` counts {found['jobs']} jobs and `ingest` reads {taken['read']} executions, "
        f"{taken['new']} of them new" in page
    )
    assert f"{commands} commands" in page


@pytest.mark.slow
def test_commands_on_directory_without_readable_logs_fail_in_one_line(tmp_path: Path) -> None:
    home = made_home(tmp_path / "home")
    for name in ("none", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "driverlog").write_text("no log")
    (tmp_path / "other" / "new.zstd").write_bytes(b"")
    for command in ("diagnose", "ingest", "advise"):
        for name in ("none", "other"):
            ended = fedperf(home, command, tmp_path / name)
            assert (ended.code, ended.out) == (3, "")
            assert str(tmp_path / name) in ended.complaint()
    assert "nothing there can be read: there is no file" in diagnose(tmp_path / "none").complaint()
    said = diagnose(tmp_path / "other").complaint()
    assert "driverlog: not a Spark event log; " in said
    assert "new.zstd: empty, so nothing can be read; copy it again" in said


def test_diagnose_limits_notes_and_counts_the_rest(tmp_path: Path) -> None:
    log_of(SKEWED).write(tmp_path / "app-1")
    for number in range(MOST_NOTES + 3):
        (tmp_path / f"notes-{number}").write_text("no log")
    ended = diagnose(tmp_path)
    assert ended.out.count("not read: ") == MOST_NOTES
    assert f"{MOST_NOTES} of {MOST_NOTES + 3} notes shown; --json" in ended.out


def test_diagnose_truncated_log_is_marked_read_in_part(tmp_path: Path) -> None:
    packed = zstandard.compress(log_of(SKEWED).bytes()) + zstandard.compress(b"x" * 999)[:-9]
    (tmp_path / "app-1").write_bytes(packed)
    out = diagnose(tmp_path).out
    assert "1 finished job in 1 log" in out
    assert (
        "read in part: app-1: cut off in the middle of compressed bytes, read up to there; " in out
    )


def test_diagnose_top_below_one_is_refused(tmp_path: Path) -> None:
    log = log_of(SKEWED).write(tmp_path / "app-1")
    ended = diagnose(log, "--top", 0)
    assert (ended.code, ended.complaint()) == (
        3,
        "error: Invalid value for '--top': 0 is not in the range x>=1.",
    )


def test_diagnose_removes_terminal_escapes_from_log_text(tmp_path: Path) -> None:
    log = log_of(SKEWED)
    log.app_name = "x"
    for event in log.events:
        if "description" in event:
            event["description"] = "\x1b[31mred"
    assert "\x1b" not in diagnose(log.write(tmp_path / "app-1")).out


def test_diagnose_out_writes_a_page_that_names_or_leaves_out_what_is_private(
    tmp_path: Path,
) -> None:
    slow = [FakeTask(1000, 3000, executor="0")] * 6 + [FakeTask(1000, 9000, executor="1")] * 6
    log, page = log_of(slow).write(tmp_path / "app-secret"), tmp_path / "report.html"
    private = ("app-secret", "the nightly sum", "host-1", "nightly.example")
    ended = diagnose(log, "--out", page)
    assert ended.code == 0
    text = page.read_text()
    assert "slow executor" in text
    assert "Private names on this page" in text
    assert all(each in text for each in private[:3])
    assert "http" not in text  # nothing is loaded
    assert page.stat().st_mode & 0o077 == 0
    assert diagnose(log, "--out", page, "--no-names").code == 0
    text = page.read_text()
    assert "slow executor" in text
    assert not any(each in text for each in private)


def test_diagnose_out_refuses_other_files_and_no_names_without_a_page(tmp_path: Path) -> None:
    log = log_of(SKEWED).write(tmp_path / "app-1")
    ended = diagnose(log, "--out", tmp_path / "report.pdf")
    assert ended.code == 3
    assert "Use --out NAME.html" in ended.complaint()
    assert not (tmp_path / "report.pdf").exists()
    ended = diagnose(log, "--no-names")
    assert ended.code == 3
    assert "--out NAME.html" in ended.complaint()
