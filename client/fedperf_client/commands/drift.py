"""`fedperf drift`: since when the same work takes longer or shorter."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import Json, home_of
from fedperf_shared.runtime.command_line import show_rows

if TYPE_CHECKING:
    from fedperf_client.prediction.ensemble.changes import Stream


def drift(
    context: typer.Context,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a timeline into a .svg, .png or .html file.")
    ] = None,
    json: Json = False,
) -> None:
    """Show when stored runs became slower or faster, by platform and operator class.

    "concept": the same work takes longer or shorter since then; predictions move older executions
    to the level of today. "covariate": the inputs changed, alone or as well. Detection reads the
    residuals of the public pretrained model, from 31 executions of a platform and class on.
    Nothing of it leaves. The exit code is 0, with or without drift.
    """
    from fedperf_client.charts.charts import draw_drift
    from fedperf_client.charts.kit import require_chart_file
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.ensemble.changes import load_drift_streams

    home = home_of(context)
    if plot is not None:
        require_chart_file(plot)
    with ExecutionStore.open_to_read(home.store) as store:
        streams = load_drift_streams(store)
    if plot is not None:
        draw_drift(plot, streams)
    rows = [_row(each) for each in streams] if json else [e for s in streams for e in _lines(s)]
    show_rows(rows, json=json, empty="no executions yet; take some in with: fedperf ingest FILE")
    if plot is not None and not json:
        typer.echo(f"drawn into {plot}")


def _row(stream: "Stream") -> dict[str, object]:
    """Return a stream with its drifts, the oldest first, for programs."""
    return {
        **_stream_facts(stream),
        "verdict": _verdict(stream),
        "drifts": [each.as_row() for each in stream.drifts],
    }


def _lines(stream: "Stream") -> list[dict[str, object]]:
    """Return a line for each drift for people, the oldest first; one for a stream without."""
    lines: list[dict[str, object]] = [
        {
            **_stream_facts(stream),
            "drift": each.sentence,
            "kind": " and ".join(each.kinds),
            "noticed": f"{each.noticed_at:%Y-%m-%d}",
        }
        for each in stream.drifts
    ]
    unknown = {"drift": _verdict(stream), "kind": None, "noticed": None}
    return lines or [{**_stream_facts(stream), **unknown}]


def _stream_facts(stream: "Stream") -> dict[str, object]:
    return {
        "platform": stream.platform.name.lower(),
        "class": stream.operator_class.name.lower(),
        "executions": len(stream.rows),
    }


def _verdict(stream: "Stream") -> str:
    from fedperf_client.prediction.ensemble.changes import GUARD

    if stream.drifts:
        return "drift"
    return "too few to tell" if len(stream.rows) <= GUARD else "no drift"
