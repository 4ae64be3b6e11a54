"""A data directory with the campaign of `tests/cases/nightly` and its journal by `profile`."""

from datetime import timedelta
from pathlib import Path

from fedperf_campaigns.campaign.definition import (
    WHOLE,
    Campaign,
    journal_path,
    load_campaign,
    store_definition,
)
from fedperf_campaigns.campaign.journal import Journal, TrialKey, TrialOutcome, TrialStatus
from fedperf_client.home.config import Home
from fedperf_client.sources.history_file import executions_of
from fedperf_shared.execution import Execution
from tests.unit.client.profiling.campaign.campaigns import MACHINE

CASE = Path(__file__).parents[4] / "cases" / "nightly"
CAMPAIGN = CASE / "campaign.toml"


def configuration_of(campaign: Campaign, execution: Execution) -> int:
    """Return the configuration's number, by rows and workers."""
    rows = execution.plan.workflow.operators[0].output_rows
    workers = execution.cluster.cores
    [number] = [
        number
        for number, each in enumerate(campaign.grid.configurations)
        if (each["rows"], each["workers"]) == (rows, workers)
    ]
    return number


def trials_of_the_case(campaign: Campaign) -> list[tuple[TrialKey, TrialOutcome]]:
    """Return the measured trials in their order."""
    found: list[tuple[TrialKey, TrialOutcome]] = []
    for each in sorted(executions_of(CASE / "executions.parquet"), key=lambda e: e.finished_at):
        number = configuration_of(campaign, each)
        repetition = sum(key.configuration == number for key, _ in found)
        assert each.measurement is not None
        outcome = TrialOutcome(TrialStatus.OK, wall_seconds=each.measurement.runtime_seconds)
        found.append((TrialKey(number, WHOLE, repetition), outcome))
    return found


def with_trials(home: Home, file: Path, trials: list[tuple[TrialKey, TrialOutcome]]) -> None:
    """Write a journal of the trials and store the campaign file, as `profile` does."""
    campaign = load_campaign(file)
    store_definition(home.directory, campaign, file)
    first = next(iter(executions_of(CASE / "executions.parquet"))).finished_at
    path = journal_path(home.directory, campaign)
    with Journal.open(path, campaign.campaign_id) as journal:
        session = journal.begin_session(MACHINE, boot="boot", at=first)
        for second, (key, outcome) in enumerate(trials):
            number = journal.begin(
                key,
                session=session,
                attempt=0,
                is_cold=False,
                token=str(second),
                at=first + timedelta(seconds=second),
            )
            journal.end(number, outcome, at=first + timedelta(seconds=second + 1))


def with_nightly(home: Home, *, most: int | None = None) -> Home:
    """Add the case's campaign to the data directory, with its first `most` trials."""
    with_trials(home, CAMPAIGN, trials_of_the_case(load_campaign(CAMPAIGN))[:most])
    return home
