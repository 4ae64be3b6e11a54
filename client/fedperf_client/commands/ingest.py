"""`fedperf ingest`: store runs from logs, profiles and histories."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import Json, NamedPlace, SourceParameter, home_of
from fedperf_client.formatting.facts import Fact, show_table, values_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.command_line import show, visible
from fedperf_shared.runtime.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedperf_client.sources.ingestion import IngestionCounts, IngestionOutcome
    from fedperf_client.sources.opener import SourcePlace

MOST_SHOWN = 50  # sources in the table for people


def ingest(
    context: typer.Context,
    paths: Annotated[
        list[NamedPlace],
        typer.Argument(
            click_type=SourceParameter(),
            help="Event logs, also zipped, profiles, histories, directories of them; or addresses.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read the sources without storing anything.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=0, help="Sources read at the same time. 0: one per core.")
    ] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Read remote logs again that have not changed.")
    ] = False,
    json: Json = False,
) -> None:
    """Store runs from event logs, profiles and histories. Repeating it has no effect.

    Reads Spark event logs (files, rolling directories, zips of the History Server, compressed or
    not), DuckDB profiles, fedperf's own histories, and kinds of sources that other packages add.
    The runs stay on this machine.

    Addresses are s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
    abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX (extra `s3`), and that of a Spark
    History Server, http://HOST:18080. Login data come from the usual environment and files. Logs
    there that have not changed are not read again.
    """
    from fedperf_client.prediction.encoding import home_encoder
    from fedperf_client.sources import NothingFoundError, find_sources
    from fedperf_client.sources.ingestion import ingest as ingest_all
    from fedperf_client.sources.ingestion import unchanged

    home = home_of(context)
    problems: list[str] = []
    sources = dict(find_sources(paths, problems))
    stored = set() if again else unchanged(sources, home.store)
    sources = {path: is_named for path, is_named in sources.items() if path not in stored}
    outcomes: list[IngestionOutcome] = []
    with _progress([_size(path) for path in sources]) as advance:
        for outcome in ingest_all(
            list(sources),
            home.store,
            jobs=jobs or os.cpu_count() or 1,
            dry_run=dry_run,
            encoder=home_encoder(),
        ):
            outcomes.append(outcome)
            advance(_size(outcome.path))
    order = {path: position for position, path in enumerate(sources)}
    outcomes.sort(key=lambda each: order[each.path])
    problems += [each.refused for each in outcomes if each.refused and sources[each.path]]
    refused = [each.refused for each in outcomes if each.refused]
    if not (problems or stored) and len(refused) == len(outcomes):
        raise NothingFoundError(paths, refused)
    if stored or len(refused) < len(outcomes):
        _show(outcomes, len(stored), stored=not dry_run, json=json)
    if problems:
        raise InvalidInputError("; ".join(problems))


def _show(
    outcomes: "Sequence[IngestionOutcome]", unchanged: int, *, stored: bool, json: bool
) -> None:
    from fedperf_client.sources.ingestion import total

    counts = _facts(total(outcomes))
    sources = [
        [
            Fact("source", str(each.path), "source", each.path.name),
            *_facts(each.taken),
            Fact("refused", each.refused),
        ]
        for each in outcomes
    ]
    if json:
        values = list(map(values_of, sources))
        facts = {**values_of(counts), "stored": stored, "unchanged": unchanged}
        show({**facts, "sources": values}, json=True)
        return
    rows = [row for row in sources if not row[-1].value]
    all_sources = [Fact(None, None, "source", f"all {len(rows)} sources"), *counts]
    if rows:
        show_table(rows[:MOST_SHOWN] + [all_sources] * (len(rows) > 1), json=False)
    refused = [each.refused for each in outcomes if each.refused]
    for reason in refused[:MOST_SHOWN]:
        typer.echo(f"refused: {visible(reason)}")
    count = len(rows[:MOST_SHOWN]) + len(refused[:MOST_SHOWN])
    if count < len(outcomes):
        typer.echo(f"{count} of {len(outcomes)} sources shown; --json lists all")
    if unchanged:
        typer.echo(
            f"{counted(len(outcomes) + unchanged, 'source')}: {len(rows)} read, "
            f"{len(outcomes) - len(rows)} refused, {unchanged} unchanged since they were read "
            "(--again reads them)"
        )
    if not stored:
        typer.echo("--dry-run: nothing was stored")


def _facts(counts: "IngestionCounts") -> list[Fact]:
    share = counts.known_operators / counts.operators if counts.operators else None
    skipped = ", ".join(f"{reason} ({count})" for reason, count in counts.skipped.items())
    return [
        Fact("read", counts.executions, "runs"),
        Fact("new", counts.new, "new"),
        Fact("failed", counts.failed, "failed"),
        Fact("operators", counts.operators, "operators"),
        Fact("rows_known", share, "rows known", None if share is None else f"{share:.0%}"),
        Fact("skipped", dict(counts.skipped), "skipped", skipped),
    ]


def _size(path: "SourcePlace") -> int:
    """Return the bytes to read, 0 for a file that has been removed."""
    from fedperf_client.sources.ingestion import state_of

    state = state_of(path)
    return 0 if state is None else state.size


@contextmanager
def _progress(sizes: Sequence[int]) -> "Iterator[Callable[[int], None]]":
    """Show a bar over bytes on the standard error, and yield a function that advances it."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("reading", total=sum(sizes))
        yield lambda size: progress.advance(task, size)
