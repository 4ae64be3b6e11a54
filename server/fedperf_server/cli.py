"""The command line of the coordinator's operator: `fedperf-server`.

Puts together what is in `commands`, in the order of the help. Nothing heavy is imported
before a command needs it, so that help answers at once.
"""

from pathlib import Path
from typing import Annotated

import typer

from fedperf_server.commands import (
    calendar,
    epochs,
    models,
    organizations,
    service,
)
from fedperf_shared.runtime import command_line

app = typer.Typer(
    name="fedperf-server",
    help="Coordinate organizations that learn one cost model together.",
    cls=command_line.ProgramCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: "
    + "; ".join(f"{code} {text}" for code, text in command_line.EXIT_CODES.items()),
)
app.command()(service.init)
app.command()(calendar.calendar)
app.command("add-org")(organizations.add_org)
app.command("list")(organizations.list_organizations)
app.command()(organizations.revoke)
app.command()(models.rounds)
app.command()(models.models)
app.command()(models.rollback)
app.command("epochs")(epochs.list_epochs)
app.command("drifts")(epochs.list_drifts)
app.command()(epochs.announce)
app.command()(models.synthesize)
app.command()(service.run)


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
