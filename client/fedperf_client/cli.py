"""The command line of an organization: `fedperf`.

Nothing heavy is imported before a command needs it, so that help answers at once.
Every command has `--json` for programs and one line per fact for people.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from click import UsageError

from fedperf_client.commands import (
    compare,
    diagnose,
    doctor,
    drift,
    evaluate,
    predict,
    release,
    runs,
    status,
)
from fedperf_client.commands import ingest as ingest_cli
from fedperf_client.commands.annexes import AnnexCommands
from fedperf_client.commands.home_option import Json
from fedperf_client.commands.home_option import home_of as _home
from fedperf_client.commands.home_option import now as _now
from fedperf_client.formatting.facts import show_table
from fedperf_shared.releases.release import SizeClass
from fedperf_shared.runtime import command_line
from fedperf_shared.runtime.command_line import show, show_rows

if TYPE_CHECKING:
    from fedperf_client.home.config import Home

app = typer.Typer(
    name="fedperf",
    help="Predict run times of data-analytics jobs from logs; optionally learn with others.",
    cls=AnnexCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: "
    + "; ".join(f"{code} {text}" for code, text in command_line.EXIT_CODES.items()),
)
app.add_typer(release.app, name="release")
app.add_typer(runs.app, name="runs")
app.command()(ingest_cli.ingest)
app.command()(diagnose.diagnose)
app.command()(doctor.doctor)
app.command()(predict.predict)
app.command()(predict.weights)
app.command()(drift.drift)
app.command()(compare.compare)
app.command()(evaluate.evaluate)
app.command()(status.status)


def main() -> None:
    """Entry point of the console script."""
    command_line.run(app)


@app.callback()
def options(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(help="Directory of this organization.", envvar="FEDPERF_HOME"),
    ] = None,
    version: command_line.Version = False,
) -> None:
    """Read the options that every command has."""
    del version  # it has ended the program
    context.obj = home


@app.command()
def init(
    context: typer.Context,
    size: Annotated[
        SizeClass | None,
        typer.Option(help="large from about 2,000 workloads a period on; small by default."),
    ] = None,
    workloads: Annotated[
        int | None,
        typer.Option(
            help="About how many workloads run in a period; declared, not counted; 200 by default."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create the data directory with a configuration and a privacy policy.

    Says when the first release would leave and what would change that, while it can be changed.
    A directory that is there stays as it is: exit code 3 where other options are asked for.
    """
    from fedperf_client.commands.expectations import (
        expected_calendar,
        forecast_facts,
        print_forecast,
    )
    from fedperf_client.release.policy import Policy, load_policy, policy_template
    from fedperf_shared.runtime.extras import missing_packages

    home = _home(context, must_exist=False)
    exists = home.policy.exists()
    if exists:
        _require_same(home, size, workloads)
    size, workloads = size or SizeClass.SMALL, 200 if workloads is None else workloads
    Policy(size_class=size, nominal_workloads=workloads)  # refused before anything is written
    can_join = not any(missing_packages("join"))
    home.create(policy_template(size, workloads))
    facts = {"directory": home.directory, "configuration": home.config, "policy": home.policy}
    policy, at = load_policy(home.policy), _now()
    calendar = expected_calendar(home, at=at)
    forecast = forecast_facts(policy, calendar, at=at) if json and can_join else {}
    show(facts | forecast, json=json)
    if exists:
        print(f"note: {home.directory} exists already; its policy stays", file=sys.stderr)
    elif not can_join:
        print("note: to join others, run: pip install 'fedperf[join]'", file=sys.stderr)
    elif not json:
        print_forecast(policy, calendar, at=at)
        typer.echo(
            "next: read the policy, which counts for a period from its beginning on; then "
            "fedperf ingest FILE, fedperf simulate to see your year before you join, and "
            "fedperf join URL with what the coordinator gave you"
        )


@app.command()
def join(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="The join URL from the coordinator's operator.")],
    json: Json = False,
) -> None:
    """Join a coordinator; both sides show the same fingerprint of your key."""
    from fedperf_client.commands.expectations import (
        forecast_facts,
        keep_calendar,
        print_forecast,
        public_calendar,
    )
    from fedperf_client.federation import enrollment
    from fedperf_client.home.config import Contact
    from fedperf_client.release.policy import load_policy
    from fedperf_shared.errors import FedperfError
    from fedperf_shared.identity import fingerprint

    home = _home(context)
    key = enrollment.load_or_create_key(home.identity)
    try:
        before = enrollment.Membership.load(home.identity)
    except FedperfError:  # none, or one that is damaged, which joining replaces
        before = None
    membership = enrollment.join(url, key, joined=before)
    membership.save(home.identity)
    Contact(heard_at=_now()).note(home)
    facts: dict[str, object] = {
        "fingerprint": fingerprint(key.public_key()),
        "exchange": membership.exchange_address,
        "fleet": membership.fleet_address,
    }
    try:
        policy, at = load_policy(home.policy), _now()
        calendar = public_calendar(home, at=at)
        keep_calendar(home, calendar)
    except FedperfError as error:
        show(facts, json=json)
        print(f"note: when the first release leaves is not known: {error}", file=sys.stderr)
        return
    show(facts | (forecast_facts(policy, calendar, at=at) if json else {}), json=json)
    if not json:
        print_forecast(policy, calendar, at=at)
        typer.echo(
            "next: compare the fingerprint with the coordinator's operator, by telephone: it must "
            "be the one of `fedperf-server org list`, else somebody used your invitation; then "
            "start fedperf daemon, which fixes the schedule"
        )


