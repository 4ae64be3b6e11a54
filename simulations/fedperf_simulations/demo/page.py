"""The demo's page: one file, no scripts, nothing fetched. A phone shows it whole.

Everything that is not written here is escaped.
"""

import math
from pathlib import Path

from fedperf_client.charts.kit import FAINT, INK, LINE, POINT, render, svg
from fedperf_simulations.demo.summary import (
    SPREAD,
    Change,
    DemoSummary,
    MachineResult,
    NewParticipantResult,
    OrganizationResult,
    YearResult,
    describe_change,
    factor,
    lines,
    noticed,
    of_five_seeds,
    runs,
)
from fedperf_simulations.harness.charts import chart

_PAGE = """{% extends "page" %}
{% from "parts" import table %}
{% block title %}fedperf demo, seed {{ summary.seed }}{% endblock %}
{% block style %}
h3 { font-size:15px; margin:14px 0 4px; }
.bar { display:grid; grid-template-columns:112px 1fr 82px; gap:8px; align-items:center; }
.bar i { height:12px; border-radius:3px; background:#b2bccc; display:block; min-width:2px; }
.bar b { font-weight:500; text-align:right; font-variant-numeric:tabular-nums; }
.bar.ours i { background:var(--blue); }
.bar.aside, .bar.aside b { color:var(--faint); }
.bar.aside i { background:#e4e7ec; }
.told { font-weight:600; margin:4px 0 12px; }
.told.better { color:#067647; }
.told.worse { color:#b42318; }
.story ol { list-style:none; padding:0; }
@media (max-width:480px) {
  .story { font-size:15px; }
  svg { max-width:100%; }
  .bar { grid-template-columns:94px 1fr 74px; font-size:14px; }
}
{% endblock %}
{% macro bar(name, width, value, kind) %}
<div class="bar {{ kind }}"><span>{{ name }}</span>
<i style="width:{{ width }}%"></i><b>{{ value }}</b></div>
{% endmacro %}
{% macro card(title, bars, told) %}
<h3>{{ title }}</h3>{% for each in bars %}{{ bar(*each) }}{% endfor %}
<p class="told {{ told[0] }}">{{ told[1] }}</p>
{% endmacro %}
{% block content %}
<h1>What joining brings, and what it costs</h1>
<p class="sub">fedperf demo, seed {{ summary.seed }}. Jobs that really ran; {{ year.organizations }}
organizations learn in memory, three as programs. {{ "%.0f"|format(summary.total_seconds) }}
seconds in all.</p>
<section class="card story"><ol>
{% for each in lines %}<li>{{ each }}</li>{% endfor %}</ol></section>
<div class="grid">
<section class="card"><h2>(a) A new participant</h2>
<p class="note">{{ year.family|capitalize }} jobs on {{ year.platform }}, both absent from
the pretraining of the base model here. By how much {{ told_by }} predictions for
workloads of no organization are off; x1.00 is perfect. Intervals are {{ spread }}.</p>
{% for each, by_seeds in new_participants %}
{{ card(*each) }}<p class="note">{{ by_seeds }}</p>{% endfor %}
<p class="note">The shipped model was trained on {{ year.platform }} and {{ year.family }} jobs;
the base model shows the case of a new platform of yours.</p></section>
<section class="card"><h2>(b) A machine that changes</h2>
<p class="note">{{ noticed }}.</p>
{% for each in machines %}{{ card(*each) }}{% endfor %}
<p class="note">{{ remembered }}</p>
</section>
<section class="card"><h2>The year, window by window</h2>{{ chart|safe }}</section>
<section class="card"><h2>(c) What left, for how much</h2>
<p class="note">Noisy numbers that a mechanism made, signed; no names, no texts, no plans.</p>
{{ table(("organization", "releases", "bytes", "epsilon"), figures) }}
{% for each in kinds %}<p class="note">{{ each }}</p>{% endfor %}</section>
</div>
<section class="card"><h2>Made with</h2><p class="note">{{ versions }}</p>
<p class="note">Stages, some side by side: {{ stages }}. Fingerprints of the keys, the same on both
sides: {{ keys }}.</p></section>
{% endblock %}
"""

