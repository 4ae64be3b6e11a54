"""The server's directory, on which every command of `fedperf-server` works, and the time.

Refused: a directory that `fedperf-server init` did not make, or whose configuration or database
cannot be used.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedperf_server.config import ServerConfig
    from fedperf_server.membership.enrollment import Enrollment

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def config_of(context: typer.Context) -> "ServerConfig":
    """The configuration in the directory that the command works on."""
    from fedperf_server.config import load_config

    return load_config(context.obj)


def enrollment_of(context: typer.Context) -> "tuple[ServerConfig, Enrollment]":
    """The configuration, and the members that the directory's database holds."""
    from fedperf_server.membership.authority import KeyRing
    from fedperf_server.membership.enrollment import Enrollment
    from fedperf_server.state.database import Database

    config = config_of(context)
    ring = KeyRing(config.directory)
    return config, Enrollment(Database.existing(config.database_url), ring, config, clock=now)


def now() -> datetime:
    """The present moment, with time zone."""
    return datetime.now(UTC)
