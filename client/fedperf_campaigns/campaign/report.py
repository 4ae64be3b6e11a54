"""A campaign's results as files: `report.html` with its charts, `trials.csv`, `summary.json`.

The page is self-contained: it loads nothing and holds no script. Text that is not written here is
escaped, such as names of components and columns, and errors.
"""

import csv
import io
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from fedperf_campaigns.campaign.definition import WHOLE
from fedperf_campaigns.campaign.journal import JournalTrial, TrialStatus
from fedperf_campaigns.campaign.summary import (
    ConfigurationRepeats,
    Summary,
    as_json,
    flag_facts,
    machine_facts,
    repeats_facts,
    trial_facts,
    trial_rows,
)
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
    render,
    svg,
)
from fedperf_client.formatting.facts import Fact
from fedperf_client.home.config import write_private
from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.quantities import duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_LINES = 8
MOST_CHARTS = 6
MOST_BARS = 2000
_FAR_APART = 4.0  # longest time over the shortest, above which an axis of times is logarithmic
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
    charts = []
    for (component, *rest), repeats in wholes_first[:MOST_CHARTS]:
        named = zip(summary.campaign.grid.further, rest, strict=True)
        title = ", ".join([str(component), *(f"{name} {value}" for name, value in named)])
        charts.append((title, _run_times(summary, repeats)))
    return charts


def trial_gantt(summary: Summary) -> tuple[str, str] | None:
    """Draw the components of a median trial; None where the whole job never ran."""
    whole = [each for each in summary.trials if each.key.component == WHOLE and each.is_data]
    if not whole:
        return None
    trial = sorted(whole, key=lambda each: each.wall_seconds or 0.0)[len(whole) // 2]
    if trial.outcome is None:
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
        values = summary.values(trial.key.configuration)
        return ", ".join(f"{name} {value}" for name, value in values.items()), svg(figure)


def campaign_gantt(summary: Summary) -> str | None:
    """Draw the first `MOST_BARS` trials over the campaign's time, without pauses."""
    bars = list(_bars(summary))
    if not bars:
        return None
    names = list(summary.campaign.targets)
    with chart(7.2, 1.2 + 0.4 * len(names)) as (figure, axes):
        labels: dict[TrialStatus, None] = {}
        for name, status, start, end in bars[:MOST_BARS]:
            label = None if status in labels else status.value
            labels[status] = None
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
        figure.legend(loc="outside upper right", ncols=len(labels), frameon=False, fontsize=8.5)
        return svg(figure)


def _run_times(summary: Summary, repeats: Sequence[ConfigurationRepeats]) -> str:
    over, line = summary.campaign.grid.plot_columns
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
        times = [each for across in sizes.values() for s in across.values() for each in s]
        if max(times) > _FAR_APART * min(times):
            log_heights(axes, duration_text)
        else:
            axes.set_ylim(0, 1.15 * max(times))
            axes.yaxis.set_major_formatter(lambda value, _: duration_text(value) if value else "0")
        axes.set_xlabel(_short(over or "one configuration"))
        axes.set_ylabel("wall time")
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8.5)
        return svg(figure)


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