_Bar = tuple[str, str, str, str]
_Card = tuple[str, list[_Bar], tuple[str, str]]
"""Title, bars and what changed, with its style."""


def write_report(path: Path, summary: DemoSummary) -> None:
    """Write the page."""
    path.write_text(page(summary), encoding="utf-8")


def page(summary: DemoSummary) -> str:
    """Return the page as text."""
    year = summary.year
    versions = summary.provenance.get("versions")
    named = versions.items() if isinstance(versions, dict) else ()
    every = summary.organizations
    return render(
        _PAGE,
        summary=summary,
        year=year,
        told_by=year.newcomer[0].change.workloads,
        spread=SPREAD,
        lines=lines(summary),
        new_participants=[
            (_new_participant_card(each), of_five_seeds(each.own_runs)) for each in year.newcomer
        ],
        noticed=noticed(year),
        machines=[_machine(each) for each in reversed(year.machines)],
        remembered=_remembered(year),
        chart=_windows_chart(year),
        figures=[_figures(each) for each in every],
        kinds=[_kinds(each) for each in every],
        versions=", ".join(f"{name} {version}" for name, version in named),
        stages=", ".join(f"{name} {seconds:.0f} s" for name, seconds in summary.seconds.items()),
        keys=", ".join(f"{each.name} {each.fingerprint}" for each in every),
    )


def _remembered(year: YearResult) -> str:
    """Return what preserved predictions for the old machine, and the number of promotions."""
    rows = (
        f"Rounds of the new regime rehearsed {year.rehearsed} synthetic rows of the old machine "
        "in addition to the members' own history. "
    )
    return f"{rows if year.rehearsed else ''}Versions that were promoted: {year.promoted}."


def _new_participant_card(result: NewParticipantResult) -> _Card:
    bars = (
        ("alone", result.alone, ""),
        ("base model", result.start, ""),
        ("joined", result.joined, "ours"),
        ("shipped model", result.shipped, "aside"),
    )
    widest = max(value or 1.0 for _, value, _ in bars)
    drawn_bars = [_bar(name, value, widest, kind) for name, value, kind in bars]
    return runs(result), drawn_bars, _told("joined against the base model", result.change)


def _machine(result: MachineResult) -> _Card:
    widest = max(result.before, result.after)
    bars = [
        _bar("before", result.before, widest, ""),
        _bar("at the end", result.after, widest, "ours"),
    ]
    return result.name, bars, _told("change", result.change)


def _bar(name: str, value: float | None, widest: float, kind: str) -> _Bar:
    """Return a bar as long as the log of the factor, or an empty one without a prediction."""
    share = 100 * math.log(value or 1.0) / max(math.log(widest), 1e-9)
    return name, f"{share:.0f}", factor(value), kind


def _told(what: str, change: Change) -> tuple[str, str]:
    kind = "" if not change.is_distinguishable else "better" if change.is_better else "worse"
    return kind, f"{what}: {describe_change(change)}"


def _figures(each: OrganizationResult) -> tuple[str, ...]:
    spent = f"{each.epsilon_spent:.3f} of {each.epsilon_budget:g}"
    return (each.name, str(each.releases), f"{each.bytes_out:,}", spent)


def _kinds(each: OrganizationResult) -> str:
    left = ", ".join(f"{e.releases} {e.kind.replace('_', ' ')}" for e in each.left)
    gaps = "".join(
        f" Not planned: {gap.what.replace('_', ' ')}. {gap.reason}."
        for gap in each.slots_not_planned
    )
    return f"{each.name} ({each.size_class}, {each.workloads:,} workloads): {left}.{gaps}"


def _windows_chart(year: YearResult) -> str:
    """Three lines over the windows of the year. The cap and the regime change are marked."""
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
            marks["new regime"] = year.noticed.epoch_window + 1
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
        axes.set_ylabel("predictions are off by a factor of")
        axes.margins(y=0.25)  # room for the words at the top
        axes.set_ylim(bottom=1)
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        return svg(figure)
