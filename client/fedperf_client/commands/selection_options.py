"""The options by which commands choose stored executions."""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_shared.programs.command_line import MomentParameter

if TYPE_CHECKING:
    from fedperf_client.home.selection import Selection


class ExecutionStatusName(StrEnum):
    """How an execution ended, in the words of the command line."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"


class PlatformName(StrEnum):
    """Where an operator ran, in the words of the command line."""

    DUCKDB = "duckdb"
    POLARS = "polars"
    PANDAS = "pandas"
    SKLEARN = "sklearn"
    SPARK = "spark"
    FLINK = "flink"
    OTHER = "other"


Workload = Annotated[
    str | None,
    typer.Option(
        help="Only those of this workload, or of all with it in their names, such as a beginning.",
    ),
]
Search = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Only those that have it in id, workload, application, its id, record, description, "
        "file, failure or source.",
    ),
]
Status = Annotated[ExecutionStatusName | None, typer.Option(help="Only those that ended so.")]
OnPlatform = Annotated[
    PlatformName | None, typer.Option("--platform", help="Only those with an operator there.")
]
Since = Annotated[
    datetime | None,
    typer.Option(
        click_type=MomentParameter(),
        metavar="TIME",
        help="Only those that finished at that time or later (UTC): 2026-03-01, 2026-03-01T06:00.",
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option(
        click_type=MomentParameter(),
        metavar="TIME",
        help="Only those that finished before that time (UTC).",
    ),
]


def selection_of(
    workload: str | None,
    search: str | None,
    *,
    status: ExecutionStatusName | None,
    platform: PlatformName | None,
    since: datetime | None,
    until: datetime | None,
) -> "Selection":
    """What the options choose."""
    from fedperf_client.home.selection import Selection
    from fedperf_shared.execution import ExecutionStatus
    from fedperf_shared.workflow.vocabulary import Platform

    return Selection(
        workload=workload,
        text=search,
        status=None if status is None else ExecutionStatus[status.name],
        platform=None if platform is None else Platform[platform.name],
        since=since,
        until=until,
    )
