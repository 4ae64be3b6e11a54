"""The commands `init`, `run` and `calendar` of `fedperf-server`, and access to its directory.

`init` makes a server's directory and never changes one that holds a server. `run` serves it. One
process at a time serves a directory. Only `run` loads the libraries that train models. `calendar`
shows the public calendar, or writes it to a file.

Every command refuses a directory that `init` did not make, and one whose configuration or database
cannot be used.
"""

import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_shared.runtime.command_line import TimestampParameter, show, show_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy.orm import Session

    from fedperf_server.config import ServerConfig
    from fedperf_server.membership.enrollment import Enrollment
    from fedperf_shared.releases.period import ReleaseCalendar, SlotTimes

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def current_time() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def load_config_from(context: typer.Context) -> "ServerConfig":
    """Return the configuration in the directory that the command works on."""
    from fedperf_server.config import load_config

    return load_config(context.obj)


@contextmanager
def open_state(context: typer.Context) -> "Iterator[tuple[ServerConfig, Session]]":
    """Open a transaction on the directory's database, with the configuration."""
    from fedperf_server.state.database import Database

    config = load_config_from(context)
    with Database.existing(config.database_url).transaction() as session:
        yield config, session


def open_enrollment(context: typer.Context) -> "Enrollment":
    """Return the members that the directory's database holds."""
    from fedperf_server.membership.authority import KeyRing
    from fedperf_server.membership.enrollment import Enrollment
    from fedperf_server.state.database import Database

    config = load_config_from(context)
    database = Database.existing(config.database_url)
    return Enrollment(database, KeyRing(config.directory), config, clock=current_time)


def init(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Name or address that organizations connect to.")],
    period_start: Annotated[
        datetime | None,
        typer.Option(
            click_type=TimestampParameter(),
            metavar="TIME",
            help="Start of the first period, e.g. 2027-01-01 or 2027-01-01T09:00+01:00. UTC unless "
            "a zone is given. Default: midnight of today.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make keys, certificates and a configuration with a calendar of one year to edit.

    A directory that holds a server is never changed. Options that differ from it end with code 3.
    """
    from fedperf_server.config import FILE_NAME, ServerConfig, write_config
    from fedperf_server.membership import authority
    from fedperf_server.state.database import Database
    from fedperf_shared.errors import StorageError
    from fedperf_shared.releases.period import default_calendar

    directory: Path = context.obj
    if (directory / FILE_NAME).exists():
        _require_same(load_config_from(context), host, period_start)
        print(f"note: {directory} holds a server already; nothing was changed", file=sys.stderr)
        show({"directory": directory, "configuration": directory / FILE_NAME}, json=json)
        return
    start = period_start or current_time().replace(hour=0, minute=0, second=0, microsecond=0)
    config = ServerConfig(directory, host, default_calendar(start))
    try:
        authority.init(directory, host, now=current_time())
        path = write_config(config)
        Database(config.database_url).close()
    except OSError as error:
        raise StorageError(
            f"cannot write {directory}: {error.strerror}; choose another --directory"
        ) from error
    show({"directory": directory, "configuration": path}, json=json)


def run(context: typer.Context) -> None:
    """Serve organizations and run rounds by the calendar, until interrupted."""
    from fedperf_shared.runtime.process import process_lock, stop_on_signals

    config = load_config_from(context)
    stop = stop_on_signals()
    lock = config.directory / "coordinator.lock"
    with process_lock(lock, f"the server's directory {config.directory}"):
        from fedperf_server.app.process import run_server

        run_server(config, stop, clock=current_time)


def _require_same(config: "ServerConfig", host: str, start: datetime | None) -> None:
    """Raise if an option of `init` differs from the server in the directory."""
    from fedperf_server.config import FILE_NAME
    from fedperf_shared.errors import ConfigurationError

    period = config.calendar.period
    options = {"host": (host, config.host), "period_start": (start or period.start, period.start)}
    different = [f"{key} {old}, not {new}" for key, (new, old) in options.items() if new != old]
    if different:
        path = config.directory / FILE_NAME
        raise ConfigurationError(
            f"{config.directory} holds a server with {', '.join(different)}; nothing was changed. "
            f"Edit the calendar in {path} before the first organization joins, or choose another "
            "--directory, as certificates are for one host"
        )


def calendar(
    context: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the calendar to this file for `fedperf simulate --calendar`."),
    ] = None,
    read: Annotated[
        Path | None,
        typer.Option(help="Show the calendar in this file instead, such as next year's."),
    ] = None,
    json: Json = False,
) -> None:
    """Show when reports and model rounds of each window are due (UTC).

    "First reports" are the days for the first report of a new organization. "Extra rounds" take
    place in windows in which a drift regime begins.
    """
    from fedperf_server.config import load_calendar, write_calendar

    calendar = load_config_from(context).calendar if read is None else load_calendar(read)
    if out is not None:
        write_calendar(calendar, out)
        print(f"note: written to {out}", file=sys.stderr)
    rows = [_row(calendar, window, json=json) for window in range(calendar.period.windows)]
    show_rows(rows, json=json, empty="")
    if not json:
        typer.echo(_describe_time(calendar, at=current_time()))


def _row(calendar: "ReleaseCalendar", window: int, *, json: bool) -> dict[str, object]:
    period = calendar.period
    begins = period.window_start(window)
    kinds: dict[str, Sequence[SlotTimes]] = {
        "reports": calendar.report_slots,
        "first_reports": calendar.first_slots,
        "model_rounds": calendar.model_slots,
        "extra_rounds": calendar.extra_slots,
    }
    if not json:
        dates = {
            name: _to_days([begins + each.replies_after for each in times])
            for name, times in kinds.items()
        }
        return {"window": window, "begins": f"{begins:%Y-%m-%d}", **dates}
    timestamps = {
        name: [
            {
                "opens_at": (begins + each.opens_after).isoformat(),
                "send_at": (begins + each.replies_after).isoformat(),
            }
            for each in times
        ]
        for name, times in kinds.items()
    }
    ends = period.window_start(window + 1).isoformat()
    return {"window": window, "begins_at": begins.isoformat(), "ends_at": ends, **timestamps}


def _describe_time(calendar: "ReleaseCalendar", *, at: datetime) -> str:
    """Describe the position of `at` in the calendar."""
    period = calendar.period
    window = period.window_at(at)
    ends = f"{period.end.day} {period.end:%B %Y}"
    if window is not None:
        return f"now: window {window}; the period ends on {ends}"
    if at < period.start:
        return f"the period begins on {period.start.day} {period.start:%B %Y}"
    return f"the period ended on {ends}; set the next period_start and start the server again"


def _to_days(timestamps: "Sequence[datetime]") -> str:
    """Return the days, grouped by month: "2, 4 Dec, 1 Jan"."""
    months = groupby(timestamps, key=lambda each: f"{each:%b}")
    return ", ".join(
        f"{', '.join(str(each.day) for each in days)} {month}" for month, days in months
    )
