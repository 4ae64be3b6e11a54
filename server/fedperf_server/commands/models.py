"""`fedperf-server rounds`, `models`, `rollback` and `synthesize`: what was learned and published.

Rows for programs hold every figure; people see those that are read. A rollback takes a
reason, which stays here.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_server.commands.directory_option import Json, config_of, now
from fedperf_shared.runtime.command_line import show, show_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedperf_server.state.registry import ModelVersion, PromotionRecord


def rounds(context: typer.Context, json: Json = False) -> None:
    """List the closed rounds: replies, what was refused and why, error on public plans."""
    from fedperf_server.state.database import Database
    from fedperf_server.state.round_calendar import round_results

    config = config_of(context)
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
            for result in round_results(session, config.calendar)
        ]
    show_rows(rows, json=json, empty="no round has been closed yet")


def models(context: typer.Context, json: Json = False) -> None:
    """List the versions: how each stands and why, errors on public plans and on what was before.

    Gain is by how much its mean squared log error is smaller than the promoted version's, by the
    reports of the window that judged it. The columns of platforms are the forgetting matrix:
    mean absolute log error on the synthetic rows of earlier epochs.
    """
    from fedperf_server.state import registry
    from fedperf_server.state.database import Database

    with Database.existing(config_of(context).database_url).transaction() as session:
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


def rollback(
    context: typer.Context,
    reason: Annotated[str, typer.Argument(help="Why, in your own words; stays here.")],
    json: Json = False,
) -> None:
    """Take the promoted version back: organizations fetch the one that was promoted before it.

    Candidates that led to it or were trained from it are rejected with it.
    """
    from fedperf_server.controllers.promotion import take_back
    from fedperf_server.state.database import Database

    with Database.existing(config_of(context).database_url).transaction() as session:
        taken, promoted = take_back(session, reason, at=now())
    show({"taken_back": taken, "promoted": promoted}, json=json)


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


def _why_not_judged(version: "ModelVersion", verdicts: "Sequence[PromotionRecord]") -> str:
    if version.promoted:
        return "the start"
    if any(verdict.promoted and verdict.version > version.version for verdict in verdicts):
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
        typer.Option(help="Only this size: source rows below 10^4 (0), 10^5 (1), 10^6 (2), more."),
    ] = None,
    rows: Annotated[int, typer.Option(help="How many.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of what is drawn.")] = 0,
    json: Json = False,
) -> None:
    """Draw executions like those of the published synthetic batch; costs no privacy."""
    from fedperf_server.rehearsal.synthetic_batch import CellCondition, SyntheticBatch, more_rows
    from fedperf_server.state.database import Database

    condition = CellCondition.parse(platform=platform, operator_class=operator_class, size=size)
    with Database.existing(config_of(context).database_url).transaction() as session:
        batch = SyntheticBatch.published(session)
    drawn = more_rows(batch, condition, rows=rows, seed=seed)
    show_rows([row.as_record() for row in drawn], json=json, empty="no rows")
