"""The demo's page: one file, no scripts, nothing fetched; a phone shows it whole.

Everything that is not written here is escaped, whatever it is.
"""

import math
from collections.abc import Iterable
from html import escape
from pathlib import Path

from fedperf_client.pictures.page import STYLE, table_of
from fedperf_simulations.demo.charts import windows_chart
from fedperf_simulations.demo.summary import (
    Change,
    DemoSummary,
    MachineResult,
    NewcomerResult,
    OrganizationResult,
    YearResult,
)
from fedperf_simulations.demo.verdicts import (
    SPREAD,
    factor,
    lines,
    noticed,
    of_five_seeds,
    runs,
    told,
)

_STYLE = """
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
"""


def write_report(path: Path, summary: DemoSummary) -> None:
    """Write the page."""
    path.write_text(page(summary), encoding="utf-8")


def page(summary: DemoSummary) -> str:
    """The page as text."""
    year = summary.year
    told_by = year.newcomer[0].change.workloads
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fedperf demo, seed {summary.seed}</title><style>{STYLE}{_STYLE}</style></head><body><main>
<h1>What joining brings, and what it costs</h1>
<p class="sub">fedperf demo, seed {summary.seed}. Jobs that really ran; {year.organizations}
organizations learn in memory, three as programs. {summary.total_seconds:.0f} seconds in all.</p>
<section class="card story"><ol>{_items(lines(summary))}</ol></section>
<div class="grid">
<section class="card"><h2>(a) A newcomer</h2>
<p class="note">{escape(year.family.capitalize())} jobs on {escape(year.platform)}, both unknown to
the start: the model that everybody begins with here. By how much {told_by} predictions for
workloads of no organization are off; x1.00 is perfect. Intervals are {SPREAD}.</p>
{"".join(map(_newcomer, year.newcomer))}
<p class="note">The start that ships knows {escape(year.platform)} and {escape(year.family)} jobs,
as it was trained on both; the one beside it is what a platform of yours would meet.</p></section>
<section class="card"><h2>(b) A machine that changes</h2>
<p class="note">{escape(noticed(year))}.</p>
{"".join(map(_machine, reversed(year.machines)))}
<p class="note">{escape(_remembered(year))}</p>
</section>
<section class="card"><h2>The year, window by window</h2>{windows_chart(year)}</section>
<section class="card"><h2>(c) What left, for how much</h2>{_left(summary.organizations)}</section>
</div>
{_made_with(summary)}
</main></body></html>
"""


def _remembered(year: YearResult) -> str:
    """What kept the old machine's answers, and how often the gate opened."""
    rows = (
        f"Rounds of the new epoch rehearsed {year.rehearsed} synthetic rows of the old machine "
        "beside what members remember themselves. "
    )
    return f"{rows if year.rehearsed else ''}Versions that were promoted: {year.promoted}."


def _newcomer(found: NewcomerResult) -> str:
    bars = (
        ("alone", found.alone, ""),
        ("start", found.start, ""),
        ("joined", found.joined, "ours"),
        ("shipped start", found.shipped, "aside"),
    )
    widest = max(value or 1.0 for _, value, _ in bars)
    drawn = "".join(_bar(name, value, widest, kind) for name, value, kind in bars)
    return (
        f"<h3>{escape(runs(found))}</h3>{drawn}{_told('joined against the start', found.change)}"
        f'<p class="note">{escape(of_five_seeds(found.own_runs))}</p>'
    )


def _machine(found: MachineResult) -> str:
    widest = max(found.before, found.after)
    return (
        f"<h3>{escape(found.name)}</h3>"
        f"{_bar('before', found.before, widest, '')}"
        f"{_bar('at the end', found.after, widest, 'ours')}{_told('change', found.change)}"
    )


def _bar(name: str, value: float | None, widest: float, kind: str) -> str:
    """As long as the log of the factor; none where there is no answer."""
    share = 100 * math.log(value or 1.0) / max(math.log(widest), 1e-9)
    return (
        f'<div class="bar {kind}"><span>{escape(name)}</span>'
        f'<i style="width:{share:.0f}%"></i><b>{escape(factor(value))}</b></div>'
    )


def _told(what: str, change: Change) -> str:
    kind = "" if not change.is_told else "better" if change.is_better else "worse"
    return f'<p class="told {kind}">{escape(what)}: {escape(told(change))}</p>'


def _left(found: Iterable[OrganizationResult]) -> str:
    every = tuple(found)
    kinds = "".join(f'<p class="note">{escape(_kinds(each))}</p>' for each in every)
    table = table_of(("organization", "releases", "bytes", "epsilon"), map(_figures, every))
    return (
        '<p class="note">Noisy numbers that a mechanism made, signed; no names, no texts, no plans.'
        f"</p>{table}{kinds}"
    )


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


def _made_with(summary: DemoSummary) -> str:
    versions = summary.provenance.get("versions")
    named = versions.items() if isinstance(versions, dict) else ()
    stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in summary.seconds.items())
    keys = ", ".join(f"{each.name} {each.fingerprint}" for each in summary.organizations)
    return (
        f'<section class="card"><h2>Made with</h2><p class="note">'
        f"{escape(', '.join(f'{name} {version}' for name, version in named))}</p>"
        f'<p class="note">Stages, some side by side: {escape(stages)}. Fingerprints of the keys, '
        f"the same on both sides: {escape(keys)}.</p></section>"
    )


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)
