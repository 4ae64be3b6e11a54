"""Advice as a picture: the plan in the colours of its platforms, predicted times as bars."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedperf_client.charts.kit import COLOURS, FAINT, GRID, INK, chart, log_lengths, write_chart
from fedperf_client.formatting.operator_tree import words_of
from fedperf_engines.advice.advice import Advice
from fedperf_engines.advice.presentation import name_of, platforms_text, size_of
from fedperf_engines.optimizer.enumeration import Alternative
from fedperf_shared.runtime.quantities import duration_text
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMED = 60
"""Beyond so many operators they are dots without words."""

_ROW_INCHES = 0.45


def draw_advice(path: Path, advice: Advice) -> None:
    """Draw the plan, its rivals and the sizes.

    Args:
        path: `.png` or `.html`; a file that is there is replaced.
        advice: to be drawn.

    Raises:
        InvalidInputError: neither a PNG nor an HTML file.
        StorageError: the file cannot be written.
    """
    places = _places(advice.job.workflow)
    depth, bars = 1 + max(y for _, y in places), len(advice.rivals) + len(advice.sizes) + 3
    closer = 1 if len(places) <= _MOST_NAMED else 3
    inches = _ROW_INCHES * max(depth / closer, bars)
    with chart(width=11, height=min(40.0, 1.5 + inches)) as (figure, axes):
        axes.remove()
        plans, sizes = 1 + len(advice.rivals), len(advice.sizes)
        grid = figure.add_gridspec(2, 2, width_ratios=(5, 6), height_ratios=(plans + 1, sizes + 1))
        _draw_plan(figure.add_subplot(grid[:, 0]), advice, places)
        by_plan: list[tuple[str, Alternative]] = [("chosen", advice.choice)]
        by_plan += [(platforms_text(each.plan, advice.choice.plan), each) for each in advice.rivals]
        above = figure.add_subplot(grid[0, 1])
        _draw_bars(above, by_plan, f"plans, {size_of(advice.best.cluster)}", advice)
        chosen = {advice.best.cluster: ", chosen"}
        by_size = [
            (size_of(each.cluster) + chosen.get(each.cluster, ""), each.choice)
            for each in advice.sizes
        ]
        below = figure.add_subplot(grid[1, 1])
        _draw_bars(below, by_size, "sizes, each with its best plan", advice)
        write_chart(path, figure, "Where to run it")


def colour_of(platform: Platform) -> str:
    """The same in every picture."""
    return COLOURS[int(platform) % len(COLOURS)]


def _places(workflow: Workflow) -> list[tuple[float, float]]:
    """Where every operator is drawn: sources at the top, below all that it reads."""
    depth = [0] * len(workflow.operators)
    across = [0.0] * len(workflow.operators)
    taken: dict[int, int] = {}
    for position in topological_order(workflow):
        inputs = workflow.operators[position].inputs
        depth[position] = 1 + max((depth[parent] for parent in inputs), default=-1)
        across[position] = taken.get(depth[position], 0)
        taken[depth[position]] = taken.get(depth[position], 0) + 1
    widest = max(taken.values())
    return [
        (column + (widest - taken[row]) / 2, float(row))
        for column, row in zip(across, depth, strict=True)
    ]


def _draw_plan(axes: "Axes", advice: Advice, places: list[tuple[float, float]]) -> None:
    plan = advice.choice.plan
    for parent, child in plan.workflow.edges:
        (left, top), (right, bottom) = places[parent], places[child]
        moves = plan.platforms[parent] is not plan.platforms[child]
        line, colour = ("--", INK) if moves else ("-", FAINT)
        bend = 0.25 if bottom - top > 1 else 0.0  # around what stands between them
        look = {"arrowstyle": "-", "linestyle": line, "color": colour}
        look["connectionstyle"] = f"arc3,rad={bend}"
        axes.annotate("", (right, bottom), (left, top), arrowprops=look, zorder=1)
    named = len(places) <= _MOST_NAMED
    for position, (x, y) in enumerate(places):
        kind = words_of(plan.workflow.operators[position].kind)
        colour = colour_of(plan.platforms[position])
        box = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": "none"}
        if not named:
            axes.scatter([x], [y], color=colour, s=30, zorder=2)
            continue
        words: dict[str, Any] = {"color": "white", "ha": "center", "va": "center", "fontsize": 7}
        axes.text(x, y, f"#{position} {kind}", bbox=box, **words)
    for platform in sorted(set(plan.platforms)):
        axes.scatter([], [], color=colour_of(platform), marker="s", label=name_of(platform))
    axes.plot([x for x, _ in places], [y for _, y in places], linestyle="none")
    axes.margins(0.2, 0.08)
    axes.invert_yaxis()
    axes.set_axis_off()
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, fontsize=8)


def _draw_bars(
    axes: "Axes", bars: Sequence[tuple[str, Alternative]], title: str, advice: Advice
) -> None:
    """Medians as bars and intervals as whiskers, start-ups included."""
    across, predictions = range(len(bars)), [each.prediction for _, each in bars]
    middle = [each.seconds for _, each in bars]
    ends = [
        [each.median_seconds - each.lower_seconds for each in predictions],
        [each.upper_seconds - each.median_seconds for each in predictions],
    ]
    colours = [_colour_of_plan(each) for _, each in bars]
    axes.barh(across, middle, xerr=ends, color=colours, ecolor=INK, height=0.6, capsize=2)
    deadline = advice.best.deadline_seconds
    if deadline is not None:
        axes.axvline(deadline, color=INK, linestyle="--", linewidth=1)
        axes.annotate("deadline", (deadline, -0.5), fontsize=7, color=FAINT)
    axes.set_yticks(list(across), [name for name, _ in bars], fontsize=7)
    log_lengths(axes, duration_text)
    axes.tick_params(axis="x", labelsize=7)
    axes.invert_yaxis()
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)
    axes.set_title(title, fontsize=9, color=FAINT, loc="left")


def _colour_of_plan(each: Alternative) -> str:
    """Its platform's; of a mixed plan that of the one that runs most operators."""
    used = each.plan.platforms
    return colour_of(max(sorted(set(used)), key=used.count))
