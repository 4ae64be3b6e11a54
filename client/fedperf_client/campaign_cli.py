"""The command of `fedperf` that measures a job of the organization itself over a grid."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedperf_client.home_option import Json
from fedperf_client.home_option import home_of as _home
from fedperf_client.home_option import now as _now
from fedperf_shared.command_line import INTERRUPTED, show, visible


def profile(
    context: typer.Context,
    campaign: Annotated[Path, typer.Argument(help="Campaign file; see the README for the form.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory of the results; in the home by default.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file and show what would run.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure your own job over a grid of sizes, parallelism, platforms and parameters.

    Every trial runs in a process of its own and is written down before the next one starts:
    after a crash, a kill or Ctrl-C the same command goes on where it was. Results are
    report.html, trials.csv and summary.json; trials of the whole job become executions of
    the local store. Nothing is sent anywhere.
    """
    from fedperf_client.profiling.campaign import command
    from fedperf_client.profiling.campaign.definition import load_campaign
    from fedperf_client.profiling.campaign.report import write_results
    from fedperf_client.profiling.campaign.summary import as_json
    from fedperf_client.store import ExecutionStore
    from fedperf_shared.stopping import stop_on_signals

    home = _home(context)
    wanted = load_campaign(campaign)
    planned = command.plan(wanted, home.directory)
    if dry_run:
        show(
            {
                "name": wanted.name,
                "campaign": wanted.campaign_id[:12],
                "configurations": planned.configurations,
                "ruled_out": planned.ruled_out,
                "measured": ", ".join(wanted.targets),
                "trials": planned.trials,
                "done": planned.settled,
            },
            json=json,
        )
        return
    with (
        ExecutionStore.open(home.store) as store,
        command.progress_bar(planned.trials, planned.settled) as advance,
    ):
        summary = command.profile_campaign(
            wanted,
            home=home.directory,
            store=store,
            environment=os.environ,
            clock=_now,
            stop=stop_on_signals(),
            on_trial=advance,
        )
    results = write_results(out or home.directory / "campaigns" / wanted.name, summary)
    facts = as_json(summary)
    shown = ("name", "campaign", "complete", "stopped", "status", "configurations", "repeat_noise")
    show({name: facts[name] for name in shown} | {"report": str(results["report.html"])}, json=json)
    if failed := summary.failed:
        reason = failed[-1].outcome.reason if failed[-1].outcome is not None else ""
        print(
            f"{len(failed)} trials did not end well, the last one: {visible(reason)}",
            file=sys.stderr,
        )
    if summary.stopped.is_spent:
        print(f"{summary.stopped.reason}; raise it in {campaign} to go on", file=sys.stderr)
    if summary.stopped.interrupted:
        print(f"stopped; go on with: fedperf profile {campaign}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
