"""`fedperf predict --campaign`: predict a profiled job at other values of its columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from fedperf_client.formatting.facts import show_table, values_of
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE, show
from fedperf_shared.runtime.quantities import counted

if TYPE_CHECKING:
    from fedperf_campaigns.campaign.predictions import CampaignMeasurements
    from fedperf_campaigns.tables.predictor import TablePredictor
    from fedperf_client.home.config import Home

LEAST_SHOWN = 0.005  # members of less weight are not shown to people


def show_campaign(
    home: "Home", words: str, settings: Sequence[str], deadline: str | None, *, json: bool
) -> None:
    """Predict for the campaign of a file or a name; exit 7 where no deadline is met."""
    from fedperf_campaigns.campaign import predictions
    from fedperf_campaigns.campaign.definition import load_campaign_by_name_or_path
    from fedperf_campaigns.campaign.predictions import parse_query_configurations
    from fedperf_client.prediction.serving.what_if import parse_duration

    seconds = None if deadline is None else parse_duration(deadline)
    campaign = load_campaign_by_name_or_path(home.directory, words)
    configurations = parse_query_configurations(campaign.grid, settings)
    measured = predictions.load_measurements(home.directory, campaign)
    with progress_bar("weighing predictors", json=json) as advance:
        predictor = measured.predictor(
            elsewhere=predictions.scatter_of_others(home.directory, campaign), on_progress=advance
        )
        results = predictions.predict_configurations(
            predictor, measured, configurations, deadline_seconds=seconds
        )
    if json:
        facts: dict[str, object] = {
            "campaign": campaign.name,
            "predictions": [values_of(each.facts) for each in results],
            "executions": len(measured.seconds),
            "configurations": measured.configurations,
            "timed_out": len(measured.stopped_seconds),
            "failed": measured.failed,
            "load": measured.load.as_row(),
            "ensemble": predictor.members,
        }
        if seconds is not None:
            fewest = predictions.smallest_meeting_deadline(campaign.grid, results)
            facts |= {"deadline_seconds": seconds, "cheapest_feasible": fewest}
        show(facts, json=True)
    else:
        show_table([each.facts for each in results], json=False)
        if seconds is not None:
            for line in predictions.deadline_sentences(campaign.grid, results, seconds):
                typer.echo(line)
        for reason in dict.fromkeys(each.no_promise for each in results if each.no_promise):
            typer.echo(f"no promise: {reason}")
        typer.echo(_evidence(measured, predictor))
        if measured.load.sentence:
            typer.echo(f"note: {measured.load.sentence}")
    if seconds is not None and not any(each.holds for each in results):
        raise typer.Exit(NO_FEASIBLE_SIZE)


def _evidence(measured: "CampaignMeasurements", predictor: "TablePredictor") -> str:
    """Return the evidence of the predictions, for people."""
    members = sorted(predictor.members.items(), key=lambda each: -each[1])
    named = ", ".join(f"{name} {weight:.0%}" for name, weight in members if weight >= LEAST_SHOWN)
    text = (
        f"evidence: {counted(len(measured.seconds), 'run')} of "
        f"{counted(measured.configurations, 'configuration')}; ensemble: {named}; imports and "
        "connections before the first component's start are not in the time"
    )
    if measured.failed:
        text += f"; {counted(measured.failed, 'trial')} failed"
    if late := len(measured.stopped_seconds):
        text += f", {late} of them by timeout: they would have taken longer than that"
    return text


def is_profiled(home: "Home", name: str) -> bool:
    """Return whether a campaign of that name was profiled in this home."""
    from fedperf_campaigns.campaign.definition import find_journals

    return bool(find_journals(home.directory, name))
