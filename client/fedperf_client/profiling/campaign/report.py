"""A campaign's results as files: `report.html`, `trials.csv`, `summary.json`.

The page stands alone: it loads nothing and holds no script. Everything that is not
written here is escaped, whatever a component, a column or an error is called.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import orjson

from fedperf_client.home.config import write_private
from fedperf_client.pictures.page import render
from fedperf_client.profiling.campaign.charts import (
    MOST_BARS,
    MOST_CHARTS,
    MOST_LINES,
    campaign_gantt,
    run_time_charts,
    trial_gantt,
)
from fedperf_client.profiling.campaign.journal import TrialStatus
from fedperf_client.profiling.campaign.summary import Summary, as_json, trial_rows
from fedperf_client.text.durations import duration_text
from fedperf_shared.errors import StorageError

MOST_ROWS = 500
_NAMES = ("report.html", "trials.csv", "summary.json")

_PAGE = """{% extends "page" %}
{% macro table(head, rows, wide="") %}
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
{% if flagged[1] %}{{ table(*flagged, wide="reason") }}{% else %}<p>None.</p>{% endif %}
</section>
<div class="grid">
<section class="card"><h2>Trials</h2>{{ table(("status", "trials"), counts) }}
{% for note in count_notes %}<p class="note">{{ note }}</p>{% endfor %}
</section>
<section class="card"><h2>Budget</h2>{{ table(("", "spent", "of"), budget) }}</section>
</div>
<section class="card"><h2>Machine</h2>{{ table(*machines) }}</section>
{% endblock %}
"""

_Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Heads of columns, and rows."""


def write_results(directory: Path, summary: Summary) -> dict[str, Path]:
    """Write all files; files that are there are replaced.

    Raises:
        StorageError: the directory cannot be written.
    """
    contents = (
        page(summary).encode(errors="replace"),
        _csv(trial_rows(summary)).encode(errors="replace"),
        orjson.dumps(as_json(summary), option=orjson.OPT_INDENT_2),
    )
    try:
        for name, content in zip(_NAMES, contents, strict=True):
            write_private(directory / name, content)
    except OSError as error:
        raise StorageError(f"cannot write {directory}: {error.strerror}") from error
    return {name: directory / name for name in _NAMES}


def holds_measurements(directory: Path) -> bool:
    """Whether results are there that measured something; what cannot be read counts as such."""
    try:
        content = orjson.loads((directory / "summary.json").read_bytes())
        return bool(content["configurations"]["measured"] > 0)
    except FileNotFoundError:
        return any((directory / name).exists() for name in _NAMES)
    except (OSError, ValueError, LookupError, TypeError):
        return True


def page(summary: Summary) -> str:
    """The report as HTML."""
    charts = run_time_charts(summary)
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
        configurations=_configurations(summary),
        resources=_resources(summary),
        flagged=_flagged(summary),
        counts=[(status, str(count)) for status, count in summary.statuses.items()],
        count_notes=[*_noise_notes(summary), *_skipped_notes(summary)],
        budget=_budget(summary),
        machines=_machines(summary),
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
    over, line = grid.drawn
    note = f"Wall time over {over}: " if over is not None else "Wall time: "
    note += "lines join the medians, points are repeats."
    if line is not None and len(grid.columns[line]) > MOST_LINES:
        note += f" At most {MOST_LINES} values of {line} are drawn, evenly spread."
    if charts == MOST_CHARTS:
        note += f" The first {MOST_CHARTS} cases are drawn; trials.csv has all."
    return note


def _configurations(summary: Summary) -> _Table:
    names = list(summary.campaign.grid.columns)
    head = [*names, "component", "repeats", "median", "fastest", "slowest", "noise"]
    rows = [
        [
            *(_text(summary.values(each.configuration)[name]) for name in names),
            each.component,
            str(len(each.seconds)),
            _seconds(each.median_seconds),
            _seconds(min(each.seconds, default=None)),
            _seconds(max(each.seconds, default=None)),
            _share(each.noise),
        ]
        for each in summary.repeats
    ]
    return head, rows


def _resources(summary: Summary) -> _Table:
    names = list(summary.campaign.grid.columns)
    head = [*names, "component", "wall", "CPU", "peak memory", "read", "written", "others"]
    rows = []
    for each in summary.trials:
        outcome = each.outcome
        if outcome is None or not outcome.status.is_data:
            continue
        used = outcome.resources
        rows.append(
            [
                *(_text(summary.values(each.key.configuration)[name]) for name in names),
                each.key.component,
                _seconds(outcome.wall_seconds),
                _seconds(used.cpu_seconds),
                _bytes(used.peak_bytes),
                _bytes(used.read_bytes),
                _bytes(used.written_bytes),
                "-" if outcome.foreign_cores is None else f"{outcome.foreign_cores:.2f} cores",
            ]
        )
    return head, rows


def _flagged(summary: Summary) -> _Table:
    names = list(summary.campaign.grid.columns)
    head = [*names, "component", "repetition", "attempt", "status", "reason"]
    rows = [
        [
            *(_text(summary.values(each.key.configuration)[name]) for name in names),
            each.key.component,
            str(each.key.repetition),
            str(each.attempt),
            each.outcome.status.value,
            each.outcome.reason,
        ]
        for each in summary.flagged
        if each.outcome is not None
    ]
    return head, rows


def _skipped_notes(summary: Summary) -> list[str]:
    skipped: dict[str, int] = {}
    for each in summary.skipped:
        skipped[each.reason] = skipped.get(each.reason, 0) + 1
    if summary.ruled_out_trials:
        skipped["a constraint rules the configuration out"] = summary.ruled_out_trials
    name = TrialStatus.SKIPPED.value
    return [f"{name}: {count}, {reason}" for reason, count in skipped.items()]


def _noise_notes(summary: Summary) -> list[str]:
    """What noisy trials are, and what it means where nothing else was measured."""
    if not summary.statuses[TrialStatus.NOISY.value]:
        return []
    what = "Noisy: other programs kept the machine busy; these trials count, but may be too long."
    if summary.statuses[TrialStatus.OK.value]:
        return [what]
    return [f"{what} All of them were: measure again on a quiet machine."]


def _budget(summary: Summary) -> list[list[str]]:
    run = summary.campaign.settings.run
    return [
        ["trials", str(summary.spent_trials), _text(run.max_trials)],
        ["time", _seconds(summary.spent_seconds), _seconds(run.max_wall_seconds)],
    ]


def _machines(summary: Summary) -> _Table:
    head = ["run", "began", "node type", "architecture", "processor", "cores", "memory", "speed"]
    rows = [
        [
            str(each.session),
            f"{each.began:%Y-%m-%d %H:%M} UTC",
            each.machine.node_type or "-",
            each.machine.architecture,
            each.machine.processor,
            str(each.machine.cores),
            _bytes(each.machine.memory_bytes),
            f"{each.machine.machine_speed:.2f}",
        ]
        for each in summary.sessions
    ]
    return head, rows


def _csv(rows: Iterable[Mapping[str, object]]) -> str:
    listed = list(rows)
    names = list(dict.fromkeys(name for row in listed for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return buffer.getvalue()


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _seconds(value: float | None) -> str:
    return "-" if value is None else duration_text(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _bytes(value: int | None) -> str:
    if value is None:
        return "-"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:  # noqa: PLR2004 (bytes in the next unit)
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"  # noqa: PLR2004
        amount /= 1024
    return f"{amount:.3g} TiB"
