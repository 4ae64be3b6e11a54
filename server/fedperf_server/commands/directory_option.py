"""Access to the server's directory, which every command of `fedperf-server` needs, and the clock.

A directory that `fedperf-server init` did not make is refused, and so is one whose configuration or
database cannot be used.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedperf_server.config import ServerConfig
    from fedperf_server.membership.enrollment import Enrollment

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def load_config_from(context: typer.Context) -> "ServerConfig":
    """Return the configuration in the directory that the command works on."""
    from fedperf_server.config import load_config

    return load_config(context.obj)


def open_enrollment(context: typer.Context) -> "tuple[ServerConfig, Enrollment]":
    """Return the configuration, and the members that the directory's database holds."""
    from fedperf_server.membership.authority import KeyRing
    from fedperf_server.membership.enrollment import Enrollment
    from fedperf_server.state.database import Database

    config = load_config_from(context)
    ring = KeyRing(config.directory)
    database = Database.existing(config.database_url)
    return config, Enrollment(database, ring, config, clock=current_time)


def current_time() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
