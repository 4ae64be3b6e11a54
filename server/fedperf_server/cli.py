"""The command line of the coordinator's operator: `fedperf-server`.

Nothing heavy is imported before a command needs it. `run` is the server's composition
root: the only place that says which model, aggregation and yardstick are used.
"""

import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_shared.programs import command_line
from fedperf_shared.programs.command_line import show, show_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedperf_server.config import ServerConfig
    from fedperf_server.inference.drift_evidence import Drift
    from fedperf_server.membership.enrollment import Enrollment
    from fedperf_server.state.epochs import Epoch
    from fedperf_server.state.registry import ModelVersion, Verdict

app = typer.Typer(
    name="fedperf-server",
    help="Coordinate organizations that learn one cost model together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: "
    + "; ".join(f"{code} {text}" for code, text in command_line.EXIT_CODES.items()),
)

_MOMENTS = [
    f"{day}{zone}"
    for zone in ("", "%z")
    for day in ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S")
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def main() -> None:
    """Entry point of the console script."""
    command_line.run(app)


@app.callback()
def options(
    context: typer.Context,
    directory: Annotated[
        Path,
        typer.Option(
            help="Directory of keys, configuration and database.", envvar="FEDPERF_SERVER_DIRECTORY"
        ),
    ] = Path("fedperf-server"),
    version: command_line.Version = False,
) -> None:
    """Read the options that every command has."""
    del version  # it has ended the program
    context.obj = directory


@app.command()
def init(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Name or address that organizations connect to.")],
    period_start: Annotated[
        datetime | None,
        typer.Option(
            formats=_MOMENTS,
            metavar="MOMENT",
            help="When the first period begins, like 2027-01-01 or 2027-01-01T09:00+01:00; in UTC "
            "unless a zone is named; the beginning of today by default.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make keys, certificates and a configuration with a calendar of a year to edit.

    A directory that holds a server stays as it is: exit code 3 where other options are asked for.
    """
    from fedperf_server.config import FILE_NAME, ServerConfig, default_timetable, write_config
    from fedperf_server.membership import authority
    from fedperf_server.state.database import Database
    from fedperf_shared.errors import StorageError

    directory: Path = context.obj
    given = None if period_start is None else _in_utc(period_start)
    if (directory / FILE_NAME).exists():
        _require_same(_config(context), host, given)
        print(f"note: {directory} holds a server already; nothing was changed", file=sys.stderr)
        show({"directory": directory, "configuration": directory / FILE_NAME}, json=json)
        return
    start = given or _now().replace(hour=0, minute=0, second=0, microsecond=0)
    config = ServerConfig(directory, host, default_timetable(start))
    try:
        authority.init(directory, host, now=_now())
        path = write_config(config)
        Database(config.database_url).close()
    except OSError as error:
        raise StorageError(
            f"cannot write {directory}: {error.strerror}; choose another --directory"
        ) from error
    show({"directory": directory, "configuration": path}, json=json)


@app.command("add-org")
def add_org(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Your own name for the organization; stays here.")],
    json: Json = False,
) -> None:
    """Invite an organization: prints the join URL, good for one join, to hand over privately."""
    invitation = _enrollment(context)[1].add_organization(name)
    show(
        {
            "name": invitation.name,
            "join_url": invitation.url,
            "expires_at": invitation.expires_at.isoformat(),
        },
        json=json,
    )


@app.command("list")
def list_organizations(context: typer.Context, json: Json = False) -> None:
    """List the members: fingerprint (theirs must show the same), releases taken and refused."""
    from fedperf_server.desks.reports import standings
    from fedperf_server.state.database import Database

    config, enrollment = _enrollment(context)
    with Database.existing(config.database_url).transaction() as session:
        standing = standings(session)
    rows = [
        {
            "name": member.name,
            "fingerprint": member.fingerprint,
            "organization_id": member.organization_id.hex(),
            "accepted": standing[member.organization_id].accepted,
            "refused": standing[member.organization_id].refused,
        }
        for member in enrollment.members()
    ]
    show_rows(rows, json=json, empty="no organization has joined yet")


@app.command()
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the organization.")],
    json: Json = False,
) -> None:
    """End a membership at once: its certificate and its node are refused from now on."""
    member = _enrollment(context)[1].revoke(name)
    show({"revoked": member.name, "fingerprint": member.fingerprint}, json=json)


@app.command()
def rounds(context: typer.Context, json: Json = False) -> None:
    """List the closed rounds: replies, what was refused and why, error on public plans."""
    from fedperf_server.state.database import Database
    from fedperf_server.state.rounds import round_results

    config = _config(context)
    with Database.existing(config.database_url).transaction() as session:
        rows = [
            {
                "round": result.number,
                "window": result.slot.window,
                "index": result.slot.index,
                "outcome": str(result.outcome),
                "asked": result.asked,
                "replies": result.replies,
                "refused": dict(result.failures),
                "seconds": result.seconds,
                "new_version": result.new_version,
                "public_error": result.public_error,
            }
            for result in round_results(session, config.timetable)
        ]
    show_rows(rows, json=json, empty="no round has been closed yet")


@app.command()
def models(context: typer.Context, json: Json = False) -> None:
    """List the versions: how each stands and why, errors on public plans and on what was before.

    Gain is by how much its mean squared log error is smaller than the promoted version's, by the
    reports of the window that judged it. The columns of platforms are the forgetting matrix:
    mean absolute log error on the synthetic rows of earlier epochs.
    """
    from fedperf_server.state import registry
    from fedperf_server.state.database import Database

    with Database.existing(_config(context).database_url).transaction() as session:
        versions, verdicts = registry.versions(session), registry.verdicts(session)
    latest = {verdict.version: verdict for verdict in verdicts}
    measured = {each.version: each for each in verdicts if each.gain is not None or each.by_segment}
    segments = sorted({segment for each in verdicts for segment in each.by_segment})
    rows: list[dict[str, object]] = []
    for version in versions:
        verdict, figures = latest.get(version.version), measured.get(version.version)
        rows.append(
            {
                "version": version.version,
                "standing": str(version.standing),
                "promoted": version.promoted,
                "public_error": version.public_error,
                "gain": figures.gain if figures else None,
                "gain_error": figures.gain_error if figures else None,
                **{
                    segment.name.lower(): figures.by_segment.get(segment) if figures else None
                    for segment in segments
                },
                "reason": verdict.reason if verdict else _why_not_judged(version, verdicts),
            }
        )
    nothing = "no model yet; start the server once"
    if json:
        show_rows(rows, json=True, empty=nothing)
        return
    show_rows([_readable(row) for row in rows], json=False, empty=nothing)
    names = [segment.name.lower() for segment in segments]
    forgotten = [_forgetting(row, names) for row in rows if any(row[each] for each in names)]
    if forgotten:
        print("\nmean absolute log error on synthetic rows of earlier epochs:")
        show_rows(forgotten, json=False, empty=nothing)


@app.command()
def rollback(
    context: typer.Context,
    reason: Annotated[str, typer.Argument(help="Why, in your own words; stays here.")],
    json: Json = False,
) -> None:
    """Take the promoted version back: organizations fetch the one that was promoted before it.

    Candidates that led to it or were trained from it are rejected with it.
    """
    from fedperf_server.desks.promotion import take_back
    from fedperf_server.state.database import Database

    with Database.existing(_config(context).database_url).transaction() as session:
        taken, now = take_back(session, reason, at=_now())
    show({"taken_back": taken, "promoted": now}, json=json)


@app.command("epochs")
def list_epochs(context: typer.Context, json: Json = False) -> None:
    """List the epochs: when each began, why, and what residuals are taken against in it."""
    from fedperf_server.state.database import Database
    from fedperf_server.state.epochs import epochs

    with Database.existing(_config(context).database_url).transaction() as session:
        rows = [_epoch_facts(each) for each in epochs(session)]
    show_rows(rows, json=json, empty="no epoch yet")


@app.command("drifts")
def list_drifts(context: typer.Context, json: Json = False) -> None:
    """List the drifts that reports of this period show: platform, since when, how far, for whom.

    Since the reports of window `since`, executions take `factor` times as long. A shared drift
    began an epoch; what a single organization shows is its own affair, and yours.
    """
    from fedperf_server.desks.drift import seen_drifts
    from fedperf_server.membership.enrollment import organization_names
    from fedperf_server.state.database import Database

    config = _config(context)
    with Database.existing(config.database_url).transaction() as session:
        names = organization_names(session)
        drifts = [each.drift for each in seen_drifts(session, config.timetable.period)]
    facts = _drift_facts if json else _readable_drift
    rows = [facts(each, [names.get(key, key) for key in each.organizations]) for each in drifts]
    show_rows(rows, json=json, empty="no drift was found")


@app.command()
def announce(
    context: typer.Context,
    note: Annotated[str, typer.Argument(help="What changes, in your own words; stays here.")],
    platform: Annotated[
        list[str] | None, typer.Option(help="A platform that changes; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Announce an upgrade: a new epoch begins with the next window, with its extra rounds."""
    from fedperf_server.state import epochs
    from fedperf_server.state.database import Database
    from fedperf_shared.workflow.vocabulary import platform_of

    config = _config(context)
    platforms = [platform_of(name) for name in platform or ()]
    with Database.existing(config.database_url).transaction() as session:
        epoch = epochs.announce(
            session, config.timetable.period, platforms=platforms, note=note, at=_now()
        )
    show(_epoch_facts(epoch), json=json)


@app.command()
def synthesize(
    context: typer.Context,
    platform: Annotated[str | None, typer.Option(help="Only this platform.")] = None,
    operator_class: Annotated[
        str | None, typer.Option(help="Only this class: relational, text, graph or ml.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="Only this size: source rows below 10^4 (0), 10^5 (1), 10^6 (2), more."),
    ] = None,
    rows: Annotated[int, typer.Option(help="How many.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of what is drawn.")] = 0,
    json: Json = False,
) -> None:
    """Draw executions like those of the published synthetic batch; costs no privacy."""
    from fedperf_server.rehearsal.synthetic_batch import Condition, SyntheticBatch, more_rows
    from fedperf_server.state.database import Database

    condition = Condition.parse(platform=platform, operator_class=operator_class, size=size)
    with Database.existing(_config(context).database_url).transaction() as session:
        batch = SyntheticBatch.published(session)
    drawn = more_rows(batch, condition, rows=rows, seed=seed)
    show_rows([row.as_record() for row in drawn], json=json, empty="no rows")


@app.command()
def run(context: typer.Context) -> None:
    """Serve organizations and run rounds as the calendar says; until interrupted."""
    from fedperf_shared.programs.process_lock import process_lock
    from fedperf_shared.programs.shutdown import stop_on_signals

    config = _config(context)
    stop = stop_on_signals()
    place = config.directory / "coordinator.lock"
    with process_lock(place, f"the server's directory {config.directory}"):
        from fedperf_server.app.composition import run_server

        run_server(config, stop, clock=_now)


def _readable(row: "Mapping[str, object]") -> dict[str, object]:
    """A row of `models` for people."""
    gain, error = row["gain"], row["gain_error"]
    return {
        "version": row["version"],
        "standing": row["standing"],
        "public error": _rounded(row["public_error"]),
        "gain": f"{gain:+.3f} ± {error:.3f}" if isinstance(gain, float) else None,
        "why": row["reason"],
    }


def _forgetting(row: "Mapping[str, object]", segments: "Sequence[str]") -> dict[str, object]:
    """A row of the forgetting matrix."""
    return {"version": row["version"], **{each: _rounded(row[each]) for each in segments}}


def _rounded(value: object) -> str | None:
    return f"{value:.3f}" if isinstance(value, float) else None


def _why_not_judged(version: "ModelVersion", verdicts: "Sequence[Verdict]") -> str:
    if version.promoted:
        return "the start"
    if any(verdict.promoted and verdict.version > version.version for verdict in verdicts):
        return "passed over: a later version was promoted"
    return "waits for the next window's reports"


def _epoch_facts(epoch: "Epoch") -> dict[str, object]:
    return {
        "epoch": epoch.number,
        "begins_at": None if epoch.number == 1 else epoch.begins_at.isoformat(),
        "cause": str(epoch.cause),
        "platforms": [platform.name.lower() for platform in epoch.platforms],
        "reference_version": epoch.reference_version,
        "note": epoch.note,
    }


def _drift_facts(drift: "Drift", names: "Sequence[str]") -> dict[str, object]:
    return {
        "platform": drift.platform.name.lower(),
        "since_window": drift.since,
        "found_in_window": drift.found,
        "log_factor": drift.log_factor,
        "standard_error": drift.standard_error,
        "shared": drift.shared,
        "organizations": names,
    }


def _readable_drift(drift: "Drift", names: "Sequence[str]") -> dict[str, object]:
    return {
        "platform": drift.platform.name.lower(),
        "since": drift.since,
        "found": drift.found,
        "log factor": f"{drift.log_factor:+.2f}±{drift.standard_error:.2f}",
        "factor": f"{math.exp(drift.log_factor):.2f}",
        "shared": drift.shared,
        "organizations": ", ".join(names),
    }


def _in_utc(moment: datetime) -> datetime:
    """The same moment in UTC, which is meant where no zone is named."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _require_same(config: "ServerConfig", host: str, start: datetime | None) -> None:
    """Raise where `init` was asked for something else than what the directory holds."""
    from fedperf_server.config import FILE_NAME
    from fedperf_shared.errors import ConfigurationError

    period = config.timetable.period
    asked = {"host": (host, config.host), "period_start": (start or period.start, period.start)}
    differs = [f"{key} {held}, not {new}" for key, (new, held) in asked.items() if new != held]
    if differs:
        path = config.directory / FILE_NAME
        raise ConfigurationError(
            f"{config.directory} exists already and was left as it is, with {', '.join(differs)}; "
            f"edit the calendar in {path} before the first member joins, or, as certificates "
            "are for one host, choose another --directory"
        )


def _config(context: typer.Context) -> "ServerConfig":
    from fedperf_server.config import load_config

    return load_config(context.obj)


def _enrollment(context: typer.Context) -> "tuple[ServerConfig, Enrollment]":
    from fedperf_server.membership.authority import KeyRing
    from fedperf_server.membership.enrollment import Enrollment
    from fedperf_server.state.database import Database

    config = _config(context)
    ring = KeyRing(config.directory)
    return config, Enrollment(Database.existing(config.database_url), ring, config, clock=_now)


def _now() -> datetime:
    return datetime.now(UTC)
