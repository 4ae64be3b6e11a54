"""`fedperf predict --campaign`: predict a profiled job at other values of its columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from fedperf_client.formatting.facts import show_table, values_of
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.runtime.command_line import NO_ANSWER, show
from fedperf_shared.runtime.quantities import counted

if TYPE_CHECKING:
    from fedperf_campaigns.campaign.predictions import CampaignMeasurements
    from fedperf_campaigns.tables.predictor import TablePredictor
    from fedperf_client.home.config import Home

LEAST_SHOWN = 0.005
"""Members of less weight are not named to people."""


def show_campaign(
    home: "Home", words: str, settings: Sequence[str], deadline: str | None, *, json: bool
) -> None:
    """Answer about the campaign of a file or a name; ends with 7 where no deadline holds."""
    from fedperf_campaigns.campaign import predictions
    from fedperf_campaigns.campaign.definition import load_campaign_by_name_or_path
    from fedperf_campaigns.campaign.predictions import parse_query_configurations
    from fedperf_client.prediction.serving.what_if import parse_duration

    seconds = None if deadline is None else parse_duration(deadline)
    campaign = load_campaign_by_name_or_path(home.directory, words)
    asked = parse_query_configurations(campaign.grid, settings)
    measured = predictions.measured_by(home.directory, campaign)
    with progress_bar("weighing predictors", json=json) as advance:
        predictor = measured.predictor(
            elsewhere=predictions.scatter_elsewhere(home.directory, campaign), on_progress=advance
        )
        found = predictions.column_answers(predictor, measured, asked, deadline_seconds=seconds)
    if json:
        facts: dict[str, object] = {
            "campaign": campaign.name,
            "predictions": [values_of(each.facts) for each in found],
            **_rests_on(measured, predictor),
        }
        if seconds is not None:
            fewest = predictions.fewest_that_hold(campaign.grid, found)
            facts |= {"deadline_seconds": seconds, "cheapest_feasible": fewest}
        show(facts, json=True)
    else:
        show_table([each.facts for each in found], json=False)
        if seconds is not None:
            for line in predictions.verdicts(campaign.grid, found, seconds):
                typer.echo(line)
        for reason in dict.fromkeys(each.no_promise for each in found if each.no_promise):
            typer.echo(f"no promise: {reason}")
        typer.echo(_sentence(measured, predictor))
        if measured.load.sentence:
            typer.echo(f"note: {measured.load.sentence}")
    if seconds is not None and not any(each.holds for each in found):
        raise typer.Exit(NO_ANSWER)


def _rests_on(measured: "CampaignMeasurements", predictor: "TablePredictor") -> dict[str, object]:
    return {
        "executions": len(measured.seconds),
        "configurations": measured.configurations,
        "timed_out": len(measured.stopped_seconds),
        "failed": measured.failed,
        "load": measured.load.as_row(),
        "ensemble": predictor.members,
    }


def _sentence(measured: "CampaignMeasurements", predictor: "TablePredictor") -> str:
    """Return the evidence of the predictions, for people."""
    runs = counted(len(measured.seconds), "own run")
    members = sorted(predictor.members.items(), key=lambda each: -each[1])
    named = ", ".join(f"{name} {weight:.0%}" for name, weight in members if weight >= LEAST_SHOWN)
    said = (
        f"rests on {runs} of {counted(measured.configurations, 'configuration')}, by {named}; "
        "imports and connections before the first component's start are not in the time"
    )
    if measured.failed:
        said += f"; {counted(measured.failed, 'trial')} failed"
    if late := len(measured.stopped_seconds):
        said += f", {late} of them by timeout: they would have taken longer than that"
    return said


def is_profiled(home: "Home", name: str) -> bool:
    """Return whether a campaign of that name was profiled in this home."""
    from fedperf_campaigns.campaign.definition import journals_of

    return bool(journals_of(home.directory, name))
