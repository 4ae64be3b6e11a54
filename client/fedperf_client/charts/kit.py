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


_CHART = """<!doctype html>
<meta charset="utf-8">
<title>{{ title }}</title>
<h1>{{ title }}</h1>
{{ drawing|safe }}
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{% block title %}{% endblock %}</title><style>
:root { --ink:{{ ink }}; --faint:{{ faint }}; --line:{{ line }}; --blue:{{ blue }}; }
* { box-sizing:border-box; }
body { margin:0; background:#f5f6f8; color:var(--ink);
  font:15px/1.55 Inter,"Segoe UI","Helvetica Neue",Arial,sans-serif; }
main { max-width:1080px; margin:0 auto; padding:40px 24px 64px; }
h1 { font-size:30px; line-height:1.2; margin:0 0 6px; letter-spacing:-.4px; }
h2 { font-size:18px; margin:0 0 4px; }
p { margin:0 0 10px; }
.sub, .note { color:var(--faint); }
.note { font-size:13px; }
.card { background:#fff; border:1px solid var(--line); border-radius:12px;
  padding:22px 24px; margin-top:20px; overflow-x:auto; }
.story { font-size:16px; line-height:1.65; }
.story ol { margin:0; padding-left:22px; }
.story li { margin-bottom:6px; }
.grid { display:grid; grid-template-columns:1fr 1fr; gap:20px; }
@media (max-width:860px) { .grid { grid-template-columns:1fr; } }
svg { max-width:100%; height:auto; display:block; margin:6px auto 0; }
table { border-collapse:collapse; width:100%; margin:10px 0 4px;
  font-variant-numeric:tabular-nums; }
th { text-align:right; font-weight:500; font-size:12.5px; color:var(--faint);
  border-bottom:1px solid var(--line); padding:6px 8px; vertical-align:bottom; }
td { text-align:right; padding:7px 8px; border-bottom:1px solid var(--line); }
tr:last-child td { border-bottom:0; }
th:first-child, td:first-child, .text { text-align:left; }
td { white-space:nowrap; }
td.best { color:var(--blue); font-weight:600; }
code { font:13px ui-monospace,Menlo,Consolas,monospace; background:#f2f4f7;
  border-radius:5px; padding:1px 5px; white-space:nowrap; }
.flow { line-height:2; }
.tight { margin-top:20px; }
.tight .card { margin-top:0; }
.scroll { max-height:480px; overflow:auto; }
.scroll th { position:sticky; top:0; background:#fff; }
th.wide { text-align:left; }
td.wide { white-space:normal; text-align:left; min-width:260px; }
.grid > .card { min-width:0; }
@media (max-width:480px) {
  main { padding:20px 12px 40px; }
  h1 { font-size:23px; }
  .card { padding:14px; }
  td, th { padding:6px 4px; }
  svg { max-width:none; }
}
{% block style %}{% endblock %}</style></head><body><main>
{% block content %}{% endblock %}
</main></body></html>
"""

_PARTS = """
{% macro table(head, rows) %}
{% for row in rows %}
{% if loop.first %}
<table><thead><tr>{% for cell in head %}<th>{{ cell }}</th>{% endfor %}</tr></thead><tbody>
{% endif %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% if loop.last %}
</tbody></table>
{% endif %}
{% endfor %}
{% endmacro %}
"""


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
    from jinja2 import DictLoader, Environment, StrictUndefined

    environment = Environment(
        loader=DictLoader({"page": _PAGE, "parts": _PARTS}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(ink=INK, faint=FAINT, line=GRID, blue=LINE)
    return environment
