"""The parts that all commands of `fedperf` share, and the commands that other packages register.

The core imports no annex. An annex, or a third-party package, registers a function as a
command in the entry points `fedperf.commands`, and the predictions of campaigns in
`fedperf.campaigns`, with those of jobs of tables.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from click import Command, Parameter, ParamType

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.runtime.addresses import Address, parse_place
from fedperf_shared.runtime.command_line import ProgramCommands

if TYPE_CHECKING:
    from click import Context

    from fedperf_client.home.config import Home

COMMANDS = "fedperf.commands"
CAMPAIGNS = "fedperf.campaigns"

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class LocalPath(ParamType[Path]):
    """A path on this machine. A URL is refused before a `Path` could mangle it."""

    name = "path"

    def convert(self, value: object, param: Parameter | None, ctx: "Context | None") -> Path:
        """Return the path, with the errors of `local_path`."""
        from fedperf_client.sources import local_path

        return local_path(str(value))


# What `SourceParameter` returns. Typer reads no unions, and would make a `Path` of its value.
if TYPE_CHECKING:
    NamedPlace = Path | Address
else:
    NamedPlace = Address


class SourceParameter(ParamType[Path | Address]):
    """A path on this machine, or the address of a place on another one that sources read."""

    name = "path"

    def convert(
        self, value: object, param: Parameter | None, ctx: "Context | None"
    ) -> "Path | Address":
        """Return the path or address, with the errors of `parse_place`."""
        return parse_place(str(value))


class AnnexCommands(ProgramCommands):
    """The commands of the core, and those of annexes, which are imported when needed."""

    def list_commands(self, ctx: "Context") -> list[str]:
        """Return the names of all commands, the core's first."""
        from importlib.metadata import entry_points

        core = super().list_commands(ctx)
        return [*core, *sorted(entry_points(group=COMMANDS).names - set(core))]

    def get_command(self, ctx: "Context", cmd_name: str) -> Command | None:
        """Return the command of that name, None if there is none."""
        if cmd_name not in self.commands:
            from importlib.metadata import entry_points

            for each in entry_points(group=COMMANDS, name=cmd_name):
                annex = typer.Typer(add_completion=False)
                annex.command(cmd_name, rich_help_panel="More commands")(each.load())
                self.commands[cmd_name] = typer.main.get_command(annex)
        return super().get_command(ctx, cmd_name)


def load_function(group: str, name: str) -> Callable[..., Any]:
    """Return the function that an annex registers under a name.

    Raises:
        ConfigurationError: no installed package registers it.
    """
    from importlib.metadata import entry_points

    for each in entry_points(group=group, name=name):
        function: Callable[..., Any] = each.load()
        return function
    raise ConfigurationError(f"no installed package registers {name} of {group}; reinstall fedperf")


def default_home() -> Path:
    """Return the data directory of FEDPERF_HOME, or of the user."""
    import platformdirs

    return Path(os.environ.get("FEDPERF_HOME") or platformdirs.user_data_dir("fedperf"))


def home_of(context: typer.Context, *, must_exist: bool = True) -> "Home":
    """Return the data directory. Its configuration is checked unless it may be missing."""
    from fedperf_client.home.config import Home

    home = Home(context.obj or default_home())
    if must_exist:
        home.load_config()
    return home


def now() -> datetime:
    """Return the current time, with time zone."""
    return datetime.now(UTC)
