"""`fedperf compare`: performance regressions since an upgrade or a date, by workload."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import Json, NamedPlace, SourceParameter, home_of
from fedperf_client.formatting.facts import show_table, values_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.command_line import (
    TimestampParameter,
    show,
    visible,
)
from fedperf_shared.runtime.quantities import counted, table_minute

if TYPE_CHECKING:
    from fedperf_client.prediction.serving.regressions import Sides, TimedRun
    from fedperf_shared.execution import Execution

MOST_SHOWN = 50  # workloads that are shown to people
MOST_VERSIONS = 5  # versions of a side that are named
_Pairs = dict[str, "Sides"]


def compare(
    context: typer.Context,
    since: Annotated[
        datetime | None,
        typer.Option(
            click_type=TimestampParameter(),
            metavar="TIME",
            help="First day or time (UTC) of the side after, like 2026-03-01.",
        ),
    ] = None,
    before: Annotated[
        list[NamedPlace] | None,
        typer.Option(
            click_type=SourceParameter(),
            help="Logs of the side before, with --after, instead of stored runs.",
        ),
    ] = None,
    after: Annotated[
        list[NamedPlace] | None,
        typer.Option(
            click_type=SourceParameter(), help="Logs of the side after; they are not stored."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Find regressions since an upgrade or a date, or between two directories of logs.

    Without options, runs on the version of each workload's newest run are compared with runs on
    other versions. Per workload the table shows the ratio of medians with its 98 % interval, a
    verdict and other changes. Regressions that lost most time come first. One run after is enough
    for a large change. A side without any execution is an error.
    """
    from fedperf_client.prediction.serving import regressions

    if (before is None) != (after is None):
        raise typer.BadParameter("--before and --after go together")
    if before and after:
        if since is not None:
            raise typer.BadParameter("--since compares stored runs; leave out --before and --after")
        pairs, sides = _from_logs(before, after), (_names_of(before), _names_of(after))
    elif since is None:
        pairs, sides = _by_version(context)
    else:
        pairs, sides = _by_time(context, since)
    comparisons, unmatched = regressions.compare_workloads(pairs)
    if json:
        facts = {"before": sides[0], "after": sides[1]}
        rows = [values_of(each.facts) for each in comparisons]
        show({**facts, "workloads": rows, "unmatched": unmatched}, json=True)
        return
    typer.echo(f"before: {visible(sides[0])}\nafter: {visible(sides[1])}")
    rows_shown = [each.facts for each in comparisons[:MOST_SHOWN]]
    show_table(rows_shown, json=False, empty="no workload ran on both sides")
    slower = sum(each.status is regressions.RegressionStatus.SLOWER for each in comparisons)
    typer.echo(
        f"{counted(len(comparisons), 'workload')} ran on both sides, {slower} of "
        f"them slower; {len(unmatched)} on one side only"
        + (f"; the first {MOST_SHOWN} are shown" if len(comparisons) > MOST_SHOWN else "")
    )


def _from_logs(before: Sequence[NamedPlace], after: Sequence[NamedPlace]) -> _Pairs:
    """Return the runs in the logs of both sides, by workload."""
    from fedperf_client.prediction.serving.regressions import runs_by_workload

    sides = [runs_by_workload(_executions_in(paths)) for paths in (before, after)]
    for paths, runs in zip((before, after), sides, strict=True):
        if not runs:
            raise InvalidInputError(f"no execution was found in {_names_of(paths)}")
    names = dict.fromkeys((*sides[0], *sides[1]))
    return {name: (sides[0].get(name, ()), sides[1].get(name, ())) for name in names}


def _by_version(context: typer.Context) -> tuple[_Pairs, tuple[str, str]]:
    """Split stored runs by the version of each workload's newest one."""
    from fedperf_client.prediction.serving.regressions import split_by_newest_source

    pairs = {name: split_by_newest_source(runs) for name, runs in _stored(context).items()}
    upgraded = [each for each in pairs.values() if each[0]]
    others = _versions(each[0] for each in upgraded) or "none: compare by a day with --since DAY"
    newest = _versions(each[1] for each in upgraded or pairs.values())
    return pairs, (
        f"runs on other versions ({others})",
        f"runs on the version of each workload's newest run ({newest})",
    )


def _by_time(context: typer.Context, moment: datetime) -> tuple[_Pairs, tuple[str, str]]:
    """Split stored runs into those before a moment and those since."""
    from fedperf_client.prediction.serving.regressions import split_at

    stored = _stored(context)
    ended = [each.finished_at for runs in stored.values() for each in runs]
    words = f"{table_minute(moment)} UTC"
    for is_empty, side, last, is_from in (
        (moment > max(ended), "since", "newest", max(ended)),
        (moment <= min(ended), "before", "oldest", min(ended)),
    ):
        if is_empty:
            raise InvalidInputError(
                f"no stored execution finished {side} {words}: the {last} one finished at "
                f"{table_minute(is_from)} UTC"
            )
    pairs = {name: split_at(runs, moment) for name, runs in stored.items()}
    sides = [_versions(each[side] for each in pairs.values()) for side in (0, 1)]
    return pairs, (
        f"runs that finished before {words} ({sides[0]})",
        f"runs that finished since then ({sides[1]})",
    )


def _stored(context: typer.Context) -> "dict[str, list[TimedRun]]":
    """Return every stored run, by workload.

    Raises:
        InvalidInputError: there is none.
    """
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving.regressions import runs_by_workload

    with ExecutionStore.open_to_read(home_of(context).store) as store:
        runs = runs_by_workload(store.executions())
    if not runs:
        raise InvalidInputError("no executions yet; take some in with: fedperf ingest FILE")
    return runs


def _versions(sides: "Iterable[Sequence[TimedRun]]") -> str:
    """Name the recorders of the runs; empty where there are none."""
    names = sorted({run.source or "unknown" for runs in sides for run in runs})
    more = len(names) - MOST_VERSIONS
    return ", ".join(names[:MOST_VERSIONS]) + (f" and {more} more" if more > 0 else "")


def _names_of(paths: Sequence[NamedPlace]) -> str:
    return ", ".join(map(str, paths))


def _executions_in(paths: Sequence[NamedPlace]) -> "Iterator[Execution]":
    """Yield the executions in the sources below the paths."""
    from fedperf_client.sources import SkippedRecord, UnknownSourceError, find_sources, read_source

    problems: list[str] = []
    for place, is_named in find_sources(paths, problems):
        try:
            for execution in read_source(place):
                if not isinstance(execution, SkippedRecord):
                    yield execution
        except UnknownSourceError as error:
            if is_named:
                problems.append(str(error))
        except InvalidInputError as error:
            problems.append(str(error))
    if problems:
        raise InvalidInputError("; ".join(problems))
