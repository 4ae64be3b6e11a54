"""`fedperf simulate`: simulate an organization's year in memory, before it joins."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import Json, home_of, now
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.command_line import TimestampParameter, show, show_rows

if TYPE_CHECKING:
    from fedperf_client.home.config import Home
    from fedperf_memory.year_simulation.presentation import YearView
    from fedperf_shared.releases.period import ReleaseCalendar


def simulate(
    context: typer.Context,
    joining_day: Annotated[
        datetime | None,
        typer.Option(
            click_type=TimestampParameter(),
            metavar="TIME",
            help="When you join (UTC); now by default.",
        ),
    ] = None,
    calendar: Annotated[
        Path | None,
        typer.Option(help="Coordinator's calendar, a file of: fedperf-server calendar --out FILE."),
    ] = None,
    members: Annotated[
        int, typer.Option(min=0, max=20, help="Simulated peers that take part.")
    ] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Write a page about it: a .html file.")] = None,
    json: Json = False,
) -> None:
    """Simulate your own year before you join: dates, what leaves, and what it would bring.

    Your executions and your policy run through a period in memory, with simulated peers.
    Nothing leaves this machine and the home stays as it is. Dates and charges are those that the
    daemon will have. Without --calendar it is the joined coordinator's, else the default one.
    """
    import signal

    # Asked to end, it ends as by Ctrl-C: without what it wrote for the time being.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if plot is not None and plot.suffix.lower() != ".html":
        raise InvalidInputError(f"--plot writes a .html file, got {plot}")
    joins = now() if joining_day is None else joining_day.replace(microsecond=0)
    year = _simulated(home_of(context), joins, calendar, members=members, seed=seed, json=json)
    if plot is not None:
        from fedperf_memory.year_simulation.presentation import write_page

        write_page(plot, year)
    if json:
        show(year.as_json(), json=True)
        return
    for line in year.beginning():
        typer.echo(line)
    if rows := year.release_rows():
        show_rows(rows, json=False, empty="")
    for line in year.costs():
        typer.echo(line)
    typer.echo(year.brought())
    if rows := year.gain_rows():
        show_rows(rows, json=False, empty="")


def _simulated(
    home: "Home", joins: datetime, calendar: Path | None, *, members: int, seed: int, json: bool
) -> "YearView":
    import logging

    import structlog

    from fedperf_client.formatting.progress import progress_bar
    from fedperf_client.release.policy import load_policy
    from fedperf_shared.runtime.process import quiet_flower

    quiet_flower()
    policy = load_policy(home.policy)
    release_calendar, origin = _calendar(home, calendar, at=joins)
    if home.ledgers:
        print(
            "note: a period has begun here, whose schedule stays as it is (fedperf release slots);"
            " this is what the policy would plan anew",
            file=sys.stderr,
        )
    # Logs of simulated members and coordinator are not shown.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with progress_bar("simulating the year", json=json) as advance:
        from fedperf_client.sources.history_file import executions_of
        from fedperf_memory.year_simulation.presentation import YearView
        from fedperf_memory.year_simulation.year import (
            MEASURED_RUNS,
            YearSettings,
            draw_peers,
            read_history,
            simulate_year,
        )

        jobs = read_history(home, seed=seed)
        others = draw_peers(
            executions_of(MEASURED_RUNS),
            members=members,
            workloads=round(policy.nominal_workloads),
            others=jobs.names,
            seed=seed,
        )
        ahead = YearSettings(policy, release_calendar, joins, others, seed)
        return YearView(ahead, origin, jobs, simulate_year(ahead, jobs, on_progress=advance))


def _calendar(home: "Home", file: Path | None, *, at: datetime) -> "tuple[ReleaseCalendar, str]":
    """Return the calendar, and its origin in words."""
    from fedperf_client.commands.planned_releases import expected_calendar
    from fedperf_server.config import load_calendar

    if file is not None:
        return load_calendar(file), f"the calendar in {file}"
    forecast = expected_calendar(home, at=at)
    if forecast.is_default:
        default = "the default calendar, begun that day; a coordinator may have another one"
        return forecast.release_calendar, default
    return forecast.release_calendar, forecast.origin
