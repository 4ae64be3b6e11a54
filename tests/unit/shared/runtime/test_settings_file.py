from pathlib import Path

import pytest

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.runtime.settings_file import WrongSettingsError, read_settings


def test_read_settings_returns_the_toml_content_as_a_table(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('size = 3\n[deep]\nname = "ä"\n', encoding="utf-8")
    assert read_settings(path) == {"size": 3, "deep": {"name": "ä"}}


@pytest.mark.parametrize("content", [b"size = [", b"\xff\xfe"])
def test_read_settings_of_invalid_toml_is_refused_with_the_file_name(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"settings\.toml is not TOML: "):
        read_settings(path)
    with pytest.raises(ConfigurationError, match="the settings is not TOML: "):
        read_settings(path, name="the settings")


def test_read_settings_of_missing_or_unreadable_file_is_refused_with_advice(tmp_path: Path) -> None:
    missing = tmp_path / "settings.toml"
    with pytest.raises(ConfigurationError, match=r"does not exist; run: something$"):
        read_settings(missing, absent="run: something")
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_settings(missing)
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        read_settings(tmp_path, absent="run: something")


def test_wrong_settings_error_lists_every_problem_in_one_line() -> None:
    error = WrongSettingsError("file", ["one", "two"])
    assert str(error) == "file: one; two"
    assert error.problems == ("one", "two")
