"""`fedperf profile`: measure the organization's own job over a grid."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import Json, home_of, now
from fedperf_client.formatting.progress import counting_bar
from fedperf_shared.runtime.command_line import INTERRUPTED, NOTHING_MEASURED, show, visible

if TYPE_CHECKING:
    from fedperf_campaigns.campaign.summary import Summary


def profile(
    context: typer.Context,
    campaign: Annotated[
        Path, typer.Argument(help="Campaign file: TOML with tables component and grid.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Directory of the results; in the home by default.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the file and what it names; show what would run."),
    ] = False,
    json: Json = False,
) -> None:
    """Measure your own job over a grid of sizes, parallelism, platforms and parameters.

    Every trial runs in a process of its own and is written down before the next one starts; one
    that was noisy or failed runs again, by run.retries. After a crash, a kill or Ctrl-C the
    same command goes on where it was. Results are report.html, trials.csv and summary.json;
    trials of the whole job become executions of the local store, and fedperf predict NAME predicts
    other configurations. Where nothing was measured, results of an earlier
    campaign stay, and the command ends with 8 if every trial failed. Nothing is sent anywhere.
    """
    from fedperf_campaigns.campaign.campaign import missing_parts, plan, profile_campaign
    from fedperf_campaigns.campaign.definition import (
        load_campaign,
        store_definition,
        unused_columns,
    )
    from fedperf_client.home.store import ExecutionStore
    from fedperf_shared.runtime.process import stop_on_signals
    from fedperf_shared.runtime.settings_file import WrongSettingsError

    home = home_of(context)
    definition = load_campaign(campaign)
    planned = plan(definition, home.directory)
    if dry_run:
        if problems := missing_parts(definition, os.environ):
            raise WrongSettingsError(str(campaign), problems)
        unused = unused_columns(definition.settings.component, tuple(definition.grid.columns))
        facts: dict[str, object] = {
            "name": definition.name,
            "campaign": definition.campaign_id[:12],
            "configurations": planned.configurations,
            "ruled_out": planned.ruled_out,
            "measured": ", ".join(definition.targets),
            "trials": planned.trials,
            "done": planned.settled,
            "unused_columns": unused,
        }
        if not json and definition.settings.run.retries:
            facts["trials"] = f"{planned.trials}, more where one is noisy or fails: it runs again"
        if not json:
            message = f"{', '.join(unused)}: no component uses it, so nothing varies with it"
            facts["unused_columns"] = message if unused else "none"
        show(facts, json=json)
        return
    store_definition(home.directory, definition, campaign)
    with (
        ExecutionStore.open(home.store) as store,
        counting_bar("trials", planned.trials, done=planned.settled) as advance,
    ):
        summary = profile_campaign(
            definition,
            home=home.directory,
            store=store,
            environment=os.environ,
            clock=now,
            stop=stop_on_signals(),
            on_trial=lambda trial, is_settled: advance(
                int(is_settled), "" if trial.outcome is None else trial.outcome.status.value
            ),
        )
    _show_results(summary, out or home.directory / "campaigns" / definition.name, json=json)
    if summary.stopped.is_spent:
        print(f"{summary.stopped.reason}; raise it in {campaign} to go on", file=sys.stderr)
    if summary.stopped.interrupted:
        print(f"stopped; go on with: fedperf profile {campaign}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if summary.failed and not summary.measured:
        raise typer.Exit(NOTHING_MEASURED)


def _show_results(summary: "Summary", directory: Path, *, json: bool) -> None:
    """Write the results, unless earlier ones with measurements would be lost, and show them."""
    from fedperf_campaigns.campaign.report import holds_measurements, write_results
    from fedperf_campaigns.campaign.summary import as_json

    keeps = not summary.measured and holds_measurements(directory)
    report = None if keeps else str(write_results(directory, summary)["report.html"])
    facts = as_json(summary)
    keys = ("name", "campaign", "complete", "stopped", "status", "configurations", "repeat_noise")
    results = {name: facts[name] for name in keys} | {"report": report}
    if not json:
        median, largest = facts["repeat_noise"].values()
        results |= {
            "status": _status_text(summary),
            "repeat_noise": ""
            if median is None
            else f"{median:.1%} of the median typically, {largest:.1%} at most",
        }
        results |= {"report": results.pop("report"), **_times_found(summary)}
    show({name: value for name, value in results.items() if json or value != ""}, json=json)
    if failed := summary.failed:
        reason = failed[-1].outcome.reason if failed[-1].outcome else ""
        print(
            f"{len(failed)} trials did not end well, the last one: {visible(reason)}",
            file=sys.stderr,
        )
    if keeps:
        print(
            f"the results of an earlier campaign in {directory} stay as they are",
            file=sys.stderr,
        )


def _status_text(summary: "Summary") -> str:
    """Return the counts of statuses that occurred, and what they mean."""
    from fedperf_campaigns.campaign.journal import TrialStatus

    counts = ", ".join(f"{count} {name}" for name, count in summary.statuses.items() if count)
    if not summary.measured:
        return f"nothing was measured: {counts or 'no trial ended'}"
    remarks = []
    if summary.statuses[TrialStatus.NOISY.value]:
        remarks.append("noisy ones count as well")
    if again := sum(each.attempt > 0 for each in summary.trials):
        remarks.append(f"{again} of them ran again what was noisy or failed at first")
    return f"{counts} ({'; '.join(remarks)})" if remarks else counts


def _times_found(summary: "Summary") -> dict[str, str]:
    """Return the fastest and the slowest configuration, and the command that predicts others."""
    from fedperf_campaigns.campaign.definition import WHOLE
    from fedperf_campaigns.campaign.grid import value_word
    from fedperf_shared.runtime.quantities import duration_text

    def columns(number: int) -> str:
        return ",".join(f"{n}={value_word(value)}" for n, value in summary.values(number).items())

    ranking = sorted(
        (each.median_seconds, each.configuration)
        for each in summary.repeats
        if each.component == WHOLE and each.median_seconds is not None
    )
    if not ranking:
        return {}
    (least, first), (most, last) = ranking[0], ranking[-1]
    return {
        "fastest": f"{duration_text(least)} at {columns(first)}",
        "slowest": f"{duration_text(most)} at {columns(last)}",
        "ask": f"fedperf predict {summary.campaign.name} --at {columns(last)}",
    }
