"""Tests that `--help` prints all declared texts of commands and parameters."""

import re
from collections.abc import Iterator
from typing import get_args, get_type_hints

import pytest
import typer
from click import Command, Context, Group
from typer.models import ArgumentInfo, OptionInfo

from tests.integration.pages.usage import APPS
from tests.unit.shared.console_programs import run

BORDERS = str.maketrans(dict.fromkeys("│╭╮╰╯─", " "))


def pattern_of(text: str) -> re.Pattern[str]:
    """Return a pattern of the words in order.

    A fold may put words of the neighbouring column between two of them.
    """
    words = text.replace("\\[", "[").split()
    return re.compile(r" (?:\S+ ){0,2}?".join(map(re.escape, words)))


def declared_in(command: Command) -> Iterator[str]:
    """Yield the help texts that the functions of a program declare for their parameters."""
    if command.callback is None:
        return
    for hint in get_type_hints(command.callback, include_extras=True).values():
        for each in get_args(hint):
            if isinstance(each, ArgumentInfo | OptionInfo) and each.help and not each.hidden:
                yield each.help


def every_command(
    group: Group, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Yield a program, its groups and its commands with the words that call each."""
    yield words, group
    for name in group.list_commands(Context(group)):
        command = group.get_command(Context(group), name)
        assert command is not None
        if isinstance(command, Group):
            yield from every_command(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = [
    (program, words, command)
    for program, app in APPS.items()
    for words, command in every_command(typer.main.get_group(app), ())
]


def text_of(program: str, *words: str) -> str:
    ended = run(APPS[program], *words, "--help")
    assert ended.code == 0
    return " ".join(ended.out.translate(BORDERS).split())


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize(("program", "words", "command"), COMMANDS, ids=str)
def test_command_help_prints_all_declared_texts(
    program: str,
    words: tuple[str, ...],
    command: Command,
    columns: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = text_of(program, *words)
    declared = [*declared_in(command), *(command.help or "").split("\n\n")]
    assert [each for each in declared if not pattern_of(each).search(shown)] == []


def test_programs_declare_over_100_parameter_help_texts() -> None:
    assert len(COMMANDS) > 50
    assert sum(len([*declared_in(command)]) for _, _, command in COMMANDS) > 100
