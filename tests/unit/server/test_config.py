"""Tests of the server's configuration file."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from fedperf_server.app.process import _log_start
from fedperf_server.config import (
    FILE_NAME,
    ServerConfig,
    load_config,
    write_config,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.period import ModelMethod, default_calendar

START = datetime(2027, 1, 1, tzinfo=UTC)


def config(directory: Path) -> ServerConfig:
    return ServerConfig(directory, "coordinator.example.org", default_calendar(START))


def test_server_config_written_to_file_loads_back_equal(tmp_path: Path) -> None:
    written = replace(config(tmp_path), quorum=3, grace=timedelta(seconds=0.5))
    write_config(written)
    assert load_config(tmp_path) == written
    assert written.database_url == f"sqlite:///{tmp_path / 'coordinator.sqlite'}"
    assert written.fleet_address == "coordinator.example.org:8753"


def test_server_config_resolves_database_path_after_directory_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    write_config(config(Path("here")))
    Path("here").rename("there")
    monkeypatch.chdir("/")
    found = load_config(tmp_path / "there")
    assert found.database_url == f"sqlite:///{tmp_path / 'there' / 'coordinator.sqlite'}"
    elsewhere = replace(config(tmp_path), database_url="sqlite:////srv/other.sqlite")
    write_config(elsewhere)
    assert load_config(tmp_path).database_url == elsewhere.database_url


@pytest.mark.parametrize("method", ModelMethod)
def test_server_config_reads_model_method_and_refuses_other_types(
    tmp_path: Path, method: ModelMethod
) -> None:
    table = replace(default_calendar(START), model_method=method)
    path = write_config(replace(config(tmp_path), calendar=table))
    assert load_config(tmp_path).calendar.model_method is method
    path.write_text(re.sub("(?m)^model_method.*$", "", path.read_text()))
    assert load_config(tmp_path).calendar.model_method is ModelMethod.TANGENT
    for wrong in ("1", "[]", "true"):
        path.write_text(write_config(config(tmp_path)).read_text().replace('"tangent"', wrong))
        with pytest.raises(ConfigurationError, match="model_method: must be"):
            load_config(tmp_path)


def test_default_calendar_report_slots_open_after_previous_slot_replies() -> None:
    slots = default_calendar(START).report_slots
    assert len(slots) == 3
    for before, after in pairwise(slots):
        assert before.replies_after < after.opens_after


def test_server_config_reports_all_problems_at_once_with_their_keys(tmp_path: Path) -> None:
    path = write_config(config(tmp_path))
    text = path.read_text()
    for right, wrong in (
        ("quorum = 2", "quorum = 0"),
        ("exchange_port = 8751", "exchange_port = 'x'"),
        ("fleet_port = 8753", "fleet_port = 8752\nflet_port = 1"),
        ("windows = 13", "windows = 0\nwindow = 1"),
        ('model_method = "tangent"', 'model_method = "sgd"'),
    ):
        assert right in text
        text = text.replace(right, wrong)
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refusal:
        load_config(tmp_path)
    for key in (
        "quorum must be at least 1",
        "exchange_port: must be a whole number",
        'flet_port: unknown key; did you mean "fleet_port"?',
        "must differ",
        'calendar.window: unknown key; did you mean "windows"?',
        "windows must be 1 to",
        "calendar.model_method: must be \"tangent\", got 'sgd'",
    ):
        assert key in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_server_config_missing_or_broken_file_raises_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="fedperf-server init"):
        load_config(tmp_path)
    (tmp_path / FILE_NAME).write_text("host = ")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        load_config(tmp_path)
    (tmp_path / FILE_NAME).write_text('host = "x"')
    with pytest.raises(ConfigurationError, match="calendar must be a table"):
        load_config(tmp_path)


@pytest.mark.parametrize("slot", ["{}", "1", "{opens_after_seconds = 2}", "{replies = 1}"])
def test_server_config_slot_without_both_times_is_refused(tmp_path: Path, slot: str) -> None:
    (tmp_path / FILE_NAME).write_text(
        f'host = "x"\n[calendar]\nperiod_start = 2027-01-01T00:00:00Z\nreport_slots = [{slot}]'
    )
    with pytest.raises(ConfigurationError, match=r"calendar\.report_slots, slot 1: "):
        load_config(tmp_path)


@pytest.mark.parametrize("host", ["", "a b", "https://x"])
def test_server_config_host_must_be_a_name_or_an_address(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigurationError, match="host must be"):
        replace(config(tmp_path), host=host)


def test_server_config_of_dp_sgd_server_loads_and_logs_a_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file contains the norm bound of DP-SGD updates and may name the method."""
    said = []
    for method in ("tangent", "dp_sgd"):
        path = write_config(config(tmp_path))
        text = path.read_text().replace("quorum = 2", "quorum = 2\nupdate_norm_bound = 10.0")
        path.write_text(text.replace('model_method = "tangent"', f'model_method = "{method}"'))
        opened = load_config(tmp_path)
        write_config(opened)
        assert load_config(tmp_path) == opened
        _log_start(opened, at=START)
        said.append(capsys.readouterr().out.splitlines())
    assert opened.calendar == replace(default_calendar(START), model_method=ModelMethod.UNSPECIFIED)
    assert (len(said[0]), len(said[1])) == (1, 2)
    assert "DP-SGD" in said[1][1]


def test_server_config_deprecated_keys_load_with_one_warning_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(config(tmp_path))
    text = path.read_text()
    old = text.replace("[calendar]", "[timetable]").replace("extra_round_windows", "extra_windows")
    path.write_text(old)
    for _ in range(2):
        assert load_config(tmp_path) == config(tmp_path)
    assert [each.split('"')[1::2] for each in capsys.readouterr().err.splitlines()] == [
        ["timetable", "calendar"],
        ["extra_windows", "extra_round_windows"],
    ]
    path.write_text(f"{text}\n[timetable]\n")
    with pytest.raises(ConfigurationError, match="timetable: unknown key"):
        load_config(tmp_path)
