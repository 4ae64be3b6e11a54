"""Charts for people, drawn by matplotlib into an image or into an HTML page that stands alone.

Text in an SVG stays text, which matplotlib escapes; a page loads nothing from elsewhere.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedperf_client.charts.chart_style import (
    BAND,
    GREY,
    INK,
    LINE,
    POINT,
    chart,
    log_heights,
    svg,
)
from fedperf_client.charts.page import render
from fedperf_client.formatting.durations import duration_text
from fedperf_client.prediction.serving.what_if import ClusterPrediction
from fedperf_shared.errors import InvalidInputError, StorageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".html")

_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>{{ title }}</title>
<h1>{{ title }}</h1>
{{ drawing|safe }}
"""

_COLOURS = (GREY, POINT, BAND, LINE)


def require_chart_file(path: Path) -> None:
    """Refuse a file that no chart can be written to.

    Raises:
        InvalidInputError: neither an image nor an HTML file.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"a chart is a .png, .svg or .html file, got {path}")


def draw_prediction(
    path: Path,
    found: Sequence[ClusterPrediction],
    own: Sequence[tuple[int, float]],
    *,
    deadline_seconds: float | None,
) -> None:
    """Predicted seconds over cores, with the interval as band and own executions as points.

    Args:
        path: `.png` or `.html`; a file that is there is replaced.
        found: in ascending order of cores.
        own: cores and seconds of own executions of that workload.
        deadline_seconds: drawn as a line where there is one.

    Raises:
        StorageError: the file cannot be written.
    """
    cores = [each.cores for each in found]
    predictions = [each.estimate for each in found]
    with chart() as (figure, axes):
        lower = [each.lower_seconds for each in predictions]
        upper = [each.upper_seconds for each in predictions]
        axes.fill_between(cores, lower, upper, color=BAND, alpha=0.35, label="90 % interval")
        medians = [each.median_seconds for each in predictions]
        axes.plot(cores, medians, color=LINE, marker="o", markersize=4, label="predicted (P50)")
        p90 = [each.estimate.p90_seconds for each in found]
        axes.plot(cores, p90, color=LINE, linestyle=":", linewidth=1.2, label="P90")
        if own:
            across, seconds = zip(*own, strict=True)
            axes.scatter(across, seconds, color=POINT, s=18, zorder=3, label="own executions")
        if deadline_seconds is not None:
            axes.axhline(deadline_seconds, color=INK, linestyle="--", linewidth=1, label="deadline")
        if len(cores) > 1:
            axes.set_xscale("log", base=2)
        shown = sorted({*cores, *(number for number, _ in own)})
        axes.set_xticks(shown, [str(each) for each in shown])
        log_heights(axes, duration_text)
        axes.set_xlabel("cores")
        axes.set_ylabel("run time")
        axes.legend(frameon=False)
        write_chart(path, figure, "How long it takes")


def draw_gain(path: Path, executions: Sequence[int], lines: Mapping[str, Sequence[float]]) -> None:
    """Median q-errors over the number of own executions, one line per way to predict.

    Raises:
        StorageError: the file cannot be written.
    """
    with chart() as (figure, axes):
        across = range(len(executions))
        for (name, heights), colour in zip(lines.items(), _COLOURS, strict=False):
            axes.plot(across, heights, color=colour, marker="o", markersize=4, label=name)
        axes.set_xticks(list(across), [str(each) for each in executions])
        log_heights(axes, "{:g}".format)
        axes.set_xlabel("own executions")
        axes.set_ylabel("median q-error on own workloads held out")
        axes.legend(frameon=False)
        write_chart(path, figure, "What joining brings")


def write_chart(path: Path, figure: "Figure", title: str) -> None:
    """Write a figure as an image or as a page of its own.

    Raises:
        InvalidInputError: neither an image nor an HTML file.
        StorageError: the file cannot be written.
    """
    require_chart_file(path)
    try:
        if path.suffix.lower() == ".png":
            figure.savefig(path, format="png", dpi=150, metadata={"Software": None})
            return
        if path.suffix.lower() == ".svg":
            path.write_text(svg(figure), encoding="utf-8")
            return
        path.write_text(render(_PAGE, title=title, drawing=svg(figure)), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write the chart {path}: {error.strerror}") from error
