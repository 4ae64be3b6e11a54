"""`fedperf ingest`: take what already ran elsewhere into the local store."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.home_option import Json, LocalPath, home_of
from fedperf_client.formatting.facts import Fact, show_table, values_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.command_line import show, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedperf_client.sources.ingestion import IngestionCounts, IngestionOutcome

MOST_SHOWN = 50
"""Sources that are shown to people."""


def ingest(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(
            click_type=LocalPath(),
            help="Event logs, also as zip, profiles, histories, or directories of them.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and say what is there; store nothing.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=0, help="Sources read at the same time; 0: one per core.")
    ] = 0,
    json: Json = False,
) -> None:
    """Store runs from event logs, profiles and histories; repeating it is harmless.

    Reads Spark event logs (files, rolling directories, zips of the History Server, compressed or
    not), DuckDB profiles, fedperf's own histories, and what other installed packages add. Nothing
    of it leaves.
    """
    from fedperf_client.prediction.serving.encoded_executions import home_encoder
    from fedperf_client.sources import NothingFoundError, find_sources
    from fedperf_client.sources.ingestion import ingest as ingest_all

    home = home_of(context)
    problems: list[str] = []
    found = dict(find_sources(paths, problems))
    outcomes: list[IngestionOutcome] = []
    with _progress([_size(place) for place in found]) as advance:
        for outcome in ingest_all(
            list(found),
            home.store,
            jobs=jobs or os.cpu_count() or 1,
            dry_run=dry_run,
            encoder=home_encoder(),
        ):
            outcomes.append(outcome)
            advance(_size(outcome.path))
    order = {place: position for position, place in enumerate(found)}
    outcomes.sort(key=lambda each: order[each.path])
    problems += [each.refused for each in outcomes if each.refused and found[each.path]]
    refused = [each.refused for each in outcomes if each.refused]
    if not problems and len(refused) == len(outcomes):
        raise NothingFoundError(paths, refused)
    if len(refused) < len(outcomes):
        _show(outcomes, stored=not dry_run, json=json)
    if problems:
        raise InvalidInputError("; ".join(problems))


def _show(outcomes: "Sequence[IngestionOutcome]", *, stored: bool, json: bool) -> None:
    from fedperf_client.sources.ingestion import total

    def of_source(outcome: "IngestionOutcome") -> list[Fact]:
        source = Fact("source", outcome.path, "source", outcome.path.name)
        return [source, *_facts(outcome.taken), Fact("refused", outcome.refused)]

    taken = total(outcomes)
    if json:
        sources = [values_of(of_source(each)) for each in outcomes]
        show({**values_of(_facts(taken)), "stored": stored, "sources": sources}, json=True)
        return
    shown = [of_source(each) for each in outcomes if not each.refused][:MOST_SHOWN]
    show_table(shown, json=False)
    refused = [each.refused for each in outcomes if each.refused]
    for reason in refused[:MOST_SHOWN]:
        typer.echo(f"refused: {visible(reason)}")
    told = len(shown) + len(refused[:MOST_SHOWN])
    if told < len(outcomes):
        typer.echo(f"{told} of {len(outcomes)} sources shown, as they are named; --json lists all")
    show(_told(taken, sum(not each.refused for each in outcomes)), json=False)
    if not stored:
        typer.echo("nothing was stored: --dry-run")


def _told(taken: "IngestionCounts", sources: int) -> dict[str, object]:
    """The facts of all sources together, for people: what each figure counts."""
    known = _share(taken)
    again, skipped = taken.executions - taken.new, sum(taken.skipped.values())
    return {
        "read": f"{taken.executions} executions in {sources} sources",
        "new": taken.new,
        "known_already": f"{again}, stored before or in another source" if again else 0,
        "failed": taken.failed,
        "operators": taken.operators,
        "rows_known": None if known is None else f"{known:.0%} of the operators",
        "skipped": f"{skipped}, no executions: {_reasons(taken.skipped)}" if skipped else 0,
    }


def _facts(taken: "IngestionCounts") -> list[Fact]:
    known = _share(taken)
    return [
        Fact("read", taken.executions, "read"),
        Fact("new", taken.new, "new"),
        Fact("failed", taken.failed, "failed"),
        Fact("operators", taken.operators, "operators"),
        Fact("rows_known", known, "rows_known", None if known is None else f"{known:.0%}"),
        Fact("skipped", dict(taken.skipped), "skipped", _reasons(taken.skipped)),
    ]


def _reasons(skipped: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in skipped.items())


def _share(taken: "IngestionCounts") -> float | None:
    return taken.known_operators / taken.operators if taken.operators else None


def _size(path: Path) -> int:
    """Bytes to read; 0 for what has gone."""
    try:
        if path.is_dir():
            return sum(each.stat().st_size for each in path.iterdir())
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def _progress(sizes: Sequence[int]) -> "Iterator[Callable[[int], None]]":
    """A bar over bytes on the standard error; yields what to call with those of each source."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("reading", total=sum(sizes))
        yield lambda size: progress.advance(task, size)
