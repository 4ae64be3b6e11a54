"""The data directory of an organization and its configuration file."""

import stat
from pathlib import Path

import pytest

from fedperf_client.home.config import Home, write_private
from fedperf_shared.errors import ConfigurationError, StorageError


def test_new_data_directory_is_accessible_by_its_owner_only(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    home.create("policy")
    assert stat.S_IMODE(home.directory.stat().st_mode) == 0o700
    for path in (home.config, home.policy):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert home.load_config().watch_paths == ()


def test_create_on_existing_data_directory_keeps_its_policy(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.policy.write_text("mine")
    home.create("theirs")
    assert home.policy.read_text() == "mine"


def test_relative_watch_paths_resolve_against_the_data_directory(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.write_text('watch_paths = ["jobs", "/var/jobs", "~/jobs"]')
    assert home.load_config().watch_paths == (
        tmp_path / "jobs",
        Path("/var/jobs"),
        Path.home() / "jobs",
    )


def test_load_config_reports_all_problems_at_once_with_their_keys(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.write_text('poll_seconds = nan\nwatch_paths = 3\nunknown = "x"')
    with pytest.raises(ConfigurationError) as caught:
        home.load_config()
    for key in ("poll_seconds", "watch_paths", "unknown", str(home.config)):
        assert key in str(caught.value)


def test_ledgers_are_ordered_oldest_first(tmp_path: Path) -> None:
    for name in ("ledger-20280101T000000.sqlite", "ledger-20270101T000000.sqlite"):
        (tmp_path / name).touch()
    assert [path.name for path in Home(tmp_path).ledgers] == [
        "ledger-20270101T000000.sqlite",
        "ledger-20280101T000000.sqlite",
    ]


def test_create_of_impossible_data_directory_raises_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="--home"):
        Home(tmp_path / "file" / "home").create("policy")


def test_write_private_replaces_file_atomically_with_mode_600(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_private(path, b"old")
    with path.open("rb") as reader:
        write_private(path, b"new and longer")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_old_config_key_is_read_with_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path)
    home.config.write_text('history = ["jobs"]')
    for _ in range(2):
        assert home.load_config().watch_paths == (tmp_path / "jobs",)
    (warning,) = capsys.readouterr().err.splitlines()
    assert '"watch_paths"' in warning
    home.config.write_text('history = ["jobs"]\nwatch_paths = ["jobs"]')
    with pytest.raises(ConfigurationError, match="history: unknown key"):
        home.load_config()