@app.command(hidden=True)
def leave() -> None:
    """Say how an organization leaves: no command does it."""
    raise UsageError(
        "No command is needed to leave. Stop fedperf daemon: from then on nothing leaves. Then "
        "ask the coordinator's operator to revoke your membership. What has left stays there; "
        "your runs, predictions and ledgers stay here."
    )


@app.command()
def daemon(context: typer.Context) -> None:
    """Watch for new runs, send scheduled releases and fetch shared models until interrupted."""
    from fedperf_shared.runtime.flower_settings import quiet_flower
    from fedperf_shared.runtime.shutdown import stop_on_signals

    quiet_flower()
    from fedperf_client.daemon.daemon import run_daemon

    run_daemon(_home(context), clock=_now, stop=stop_on_signals())


@app.command()
def budget(context: typer.Context, json: Json = False) -> None:
    """Show the epsilon that releases have spent and what is left, in total and by period.

    Epsilon is for adding or removing one workload; beside it stands what was spent when one
    workload is replaced by another. "planned" is what all slots of the schedules cost, made
    or not, which is what counts for the lifetime. Before the first period it is what would be
    planned.
    """
    from fedperf_client.commands.expectations import expected_schedule, note_of_expected
    from fedperf_client.release.ledger.spent_budget import UNIT, expected_spending, spending_of

    home = _home(context)
    if home.ledgers:
        spending = spending_of(home.ledgers, at=_now())
    else:
        policy, planned = expected_schedule(home, at=_now())
        spending = expected_spending(planned.schedule, policy.budget, policy.lifetime)
    show_table([each.facts for each in spending], json=json)
    if not json:
        typer.echo(f"unit: {UNIT}; spent: one added or removed, replace one: one replaced")
    if not home.ledgers:
        note_of_expected(home, at=_now())
    elif not json and (stop := status.stop_of(home)):
        typer.echo(f"stopped: {stop}")


@app.command()
def reconcile(context: typer.Context, json: Json = False) -> None:
    """Charge all that a ledger restored from a backup may have lost, and continue."""
    from fedperf_client.release.ledger.ledger import PrivacyLedger
    from fedperf_client.release.ledger.spent_budget import reconcile_lifetime
    from fedperf_client.release.policy import load_policy

    home = _home(context)
    if not home.ledgers:
        show_rows([], json=json, empty="no period has begun; there is nothing to reconcile")
        return
    ledgers = [PrivacyLedger.open(path) for path in home.ledgers]
    rows: list[dict[str, object]] = []
    for ledger in ledgers:
        problem = ledger.disagreement()
        charged = () if problem is None else ledger.reconcile(_now())
        rows.append({"ledger": ledger.path.name, "problem": problem, "charged": len(charged)})
    problem, lost = reconcile_lifetime(ledgers, load_policy(home.policy).lifetime)
    rows.append({"ledger": "lifetime.sqlite", "problem": problem, "charged": len(lost)})
    show_rows(rows, json=json, empty="")


@app.command()
def evaluate_synthetic(context: typer.Context, json: Json = False) -> None:
    """Compare the coordinator's synthetic rows with your own runs; the scores stay local."""
    from fedperf_client.federation.enrollment import Membership, load_or_create_key
    from fedperf_client.federation.exchange import ExchangeClient
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.evaluation.quality import quality_of

    home = _home(context)
    membership = Membership.load(home.identity)
    with ExchangeClient(membership, load_or_create_key(home.identity)) as exchange:
        synthetic = exchange.synthetic_rows()
    with ExecutionStore.open(home.store) as store:
        found = quality_of(store.executions(), synthetic)
    show(found.as_row(), json=json)


def _require_same(home: "Home", size: SizeClass | None, workloads: int | None) -> None:
    """Raise where `init` was asked for something else than what the home declares already."""
    from fedperf_client.release.policy import load_policy
    from fedperf_shared.errors import ConfigurationError

    policy = load_policy(home.policy)
    asked = {
        "size_class": (size, policy.size_class),
        "nominal_workloads": (workloads, policy.nominal_workloads),
    }
    differs = [
        f"{key} {held if isinstance(held, str) else format(held, 'g')}, not {new}"
        for key, (new, held) in asked.items()
        if new is not None and new != held
    ]
    if differs:
        counts = "with the next period" if home.ledgers else "at once, as no period has begun"
        raise ConfigurationError(
            f"{home.directory} exists already and was left as it is, with {', '.join(differs)}; "
            f"edit {home.policy} to change that, it counts {counts}"
        )
