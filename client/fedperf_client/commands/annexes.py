"""Commands and answers that other packages add to `fedperf`, by entry points.

The core knows no annex by name. An annex, or a package of somebody else, registers a function as a
command in the group `fedperf.commands`, and what answers about campaigns in `fedperf.campaigns`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer
from click import Command

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.runtime.command_line import ProgramCommands

if TYPE_CHECKING:
    from click import Context

COMMANDS = "fedperf.commands"
CAMPAIGNS = "fedperf.campaigns"


class MissingAnnexError(ConfigurationError):
    """No installed package registers what was asked for."""


class AnnexCommands(ProgramCommands):
    """The core's commands, and those that annexes register; these are loaded when asked for."""

    def list_commands(self, ctx: "Context") -> list[str]:
        """Return the names of all commands, the core's first."""
        from importlib.metadata import entry_points

        own = super().list_commands(ctx)
        return [*own, *sorted(entry_points(group=COMMANDS).names - set(own))]

    def get_command(self, ctx: "Context", cmd_name: str) -> Command | None:
        """Return the command of that name; None where there is none."""
        if cmd_name not in self.commands:
            from importlib.metadata import entry_points

            for each in entry_points(group=COMMANDS, name=cmd_name):
                alone = typer.Typer(add_completion=False)
                alone.command(cmd_name)(each.load())
                self.commands[cmd_name] = typer.main.get_command(alone)
        return super().get_command(ctx, cmd_name)


def function_of(group: str, name: str) -> Callable[..., Any]:
    """Load what an annex registers under a name.

    Raises:
        MissingAnnexError: nothing is registered.
    """
    from importlib.metadata import entry_points

    for each in entry_points(group=group, name=name):
        loaded: Callable[..., Any] = each.load()
        return loaded
    raise MissingAnnexError(f"no installed package answers about {group} {name}; reinstall fedperf")
