"""`fedperf diagnose`: from a log to findings in one command, without a home."""

from pathlib import Path

from fedperf_client import cli
from tests.fakes.measured_logs import FakeTask, log_of
from tests.unit.shared.console_programs import Ended, run

SKEWED = [*[FakeTask(1000, 3000, fetched=2**20)] * 7, FakeTask(1000, 11_000, fetched=2**26)]


def diagnose(*arguments: object) -> Ended:
    return run(cli.main, "diagnose", *arguments)


def test_a_directory_of_logs_is_enough(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    log_of(SKEWED).write(logs / "app-1")
    (logs / "notes.txt").write_text("no log")
    ended = diagnose(logs)
    assert ended.code == 0
    assert "1. skew, stage 0: at most 7 s of 10 s, 56 core-seconds" in ended.out
    assert "the longest of 8 tasks took 10 s, the median 2 s" in ended.out
    assert "--conf spark.sql.adaptive.skewJoin.enabled=true" in ended.out
    assert "1 jobs in 1 logs, 1 with findings" in ended.out


def test_prices_turn_core_seconds_into_money(tmp_path: Path) -> None:
    log = log_of(SKEWED).write(tmp_path / "app-1")
    prices = tmp_path / "prices.toml"
    prices.write_text("core = 3600")
    found = diagnose(log, "--prices", prices, "--json").json()
    assert isinstance(found, dict)
    (job,) = found["diagnoses"]
    assert job["cost"] == 80.0
    assert job["findings"][0]["cost_at_most"] == 56.0
    assert job["findings"][0]["figures"]["longest_seconds"] == 10.0


def test_what_is_no_log_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no log")
    for named, told in (("notes.txt", "not a Spark event log"), ("none", "no such file")):
        ended = diagnose(tmp_path / named)
        assert ended.code == 3
        assert told in ended.complaint()


def test_a_text_of_a_log_commands_no_terminal(tmp_path: Path) -> None:
    log = log_of(SKEWED)
    log.app_name = "x"
    for event in log.events:
        if "description" in event:
            event["description"] = "\x1b[31mred"
    assert "\x1b" not in diagnose(log.write(tmp_path / "app-1")).out
