"""The commands of `fedperf-server` about the results of the federation.

`rounds`, `models` and `rollback` show and change the versions of the model, `regimes`, `drifts` and
`declare-change` the drift regimes, and `synthesize` samples the synthetic batch. Rows for programs
hold every figure, tables for people a selection. Reasons and notes are stored and never sent.
"""

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_server.commands.server import Json, current_time, open_state
from fedperf_shared.runtime.command_line import show, show_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedperf_server.inference.drift_evidence import PlatformDrift
    from fedperf_server.state.database import PromotionRecord
    from fedperf_server.state.drift_regimes import DriftRegime
    from fedperf_server.state.registry import ModelVersion


def rounds(context: typer.Context, json: Json = False) -> None:
    """List the closed rounds: replies, refusals by reason, error on public plans."""
    from fedperf_server.state.round_calendar import closed_rounds

    with open_state(context) as (config, session):
        rows = [
            {
                "round": result.number,
                "window": result.slot.window,
                "index": result.slot.index,
                "outcome": str(result.outcome),
                "asked": result.expected,
                "replies": result.replies,
                "refused": result.failures,
                "seconds": result.seconds,
                "new_version": result.new_version,
                "public_error": result.public_error,
            }
            for result in closed_rounds(session, config.calendar)
        ]
    show_rows(rows, json=json, empty="no round has been closed yet")


def models(context: typer.Context, json: Json = False) -> None:
    """List the versions: status, reason, error on public plans, and forgetting.

    The gain is the reduction in mean squared log error against the promoted version, estimated
    from the reports of the window that decided. The columns of platforms are the forgetting
    matrix: mean absolute log error on the synthetic rows of earlier drift regimes.
    """
    from fedperf_server.state import registry

    with open_state(context) as (_, session):
        versions, decisions = registry.versions(session), registry.decisions(session)
    latest = {decision.version: decision for decision in decisions}
    measured = {
        each.version: each for each in decisions if each.gain is not None or each.by_segment
    }
    segments = sorted({segment for each in decisions for segment in each.by_segment})
    rows: list[dict[str, object]] = []
    for version in versions:
        decision, figures = latest.get(version.version), measured.get(version.version)
        rows.append(
            {
                "version": version.version,
                "standing": str(version.status),
                "promoted": version.promoted,
                "public_error": version.public_error,
                "gain": figures.gain if figures else None,
                "gain_error": figures.gain_error if figures else None,
                **{
                    segment.name.lower(): figures.by_segment.get(segment) if figures else None
                    for segment in segments
                },
                "reason": decision.reason
                if decision
                else _reason_without_decision(version, decisions),
            }
        )
    empty = "no model yet; run fedperf-server run once"
    if json:
        show_rows(rows, json=True, empty=empty)
        return
    show_rows([_version_columns(row) for row in rows], json=False, empty=empty)
    names = [segment.name.lower() for segment in segments]
    matrix = [
        {"version": row["version"], **{each: _to_3_digits(row[each]) for each in names}}
        for row in rows
        if any(row[each] for each in names)
    ]
    if matrix:
        print("\nmean absolute log error on synthetic rows of earlier drift regimes:")
        show_rows(matrix, json=False, empty=empty)


def rollback(
    context: typer.Context,
    reason: Annotated[str, typer.Argument(help="Why, in your own words. Never sent.")],
    json: Json = False,
) -> None:
    """Roll the model back to the version that was promoted before.

    Organizations fetch that version again. Candidates that led to the version rolled back, or were
    trained from it, are rejected too.
    """
    from fedperf_server.controllers.promotion import roll_back

    with open_state(context) as (_, session):
        rejected, promoted = roll_back(session, reason, at=current_time())
    show({"taken_back": rejected, "promoted": promoted}, json=json)


def _version_columns(row: "Mapping[str, object]") -> dict[str, object]:
    gain, error = row["gain"], row["gain_error"]
    return {
        "version": row["version"],
        "status": row["standing"],
        "public error": _to_3_digits(row["public_error"]),
        "gain": f"{gain:+.3f} ± {error:.3f}" if isinstance(gain, float) else None,
        "reason": row["reason"],
    }


def _to_3_digits(value: object) -> str | None:
    return f"{value:.3f}" if isinstance(value, float) else None


def _reason_without_decision(
    version: "ModelVersion", decisions: "Sequence[PromotionRecord]"
) -> str:
    if version.promoted:
        return "the start"
    if any(each.promoted and each.version > version.version for each in decisions):
        return "passed over: a later version was promoted"
    return "waits for the next window's reports"


def synthesize(
    context: typer.Context,
    platform: Annotated[str | None, typer.Option(help="Only this platform.")] = None,
    operator_class: Annotated[
        str | None, typer.Option(help="Only this class: relational, text, graph or ml.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help="Only this input size: below 10^4 source rows (0), 10^5 (1), 10^6 (2), more (3)."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(help="Number of rows.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed for sampling.")] = 0,
    json: Json = False,
) -> None:
    """Sample executions like those of the published synthetic batch. This costs no privacy."""
    from fedperf_server.rehearsal.synthetic_batch import CellCondition, SyntheticBatch, sample_rows

    condition = CellCondition.parse(platform=platform, operator_class=operator_class, size=size)
    with open_state(context) as (_, session):
        batch = SyntheticBatch.published(session)
    sampled = sample_rows(batch, condition, rows=rows, seed=seed)
    show_rows([row.as_record() for row in sampled], json=json, empty="no rows")


def regimes(context: typer.Context, json: Json = False) -> None:
    """List the drift regimes: when each began, why, and its reference version for residuals."""
    from fedperf_server.state import drift_regimes
    from fedperf_server.state.registry import UnknownVersionError

    declared: tuple[DriftRegime, ...] = ()
    with open_state(context) as (_, session), suppress(UnknownVersionError):
        declared = drift_regimes.regimes(session)
    rows = [_regime_facts(each, json=json) for each in declared]
    show_rows(rows, json=json, empty="no drift regime yet; the first begins with the first run")


def drifts(context: typer.Context, json: Json = False) -> None:
    """List the drifts that reports of this period show, by platform and organization.

    From window `since` on, executions take `factor` times as long. A shared drift began a drift
    regime. A drift of a single organization begins none.
    """
    from fedperf_server.controllers.drift import stored_drifts
    from fedperf_server.membership.enrollment import organization_names

    with open_state(context) as (config, session):
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
    from fedperf_shared.errors import InvalidInputError
    from fedperf_shared.workflow.vocabulary import Platform, platform_of

    platforms = [platform_of(name) for name in platform or ()]
    if Platform.UNASSIGNED in platforms:
        raise InvalidInputError(
            "--platform unassigned: expected an engine, such as spark or duckdb"
        )
    with open_state(context) as (config, session):
        regime = drift_regimes.declare_change(
            session, config.calendar.period, platforms=platforms, note=note, at=current_time()
        )
    show(_regime_facts(regime, json=json), json=json)


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
        "found_in_window": drift.detected_in,
        "log_factor": drift.log_factor,
        "standard_error": drift.standard_error,
        "shared": drift.shared,
        "organizations": names,
    }


def _drift_columns(drift: "PlatformDrift", names: "Sequence[str]") -> dict[str, object]:
    return {
        "platform": drift.platform.name.lower(),
        "since window": drift.since,
        "detected in": drift.detected_in,
        "log factor": f"{drift.log_factor:+.2f}±{drift.standard_error:.2f}",
        "factor": f"{math.exp(drift.log_factor):.2f}",
        "shared": drift.shared,
        "organizations": ", ".join(names),
    }
