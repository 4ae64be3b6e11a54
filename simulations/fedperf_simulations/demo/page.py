"""The demo's page: one file, no scripts, nothing fetched; made for a data engineer to read.

Everything that is not written here is escaped, whatever it is.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from fedperf_client.pictures.page import STYLE
from fedperf_simulations.demo.charts import budget_chart, choice_chart, q_error_chart, rounds_chart
from fedperf_simulations.demo.summary import (
    ChoiceResult,
    DemoSummary,
    OrganizationResult,
    Released,
    RoundSummary,
)


def write_report(path: Path, summary: DemoSummary) -> None:
    """Write the page."""
    path.write_text(page(summary), encoding="utf-8")


def page(summary: DemoSummary) -> str:
    """The page as text."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fedperf demo, seed {summary.seed}</title><style>{STYLE}</style></head><body><main>
<h1>{_count(len(summary.organizations))} organizations learned one cost model together</h1>
<p class="sub">fedperf demo, seed {summary.seed}. Real jobs, measured on this machine;
{summary.total_seconds:.0f} seconds in all.</p>
<section class="card story"><ol>{_items(sentences(summary))}</ol></section>
{_organizations(summary.organizations)}
<section class="card"><h2>How wrong predictions are</h2>
<p class="note">Median q-error, max(predicted / true, true / predicted), on workloads that the
organization never ran. Lower is better.</p>{q_error_chart(summary)}</section>
<div class="grid">
<section class="card"><h2>The shared model, round by round</h2>{rounds_chart(summary)}</section>
<section class="card"><h2>What the releases cost</h2>{budget_chart(summary)}</section>
</div>
{_choice(summary.choice)}
{_left(summary.organizations)}
{_rounds(summary)}
{_made_with(summary)}
</main></body></html>
"""


def sentences(summary: DemoSummary) -> list[str]:
    """What happened, in five sentences; plain text."""
    return [
        _who(summary.organizations),
        _what_left(summary),
        _model(summary),
        _errors(summary.organizations),
        _chosen(summary.choice),
    ]


def _who(found: Sequence[OrganizationResult]) -> str:
    live = sum(each.live for each in found)
    stores = _listed(f"{each.name} {each.workloads:,}" for each in found)
    return (
        f"{_count(len(found))} organizations ran {live:,} real jobs during the demo, beside "
        f"the history that each had; they know {stores} workloads."
    )


def _what_left(summary: DemoSummary) -> str:
    found = summary.organizations
    made = sum(each.slots_made for each in found)
    spent = max((each.epsilon_spent for each in found), default=0.0)
    return (
        f"In {summary.windows} windows of {summary.window_seconds:.0f} seconds {made} releases "
        f"left, {_bytes(sum(each.bytes_out for each in found))} in all, and nothing else; the "
        f"dearest set of releases cost epsilon {spent:.3f} for a workload with all its executions."
    )


def _model(summary: DemoSummary) -> str:
    errors = [each.public_error for each in summary.rounds if each.public_error is not None]
    if not errors:
        return "No round made a new version of the shared model."
    verb = "fell" if errors[-1] < summary.start_error else "did not fall"
    fetched = max(each.version for each in summary.versions if each.standing == "promoted")
    return (
        f"{len(errors)} rounds of private training made new versions; the error on public "
        f"plans {verb}: {summary.start_error:.3f} at the start, {errors[-1]:.3f} at the end. "
        f"Organizations fetched version {fetched}: what a window made is judged by the reports "
        "of the next one."
    )


def _errors(found: Sequence[OrganizationResult]) -> str:
    pairs = _listed(
        f"{each.name} {each.q_error.local:.2f} to {each.q_error.personalized:.2f}" for each in found
    )
    return (
        "On workloads that they never ran, the median q-error went, from own data only to the "
        f"personalized prediction: {pairs}."
    )


def _chosen(choice: ChoiceResult) -> str:
    times = {n: e.measured_seconds for n, e in choice.single.items() if e.measured_seconds}
    fastest = min(times, key=times.__getitem__, default=None)
    beside = (
        f"; the fastest single platform, {fastest}, took {times[fastest]:.3f} s" if fastest else ""
    )
    measured = choice.measured_seconds
    took = "failed" if measured is None else f"took {measured:.3f} s"
    return (
        f"For a new {choice.family} workflow of {choice.rows:,} rows {choice.organization} chose a "
        f"platform per operator; predicted to take {choice.predicted_seconds:.3f} s, it {took}"
        f"{beside}."
    )


def _organizations(found: Sequence[OrganizationResult]) -> str:
    heads = (
        "organization",
        "executions",
        "workloads",
        "unit of privacy",
        "epsilon spent",
        "bytes out",
        "slots made",
        "held-out executions",
        "q-error, own data only",
        "public start",
        "shared",
        "personalized",
    )
    rows = "".join(_organization_row(each) for each in found)
    notes = "".join(
        f'<p class="note">{escape(each.name)}: not planned: {escape(gap.what.replace("_", " "))}. '
        f"{escape(gap.reason)}.</p>"
        for each in found
        for gap in each.slots_not_planned
    )
    return (
        '<section class="card"><h2>Organizations</h2><table><thead><tr>'
        f"{_cells('th', heads)}</tr></thead><tbody>{rows}</tbody></table>{notes}</section>"
    )


def _organization_row(each: OrganizationResult) -> str:
    errors = each.q_error
    figures = (
        f"{each.name} ({each.size_class})",
        f"{each.executions:,}",
        f"{each.workloads:,}",
        each.unit,
        f"{each.epsilon_spent:.3f} of {each.epsilon_budget:g}",
        f"{each.bytes_out:,}",
        str(each.slots_made),
        str(each.held_out),
    )
    four = (errors.local, errors.base, errors.shared, errors.personalized)
    best = min(four)
    marked = "".join(
        f'<td class="best">{value:.2f}</td>' if value == best else f"<td>{value:.2f}</td>"
        for value in four
    )
    return f"<tr>{_cells('td', figures)}{marked}</tr>"


def _choice(choice: ChoiceResult) -> str:
    low, high = choice.interval
    flow = " ".join(f"<code>{escape(each)}</code>" for each in choice.plan)
    caution = " It lies outside of what was seen." if choice.extrapolating else ""
    return f"""<section class="card"><h2>One new workflow, a platform for every operator</h2>
