"""Settings that people write: a TOML file that is read whole, every problem named at once.

What the keys mean is the business of whoever reads them. Refused: a file that is missing,
cannot be read or is not TOML, and any problem that the reader finds.
"""

import tomllib
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path

from fedperf_shared.errors import ConfigurationError


class WrongSettingsError(ConfigurationError):
    """A file holds settings that are missing, unknown or wrong."""

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        super().__init__(f"{name}: {'; '.join(problems)}")
        self.problems = tuple(problems)


def unknown_key(key: str, known: Collection[str]) -> str:
    """What is wrong with a key that nobody reads: which one may be meant, in whatever table."""
    by_end = {each.rpartition(".")[2]: each for each in known}
    near = get_close_matches(key.rpartition(".")[2], by_end, n=1)
    meant = f'did you mean "{by_end[near[0]]}"?' if near else f"known are {', '.join(known)}"
    return f"unknown key; {meant}"


def read_settings(path: Path, *, name: str | None = None, absent: str = "") -> dict[str, object]:
    """The table in a TOML file.

    Args:
        path: of the file.
        name: of the file in messages; its path by default.
        absent: what to do where there is no file.

    Raises:
        ConfigurationError: no such file, unreadable, or not TOML; the message says where.
    """
    name = name or str(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{name} is not TOML: {error}") from error
    except OSError as error:
        if absent and isinstance(error, FileNotFoundError):
            raise ConfigurationError(f"{name} does not exist; {absent}") from None
        raise ConfigurationError(f"{name} cannot be read: {error.strerror}") from error
