"""The commands `regimes`, `drifts` and `declare-change` of `fedperf-server`.

They list the drift regimes and the detected drifts. An operator declares a planned change, such as
an upgrade. A drift that reports show is detected without that.
"""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_server.commands.directory_option import Json, current_time, load_config_from
from fedperf_shared.runtime.command_line import show, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from fedperf_server.inference.drift_evidence import PlatformDrift
    from fedperf_server.state.drift_regimes import DriftRegime


def regimes(context: typer.Context, json: Json = False) -> None:
    """List the drift regimes: when each began, why, and its reference version for residuals."""
    from fedperf_server.state.database import Database

    with Database.existing(load_config_from(context).database_url).transaction() as session:
        declared = _load_regimes(session)
    rows = [_regime_facts(each, json=json) for each in declared]
    show_rows(rows, json=json, empty="no drift regime yet; the first begins with the first run")


def drifts(context: typer.Context, json: Json = False) -> None:
    """List the drifts that reports of this period show, by platform and organization.

    From window `since` on, executions take `factor` times as long. A shared drift began a drift
    regime. A drift of a single organization begins none.
    """
    from fedperf_server.controllers.drift import stored_drifts
    from fedperf_server.membership.enrollment import organization_names
    from fedperf_server.state.database import Database

    config = load_config_from(context)
    with Database.existing(config.database_url).transaction() as session:
        names = organization_names(session)
        stored = [each.drift for each in stored_drifts(session, config.calendar.period)]
    to_facts = _drift_facts if json else _drift_columns
    rows = [to_facts(each, [names.get(key, key) for key in each.organizations]) for each in stored]
    show_rows(rows, json=json, empty="no drift was detected")


def declare_change(
    context: typer.Context,
    note: Annotated[str, typer.Argument(help="What changes, in your own words. Never sent.")],
    platform: Annotated[
        list[str] | None, typer.Option(help="A platform that changes. Repeat it for more.")
    ] = None,
    json: Json = False,
) -> None:
    """Declare an upgrade: a drift regime begins with the next window, with its extra rounds."""
    from fedperf_server.state import drift_regimes
    from fedperf_server.state.database import Database
    from fedperf_shared.errors import InvalidInputError
    from fedperf_shared.workflow.vocabulary import Platform, platform_of

    config = load_config_from(context)
    platforms = [platform_of(name) for name in platform or ()]
    if Platform.UNASSIGNED in platforms:
        raise InvalidInputError(
            "--platform unassigned: expected an engine, such as spark or duckdb"
        )
    with Database.existing(config.database_url).transaction() as session:
        regime = drift_regimes.declare_change(
            session, config.calendar.period, platforms=platforms, note=note, at=current_time()
        )
    show(_regime_facts(regime, json=json), json=json)


def _load_regimes(session: "Session") -> "tuple[DriftRegime, ...]":
    """Return all regimes; none before a server has run for the first time."""
    from fedperf_server.state.drift_regimes import regimes
    from fedperf_server.state.registry import UnknownVersionError

    try:
        return regimes(session)
    except UnknownVersionError:
        return ()


def _regime_facts(regime: "DriftRegime", *, json: bool) -> dict[str, object]:
    platforms = [platform.name.lower() for platform in regime.platforms]
    return {
        "regime": regime.number,
        "begins_at": None if regime.number == 1 else regime.begins_at.isoformat(),
        "cause": str(regime.cause),
        "platforms": platforms if json else ", ".join(platforms),
        "reference_version": regime.reference_version,
        "note": regime.note,
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


def _drift_columns(drift: "PlatformDrift", names: "Sequence[str]") -> dict[str, object]:
    return {
        "platform": drift.platform.name.lower(),
        "since window": drift.since,
        "detected in": drift.found,
        "log factor": f"{drift.log_factor:+.2f}±{drift.standard_error:.2f}",
        "factor": f"{math.exp(drift.log_factor):.2f}",
        "shared": drift.shared,
        "organizations": ", ".join(names),
    }
