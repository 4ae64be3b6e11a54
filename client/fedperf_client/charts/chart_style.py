"""The style of charts, and their form inside of a page: SVG whose text stays text.

Names in charts are data: matplotlib escapes them, and none is read as a formula.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#1f2733", "#667085", "#e4e7ec"
LINE, BAND, POINT = "#175cd3", "#84adff", "#dc6803"
GREY, GREEN, VIOLET, PALE = "#98a2b3", "#079455", "#7a5af8", "#b2ccff"
COLOURS = (LINE, POINT, GREEN, VIOLET, "#c11574", "#0e9384", GREY, INK)


@contextmanager
def chart(
    width: float = 6.4, height: float = 3.8, *, grid: Literal["x", "y"] = "y"
) -> "Iterator[tuple[Figure, Axes]]":
    """A figure of `width` by `height` inches with one pair of axes and lines across one of them."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "fedperf",
        "text.parse_math": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.labelcolor": FAINT,
    }
    with mpl.rc_context(style):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(axis=grid, color=GRID)
        axes.set_axisbelow(True)
        yield figure, axes


def svg(figure: "Figure") -> str:
    """The drawing alone, without the XML header."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def log_heights(axes: "Axes", text: Callable[[float], str]) -> None:
    """Make the vertical axis logarithmic, with labels by `text`."""
    axes.set_yscale("log")
    _tell(axes.yaxis, text)


def log_lengths(axes: "Axes", text: Callable[[float], str]) -> None:
    """Make the horizontal axis logarithmic, with labels by `text`."""
    axes.set_xscale("log")
    _tell(axes.xaxis, text)


def _tell(axis: "Axis", text: Callable[[float], str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
