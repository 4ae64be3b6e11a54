"""The chart of the demo's page: how far off everybody's answers were, window by window."""

from fedperf_client.pictures.chart_style import FAINT, INK, LINE, POINT, svg
from fedperf_simulations.demo.summary import YearResult
from fedperf_simulations.harness.charts import chart


def windows_chart(year: YearResult) -> str:
    """Three lines over the windows of the year; the cap and the epoch are marked."""
    across = range(1, len(year.windows) + 1)
    lines = (
        ("half a core", POINT, [each.new_machine for each in year.windows]),
        ("whole cores", INK, [each.old_machine for each in year.windows]),
        (f"{year.family}, {year.platform}", LINE, [each.newcomer for each in year.windows]),
    )
    # Narrow enough that its text can be read on a phone.
    with chart(4.4, 3.3) as (figure, axes):
        for label, colour, heights in lines:
            axes.plot(across, heights, color=colour, linewidth=2, marker="o", label=label, zorder=2)
        marks = {"cap": year.cap_window + 1}
        if year.noticed is not None and year.noticed.epoch_window is not None:
            marks["epoch"] = year.noticed.epoch_window + 1
        for label, window in marks.items():
            axes.axvline(window - 0.5, color=FAINT, linestyle="--", linewidth=1)
            axes.annotate(
                label,
                (window - 0.5, 1),
                (3, -10),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                color=FAINT,
            )
        axes.set_xticks(list(across))
        axes.set_xlabel("window")
        axes.set_ylabel("answers are off by a factor of")
        axes.margins(y=0.25)  # room for the words at the top
        axes.set_ylim(bottom=1)
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        return svg(figure)
