"""`fedperf-server epochs`, `drifts` and `announce`: what changed on the platforms, and since when.

An operator announces an upgrade; a drift that reports show is found, not announced.
"""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_server.commands.directory_option import Json, config_of, now
from fedperf_shared.runtime.command_line import show, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from fedperf_server.inference.drift_evidence import PlatformDrift
    from fedperf_server.state.drift_regimes import DriftRegime


def list_epochs(context: typer.Context, json: Json = False) -> None:
    """List the epochs: when each began, why, and what residuals are taken against in it."""
    from fedperf_server.state.database import Database

    with Database.existing(config_of(context).database_url).transaction() as session:
        known = _known(session)
    rows = [_epoch_facts(each, json=json) for each in known]
    show_rows(rows, json=json, empty="no epoch yet: the first begins when the server first runs")


def list_drifts(context: typer.Context, json: Json = False) -> None:
    """List the drifts that reports of this period show: platform, since when, how far, for whom.

    Since the reports of window `since`, executions take `factor` times as long. A shared drift
    began an epoch; what a single organization shows is its own affair, and yours.
    """
    from fedperf_server.controllers.drift import seen_drifts
    from fedperf_server.membership.enrollment import organization_names
    from fedperf_server.state.database import Database

    config = config_of(context)
    with Database.existing(config.database_url).transaction() as session:
        names = organization_names(session)
        drifts = [each.drift for each in seen_drifts(session, config.calendar.period)]
    facts = _drift_facts if json else _readable_drift
    rows = [facts(each, [names.get(key, key) for key in each.organizations]) for each in drifts]
    show_rows(rows, json=json, empty="no drift was found")


def announce(
    context: typer.Context,
    note: Annotated[str, typer.Argument(help="What changes, in your own words; stays here.")],
    platform: Annotated[
        list[str] | None, typer.Option(help="A platform that changes; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Announce an upgrade: a new epoch begins with the next window, with its extra rounds."""
    from fedperf_server.state import drift_regimes
    from fedperf_server.state.database import Database
    from fedperf_shared.errors import InvalidInputError
    from fedperf_shared.workflow.vocabulary import Platform, platform_of

    config = config_of(context)
    platforms = [platform_of(name) for name in platform or ()]
    if Platform.UNASSIGNED in platforms:
        raise InvalidInputError(
            "an operator that has no platform yet cannot change; name an engine"
        )
    with Database.existing(config.database_url).transaction() as session:
        epoch = drift_regimes.announce(
            session, config.calendar.period, platforms=platforms, note=note, at=now()
        )
    show(_epoch_facts(epoch, json=json), json=json)


def _known(session: "Session") -> "tuple[DriftRegime, ...]":
    """All epochs; none before a server has run for the first time."""
    from fedperf_server.state.drift_regimes import epochs
    from fedperf_server.state.registry import UnknownVersionError

    try:
        return epochs(session)
    except UnknownVersionError:
        return ()


def _epoch_facts(epoch: "DriftRegime", *, json: bool) -> dict[str, object]:
    platforms = [platform.name.lower() for platform in epoch.platforms]
    return {
        "epoch": epoch.number,
        "begins_at": None if epoch.number == 1 else epoch.begins_at.isoformat(),
        "cause": str(epoch.cause),
        "platforms": platforms if json else ", ".join(platforms),
        "reference_version": epoch.reference_version,
        "note": epoch.note,
    }


def _drift_facts(drift: "PlatformDrift", names: "Sequence[str]") -> dict[str, object]:
    return {
        "platform": drift.platform.name.lower(),
        "since_window": drift.since,
        "found_in_window": drift.found,
        "log_factor": drift.log_factor,
        "standard_error": drift.standard_error,
        "shared": drift.shared,
        "organizations": names,
    }


def _readable_drift(drift: "PlatformDrift", names: "Sequence[str]") -> dict[str, object]:
    return {
        "platform": drift.platform.name.lower(),
        "since": drift.since,
        "found": drift.found,
        "log factor": f"{drift.log_factor:+.2f}±{drift.standard_error:.2f}",
        "factor": f"{math.exp(drift.log_factor):.2f}",
        "shared": drift.shared,
        "organizations": ", ".join(names),
    }
