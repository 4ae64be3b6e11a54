"""The command line of an organization: `fedperf`.

Nothing heavy is imported before a command needs it, so that help answers at once.
Every command has `--json` for programs and one line per fact for people.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_shared import command_line
from fedperf_shared.command_line import show, show_rows
from fedperf_shared.release import SizeClass

if TYPE_CHECKING:
    from fedperf_client.config import Home

app = typer.Typer(
    name="fedperf",
    help="Predict run times with what many organizations learned, without showing your jobs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: "
    + "; ".join(f"{code} {text}" for code, text in command_line.EXIT_CODES.items()),
)
release_app = typer.Typer(help="What leaves and what has left.", no_args_is_help=True)
app.add_typer(release_app, name="release")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


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
) -> None:
    """Read the options that every command has."""
    context.obj = home


@app.command()
def init(
    context: typer.Context,
    size: Annotated[
        SizeClass, typer.Option(help="large from about 2,000 workloads a period on.")
    ] = SizeClass.SMALL,
    workloads: Annotated[
        int, typer.Option(help="About how many workloads run in a period; declared, not counted.")
    ] = 200,
    json: Json = False,
) -> None:
    """Make this organization's directory with a configuration and a privacy policy to read."""
    from fedperf_client.release.policy import Policy, policy_template

    Policy(size_class=size, nominal_workloads=workloads)  # refused before anything is written
    home = _home(context, must_exist=False)
    home.create(policy_template(size, workloads))
    show(
        {"directory": home.directory, "configuration": home.config, "policy": home.policy},
        json=json,
    )


@app.command()
def join(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="The join URL from the coordinator's operator.")],
    json: Json = False,
) -> None:
    """Become a member of a coordinator; both sides show the same fingerprint of your key."""
    from fedperf_client.federation import enrollment
    from fedperf_shared.identity import fingerprint

    home = _home(context)
    key = enrollment.load_or_create_key(home.identity)
    membership = enrollment.join(url, key)
    membership.save(home.identity)
    show(
        {
            "fingerprint": fingerprint(key.public_key()),
            "exchange": membership.exchange_address,
            "fleet": membership.fleet_address,
        },
        json=json,
    )


@app.command()
def ingest(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="History files, or directories of them.")],
    json: Json = False,
) -> None:
    """Take executions that already ran into the local store; twice is harmless."""
    from fedperf_client.sources.following import follow
    from fedperf_client.store import ExecutionStore

    with ExecutionStore.open(_home(context).store) as store:
        taken = follow(paths, {}, store)
    show({"read": taken.seen, "new": taken.new, "skipped": taken.reasons()}, json=json)


@app.command()
def profile(
    context: typer.Context,
    executions: Annotated[int, typer.Option(min=1, help="How many to run.")] = 100,
    family: Annotated[
        list[str] | None, typer.Option(help="Families to draw from; all by default.")
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Largest input.")] = 100_000,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every run.")] = 1,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    json: Json = False,
) -> None:
    """Run workloads that ship with fedperf on this machine and store what was measured."""
    from fedperf_client.profiling.shipped import profile_shipped, progress_bar
    from fedperf_client.store import ExecutionStore

    home = _home(context)
    with ExecutionStore.open(home.store) as store, progress_bar(executions) as advance:
        statuses = profile_shipped(
            store,
            data_directory=home.data,
            count=executions,
            families=family or [],
            max_rows=max_rows,
            threads=threads,
            seed=seed,
            clock=_now,
            on_progress=advance,
        )
    show({"executions": sum(statuses.values()), "status": statuses}, json=json)


@app.command()
def daemon(context: typer.Context) -> None:
    """Follow the history, keep this period's slots, fetch shared models; until interrupted."""
    from fedperf_shared.flower_settings import quiet_flower
    from fedperf_shared.stopping import stop_on_signals

    quiet_flower()
    from fedperf_client.daemon import run_daemon

    run_daemon(_home(context), clock=_now, stop=stop_on_signals())


@app.command()
def status(context: typer.Context, json: Json = False) -> None:
    """Show membership, executions, the shared model and the budget."""
    from fedperf_client.federation.enrollment import Membership, load_or_create_key
    from fedperf_client.prediction.starts import FetchedModels
    from fedperf_client.store import ExecutionStore
    from fedperf_shared.errors import ConfigurationError
    from fedperf_shared.identity import fingerprint

    home = _home(context)
    try:
        coordinator: str | None = Membership.load(home.identity).exchange_address
        key = fingerprint(load_or_create_key(home.identity).public_key())
    except ConfigurationError:
        coordinator, key = None, ""
    with ExecutionStore.open(home.store) as store:
        counts = store.counts()
    show(
        {
            "coordinator": coordinator,
            "fingerprint": key,
            "executions": counts.executions,
            "workloads": counts.workloads,
            "model_version": FetchedModels(home.models).shared_version,
            "epsilon_spent": _spent(home),
        },
        json=json,
    )


