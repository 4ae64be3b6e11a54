"""The report's charts, as SVG that stands in a page by itself.

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

from fedperf_simulations.summary import ChoiceResult, DemoSummary

INK, FAINT, GRID = "#1f2733", "#667085", "#e4e7ec"
COLOURS = {
    "own data only": "#98a2b3",
    "public start": "#d0d5dd",
    "shared": "#84adff",
    "personalized": "#175cd3",
}
ORGANIZATION_COLOURS = ("#84adff", "#dc6803", "#079455", "#7a5af8")
LINE_COLOURS = ("#1f2733", "#98a2b3", "#dc6803", "#175cd3", "#079455", "#7a5af8")
CHOSEN, OTHER, INTERVAL = "#175cd3", "#b2bccc", "#dc6803"

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
    with _chart(7.2, 4.2) as (figure, axes):
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
        _grid(axes, "y")
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        return _svg(figure)


def q_error_chart(summary: DemoSummary) -> str:
    """Four bars per organization."""
    with _chart(7.2, 3.2) as (figure, axes):
        for place, (name, colour) in enumerate(COLOURS.items()):
            heights = [_errors(summary)[name][i] for i in range(len(summary.organizations))]
            positions = [i + (place - 1.5) * 0.2 for i in range(len(heights))]
            bars = axes.bar(positions, heights, width=0.18, color=colour, label=name, zorder=2)
            axes.bar_label(bars, fmt="%.2f", fontsize=8.5, color=FAINT, padding=2)
        axes.set_xticks(
            range(len(summary.organizations)), [each.name for each in summary.organizations]
        )
        axes.tick_params(axis="x", labelcolor=INK, length=0)
        axes.set_ylabel("median q-error (1 is perfect)")
        axes.set_ylim(bottom=1.0)
        axes.margins(y=0.12)
        _grid(axes, "y")
        figure.legend(loc="outside upper center", ncols=4, frameon=False)
        return _svg(figure)


def rounds_chart(summary: DemoSummary) -> str:
    """The shared model's error on public plans, from the public start on."""
    errors = [summary.start_error, *(each.public_error for each in summary.rounds)]
    known = [(place, error) for place, error in enumerate(errors) if error is not None]
    with _chart(5.0, 2.9) as (figure, axes):
        axes.plot(*zip(*known, strict=True), color=CHOSEN, marker="o", linewidth=2, zorder=2)
        for place, error in known:
            axes.annotate(
                f"{error:.3f}", (place, error), (0, 9), textcoords="offset points", ha="center"
            ).set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85})
        labels = ["start", *(str(each.round) for each in summary.rounds)]
        axes.set_xticks(range(len(errors)), labels)
        axes.set_xlabel("round")
        axes.set_ylabel("median q-error, public plans")
        axes.margins(x=0.06, y=0.3)
        _grid(axes, "y")
        return _svg(figure)


def budget_chart(summary: DemoSummary) -> str:
    """Epsilon spent by each organization, release by release."""
    end = summary.windows * summary.window_seconds
    with _chart(5.0, 2.9) as (figure, axes):
        # Equal schedules cost the same: a line must not hide the one below it.
        widths = (5.0, 2.0, 2.0, 2.0)
        lines = zip(ORGANIZATION_COLOURS, widths, summary.organizations, strict=False)
        for colour, width, each in lines:
            times = [0.0, *(release.seconds for release in each.releases), end]
            spent = [0.0, *(release.epsilon for release in each.releases)]
            axes.step(
                times,
                [*spent, spent[-1]],
                where="post",
                color=colour,
                linewidth=width,
                label=each.name,
            )
        for budget in {each.epsilon_budget for each in summary.organizations}:
            axes.axhline(budget, color=FAINT, linestyle="--", linewidth=1)
            axes.annotate("budget", (0, budget), (2, 3), textcoords="offset points", color=FAINT)
        axes.set_xlim(0, end)
        axes.set_xlabel("seconds since the period began")
        axes.set_ylabel("epsilon spent")
        axes.margins(y=0.12)
        axes.set_ylim(bottom=0)
        _grid(axes, "y")
        figure.legend(loc="outside upper center", ncols=3, frameon=False)
        return _svg(figure)


def choice_chart(choice: ChoiceResult) -> str:
    """Measured seconds of the choice and of every single platform, with the predictions."""
    low, high = choice.interval
    names = ["chosen", *(f"all on {name}" for name in choice.single)]
    measured = [choice.measured_seconds, *(e.measured_seconds for e in choice.single.values())]
    predicted = [choice.predicted_seconds, *(e.predicted_seconds for e in choice.single.values())]
    rows = range(len(names))
    with _chart(7.2, 0.8 + 0.5 * len(names)) as (figure, axes):
        colours = [CHOSEN, *(OTHER for _ in choice.single)]
        axes.barh(rows, [each or 0.0 for each in measured], color=colours, height=0.55)
        ends = [max(m or 0.0, p) for m, p in zip(measured, predicted, strict=True)]
        for row, end, text in zip(
            rows, [max(ends[0], high), *ends[1:]], _seconds(measured), strict=True
        ):
            axes.annotate(text, (end, row), (8, 0), textcoords="offset points", va="center")
        axes.scatter(predicted, rows, color=INTERVAL, s=26, zorder=3, label="predicted")
        axes.plot([low, high], [0, 0], color=INTERVAL, linewidth=2, zorder=3, label="interval")
        axes.set_yticks(rows, names)
        axes.tick_params(axis="y", labelcolor=INK, length=0)
        axes.invert_yaxis()
        axes.set_xlabel("seconds (median of the runs)")
        axes.margins(x=0.14)
        axes.set_xlim(left=0)
        _grid(axes, "x")
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        return _svg(figure)


def _errors(summary: DemoSummary) -> dict[str, list[float]]:
    found = [each.q_error for each in summary.organizations]
    return {
        "own data only": [each.local for each in found],
        "public start": [each.base for each in found],
        "shared": [each.shared for each in found],
        "personalized": [each.personalized for each in found],
    }


def _seconds(measured: Sequence[float | None]) -> list[str]:
    return ["failed" if each is None else f"{each:.3f} s" for each in measured]


def _grid(axes: Axes, axis: str) -> None:
    axes.grid(axis=axis, color=GRID, zorder=0)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


@contextmanager
def _chart(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        yield figure, axes


def _svg(figure: Figure) -> str:
    """The drawing alone, without the XML header."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
