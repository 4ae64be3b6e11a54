"""The kit for charts and pages: colours, figures of matplotlib, and HTML by Jinja2.

Names in charts are data. Matplotlib escapes the text of an SVG, and no name is read as a formula.
Jinja2 escapes every value of a page. A page loads nothing and holds no script. On a phone a chart
keeps its size, so that its text stays readable, and its card scrolls.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedperf_shared.errors import InvalidInputError, StorageError

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


INK, FAINT, GRID = "#1f2733", "#667085", "#e4e7ec"
LINE, BAND, POINT = "#175cd3", "#84adff", "#dc6803"
GREY, GREEN, VIOLET, PALE = "#98a2b3", "#079455", "#7a5af8", "#b2ccff"
COLOURS = (LINE, POINT, GREEN, VIOLET, "#c11574", "#0e9384", GREY, INK)


SUFFIXES = (".png", ".svg", ".html")


@contextmanager
def chart(
    width: float = 6.4, height: float = 3.8, *, grid: Literal["x", "y"] = "y"
) -> "Iterator[tuple[Figure, Axes]]":
    """Yield a figure of `width` by `height` inches with one pair of axes and grid lines."""
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
    """Return the figure as SVG without the XML header."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def log_heights(axes: "Axes", text: Callable[[float], str]) -> None:
    """Make the vertical axis logarithmic, with labels by `text`."""
    axes.set_yscale("log")
    _label_ticks(axes.yaxis, text)


def log_lengths(axes: "Axes", text: Callable[[float], str]) -> None:
    """Make the horizontal axis logarithmic, with labels by `text`."""
    axes.set_xscale("log")
    _label_ticks(axes.xaxis, text)


def _label_ticks(axis: "Axis", text: Callable[[float], str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


_CHART = """<!doctype html>
<meta charset="utf-8">
<title>{{ title }}</title>
<h1>{{ title }}</h1>
{{ drawing|safe }}
"""


def require_chart_file(path: Path) -> None:
    """Refuse a file name without one of `SUFFIXES`.

    Raises:
        InvalidInputError: the suffix is another one.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"{path}: write a chart to a .png, .svg or .html file")


def write_chart(path: Path, figure: "Figure", title: str) -> None:
    """Write a figure as an image, or as an HTML page with a title.

    Raises:
        InvalidInputError: `path` has none of `SUFFIXES`.
        StorageError: the file cannot be written.
    """
    require_chart_file(path)
    suffix = path.suffix.lower()
    try:
        if suffix == ".png":
            figure.savefig(path, format="png", dpi=150, metadata={"Software": None})
        else:
            drawing = svg(figure)
            page = drawing if suffix == ".svg" else render(_CHART, title=title, drawing=drawing)
            path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write the chart {path}: {error.strerror}") from error


def render(template: str, **values: object) -> str:
    """Render a Jinja2 template. It may extend `page`, and import a table from `parts`.

    Args:
        template: the template. Only an SVG of `svg` takes the filter `safe`, because matplotlib
            escapes its texts.
        values: by their names in the template. A missing one is an error.
    """
    return _environment().from_string(template).render(values)


@cache
def _environment() -> "Environment":
    from importlib.resources import files

    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = files("fedperf_client.charts")

    environment = Environment(
        loader=FunctionLoader(lambda name: (templates / f"{name}.html").read_text("utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(ink=INK, faint=FAINT, line=GRID, blue=LINE)
    return environment
