"""`fedperf simulate`: the own year before joining; `fedperf-sim` lives it in its own process."""

import os
import shutil
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from fedperf_client.commands.home_option import Json, home_of
from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.programs.command_line import MomentParameter

_PROGRAM = "fedperf-sim"
_SECOND = "%Y-%m-%dT%H:%M:%S"


class NoSimulationsError(ConfigurationError):
    """The program that lives a year in memory is not installed here."""

    def __init__(self) -> None:
        super().__init__(
            f"a simulation needs the program {_PROGRAM}, which is not here; install the whole of "
            "fedperf (see README.md), on any machine to which this home is copied"
        )


def simulate(
    context: typer.Context,
    joining_day: Annotated[
        datetime | None,
        typer.Option(
            click_type=MomentParameter(),
            metavar="TIME",
            help="When you join (UTC); now by default.",
        ),
    ] = None,
    calendar: Annotated[
        Path | None,
        typer.Option(
            help="Of the coordinator, as its operator wrote it: fedperf-server calendar --out FILE."
        ),
    ] = None,
    members: Annotated[int, typer.Option(min=0, max=20, help="Stand-ins that take part.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Write a page about it: a .html file.")] = None,
    json: Json = False,
) -> None:
    """Simulate your own year before you join: dates, what leaves, and what it would bring.

    Your executions and your policy live a period in memory, with stand-ins for other members.
    Nothing leaves this machine and the home stays as it is. Dates and charges are those that the
    daemon will have. Without --calendar it is the joined coordinator's, else the default one.
    """
    if plot is not None and plot.suffix.lower() != ".html":
        raise InvalidInputError(f"--plot writes a .html file, got {plot}")
    program = _program()
    options: dict[str, object] = {"--members": members, "--seed": seed}
    if joining_day is not None:
        options["--joining-day"] = f"{joining_day:{_SECOND}}"
    if calendar is not None:
        options["--calendar"] = calendar
    if plot is not None:
        options["--plot"] = plot
    given = [str(part) for option in options.items() for part in option]
    command = [program, "rehearse", str(home_of(context).directory), *given, *["--json"] * json]
    with subprocess.Popen(command, process_group=0) as simulation:
        # In a group of its own it is told to end once, by what is passed on here.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda which, _: simulation.send_signal(which))
        code = simulation.wait()
    if code:
        raise typer.Exit(code)


def _program() -> str:
    """Where it is: on the path, or beside the Python that runs."""
    places = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    found = shutil.which(_PROGRAM, path=os.pathsep.join(places))
    if found is None:
        raise NoSimulationsError
    return found
