"""Gains as tables and for programs; what only joining brings is not told before it."""

from typing import TYPE_CHECKING

import typer

from fedperf_shared.programs.command_line import show, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedperf_client.prediction.evaluation.gain import Gain, GainPoint

_ERRORS = "median q-errors, 1.10 is ten percent off"
_NOT_JOINED = (
    "not joined: no model of a coordinator is here; fedperf rehearse shows what joining may bring"
)


def show_curve(points: "Sequence[GainPoint]", *, has_joined: bool, json: bool) -> None:
    """A row for every number of own executions; the columns of joining are null without it."""
    rows = [_row(each, has_joined=has_joined) for each in points]
    if json:
        show_rows(rows, json=True, empty="")
        return
    lines = [
        {
            "own executions known": row.pop("own"),
            "executions asked about": row.pop("asked"),
            **{name: value for name, value in row.items() if has_joined or name not in _joined()},
        }
        for row in rows
    ]
    show_rows(lines, json=False, empty="")
    typer.echo(f"{_ERRORS}, on executions of own workloads that were kept away")
    if not has_joined:
        typer.echo(_NOT_JOINED)


def show_held_out(found: "Gain", *, has_joined: bool, json: bool) -> None:
    """The errors on executions of others; that of the shared model is null before joining."""
    row = found.as_row()
    if not has_joined:
        row["shared"] = None
    if json:
        show(row, json=True)
        return
    ways = {
        "own executions alone": "local",
        "the start that ships, as it is": "base",
        "the shared model, as it is": "shared",
        "all of these, as fedperf predict": "personalized",
    }
    lines = [
        {"predicts from": way, "median q-error": row[name]}
        for way, name in ways.items()
        if row[name] is not None
    ]
    show_rows(lines, json=False, empty="")
    typer.echo(
        f"{_ERRORS}, on {found.held_out} executions of workloads that never ran here, knowing "
        f"{found.executions} own ones; {found.coverage:.0%} of them lay in the 90% intervals of "
        "fedperf predict"
    )
    if not has_joined:
        typer.echo(_NOT_JOINED)


def ways_told(point: "GainPoint", *, has_joined: bool) -> list[str]:
    """The ways to predict that a picture shows."""
    return [name for name in point.errors if has_joined or name not in _joined()]


def _row(point: "GainPoint", *, has_joined: bool) -> dict[str, object]:
    unknown = {} if has_joined else dict.fromkeys(_joined())
    return {**point.as_row(), **unknown}


def _joined() -> tuple[str, ...]:
    """Ways to predict that there are after joining alone."""
    from fedperf_client.prediction.evaluation.gain import AS_IS, PERSONALIZED

    return AS_IS, PERSONALIZED
