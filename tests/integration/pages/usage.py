"""Checks of a command line against the programs' options, without running it."""

from collections.abc import Mapping
from functools import cache

import typer
from click import BadOptionUsage, Command, Context, Group, MissingParameter

from fedperf_client.cli import app as fedperf
from fedperf_server.cli import app as fedperf_server
from fedperf_simulations.cli import app as fedperf_sim
from tests.pages import CommandLine

APPS: Mapping[str, typer.Typer] = {
    "fedperf": fedperf,
    "fedperf-server": fedperf_server,
    "fedperf-sim": fedperf_sim,
}
_command_of = cache(typer.main.get_command)


def called(line: CommandLine) -> tuple[Command, list[str]]:
    """Return the command that a line calls, and the remaining words.

    Raises:
        KeyError: The program or the command does not exist.
    """
    program, *words = line.words
    command = _command_of(APPS[program])
    while isinstance(command, Group) and words and not words[0].startswith("-"):
        found = command.get_command(Context(command), words[0])
        if found is None:
            raise KeyError(words[0])
        command, words = found, words[1:]
    return command, words


def is_name(line: CommandLine) -> bool:
    """Return True if a line only names a command."""
    return line.words[0] in APPS and not called(line)[1]


def is_whole(line: CommandLine) -> bool:
    """Return True if a line has all arguments that its command needs.

    Raises:
        click.UsageError: The command rejects the line.
    """
    if line.words[0] not in APPS:
        return True
    command, words = called(line)
    try:
        command.make_context(command.name, words)
    except (MissingParameter, BadOptionUsage):
        return False
    return True
