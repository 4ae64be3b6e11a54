"""`fedperf diagnose`: find what slows Spark jobs from their logs, without a data directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import Json, LocalPath, NamedPlace, SourceParameter
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.command_line import show, visible
from fedperf_shared.runtime.quantities import counted

if TYPE_CHECKING:
    from fedperf_client.diagnosis.diagnosis import Ranking
    from fedperf_client.home.node_prices import PriceList

MOST_NOTES = 20  # notes for people on logs that were not read completely


def diagnose(
    logs: Annotated[
        list[NamedPlace],
        typer.Argument(
            click_type=SourceParameter(),
            help="Spark event logs, directories of them, or zips; also addresses, see ingest.",
        ),
    ],
    prices: Annotated[
        Path | None,
        typer.Option(help="TOML file with prices per hour: core, gib, node, \\[node_types]."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of jobs to show.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            click_type=LocalPath(),
            help="HTML page to write, with the jobs that are shown (extra \\[plot]).",
        ),
    ] = None,
    no_names: Annotated[
        bool, typer.Option("--no-names", help="Leave private names out of the page.")
    ] = False,
    json: Json = False,
) -> None:
    """Find what slows Spark jobs, with evidence from their logs and the setting that helps.

    Finds spills, skew, stragglers, slow executors, idle cores, waits for executors or the driver,
    garbage collection, shuffles, broadcasts, joins, small files, repeated work, costly settings,
    failures, and application time outside of jobs. A potential saving is an upper bound; the
    savings of one job overlap. Jobs are ranked by potential saving: money with --prices, else
    core-hours. Nothing is stored or sent, except the page of --out.
    """
    from fedperf_client.diagnosis.diagnosis import Ranking
    from fedperf_client.diagnosis.job_facts import event_logs_in, jobs_of
    from fedperf_client.diagnosis.report import require_page, write_report
    from fedperf_client.home.node_prices import load_prices
    from fedperf_client.sources import NothingFoundError

    if out is not None:
        require_page(out)
    elif no_names:
        raise InvalidInputError("--no-names is about the page: use it with --out NAME.html")
    price_list = None if prices is None else load_prices(prices)
    ranking, notes = Ranking(top), list[str]()
    problems, others, count = list[str](), list[str](), 0
    with progress_bar("reading logs", json=json) as advance:
        for place, log in event_logs_in(logs, problems, others, advance):
            count += 1
            for job in jobs_of(log):
                if isinstance(job, str):
                    notes.append(f"{place.name}: {job}")
                else:
                    ranking.add(job, place.name, price_list)
    if not (count or problems):
        raise NothingFoundError(logs, others)
    if count and out is not None:
        counts = _counts(ranking, logs=count)
        write_report(out, ranking.first, counts, [*notes, *others], names=not no_names)
    if count:
        _show(ranking, price_list, notes, others, logs=count, json=json)
    if problems:
        raise InvalidInputError("; ".join(problems))


def _show(
    ranking: "Ranking",
    prices: "PriceList | None",
    partly_read: list[str],
    not_read: list[str],
    *,
    logs: int,
    json: bool,
) -> None:
    from fedperf_client.diagnosis.diagnosis import lines_of, row_of

    diagnoses = ranking.first
    if json:
        counts = {
            "logs": logs,
            "jobs": ranking.jobs,
            "without_tasks": ranking.without_tasks,
            "with_findings": ranking.with_findings,
            "applications": ranking.applications,
        }
        rows = list(map(row_of, diagnoses))
        show({**counts, "not_read": [*partly_read, *not_read], "diagnoses": rows}, json=True)
        return
    for diagnosis in diagnoses:
        for line in lines_of(diagnosis):
            typer.echo(line)
    typer.echo(_counts(ranking, logs=logs))
    if diagnoses:
        count = ranking.with_findings + ranking.applications
        more = "" if len(diagnoses) == count else " (--top shows more)"
        unit = "core-seconds" if prices is None else "money"
        typer.echo(
            f"{len(diagnoses)} of {count} shown, largest potential saving in {unit} first{more}. "
            "Savings are upper bounds, and those of one job overlap."
        )
    notes = [f"read in part: {each}" for each in partly_read]
    notes += [f"not read: {each}" for each in not_read]
    for note in notes[:MOST_NOTES]:
        typer.echo(visible(note))
    if len(notes) > MOST_NOTES:
        typer.echo(f"{MOST_NOTES} of {len(notes)} notes shown; --json lists all")


def _counts(ranking: "Ranking", *, logs: int) -> str:
    """Return a sentence about what was read."""
    taskless = f", {ranking.without_tasks} without a task" if ranking.without_tasks else ""
    idle = ""
    if ranking.applications:
        idle = f", {counted(ranking.applications, 'application')} with findings about the whole"
    return (
        f"{counted(ranking.jobs, 'finished job')} in {counted(logs, 'log')}{taskless}, "
        f"{ranking.with_findings} with findings{idle}"
    )
