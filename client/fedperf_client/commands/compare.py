"""`fedperf compare`: what takes longer since an upgrade or a date, workload by workload."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.home_option import Json, home_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.programs.command_line import shortened, show, show_rows

if TYPE_CHECKING:
    from fedperf_client.prediction.answers.slowdowns import Slowdown, TimedRun
    from fedperf_shared.execution import Execution

MOST_SHOWN = 50
"""Workloads that are shown to people."""

LONGEST_NAME = 40

_Pairs = dict[str, "tuple[Sequence[TimedRun], Sequence[TimedRun]]"]


def compare(
    context: typer.Context,
    since: Annotated[
        str | None, typer.Option(help="Compare from this day or moment on, like 2026-03-01.")
    ] = None,
    before: Annotated[
        list[Path] | None,
        typer.Option(help="Logs of before; with --after, instead of what is stored."),
    ] = None,
    after: Annotated[
        list[Path] | None, typer.Option(help="Logs of after; nothing is stored of them.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what takes longer since an upgrade, a date, or between two directories of logs.

    Without options, what ran on the version of the newest execution (as its log names it) is
    compared with what ran on others. Per workload the ratio of medians, its 98 % interval and a
    verdict; those that lost most time first; beside it what else changed. One run after is
    enough for a large change.
    """
    from fedperf_client.prediction.answers import slowdowns

    if (before is None) != (after is None):
        raise typer.BadParameter("--before and --after go together")
    if before and after:
        if since is not None:
            raise typer.BadParameter(
                "--since is about what is stored, without --before and --after"
            )
        sides = [slowdowns.runs_by_workload(_executions_in(paths)) for paths in (before, after)]
        names = list(dict.fromkeys((*sides[0], *sides[1])))
        pairs: _Pairs = {name: (sides[0].get(name, ()), sides[1].get(name, ())) for name in names}
    else:
        pairs = _stored(context, since)
    found, alone = slowdowns.slowdowns(pairs)
    if json:
        show({"workloads": [each.as_row() for each in found], "only_one_side": alone}, json=True)
        return
    lines = [_line(each) for each in found[:MOST_SHOWN]]
    show_rows(lines, json=False, empty="no workload ran on both sides")
    slower = sum(each.verdict is slowdowns.TimeVerdict.SLOWER for each in found)
    typer.echo(
        f"{len(found)} workloads ran on both sides, {slower} of them slower; {len(alone)} on one "
        "side only"
    )


def _stored(context: typer.Context, since: str | None) -> _Pairs:
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.answers import slowdowns

    split = slowdowns.on_newest_source if since is None else slowdowns.since(_moment(since))
    with ExecutionStore.open(home_of(context).store) as store:
        runs = slowdowns.runs_by_workload(store.executions())
    return {name: split(each) for name, each in runs.items()}


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"--since is a day or a moment like 2026-03-01 or 2026-03-01T06:00, got {text!r}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _executions_in(paths: Sequence[Path]) -> "Iterator[Execution]":
    """What the sources below the paths hold."""
    from fedperf_client.sources import SkippedRecord
    from fedperf_client.sources.kinds import UnknownSourceError, places, read_source

    problems: list[str] = []
    for place, is_named in places(paths, problems):
        try:
            for found in read_source(place):
                if not isinstance(found, SkippedRecord):
                    yield found
        except UnknownSourceError as error:
            if is_named:
                problems.append(str(error))
        except InvalidInputError as error:
            problems.append(str(error))
    if problems:
        raise InvalidInputError("; ".join(problems))


def _line(found: "Slowdown") -> dict[str, object]:
    from fedperf_client.text.durations import duration_text

    return {
        "workload": shortened(found.workload, LONGEST_NAME),
        "verdict": found.verdict.value,
        "before": duration_text(found.before.median_seconds),
        "after": duration_text(found.after.median_seconds),
        "ratio": f"{found.ratio:.3g}",
        "98% interval": f"{found.lower:.3g} to {found.upper:.3g}",
        "runs": f"{len(found.before.times)}, {len(found.after.times)}",
        "lost": _signed(found.lost_seconds),
        "what else changed": ", ".join(found.changes),
    }


def _signed(seconds: float) -> str:
    from fedperf_client.text.durations import duration_text

    return f"{'-' if seconds < 0 else ''}{duration_text(abs(seconds))}"
