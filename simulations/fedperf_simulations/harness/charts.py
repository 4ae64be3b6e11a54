"""The look of charts, and charts of lines over an axis, as SVG that stands in a page by itself.

Text stays text, so that a reader can select it and matplotlib escapes it.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

INK, FAINT, GRID = "#1f2733", "#667085", "#e4e7ec"
LINE_COLOURS = ("#1f2733", "#98a2b3", "#dc6803", "#175cd3", "#079455", "#7a5af8")

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedperf",
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Segoe UI", "Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    # Names and reasons are data, not formulas.
    "text.parse_math": False,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart.

    Attributes:
        label: in the legend.
        across: positions from left to right.
        heights: one for each.
        dashed: stands back behind the others.
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
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
        else:
            axes.set_ylim(bottom=0)
        grid(axes, "y")
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        return svg(figure)


def grid(axes: Axes, axis: str) -> None:
    """Faint lines across one axis, behind everything."""
    axes.grid(axis=axis, color=GRID, zorder=0)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


@contextmanager
def chart(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """An empty figure of that many inches in the house's style."""
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        yield figure, axes


def svg(figure: Figure) -> str:
    """The drawing alone, without the XML header."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
