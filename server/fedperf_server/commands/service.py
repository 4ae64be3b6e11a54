"""`fedperf-server init` and `run`: the directory of a server is made once, then it is served.

A directory that holds a server is left as it is, whatever `init` is asked for, and one
process at a time serves it. `run` alone loads what trains models.
"""

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_server.commands.directory_option import Json, config_of, now
from fedperf_shared.runtime.command_line import TimestampParameter, show

if TYPE_CHECKING:
    from pathlib import Path

    from fedperf_server.config import ServerConfig


def init(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Name or address that organizations connect to.")],
    period_start: Annotated[
        datetime | None,
        typer.Option(
            click_type=TimestampParameter(),
            metavar="MOMENT",
            help="When the first period begins, like 2027-01-01 or 2027-01-01T09:00+01:00; in UTC "
            "unless a zone is named; the beginning of today by default.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make keys, certificates and a configuration with a calendar of a year to edit.

    A directory that holds a server stays as it is: exit code 3 where other options are asked for.
    """
    from fedperf_server.config import FILE_NAME, ServerConfig, write_config
    from fedperf_server.membership import authority
    from fedperf_server.state.database import Database
    from fedperf_shared.errors import StorageError
    from fedperf_shared.releases.period import default_calendar

    directory: Path = context.obj
    if (directory / FILE_NAME).exists():
        _require_same(config_of(context), host, period_start)
        print(f"note: {directory} holds a server already; nothing was changed", file=sys.stderr)
        show({"directory": directory, "configuration": directory / FILE_NAME}, json=json)
        return
    start = period_start or now().replace(hour=0, minute=0, second=0, microsecond=0)
    config = ServerConfig(directory, host, default_calendar(start))
    try:
        authority.init(directory, host, now=now())
        path = write_config(config)
        Database(config.database_url).close()
    except OSError as error:
        raise StorageError(
            f"cannot write {directory}: {error.strerror}; choose another --directory"
        ) from error
    show({"directory": directory, "configuration": path}, json=json)


def run(context: typer.Context) -> None:
    """Serve organizations and run rounds as the calendar says; until interrupted."""
    from fedperf_shared.runtime.process_lock import process_lock
    from fedperf_shared.runtime.shutdown import stop_on_signals

    config = config_of(context)
    stop = stop_on_signals()
    place = config.directory / "coordinator.lock"
    with process_lock(place, f"the server's directory {config.directory}"):
        from fedperf_server.app.process import run_server

        run_server(config, stop, clock=now)


def _require_same(config: "ServerConfig", host: str, start: datetime | None) -> None:
    """Raise where `init` was asked for something else than what the directory holds."""
    from fedperf_server.config import FILE_NAME
    from fedperf_shared.errors import ConfigurationError

    period = config.calendar.period
    asked = {"host": (host, config.host), "period_start": (start or period.start, period.start)}
    differs = [f"{key} {held}, not {new}" for key, (new, held) in asked.items() if new != held]
    if differs:
        path = config.directory / FILE_NAME
        raise ConfigurationError(
            f"{config.directory} exists already and was left as it is, with {', '.join(differs)}; "
            f"edit the calendar in {path} before the first member joins, or, as certificates "
            "are for one host, choose another --directory"
        )
