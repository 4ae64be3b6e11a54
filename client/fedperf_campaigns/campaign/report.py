"""A campaign's results as files: `report.html`, `trials.csv`, `summary.json`.

The page stands alone: it loads nothing and holds no script. Everything that is not
written here is escaped, whatever a component, a column or an error is called.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import orjson

from fedperf_campaigns.campaign.charts import (
    MOST_BARS,
    MOST_CHARTS,
    MOST_LINES,
    campaign_gantt,
    run_time_charts,
    trial_gantt,
)
from fedperf_campaigns.campaign.journal import TrialStatus
from fedperf_campaigns.campaign.summary import (
    Summary,
    as_json,
    flag_facts,
    machine_facts,
    repeats_facts,
    trial_facts,
    trial_rows,
)
from fedperf_client.charts.kit import render
from fedperf_client.formatting.facts import Fact
from fedperf_client.home.config import write_private
from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.quantities import duration_text

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
        configurations=_table(repeats_facts(summary, each) for each in summary.repeats),
        resources=_table(trial_facts(summary, each) for each in summary.trials if each.is_data),
        flagged=_table(flag_facts(summary, each) for each in summary.flagged),
        counts=[(status, str(count)) for status, count in summary.statuses.items()],
        count_notes=[*_noise_notes(summary), *_skipped_notes(summary)],
        budget=_budget(summary),
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
    over, line = grid.drawn
    note = f"Wall time over {over}: " if over is not None else "Wall time: "
    note += "lines join the medians, points are repeats."
    if line is not None and len(grid.columns[line]) > MOST_LINES:
        note += f" At most {MOST_LINES} values of {line} are drawn, evenly spread."
    if charts == MOST_CHARTS:
        note += f" The first {MOST_CHARTS} cases are drawn; trials.csv has all."
    return note


def _table(rows: Iterable[Sequence[Fact]]) -> _Table:
    """Rows of facts as a table for people; what is not known is a dash."""
    listed = [[each for each in row if each.heading is not None] for row in rows]
    head = [str(each.heading) for each in listed[0]] if listed else []
    return head, [["-" if e.shown in (None, "") else str(e.shown) for e in row] for row in listed]


def _skipped_notes(summary: Summary) -> list[str]:
    skipped = Counter(each.reason for each in summary.skipped)
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
    trials, seconds = run.max_trials, run.max_wall_seconds
    return [
        ["trials", str(summary.spent_trials), "-" if trials is None else str(trials)],
        [
            "time",
            duration_text(summary.spent_seconds),
            "-" if seconds is None else duration_text(seconds),
        ],
    ]


def _csv(rows: Iterable[Mapping[str, object]]) -> str:
    listed = list(rows)
    names = list(dict.fromkeys(name for row in listed for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return buffer.getvalue()
