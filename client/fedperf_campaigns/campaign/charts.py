"""The charts of a campaign's report, as SVG."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fedperf_campaigns.campaign.components import WHOLE
from fedperf_campaigns.campaign.expressions import Value
from fedperf_campaigns.campaign.journal import JournalTrial, TrialStatus
from fedperf_campaigns.campaign.summary import ConfigurationRepeats, Summary
from fedperf_client.charts.kit import (
    COLOURS,
    FAINT,
    GRID,
    INK,
    LINE,
    PALE,
    VIOLET,
    chart,
    log_heights,
    svg,
)
from fedperf_shared.runtime.quantities import duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 8
MOST_CHARTS = 6
MOST_BARS = 2000
_FAR_APART = 4.0
_LONGEST_LABEL = 40

STATUS_COLOURS = {
    TrialStatus.OK: LINE,
    TrialStatus.WARMUP: PALE,
    TrialStatus.NOISY: "#fdb022",
    TrialStatus.FAILED: "#d92d20",
    TrialStatus.TIMEOUT: "#912018",
    TrialStatus.OOM: VIOLET,
}


def run_time_charts(summary: Summary) -> list[tuple[str, str]]:
    """Run time over parallelism, or size if only that varies: a title and a chart for each case.

    A case is what is measured together with the values of all further columns; the first
    `MOST_CHARTS` are drawn.
    """
    cases: dict[tuple[object, ...], list[ConfigurationRepeats]] = {}
    for each in summary.repeats:
        if each.seconds:
            values = summary.values(each.configuration)
            further = tuple(values[name] for name in summary.campaign.grid.further)
            cases.setdefault((each.component, *further), []).append(each)
    wholes_first = sorted(cases.items(), key=lambda case: case[0][0] != WHOLE)
    return [
        (_title(summary, case), _run_times(summary, repeats))
        for case, repeats in wholes_first[:MOST_CHARTS]
    ]


def trial_gantt(summary: Summary) -> tuple[str, str] | None:
    """The components of a median trial, as title and chart; None where the whole never ran."""
    trial = _median_trial(summary)
    if trial is None or trial.outcome is None:
        return None
    spans = sorted(trial.outcome.spans, key=lambda each: each.start_seconds)
    with chart(7.2, 0.9 + 0.34 * len(spans)) as (figure, axes):
        for place, span in enumerate(spans):
            seconds = span.end_seconds - span.start_seconds
            axes.barh(place, seconds, left=span.start_seconds, height=0.6, color=COLOURS[0])
            queue = span.queue_seconds or 0.0
            if 0 < queue <= seconds:
                axes.barh(place, queue, left=span.start_seconds, height=0.6, color=PALE)
            axes.annotate(
                duration_text(max(seconds, 0.0)),
                (span.end_seconds, place),
                (5, 0),
                textcoords="offset points",
                va="center",
                color=FAINT,
                fontsize=8.5,
            )
        _bars_axes(axes, [_short(each.component) for each in spans])
        axes.set_xlabel("seconds after the trial's start")
        axes.margins(x=0.12)
        axes.set_xlim(left=0)
        return _values_text(summary.values(trial.key.configuration)), svg(figure)


def campaign_gantt(summary: Summary) -> str | None:
    """The first `MOST_BARS` trials over the campaign's time, pauses between its runs left out."""
    bars = list(_bars(summary))
    if not bars:
        return None
    names = list(summary.campaign.targets)
    with chart(7.2, 1.2 + 0.4 * len(names)) as (figure, axes):
        drawn: dict[TrialStatus, None] = {}
        for name, status, start, end in bars[:MOST_BARS]:
            label = None if status in drawn else status.value
            drawn[status] = None
            axes.barh(
                names.index(name),
                max(end - start, 1e-3),
                left=start,
                height=0.62,
                color=STATUS_COLOURS[status],
                edgecolor="white",
                linewidth=0.4,
                label=label,
            )
        _bars_axes(axes, [_short(each) for each in names])
        axes.set_xlabel("seconds of the campaign, pauses between its runs left out")
        axes.set_xlim(left=0)
        figure.legend(loc="outside upper right", ncols=len(drawn), frameon=False, fontsize=8.5)
        return svg(figure)


