"""The charts of commands: predictions over cores, errors over runs, and drift over time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedperf_client.charts.kit import (
    BAND,
    FAINT,
    GREY,
    GRID,
    INK,
    LINE,
    POINT,
    chart,
    log_heights,
    write_chart,
)
from fedperf_client.prediction.ensemble.changes import GUARD, Stream, StreamDrift
from fedperf_client.prediction.prediction import Prediction
from fedperf_shared.runtime.quantities import UNITS, duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (GREY, POINT, BAND, LINE)

MOST_TICKS = 12  # values that are written below a chart each

_STREAM_INCHES = 2.1
_ANNOTATION_ROWS = 4

_SHOWN = (0.5, 99.5)  # percentiles of the runs that every panel shows
# Log factors: always shown either way, left free, and needed by the annotations above.
_LEAST, _MARGIN, _WORDS = 0.7, 0.1, 0.9

_LEAST_STEP = 1e-5  # days, for streams in which all runs finished at once


def draw_prediction(
    path: Path,
    points: Sequence[tuple[float, Prediction]],
    runs: Sequence[tuple[float, float]],
    *,
    deadline_seconds: float | None,
    across: str = "cores",
) -> None:
    """Draw predicted seconds over a column, with the interval as band and own runs as points.

    Args:
        path: a file for `write_chart`. An existing one is replaced.
        points: values of the column, ascending, with their predictions.
        runs: values of the column and seconds of own runs.
        deadline_seconds: drawn as a line, if there is one.
        across: the name of the column.

    Raises:
        StorageError: the file cannot be written.
    """
    values = [value for value, _ in points]
    estimates = [each for _, each in points]
    with chart() as (figure, axes):
        lower = [each.lower_seconds for each in estimates]
        upper = [each.upper_seconds for each in estimates]
        axes.fill_between(values, lower, upper, color=BAND, alpha=0.35, label="90 % interval")
        medians = [each.median_seconds for each in estimates]
        axes.plot(values, medians, color=LINE, marker="o", markersize=4, label="predicted (P50)")
        p90 = [each.p90_seconds for each in estimates]
        axes.plot(values, p90, color=LINE, linestyle=":", linewidth=1.2, label="P90")
        if runs:
            places, seconds = zip(*runs, strict=True)
            axes.scatter(places, seconds, color=POINT, s=18, zorder=3, label="own runs")
        if deadline_seconds is not None:
            axes.axhline(deadline_seconds, color=INK, linestyle="--", linewidth=1, label="deadline")
        ticks = sorted({*values, *(place for place, _ in runs)})
        if len(values) > 1 and ticks[0] > 0:
            axes.set_xscale("log", base=2)
        if len(ticks) <= MOST_TICKS:
            axes.set_xticks(ticks, [f"{each:,.6g}" for each in ticks])
        log_heights(axes, duration_text)
        axes.set_xlabel(across)
        axes.set_ylabel("run time")
        axes.legend(frameon=False)
        write_chart(path, figure, "Predicted run time")


def draw_gain(path: Path, runs: Sequence[int], lines: Mapping[str, Sequence[float]]) -> None:
    """Draw median q-errors over the number of own runs, one line per way to predict.

    Raises:
        StorageError: the file cannot be written.
    """
    with chart() as (figure, axes):
        across = range(len(runs))
        for (name, heights), colour in zip(lines.items(), _COLOURS, strict=False):
            axes.plot(across, heights, color=colour, marker="o", markersize=4, label=name)
        axes.set_xticks(list(across), [str(each) for each in runs])
        log_heights(axes, "{:g}".format)
        axes.set_xlabel("own runs")
        axes.set_ylabel("median q-error on held-out workloads")
        axes.legend(frameon=False)
        write_chart(path, figure, "Benefit of federation")


def draw_drift(path: Path, streams: Sequence[Stream]) -> None:
    """Draw every run over time, the median of each stretch between drifts, and the drifts.

    Args:
        path: a file for `write_chart`. An existing one is replaced.
        streams: too short ones are left out, unless all are.

    Raises:
        InvalidInputError: `path` is not a file for `write_chart`.
        StorageError: the file cannot be written.
    """
    panel_streams = [each for each in streams if len(each.rows) > GUARD] or list(streams)
    height = 0.4 + _STREAM_INCHES * max(len(panel_streams), 1)
    with chart(width=9, height=min(height, 60.0)) as (figure, axes):
        axes.remove()
        grid = figure.add_gridspec(max(len(panel_streams), 1), 1)
        for place, stream in enumerate(panel_streams):
            panel = figure.add_subplot(grid[place, 0])
            _draw_stream(panel, stream)
            panel.set_xlim(*_time_limits(panel_streams))
        write_chart(path, figure, "Run times that changed")


def _time_limits(streams: Sequence[Stream]) -> tuple[float, float]:
    """Return the first and the last day, with room for annotations on the right."""
    first = min(_days(each.observations.finished_at[0]) for each in streams)
    last = max(_days(each.observations.finished_at[-1]) for each in streams)
    step = max((last - first) / 50, _LEAST_STEP)
    return first - step, last + 10 * step


def _days(timestamp: datetime) -> float:
    """Return the days since 1970, as matplotlib counts them."""
    return timestamp.timestamp() / UNITS["d"]


def _draw_stream(axes: "Axes", stream: Stream) -> None:
    levels = stream.levels()
    days = np.array([_days(each) for each in stream.observations.finished_at])
    axes.scatter(days, np.exp(levels), s=8, color=BAND, alpha=0.7, linewidths=0)
    for begin, end in pairwise([0, *(each.change.start for each in stream.drifts), len(days)]):
        middle = float(np.exp(np.median(levels[begin:end])))
        axes.hlines(middle, days[begin], days[end - 1], color=LINE, linewidth=2)
    for number, drift in enumerate(stream.drifts):
        _annotate(axes, drift, row=number % _ANNOTATION_ROWS)
    axes.xaxis_date(tz=UTC)
    log_heights(axes, "{:g}x".format)
    lowest, highest = np.percentile(levels, _SHOWN)
    lowest, highest = min(lowest, -_LEAST), max(highest, _LEAST)
    above = _MARGIN + (_WORDS if stream.drifts else 0.0)
    axes.set_ylim(float(np.exp(lowest - _MARGIN)), float(np.exp(highest + above)))
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7)
    axes.set_ylabel("factor of the usual time", fontsize=7)
    axes.set_title(f"{stream.name}, {len(days):,} runs", fontsize=9, color=INK, loc="left")


def _annotate(axes: "Axes", drift: StreamDrift, *, row: int) -> None:
    """Draw a line at the drift, with its text in a row that its neighbours do not use."""
    day, colour = _days(drift.since), POINT if drift.is_concept else FAINT
    axes.axvline(day, color=colour, linestyle="--", linewidth=1.2)
    axes.annotate(
        drift.sentence,
        (day, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, -3 - 9 * row),
        textcoords="offset points",
        va="top",
        fontsize=7,
        color=colour,
        annotation_clip=False,
        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.5},
    )
