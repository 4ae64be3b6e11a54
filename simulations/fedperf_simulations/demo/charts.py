"""The charts of the demo's page."""

from collections.abc import Sequence

from fedperf_simulations.demo.summary import ChoiceResult, DemoSummary
from fedperf_simulations.harness.charts import FAINT, INK, chart, grid, svg

COLOURS = {
    "own data only": "#98a2b3",
    "public start": "#d0d5dd",
    "shared": "#84adff",
    "personalized": "#175cd3",
}
ORGANIZATION_COLOURS = ("#84adff", "#dc6803", "#079455", "#7a5af8")
CHOSEN, OTHER, INTERVAL = "#175cd3", "#b2bccc", "#dc6803"


def q_error_chart(summary: DemoSummary) -> str:
    """Four bars per organization."""
    with chart(7.2, 3.2) as (figure, axes):
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
        grid(axes, "y")
        figure.legend(loc="outside upper center", ncols=4, frameon=False)
        return svg(figure)


def rounds_chart(summary: DemoSummary) -> str:
    """The shared model's error on public plans, from the public start on."""
    errors = [summary.start_error, *(each.public_error for each in summary.rounds)]
    known = [(place, error) for place, error in enumerate(errors) if error is not None]
    with chart(5.0, 2.9) as (figure, axes):
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
        grid(axes, "y")
        return svg(figure)


def budget_chart(summary: DemoSummary) -> str:
    """Epsilon spent by each organization, release by release."""
    end = summary.windows * summary.window_seconds
    with chart(5.0, 2.9) as (figure, axes):
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
        grid(axes, "y")
        figure.legend(loc="outside upper center", ncols=3, frameon=False)
        return svg(figure)


def choice_chart(choice: ChoiceResult) -> str:
    """Measured seconds of the choice and of every single platform, with the predictions."""
    low, high = choice.interval
    names = ["chosen", *(f"all on {name}" for name in choice.single)]
    measured = [choice.measured_seconds, *(e.measured_seconds for e in choice.single.values())]
    predicted = [choice.predicted_seconds, *(e.predicted_seconds for e in choice.single.values())]
    rows = range(len(names))
    with chart(7.2, 0.8 + 0.5 * len(names)) as (figure, axes):
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
        grid(axes, "x")
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        return svg(figure)


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