def _run_times(summary: Summary, repeats: Sequence[ConfigurationRepeats]) -> str:
    over, line = summary.campaign.grid.drawn
    sizes: dict[float, dict[float, tuple[float, ...]]] = {}
    for each in repeats:
        values = summary.values(each.configuration)
        across, size = (1.0 if name is None else float(values[name]) for name in (over, line))
        sizes.setdefault(size, {})[across] = each.seconds
    with chart(4.9, 3.3) as (figure, axes):
        for colour, size in zip(COLOURS, _spread(sorted(sizes)), strict=False):
            points = dict(sorted(sizes[size].items()))
            medians = [statistics.median(each) for each in points.values()]
            label = "all" if line is None else f"{line} {size:g}"
            axes.plot(list(points), medians, color=colour, linewidth=1.8, label=_short(label))
            for across, seconds in points.items():
                axes.scatter([across] * len(seconds), seconds, color=colour, s=14, zorder=3)
        marks = sorted({across for size in sizes for across in sizes[size]})
        if len(marks) > 1:
            axes.set_xscale("log", base=2)
        marks = _spread(marks, most=12)
        axes.set_xticks(marks, [f"{each:g}" for each in marks])
        _heights(axes, [each for across in sizes.values() for s in across.values() for each in s])
        axes.set_xlabel(_short(over or "one configuration"))
        axes.set_ylabel("wall time")
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8.5)
        return svg(figure)


def _heights(axes: "Axes", seconds: Sequence[float]) -> None:
    """Logarithmic where times are far apart, else from 0 on."""
    if max(seconds) > _FAR_APART * min(seconds):
        log_heights(axes, duration_text)
    else:
        axes.set_ylim(0, 1.15 * max(seconds))
        axes.yaxis.set_major_formatter(lambda value, _: duration_text(value) if value else "0")


def _median_trial(summary: Summary) -> JournalTrial | None:
    """Of the configuration with the median run time, the repeat in the middle."""
    whole = [each for each in summary.trials if each.key.component == WHOLE and each.is_data]
    by_time = sorted(whole, key=lambda each: each.wall_seconds or 0.0)
    return by_time[len(by_time) // 2] if by_time else None


def _bars(summary: Summary) -> Iterator[tuple[str, TrialStatus, float, float]]:
    """Component, status, start and end of every trial; a run begins where the last one ended."""
    trials: dict[int, list[JournalTrial]] = {}
    for each in summary.trials:
        trials.setdefault(each.session, []).append(each)
    zero = 0.0
    for session in summary.sessions:
        latest = zero
        for each in trials.get(session.session, ()):
            if each.status is None or each.ended is None:
                continue
            start = zero + (each.started - session.began).total_seconds()
            latest = max(latest, zero + (each.ended - session.began).total_seconds())
            yield each.key.component, each.status, start, latest
        zero = latest


def _bars_axes(axes: "Axes", names: Sequence[str]) -> None:
    axes.grid(visible=False)
    axes.grid(axis="x", color=GRID)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", labelcolor=INK, length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _title(summary: Summary, case: tuple[object, ...]) -> str:
    component, *further = case
    named = dict(zip(summary.campaign.grid.further, further, strict=True))
    parts = [f"{name} {value}" for name, value in named.items()]
    return ", ".join([str(component), *parts])


def _values_text(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _spread(values: Sequence[float], most: int = MOST_LINES) -> list[float]:
    """At most `most` of the values, evenly spread, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(n * (len(values) - 1) / (most - 1))] for n in range(most)]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 3] + "..."
