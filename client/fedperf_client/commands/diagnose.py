"""`fedperf diagnose`: what Spark's own logs say is wrong with its jobs; needs no home."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.home_option import Json, LocalPath
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.command_line import show, visible

if TYPE_CHECKING:
    from fedperf_client.diagnosis.diagnosis import Ranking
    from fedperf_client.home.node_prices import PriceList

MOST_NOTES = 20
"""Lines about what was not read that are shown to people."""


def diagnose(
    logs: Annotated[
        list[Path],
        typer.Argument(
            click_type=LocalPath(), help="Spark event logs, directories of them, or zips."
        ),
    ],
    prices: Annotated[
        Path | None,
        typer.Option(help="TOML with your prices of an hour: core, gib, node, \\[node_types]."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Jobs that are shown, most at stake first.")] = 10,
    json: Json = False,
) -> None:
    """Find what slows Spark jobs, with evidence from their logs and the setting that helps.

    Reads event logs and nothing else: spills, skew, stragglers, idle cores, waiting for
    executors or for the driver, garbage collection, shuffles, broadcasts, failures, time of an
    application outside of its jobs. What is at stake is a bound; bounds of several findings
    overlap. Jobs are ranked by money with --prices, by core-hours without. Nothing is stored or
    sent.
    """
    from fedperf_client.diagnosis.diagnosis import Ranking
    from fedperf_client.diagnosis.job_facts import event_logs_in, jobs_of
    from fedperf_client.home.node_prices import load_prices
    from fedperf_client.sources import NothingFoundError

    priced = None if prices is None else load_prices(prices)
    found, problems, others = event_logs_in(logs)
    if not (found or problems):
        raise NothingFoundError(logs, others)
    ranking, notes = Ranking(top), list[str]()
    with progress_bar("reading logs", json=json) as advance:
        for done, (path, log) in enumerate(found):
            advance(done, len(found))
            for each in jobs_of(log):
                if isinstance(each, str):
                    notes.append(f"{path.name}: {each}")
                else:
                    ranking.add(each, path.name, priced)
    if found:
        _show(ranking, priced, notes, others, logs=len(found), json=json)
    if problems:
        raise InvalidInputError("; ".join(problems))


def _show(
    ranking: "Ranking",
    prices: "PriceList | None",
    left_out: list[str],
    not_read: list[str],
    *,
    logs: int,
    json: bool,
) -> None:
    """Show the ranking, what is missing of logs that were read, and what was not read."""
    from fedperf_client.diagnosis.diagnosis import lines_of, row_of

    first = ranking.first
    if json:
        counts = {
            "logs": logs,
            "jobs": ranking.jobs,
            "without_tasks": ranking.without_tasks,
            "with_findings": ranking.with_findings,
            "applications": ranking.applications,
        }
        rows = list(map(row_of, first))
        show({**counts, "not_read": [*left_out, *not_read], "diagnoses": rows}, json=True)
        return
    for diagnosis in first:
        for line in lines_of(diagnosis):
            typer.echo(line)
    without = f", {ranking.without_tasks} of them without a task" if ranking.without_tasks else ""
    wholes = ranking.applications
    idle = f", and {wholes} applications with much time outside of jobs" if wholes else ""
    typer.echo(
        f"{ranking.jobs} jobs in {logs} logs (queries and jobs without one, that ended{without}), "
        f"{ranking.with_findings} with findings{idle}"
    )
    if first:
        found = ranking.with_findings + wholes
        more = "" if len(first) == found else "; --top shows more"
        what = "core-seconds" if prices is None else "money"
        typer.echo(
            f"{len(first)} of {found} shown, most {what} at stake first{more}; "
            "times at stake are bounds, and those of one job overlap"
        )
    notes = [f"read in part: {each}" for each in left_out] + [
        f"not read: {each}" for each in not_read
    ]
    for note in notes[:MOST_NOTES]:
        typer.echo(visible(note))
    if len(notes) > MOST_NOTES:
        typer.echo(f"{MOST_NOTES} of {len(notes)} that were not read are shown; --json lists all")