<p class="note">{choice.plans_scored:,} plans were scored ({escape(str(choice.method))}).
Predicted: {choice.predicted_seconds:.3f} s, {choice.level:.0%} interval {low:.3f} to
{high:.3f} s.{caution}</p>
{choice_chart(choice)}
<p class="flow">{flow}</p></section>"""


def _left(found: Sequence[OrganizationResult]) -> str:
    rows = "".join(
        f"<tr>{_cells('td', (each.name, kind, count, bytes_out))}</tr>"
        for each in found
        for kind, count, bytes_out in _by_kind(each.releases)
    )
    heads = _cells("th", ("organization", "kind", "releases", "bytes"))
    return (
        '<section class="card"><h2>What left</h2><p class="note">Noisy numbers that a mechanism '
        "made, signed; no names, no texts, no plans.</p>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _by_kind(releases: Iterable[Released]) -> list[tuple[str, str, str]]:
    sizes: dict[str, list[int]] = {}
    for each in releases:
        sizes.setdefault(each.kind.replace("_", " "), []).append(each.bytes_out)
    return [(kind, str(len(each)), f"{sum(each):,}") for kind, each in sizes.items()]


def _rounds(summary: DemoSummary) -> str:
    heads = ("round", "outcome", "replies", "refused", "seconds", "error on public plans", "stands")
    became = {each.version: f"{each.standing}: {each.reason}" for each in summary.versions}
    rows = "".join(
        f"<tr>{_cells('td', (*_round_row(each), became.get(each.new_version or 0, '')))}</tr>"
        for each in summary.rounds
    )
    return (
        f'<section class="card"><h2>Rounds</h2><table><thead><tr>{_cells("th", heads)}</tr></thead>'
        f"<tbody>{rows}</tbody></table></section>"
    )


def _round_row(each: RoundSummary) -> tuple[str, ...]:
    refused = ", ".join(f"{count} {reason}" for reason, count in each.refused.items())
    return (
        str(each.round),
        each.outcome.replace("_", " "),
        f"{each.replies} of {each.asked}",
        refused or "none",
        f"{each.seconds:.1f}",
        "" if each.public_error is None else f"{each.public_error:.3f}",
    )


def _made_with(summary: DemoSummary) -> str:
    versions = summary.provenance.get("versions")
    named = versions.items() if isinstance(versions, dict) else ()
    stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in summary.seconds.items())
    return (
        f'<section class="card"><h2>Made with</h2><p class="note">'
        f"{escape(', '.join(f'{name} {version}' for name, version in named))}</p>"
        f'<p class="note">Stages: {escape(stages)}. Fingerprints of the keys, the same on both '
        f"sides: {escape(_listed(f'{e.name} {e.fingerprint}' for e in summary.organizations))}.</p>"
        "</section>"
    )


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _listed(texts: Iterable[str]) -> str:
    *front, last = texts
    return f"{', '.join(front)} and {last}" if front else last


def _count(number: int) -> str:
    names = ("No", "One", "Two", "Three", "Four", "Five")
    return names[number] if number < len(names) else str(number)


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB"):
        if count < 1000:  # noqa: PLR2004 - the next unit
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} MB"