@app.command()
def budget(context: typer.Context, json: Json = False) -> None:
    """Show what the releases of each period cost, and what is left; the unit is the workload.

    Epsilon is for adding or removing one workload; beside it stands what was spent when one
    workload is replaced by another.
    """
    from fedperf_client.privacy.accountant import events_of, replace_one_epsilon
    from fedperf_client.release.ledger import PrivacyLedger

    periods = []
    for path in _home(context).ledgers:
        ledger = PrivacyLedger.open(path)
        spent, delta = ledger.spent(_now()), ledger.budget.delta
        made = {entry.key for entry in ledger.entries()}
        charged = [slot for slot in ledger.schedule.slots if slot.key in made]
        periods.append(
            {
                "period_start": ledger.schedule.timetable.period.start.isoformat(),
                "unit": "workload",
                "epsilon": ledger.budget.epsilon,
                "delta": delta,
                "spent": spent,
                "spent_replace_one": replace_one_epsilon(events_of(charged), delta),
                "left": ledger.budget.epsilon - spent,
                "slots": len(ledger.schedule.slots),
                "made": len(charged),
            }
        )
    show_rows(periods, json=json, empty="no period has begun; start the daemon after joining")


@app.command()
def reconcile(context: typer.Context, json: Json = False) -> None:
    """After a ledger was restored from a backup: charge all that may have been lost, go on."""
    from fedperf_client.release.ledger import PrivacyLedger

    rows = []
    for path in _home(context).ledgers:
        ledger = PrivacyLedger.open(path)
        problem = ledger.disagreement()
        charged = () if problem is None else ledger.reconcile(_now())
        rows.append({"ledger": path.name, "problem": problem, "slots_charged": len(charged)})
    show_rows(rows, json=json, empty="no period has begun; there is nothing to reconcile")


@app.command()
def gain(
    context: typer.Context,
    held_out: Annotated[
        Path, typer.Option(help="History file of executions that are in no store.")
    ],
    json: Json = False,
) -> None:
    """Compare predictions with and without joining on executions that were held out."""
    from fedperf_client.prediction.gain import gain_on
    from fedperf_client.prediction.starts import FetchedModels
    from fedperf_client.sources.history_file import executions_of
    from fedperf_client.store import ExecutionStore

    home = _home(context)
    with ExecutionStore.open(home.store) as store:
        own = list(store.executions())
    found = gain_on(own, executions_of(held_out), FetchedModels(home.models))
    show(found.as_row(), json=json)


@release_app.command("list")
def release_list(context: typer.Context, json: Json = False) -> None:
    """List every release that was charged: kind, window, size and how far it came."""
    from fedperf_client.release.ledger import PrivacyLedger

    home = _home(context)
    rows = []
    for path in home.ledgers:
        ledger = PrivacyLedger.open(path)
        for entry in ledger.entries():
            release_id = entry.key.release_id(ledger.schedule.timetable.period)
            rows.append(
                {
                    "kind": entry.key.kind.name.lower(),
                    "window": entry.key.window,
                    "index": entry.key.index,
                    "charged_at": entry.reserved_at.isoformat(),
                    "state": str(entry.state),
                    "bytes": entry.payload_bytes,
                    "receipt": (home.receipts / f"{release_id.hex()}.receipt").exists(),
                }
            )
    show_rows(rows, json=json, empty="nothing has been released")


@release_app.command("slots")
def release_slots(context: typer.Context, json: Json = False) -> None:
    """List every slot of the period with its privacy parameters: what may leave, and when."""
    from dataclasses import asdict

    from fedperf_client.release.ledger import PrivacyLedger

    rows = []
    for path in _home(context).ledgers[-1:]:
        schedule = PrivacyLedger.open(path).schedule
        for slot in schedule.slots:
            rows.append(
                {
                    "kind": slot.key.kind.name.lower(),
                    "window": slot.key.window,
                    "index": slot.key.index,
                    "opens_at": schedule.opens_at(slot.key).isoformat(),
                    "leaves_at": schedule.replies_at(slot.key).isoformat(),
                    **asdict(slot.parameters),
                }
            )
    show_rows(rows, json=json, empty="no period has begun; start the daemon after joining")


def _home(context: typer.Context, *, must_exist: bool = True) -> "Home":
    """This organization's directory, with a configuration that can be used unless it is new."""
    from fedperf_client.config import Home

    directory: Path | None = context.obj
    if directory is None:
        import platformdirs

        directory = Path(platformdirs.user_data_dir("fedperf"))
    home = Home(directory)
    if must_exist:
        home.load_config()
    return home


def _spent(home: "Home") -> float | None:
    from fedperf_client.release.ledger import PrivacyLedger

    if not home.ledgers:
        return None
    return PrivacyLedger.open(home.ledgers[-1]).spent(_now())


def _now() -> datetime:
    return datetime.now(UTC)
