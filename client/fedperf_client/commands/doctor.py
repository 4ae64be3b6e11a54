"""`fedperf doctor`: what is wrong with this organization's set-up, and what to do about it."""

from dataclasses import asdict

import typer

from fedperf_client.commands.home_option import Json, home_of, now
from fedperf_shared.runtime.command_line import show_rows, visible

PROBLEMS_FOUND = 3


def doctor(context: typer.Context, json: Json = False) -> None:
    """Check directories, settings, budget, certificates, coordinator, disk and versions.

    Every finding is ok, a warning or a problem, with what to do. Ends with 3 where there is a
    problem. Asks nobody but the coordinator that was joined.
    """
    from fedperf_client.commands.checks import examine
    from fedperf_client.commands.findings import Severity, surroundings

    found = examine(home_of(context, must_exist=False), surroundings(now))
    if json:
        show_rows([asdict(each) for each in found], json=True, empty="")
    else:
        for each in found:
            typer.echo(f"{each.verdict:8} {each.check}: {visible(each.what)}")
            if each.advice:
                typer.echo(f"         -> {visible(each.advice)}")
    if any(each.verdict is Severity.PROBLEM for each in found):
        raise typer.Exit(PROBLEMS_FOUND)
