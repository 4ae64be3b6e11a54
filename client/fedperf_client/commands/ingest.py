"""`fedperf ingest`: store runs from logs, profiles, tables and histories."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import Json, LocalPath, NamedPlace, SourceParameter, home_of
from fedperf_client.formatting.facts import Fact, show_table, values_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.command_line import show, visible
from fedperf_shared.runtime.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedperf_client.sources.ingestion import IngestionCounts, IngestionOutcome
    from fedperf_client.sources.opener import SourcePlace

MOST_SHOWN = 50  # sources in the table for people
TABLES = "Tables of past runs"


def ingest(
    context: typer.Context,
    paths: Annotated[
        list[NamedPlace],
        typer.Argument(
            click_type=SourceParameter(),
            help="Event logs, also zipped, profiles, tables of runs, histories, directories of "
            "them; or addresses.",
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
    job: Annotated[
        str | None, typer.Option(help="Table: column of the job's name.", rich_help_panel=TABLES)
    ] = None,
    job_name: Annotated[
        str | None,
        typer.Option(help="Table: name of the job of all rows.", rich_help_panel=TABLES),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="Table: column of run times, such as seconds or elapsed:ms.",
            rich_help_panel=TABLES,
        ),
    ] = None,
    cores: Annotated[
        str | None, typer.Option(help="Table: column of cores in all.", rich_help_panel=TABLES)
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Table: column of machines.", rich_help_panel=TABLES)
    ] = None,
    input_size: Annotated[
        str | None,
        typer.Option(
            help="Table: column of input sizes, such as rows or input:GB.", rich_help_panel=TABLES
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Table: further columns that describe the job, such as k,format.",
            rich_help_panel=TABLES,
        ),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(
            click_type=LocalPath(),
            help="Table: TOML file with these and further columns.",
            rich_help_panel=TABLES,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Store runs from logs, profiles, tables and histories. Repeating it has no effect.

    Reads Spark event logs (files, rolling directories, zips of the History Server, compressed or
    not), DuckDB profiles, fedperf's own histories, and kinds of sources that other packages add.
    The runs stay on this machine.

    Addresses are s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
    abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX (extra `s3`), and that of a Spark
    History Server, http://HOST:18080. Login data come from the usual environment and files. Logs
    there that have not changed are not read again.

    Reads tables of past runs too (CSV, TSV, JSON, Parquet): each row is a run of a job, which
    fedperf predict JOB --at then predicts. Columns are known by their names, by --job, --time, ...
    or by a file; --dry-run shows how they are understood.
    """
    from fedperf_client.commands import table_columns
    from fedperf_client.prediction.encoding import home_encoder
    from fedperf_client.sources import NothingFoundError, find_sources
    from fedperf_client.sources.ingestion import ingest as ingest_all
    from fedperf_client.sources.ingestion import unchanged

    home = home_of(context)
    named = {"job": job, "job_name": job_name, "time": time, "cores": cores, "nodes": nodes}
    tables = table_columns.find_tables(
        [path for path in paths if isinstance(path, Path)],
        mapping,
        {**named, "input_size": input_size, "columns": columns},
    )
    table_columns.require_same(tables, home.store)
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
            encoder=None if tables else home_encoder(),  # rows of tables are predicted without
            sources=tables,
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
        understood = table_columns.understood(tables) if dry_run or json else []
        _show(outcomes, len(stored), stored=not dry_run, tables=understood, json=json)
        if not json and not dry_run and tables:
            typer.echo("fedperf jobs lists the jobs that fedperf predict knows by name")
    if problems:
        raise InvalidInputError("; ".join(problems))


def _show(
    outcomes: "Sequence[IngestionOutcome]",
    unchanged: int,
    *,
    stored: bool,
    tables: "Sequence[tuple[Path, str, list[list[Fact]]]]",
    json: bool,
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
        understood = [
            {"source": path, "form": form, "columns": list(map(values_of, rows))}
            for path, form, rows in tables
        ]
        facts = {**values_of(counts), "stored": stored, "unchanged": unchanged, "sources": values}
        show(facts | ({"tables": understood} if understood else {}), json=True)
        return
    for path, form, uses in tables:
        typer.echo(f"{visible(path.name)}: {form}")
        show_table(uses, json=False)
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
