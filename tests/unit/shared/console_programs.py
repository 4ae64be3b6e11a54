"""Run a program in this process as its console script would, and return the result."""

import contextlib
import io
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson
import pytest
from click import Command, Context, Group
from typer.main import get_command

from fedperf_shared.runtime.command_line import JSON_SCHEMA


@dataclass(frozen=True)
class Ended:
    """Exit code and printed output of a program."""

    code: int
    out: str
    err: str

    def json(self) -> object:
        """Return the `--json` facts without the schema number, or the rows if they are alone."""
        found = orjson.loads(self.out)
        assert found.pop("schema") == JSON_SCHEMA
        return found["rows"] if set(found) == {"rows"} else found

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of a command that prints several."""
        found = self.json()
        assert isinstance(found, list)
        return found

    def complaint(self) -> str:
        """Return the only line on standard error, which must be an error."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0]


_built = cache(get_command)
"""Builds the commands of a program from its functions once."""


def run(main: Callable[[], None], *arguments: object) -> Ended:
    """Call a console script's entry point with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
        _signals_kept(),
    ):
        patch.setattr(sys, "argv", ["program", *map(str, arguments)])
        patch.setattr("typer.main.get_command", _built)
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        else:
            code = 0
    return Ended(code, out.getvalue(), err.getvalue())


def commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    """Yield every command below this one with the words that call it."""
    if isinstance(command, Group):
        context = Context(command)
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None
            yield from commands(each, (*path, name))
    else:
        yield " ".join(path), command


def contents(directory: Path) -> Mapping[Path, bytes]:
    """Return the bytes of every file below the directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def nothing_lost(before: Mapping[Path, bytes], directory: Path) -> bool:
    """Return True if every earlier file is unchanged. New files are allowed."""
    after = contents(directory)
    return all(after.get(path) == content for path, content in before.items())


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
