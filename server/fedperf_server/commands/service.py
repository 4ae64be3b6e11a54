"""The commands `init` and `run` of `fedperf-server` make a server's directory and serve it.

`init` never changes a directory that holds a server. One process at a time serves a directory.
Only `run` loads the libraries that train models.
"""

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_server.commands.directory_option import Json, current_time, load_config_from
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
