"""The command line of an organization: `fedperf`.

Each command imports heavy libraries only when it runs, so that help is fast. Every command prints
one line per fact for people, and JSON for programs with `--json`.
"""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from click import UsageError

from fedperf_client.commands import (
    assistant,
    compare,
    diagnose,
    drift,
    evaluate,
    predict,
    release,
    runs,
    status,
)
from fedperf_client.commands import ingest as ingest_cli
from fedperf_client.commands.program import AnnexCommands, Json, home_of, now
from fedperf_client.formatting.facts import show_table
from fedperf_shared.runtime import command_line
from fedperf_shared.runtime.command_line import show, show_rows, visible

if TYPE_CHECKING:
    from fedperf_client.home.config import Home
    from fedperf_client.release.policy import Policy

app = typer.Typer(
    name="fedperf",
    help="Predict run times of data-analytics jobs from logs; optionally learn with others.",
    cls=AnnexCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: "
    + "; ".join(f"{code} {text}" for code, text in command_line.EXIT_CODES.items()),
)
app.command(rich_help_panel="Analyze")(ingest_cli.ingest)
app.command(rich_help_panel="Analyze")(diagnose.diagnose)
app.command(rich_help_panel="Analyze")(drift.drift)
app.command(rich_help_panel="Analyze")(compare.compare)
app.add_typer(runs.app, name="runs", rich_help_panel="Analyze")
app.command(rich_help_panel="Predict")(predict.predict)
app.command(rich_help_panel="Predict")(predict.weights)
app.command(rich_help_panel="Predict")(evaluate.evaluate)
app.command(rich_help_panel="Predict")(assistant.mcp)
app.command(rich_help_panel="Federate")(status.status)
app.add_typer(release.app, name="release", rich_help_panel="Privacy")

PROBLEMS_FOUND = 3  # exit code of `doctor` if it finds a problem


def main() -> None:
    """Run the command line."""
    command_line.run(app)


@app.callback()
def options(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(help="Data directory of this organization.", envvar="FEDPERF_HOME"),
    ] = None,
    version: command_line.Version = False,
) -> None:
    """Read the options of all commands."""
    del version  # its callback has ended the program
    context.obj = home


