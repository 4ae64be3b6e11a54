"""`fedperf jobs`: the jobs that `fedperf predict JOB` predicts."""

from collections.abc import Iterator

import typer

from fedperf_client.commands.program import Json, home_of
from fedperf_client.formatting.facts import Fact, show_table
from fedperf_client.home.config import Home
from fedperf_shared.errors import FedperfError
from fedperf_shared.runtime.command_line import shortened

MOST_SHOWN = 50  # jobs in the table for people
LONGEST = 100  # characters of a name, and of the ranges


def jobs(context: typer.Context, json: Json = False) -> None:
    """List the jobs that predict JOB --at predicts, with the measured ranges.

    They are profiled campaigns, and the jobs of ingested tables of past runs.
    """
    home = home_of(context)
    rows = list(_rows(home))
    some_rows = rows if json else rows[:MOST_SHOWN]
    show_table(
        some_rows,
        json=json,
        empty="no job has columns to predict it by; ingest a table of past runs with: fedperf "
        "ingest runs.csv, or measure a job with: fedperf profile FILE",
    )
    if not json and rows:
        if len(some_rows) < len(rows):
            typer.echo(f"{len(some_rows)} of {len(rows)} jobs shown; --json lists all")
        typer.echo("next: fedperf predict JOB --at COLUMN=VALUE,...")


def _rows(home: Home) -> Iterator[list[Fact]]:
    """Yield the facts of every job, campaigns first."""
    from fedperf_campaigns.campaign.definition import find_journals, load_campaign_by_name_or_path
    from fedperf_campaigns.campaign.predictions import JobMeasurements, load_measurements
    from fedperf_campaigns.campaign.stored_job import load_stored_job, measured_ranges
    from fedperf_client.home.store import ExecutionStore

    def facts(measured: JobMeasurements, kind: str, runs: int) -> list[Fact]:
        ranges = measured_ranges(measured)
        words = "; ".join(f"{name} {values}" for name, values in ranges.items())
        return [
            Fact("job", measured.name, "job", shortened(measured.name, LONGEST)),
            Fact("kind", kind, "kind"),
            Fact("runs", runs, "runs"),
            Fact("measured", ranges, "measured", shortened(words, LONGEST)),
        ]

    campaigns = set()
    for path in sorted((home.directory / "campaigns").glob("*.toml")):
        name = path.stem.rpartition("-")[0]
        if name in campaigns or not find_journals(home.directory, name):
            continue
        try:
            campaign = load_campaign_by_name_or_path(home.directory, name)
            measured = load_measurements(home.directory, campaign)
        except FedperfError:  # nothing was measured, or its record cannot be read
            continue
        campaigns.add(name)
        yield facts(measured, "campaign", len(measured.seconds))
    with ExecutionStore.open_to_read(home.store) as store:
        for name, count in store.jobs_of_tables().items():
            if name in campaigns:
                continue
            try:
                yield facts(load_stored_job(store, name), "table", count)
            except FedperfError:  # all of its runs failed
                continue
