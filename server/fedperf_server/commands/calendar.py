"""The command `fedperf-server calendar` shows the public calendar, or writes it to a file."""

import sys
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_server.commands.directory_option import Json, current_time, load_config_from
from fedperf_shared.runtime.command_line import show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedperf_shared.releases.period import ReleaseCalendar, SlotTimes


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
