"""The program `fedperf-server`, the command line of the coordinator's operator.

This module assembles the commands of `commands` in the order of the help. Heavy libraries are
imported only by the commands that need them, so that help is printed at once.
"""

from pathlib import Path
from typing import Annotated

import typer

from fedperf_server.commands import learning, organizations, server
from fedperf_shared.runtime import command_line

app = typer.Typer(
    name="fedperf-server",
    help="Coordinate organizations that learn one cost model together.",
    cls=command_line.ProgramCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: "
    + "; ".join(f"{code} {text}" for code, text in command_line.EXIT_CODES.items()),
)
app.command()(server.init)
app.command()(server.calendar)
app.add_typer(organizations.app, name="org")
app.command()(learning.rounds)
app.command()(learning.models)
app.command()(learning.rollback)
app.command()(learning.regimes)
app.command()(learning.drifts)
app.command("declare-change")(learning.declare_change)
app.command()(learning.synthesize)
app.command()(server.run)


def main() -> None:
    """Entry point of the console script."""
    command_line.run(app, extra="server")


@app.callback()
def options(
    context: typer.Context,
    directory: Annotated[
        Path,
        typer.Option(
            help="Directory of keys, configuration and database.", envvar="FEDPERF_SERVER_DIRECTORY"
        ),
    ] = Path("fedperf-server"),
    version: command_line.Version = False,
) -> None:
    """Read the options that every command has."""
    del version  # it has ended the program
    context.obj = directory
