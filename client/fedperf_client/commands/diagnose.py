"""`fedperf diagnose`: what Spark's own logs say is wrong with its jobs; needs no home."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.home_option import Json
from fedperf_client.text.progress import progress_bar
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.programs.command_line import show, visible

if TYPE_CHECKING:
    from fedperf_client.diagnosis.diagnosis import Ranking
    from fedperf_client.home.prices import PriceList

MOST_NOTES = 20
"""Lines about what was not read that are shown to people."""


def diagnose(
    logs: Annotated[list[Path], typer.Argument(help="Spark event logs, or directories of them.")],
    prices: Annotated[
        Path | None,
        typer.Option(help="TOML with your prices of an hour: core, gib, node, \\[node_types]."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Jobs that are shown, costliest first.")] = 10,
    json: Json = False,
) -> None:
    """Say what held Spark's jobs up, with the evidence of the log and a setting that mends it.

    Reads event logs and nothing else: spills, skew, stragglers, idle cores, waiting for
    executors or for the driver, garbage collection, shuffles, broadcasts, failures. What is at
    stake is a bound; bounds of several findings overlap. Jobs are ranked by money with --prices,
    by core-hours without. Stores and sends nothing.
    """
    from fedperf_client.diagnosis.diagnosis import Ranking
    from fedperf_client.diagnosis.log_reader import UnreadPart, event_logs_in, jobs_of
    from fedperf_client.home.prices import load_prices

    priced = None if prices is None else load_prices(prices)
    found, problems = event_logs_in(logs)
    ranking, notes = Ranking(top), list[str]()
    with progress_bar("reading logs", json=json) as advance:
        for done, (path, log) in enumerate(found):
            advance(done, len(found))
            for each in jobs_of(log):
                if isinstance(each, UnreadPart):
                    notes.append(f"{path.name}: {each.reason}")
                else:
                    ranking.add(each, path.name, priced)
    if found or not problems:
        _show(ranking, priced, notes, logs=len(found), json=json)
    if problems:
        raise InvalidInputError("; ".join(problems))


def _show(
    ranking: "Ranking", prices: "PriceList | None", notes: list[str], *, logs: int, json: bool
) -> None:
    from fedperf_client.diagnosis.presentation import lines_of, row_of

    first = ranking.first
    if json:
        counts = {"logs": logs, "jobs": ranking.jobs, "with_findings": ranking.with_findings}
        rows = [row_of(each, prices) for each in first]
        show({**counts, "not_read": notes, "diagnoses": rows}, json=True)
        return
    for diagnosis in first:
        for line in lines_of(diagnosis, prices):
            typer.echo(line)
    typer.echo(
        f"{ranking.jobs} jobs in {logs} logs, {ranking.with_findings} with findings, "
        f"{len(first)} shown; times at stake are bounds, and those of one job overlap"
    )
    for note in notes[:MOST_NOTES]:
        typer.echo(f"not read: {visible(note)}")
    if len(notes) > MOST_NOTES:
        typer.echo(f"not read: {len(notes) - MOST_NOTES} more; --json lists all")
