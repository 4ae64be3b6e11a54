"""`fedperf simulate`: invalid input is refused in one line before the simulation starts."""

from pathlib import Path

import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.release.policy import policy_template
from fedperf_shared.releases.release import SizeClass
from tests.unit.shared.console_programs import Ended, contents, run


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.create(policy_template(SizeClass.SMALL, 200))
    return found


def simulate(home: Home, *options: object) -> Ended:
    return run(cli.main, "--home", home.directory, "simulate", *options)


def test_simulate_with_missing_or_invalid_calendar_names_it(home: Home, tmp_path: Path) -> None:
    missing = simulate(home, "--calendar", tmp_path / "next.toml")
    assert missing.code == 3
    assert "next.toml cannot be read" in missing.complaint()
    (tmp_path / "next.toml").write_text("windows = 3\n")
    wrong = simulate(home, "--calendar", tmp_path / "next.toml")
    assert "calendar must be a table with period_start" in wrong.complaint()


@pytest.mark.parametrize(
    ("option", "value"), [("--joining-day", "yesterday"), ("--plot", "year.png")]
)
def test_simulate_wrong_value_is_refused_before_anything_is_read(
    home: Home, option: str, value: str
) -> None:
    ended = simulate(home, option, value)
    assert ended.code == 3
    assert value in ended.complaint()


def test_simulate_with_invalid_policy_or_missing_directory_changes_no_file(
    home: Home, tmp_path: Path
) -> None:
    home.policy.write_text('size_class = "huge"\n')
    before = contents(home.directory)
    assert "size_class: must be" in simulate(home).complaint()
    assert contents(home.directory) == before
    nowhere = Home(tmp_path / "nowhere")
    assert "fedperf init" in simulate(nowhere).complaint()
    assert not nowhere.directory.exists()
