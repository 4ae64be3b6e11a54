"""The look of charts, and charts of lines over an axis, as self-contained SVG for a page.

Text stays text, so that a reader can select it and matplotlib escapes it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from fedperf_client.charts import kit
from fedperf_client.charts.kit import (
    FAINT,
    GREEN,
    GREY,
    GRID,
    INK,
    LINE,
    POINT,
    VIOLET,
    log_heights,
    svg,
)

LINE_COLOURS = (INK, GREY, POINT, LINE, GREEN, VIOLET)

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Segoe UI", "Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart.

    Attributes:
        label: in the legend.
        across: positions from left to right.
        heights: one for each.
        dashed: drawn less prominently than the others.
        spread: standard error of each height, drawn as a bar; none by default.
    """

    label: str
    across: Sequence[float]
    heights: Sequence[float]
    dashed: bool = False
    spread: Sequence[float] | None = None


def lines_chart(
    lines: Sequence[Line],
    across: str,
    up: str,
    *,
    marks: Sequence[str] | None = None,
    is_log: bool = False,
    is_log_across: bool = False,
    rings: tuple[str, Sequence[tuple[float, float]]] | None = None,
) -> str:
    """Up to six lines over the same axis, whose names are given.

    Args:
        lines: from the back to the front.
        across: name of the axis below.
        up: name of the axis at the left.
        marks: texts at 0, 1, ... below, instead of numbers.
        is_log: whether equal ratios are equally high.
        is_log_across: whether they are equally wide.
        rings: what to call points with a ring around them in the legend, and where they are.
    """
    with chart(7.2, 4.2) as (figure, axes):
        for colour, line in zip(LINE_COLOURS, lines, strict=False):
            style, width = ("--", 1.4) if line.dashed else ("-", 2.0)
            axes.errorbar(
                line.across,
                line.heights,
                line.spread,
                fmt=style,
                elinewidth=0.8,
                capsize=2,
                color=colour,
                linewidth=width,
                marker="o",
                markersize=3.5,
                label=line.label,
                zorder=2,
            )
        if rings is not None:
            label, points = rings
            axes.scatter(
                [across for across, _ in points],
                [up for _, up in points],
                s=110,
                facecolors="none",
                edgecolors=INK,
                zorder=3,
                label=label,
            )
        if marks is not None:
            axes.set_xticks(range(len(marks)), marks)
        if is_log_across:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        if is_log:
            log_heights(axes, "{:g}".format)
        else:
            axes.set_ylim(bottom=0)
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        return svg(figure)


@contextmanager
def chart(
    width: float, height: float, *, grid: Literal["x", "y"] = "y"
) -> Iterator[tuple[Figure, Axes]]:
    """Yield an empty figure of that many inches, in the fonts of pages and on their ground."""
    with (
        mpl.rc_context(_STYLE),  # type: ignore[arg-type]
        kit.chart(width, height, grid=grid) as (figure, axes),
    ):
        figure.patch.set_alpha(0)
        axes.patch.set_alpha(0)
        yield figure, axes