@app.command(rich_help_panel="Maintain")
def init(
    context: typer.Context,
    size: Annotated[
        Literal["small", "large"] | None,
        typer.Option(help="Size class: large from about 2,000 workloads a period, else small."),
    ] = None,
    workloads: Annotated[
        int | None,
        typer.Option(
            help="Approximate number of workloads in a period. It is declared, not counted. "
            "Default: 200."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create the data directory with a configuration and a privacy policy.

    Also shows the date of the first release and what would change it. An existing directory is not
    changed; the exit code is 3 if its policy has other values than the options.
    """
    from fedperf_client.commands.planned_releases import (
        expected_calendar,
        forecast_values,
        print_forecast,
    )
    from fedperf_client.release.policy import Policy, load_policy, policy_template
    from fedperf_shared.releases.release import SizeClass
    from fedperf_shared.runtime.extras import missing_packages

    home = home_of(context, must_exist=False)
    exists = home.policy.exists()
    if exists:
        _require_same(home, load_policy(home.policy), size, workloads)
    size_class, workloads = SizeClass(size or "small"), 200 if workloads is None else workloads
    Policy(size_class=size_class, nominal_workloads=workloads)  # validate before writing anything
    can_join = not any(missing_packages("join"))
    home.create(policy_template(size_class, workloads))
    facts = {"directory": home.directory, "configuration": home.config, "policy": home.policy}
    policy, at = load_policy(home.policy), now()
    calendar = expected_calendar(home, at=at)
    forecast = forecast_values(policy, calendar, at=at) if json and can_join else {}
    show(facts | forecast, json=json)
    if exists:
        print(f"note: {home.directory} already exists; its policy was not changed", file=sys.stderr)
    elif not can_join:
        print("note: to join others, run: pip install 'fedperf[join]'", file=sys.stderr)
    elif not json:
        print_forecast(policy, calendar, at=at)
        typer.echo(
            "Next: read the policy, which is fixed when a period begins. Then run fedperf ingest "
            "FILE, fedperf simulate to preview your year, and fedperf join URL with the URL from "
            "the coordinator's operator."
        )


@app.command(rich_help_panel="Federate")
def join(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="The join URL from the coordinator's operator.")],
    json: Json = False,
) -> None:
    """Join a coordinator. Both sides then show the same fingerprint of your key."""
    from fedperf_client.commands.planned_releases import (
        forecast_values,
        print_forecast,
        public_calendar,
        store_calendar,
    )
    from fedperf_client.home.config import Contact
    from fedperf_client.node import enrollment
    from fedperf_client.release.policy import load_policy
    from fedperf_shared.errors import FedperfError
    from fedperf_shared.identity import fingerprint

    home = home_of(context)
    key = enrollment.load_or_create_key(home.identity)
    try:
        previous = enrollment.Membership.load(home.identity)
    except FedperfError:  # none, or a damaged one, which joining replaces
        previous = None
    membership = enrollment.join(url, key, joined=previous)
    membership.save(home.identity)
    Contact(heard_at=now()).note(home)
    facts: dict[str, object] = {
        "fingerprint": fingerprint(key.public_key()),
        "exchange": membership.exchange_address,
        "fleet": membership.fleet_address,
    }
    try:
        policy, at = load_policy(home.policy), now()
        calendar = public_calendar(home, at=at)
        store_calendar(home, calendar)
    except FedperfError as error:
        show(facts, json=json)
        print(f"note: the date of the first release is unknown: {error}", file=sys.stderr)
        return
    show(facts | (forecast_values(policy, calendar, at=at) if json else {}), json=json)
    if not json:
        print_forecast(policy, calendar, at=at)
        typer.echo(
            "Next: compare the fingerprint with the coordinator's operator by telephone. If "
            "fedperf-server org list shows another one, another party used your invitation. Then "
            "start fedperf daemon, which fixes the schedule."
        )


@app.command(hidden=True)
def leave() -> None:
    """Explain how an organization leaves, which no command does."""
    raise UsageError(
        "No command is needed to leave. Stop fedperf daemon, so that nothing more is sent. Then "
        "ask the coordinator's operator to revoke your membership. The coordinator keeps what "
        "was sent; your runs, predictions and ledgers stay here."
    )


@app.command(rich_help_panel="Federate")
def daemon(context: typer.Context) -> None:
    """Ingest new runs, send scheduled releases and fetch shared models until interrupted."""
    from fedperf_shared.runtime.process import quiet_flower, stop_on_signals

    quiet_flower()
    from fedperf_client.node.daemon import run_daemon

    run_daemon(home_of(context), clock=now, stop=stop_on_signals())


@app.command(rich_help_panel="Maintain")
def doctor(context: typer.Context, json: Json = False) -> None:
    """Check directories, settings, budget, certificates, coordinator, disk and versions.

    Each finding is ok, a warning or a problem, with advice. The exit code is 3 if there is a
    problem. The only network traffic is a status request to the coordinator, if you have joined.
    """
    from fedperf_client.commands.checks import Environment, Severity, examine

    findings = examine(home_of(context, must_exist=False), Environment(now))
    if json:
        show_rows([asdict(each) for each in findings], json=True, empty="")
    else:
        for each in findings:
            typer.echo(f"{each.verdict:8} {each.check}: {visible(each.what)}")
            if each.advice:
                typer.echo(f"         -> {visible(each.advice)}")
    if any(each.verdict is Severity.PROBLEM for each in findings):
        raise typer.Exit(PROBLEMS_FOUND)


@app.command(rich_help_panel="Privacy")
def budget(context: typer.Context, json: Json = False) -> None:
    """Show the spent and remaining epsilon, in total and by period.

    Epsilon is for adding or removing one workload. "replace one" is the spent epsilon for
    replacing one workload by another. "planned" is the cost of all slots of the schedules, which
    counts for the lifetime. Before the first period it is the cost of the expected schedule.
    """
    from fedperf_client.commands.planned_releases import expected_schedule, note_of_expected
    from fedperf_client.release.history import UNIT, expected_spending, read_spending

    home = home_of(context)
    if home.ledgers:
        spending = read_spending(home.ledgers, at=now())
    else:
        policy, planned = expected_schedule(home, at=now())
        spending = expected_spending(planned.schedule, policy.budget, policy.lifetime)
    show_table([each.facts for each in spending], json=json)
    if not json:
        typer.echo(f"Privacy unit: {UNIT}. Spent epsilon is for one added or removed.")
    if not home.ledgers:
        note_of_expected(home, at=now())
    elif not json and (stop := status.stop_reason(home)):
        typer.echo(f"stopped: {stop}")


@app.command(rich_help_panel="Privacy")
def reconcile(context: typer.Context, json: Json = False) -> None:
    """Charge everything that a ledger restored from a backup may have lost, and continue."""
    from fedperf_client.release.ledger import PrivacyLedger, reconcile_lifetime
    from fedperf_client.release.policy import load_policy

    home = home_of(context)
    if not home.ledgers:
        show_rows([], json=json, empty="no period has begun, so there is nothing to reconcile")
        return
    ledgers = [PrivacyLedger.open(path) for path in home.ledgers]
    rows: list[dict[str, object]] = []
    for ledger in ledgers:
        problem = ledger.disagreement()
        charged = () if problem is None else ledger.reconcile(now())
        rows.append({"ledger": ledger.path.name, "problem": problem, "charged": len(charged)})
    problem, lost = reconcile_lifetime(ledgers, load_policy(home.policy).lifetime)
    rows.append({"ledger": "lifetime.sqlite", "problem": problem, "charged": len(lost)})
    show_rows(rows, json=json, empty="")


@app.command(rich_help_panel="Federate")
def evaluate_synthetic(context: typer.Context, json: Json = False) -> None:
    """Compare the coordinator's synthetic rows with your own runs. The scores stay local."""
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.node.enrollment import Membership, load_or_create_key
    from fedperf_client.node.exchange import ExchangeClient
    from fedperf_client.prediction.synthetic_quality import quality_of

    home = home_of(context)
    membership = Membership.load(home.identity)
    with ExchangeClient(membership, load_or_create_key(home.identity)) as exchange:
        synthetic = exchange.synthetic_rows()
    with ExecutionStore.open(home.store) as store:
        quality = quality_of(store.executions(), synthetic)
    show(quality.as_row(), json=json)


def _require_same(home: "Home", policy: "Policy", size: str | None, workloads: int | None) -> None:
    """Raise if the options of `init` differ from the policy of an existing directory."""
    from fedperf_shared.errors import ConfigurationError

    differences = []
    if size not in (None, policy.size_class):
        differences.append(f"size_class {policy.size_class}, not {size}")
    if workloads not in (None, policy.nominal_workloads):
        differences.append(f"nominal_workloads {policy.nominal_workloads:g}, not {workloads}")
    if differences:
        counts = "with the next period" if home.ledgers else "at once, as no period has begun"
        raise ConfigurationError(
            f"{home.directory} already exists and was not changed. It has "
            f"{', '.join(differences)}. To change that, edit {home.policy}; it counts {counts}"
        )