def _spread(values: Sequence[float], most: int = MOST_LINES) -> list[float]:
    """Return at most `most` of the values, evenly spread, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(n * (len(values) - 1) / (most - 1))] for n in range(most)]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 3] + "..."


MOST_ROWS = 500
_NAMES = ("report.html", "trials.csv", "summary.json")

_PAGE = """{% extends "page" %}
{% macro table(head, rows, wide="") %}
{% if not rows %}<p>None.</p>{% else %}
<div class="scroll"><table><tr>
{% for name in head %}<th{% if name == wide %} class="wide"{% endif %}>{{ name }}</th>{% endfor %}
</tr>
{% for row in rows[:most_rows] %}
<tr>
{% for cell in row %}
<td{% if head[loop.index0] == wide %} class="wide"{% endif %}>{{ cell }}</td>
{%- endfor %}
</tr>
{% endfor %}
</table></div>
{% if rows|length > most_rows %}
<p class="note">and {{ rows|length - most_rows }} more, in trials.csv</p>
{% endif %}
{% endif %}
{% endmacro %}
{% block title %}Campaign {{ name }}{% endblock %}
{% block content %}
<h1>Campaign {{ name }}</h1>
<p class="sub">{{ lead }}</p>
{% if charts %}
<p class="note">{{ charts_note }}</p><div class="grid tight">
{% for title, drawing in charts %}
<section class="card"><h2>{{ title }}</h2>{{ drawing|safe }}</section>
{% endfor %}
</div>
{% else %}
<section class="card"><h2>Run time</h2><p>Nothing was measured.</p></section>
{% endif %}
{% if trial %}
<section class="card"><h2>A median trial, component by component</h2>
<p class="note">{{ trial[0] }}. Pale: in the queue of a remote function.</p>
{{ trial[1]|safe }}</section>
{% endif %}
{% if whole %}
<section class="card"><h2>The campaign over its time</h2>
{% if whole_note %}<p class="note">{{ whole_note }}</p>{% endif %}
{{ whole|safe }}</section>
{% endif %}
<section class="card"><h2>Configurations</h2>
<p class="note">Noise: mean distance of the repeats from their median, as a share of it.</p>
{{ table(*configurations) }}</section>
<section class="card"><h2>What the trials used</h2>
<p class="note">A dash: cannot be seen from here, as for functions on other machines. Others: cores
that the rest of the machine kept busy.</p>
{{ table(*resources) }}</section>
<section class="card"><h2>Flagged trials</h2>
{{ table(*flagged, wide="reason") }}</section>
<div class="grid">
<section class="card"><h2>Trials</h2>{{ table(("status", "trials"), counts) }}
{% for note in count_notes %}<p class="note">{{ note }}</p>{% endfor %}
</section>
<section class="card"><h2>Budget</h2>{{ table(("", "spent", "of"), budget) }}</section>
</div>
<section class="card"><h2>Machine</h2>{{ table(*machines) }}</section>
{% endblock %}
"""

_Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # heads of columns, and rows


def write_results(directory: Path, summary: Summary) -> dict[str, Path]:
    """Write all files; files that are there are replaced.

    Raises:
        StorageError: the directory cannot be written.
    """
    rows, table = trial_rows(summary), io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(table, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    contents = (
        page(summary).encode(errors="replace"),
        table.getvalue().encode(errors="replace"),
        orjson.dumps(as_json(summary), option=orjson.OPT_INDENT_2),
    )
    try:
        for name, content in zip(_NAMES, contents, strict=True):
            write_private(directory / name, content)
    except OSError as error:
        raise StorageError(f"cannot write {directory}: {error.strerror}") from error
    return {name: directory / name for name in _NAMES}


def holds_measurements(directory: Path) -> bool:
    """Return whether the directory has results with measurements, or unreadable ones."""
    try:
        content = orjson.loads((directory / "summary.json").read_bytes())
        return bool(content["configurations"]["measured"] > 0)
    except FileNotFoundError:
        return any((directory / name).exists() for name in _NAMES)
    except (OSError, ValueError, LookupError, TypeError):
        return True


def page(summary: Summary) -> str:
    """Return the report as HTML."""
    charts, run = run_time_charts(summary), summary.campaign.settings.run
    too_many = summary.spent_trials > MOST_BARS
    return render(
        _PAGE,
        name=summary.campaign.name,
        lead=_lead(summary),
        charts=charts,
        charts_note=_charts_note(summary, len(charts)),
        trial=trial_gantt(summary),
        whole=campaign_gantt(summary),
        whole_note=f"The first {MOST_BARS} trials." if too_many else "",
        configurations=_table(repeats_facts(summary, each) for each in summary.repeats),
        resources=_table(trial_facts(summary, each) for each in summary.trials if each.is_data),
        flagged=_table(flag_facts(summary, each) for each in summary.flagged),
        counts=[(status, str(count)) for status, count in summary.statuses.items()],
        count_notes=_count_notes(summary),
        budget=[
            ["trials", str(summary.spent_trials), str(run.max_trials or "-")],
            [
                "time",
                duration_text(summary.spent_seconds),
                "-" if run.max_wall_seconds is None else duration_text(run.max_wall_seconds),
            ],
        ],
        machines=_table(machine_facts(each) for each in summary.sessions),
        most_rows=MOST_ROWS,
    )


def _lead(summary: Summary) -> str:
    grid = summary.campaign.grid
    state = "complete" if summary.is_complete else "not complete"
    return (
        f"{summary.measured} of {len(grid.configurations)} configurations measured, "
        f"{grid.ruled_out} ruled out by constraints; {summary.spent_trials} trials in "
        f"{duration_text(summary.spent_seconds)}; {state}: {summary.stopped.reason}. "
        f"Campaign {summary.campaign.campaign_id[:12]}."
    )


def _charts_note(summary: Summary, charts: int) -> str:
    grid = summary.campaign.grid
    over, line = grid.plot_columns
    note = f"Wall time over {over}: " if over is not None else "Wall time: "
    note += "lines join the medians, points are repeats."
    if line is not None and len(grid.columns[line]) > MOST_LINES:
        note += f" At most {MOST_LINES} values of {line} are drawn, evenly spread."
    if charts == MOST_CHARTS:
        note += f" The first {MOST_CHARTS} cases are drawn; trials.csv has all."
    return note


def _table(rows: Iterable[Sequence[Fact]]) -> _Table:
    """Return rows of facts as a table for people; what is not known is a dash."""
    listed = [[each for each in row if each.heading is not None] for row in rows]
    head = [str(each.heading) for each in listed[0]] if listed else []
    return head, [["-" if e.entry in (None, "") else str(e.entry) for e in row] for row in listed]


def _count_notes(summary: Summary) -> list[str]:
    """Explain noisy trials, that a campaign has no others, and why trials were skipped."""
    notes = []
    if summary.statuses[TrialStatus.NOISY.value]:
        what = (
            "Noisy: other programs kept the machine busy; these trials count, but may be too long."
        )
        if not summary.statuses[TrialStatus.OK.value]:
            what += " All of them were: measure again on a quiet machine."
        notes.append(what)
    skipped = Counter(each.reason for each in summary.skipped)
    if summary.ruled_out_trials:
        skipped["a constraint rules the configuration out"] = summary.ruled_out_trials
    name = TrialStatus.SKIPPED.value
    return [*notes, *(f"{name}: {count}, {reason}" for reason, count in skipped.items())]
