"""Drift as a picture: a timeline of every stream, as factors of what was usual at first."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedperf_client.charts.chart_style import (
    BAND,
    FAINT,
    GRID,
    INK,
    LINE,
    POINT,
    chart,
    log_heights,
)
from fedperf_client.charts.charts import write_chart
from fedperf_client.formatting.durations import UNITS
from fedperf_client.prediction.ensemble.changes import GUARD, Stream, StreamDrift

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STREAM_INCHES = 2.1
_ROWS = 4

_SHOWN = (0.5, 99.5)
"""Percentiles of the executions that every panel shows."""

_LEAST, _MARGIN, _WORDS = 0.7, 0.1, 0.9
"""Log factors that are always shown either way, left free, and needed by words above."""

_LEAST_STEP = 1e-5
"""Days; of streams in which all finished at once."""


def draw_drift(path: Path, streams: Sequence[Stream]) -> None:
    """Every execution over time, the middle of each stretch between drifts, and the drifts.

    Args:
        path: `.svg`, `.png` or `.html`; a file that is there is replaced.
        streams: those that are too short to tell are left out where any is long enough.

    Raises:
        InvalidInputError: none of these kinds of files.
        StorageError: the file cannot be written.
    """
    told = [each for each in streams if len(each.rows) > GUARD] or list(streams)
    height = 0.4 + _STREAM_INCHES * max(len(told), 1)
    with chart(width=9, height=min(height, 60.0)) as (figure, axes):
        axes.remove()
        grid = figure.add_gridspec(max(len(told), 1), 1)
        for place, stream in enumerate(told):
            panel = figure.add_subplot(grid[place, 0])
            _draw_stream(panel, stream)
            panel.set_xlim(*_span(told))
        write_chart(path, figure, "What takes longer or shorter than it used to")


def _span(streams: Sequence[Stream]) -> tuple[float, float]:
    """From the first to the last moment of all, with room for words on the right."""
    first = min(_days(each.observations.finished_at[0]) for each in streams)
    last = max(_days(each.observations.finished_at[-1]) for each in streams)
    step = max((last - first) / 50, _LEAST_STEP)
    return first - step, last + 10 * step


def _days(moment: datetime) -> float:
    """Since 1970, as matplotlib counts them."""
    return moment.timestamp() / UNITS["d"]


def _draw_stream(axes: "Axes", stream: Stream) -> None:
    levels = stream.levels()
    moments = np.array([_days(each) for each in stream.observations.finished_at])
    axes.scatter(moments, np.exp(levels), s=8, color=BAND, alpha=0.7, linewidths=0)
    for begin, end in pairwise([0, *(each.change.start for each in stream.drifts), len(moments)]):
        middle = float(np.exp(np.median(levels[begin:end])))
        axes.hlines(middle, moments[begin], moments[end - 1], color=LINE, linewidth=2)
    for number, drift in enumerate(stream.drifts):
        _mark(axes, drift, _days(drift.since), row=number % _ROWS)
    axes.xaxis_date(tz=UTC)
    log_heights(axes, "{:g}x".format)
    lowest, highest = np.percentile(levels, _SHOWN)
    lowest, highest = min(lowest, -_LEAST), max(highest, _LEAST)
    above = _MARGIN + (_WORDS if stream.drifts else 0.0)
    axes.set_ylim(float(np.exp(lowest - _MARGIN)), float(np.exp(highest + above)))
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7)
    axes.set_ylabel("times the usual", fontsize=7)
    title = f"{stream.name}, {len(moments):,} executions"
    axes.set_title(title, fontsize=9, color=INK, loc="left")


def _mark(axes: "Axes", drift: StreamDrift, moment: float, *, row: int) -> None:
    """A line at the drift, and its words in a row that its neighbours do not use."""
    colour = POINT if drift.is_concept else FAINT
    axes.axvline(moment, color=colour, linestyle="--", linewidth=1.2)
    axes.annotate(
        drift.sentence,
        (moment, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, -3 - 9 * row),
        textcoords="offset points",
        va="top",
        fontsize=7,
        color=colour,
        annotation_clip=False,
        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.5},
    )
