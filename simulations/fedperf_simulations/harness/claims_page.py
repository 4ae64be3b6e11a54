"""One page of all claims: HTML for people, JSON for programs; nothing fetched, no scripts."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedperf_client.charts.kit import render
from fedperf_simulations.harness.cells import Row, Value, write_json
from fedperf_simulations.harness.reproduction import Claim

HEADS = (
    "target",
    "limit",
    "value",
    "95 %",
    "holds",
    "median",
    "95 %",
    "in the median",
    "one left out",
    "better",
)


_PAGE = """{% extends "page" %}
{% from "parts" import table %}
{% block title %}fedperf: all claims{% endblock %}
{% block content %}
<h1>All claims</h1>
<p class="sub">{{ claims|length }} experiments and benchmarks;
{{ holding }} of {{ targets }} targets hold.
Every figure follows from kept cells, which stand beside each summary.</p>
<p class="note">Value and median are over the cases of a comparison, with 95 % bootstrap intervals
that resample cases. "One left out" is the value without the case (or job) that speaks most for us.
"Better" counts the cases that became better.</p>
{% for claim, origin, rows in claims %}
<section class="card"><h2>{{ claim.name }}: {{ claim.standing }}</h2>
<p>{{ claim.claim }}</p>
<p class="note">{{ origin }}</p>{{ table(heads, rows) }}
{% for note in (claim.summary.notes if claim.summary else ()) %}
<p class="note">{{ note }}.</p>
{% endfor %}
</section>
{% endfor %}
{% endblock %}
"""


def write_claims(out: Path, claims: Sequence[Claim]) -> None:
    """Write `claims.html` and `claims.json`."""
    write_json(out / "claims.json", {"claims": [each.as_row() for each in claims]})
    (out / "claims.html").write_text(page(claims), encoding="utf-8")


def page(claims: Sequence[Claim]) -> str:
    """The page as text."""
    targets = [target for each in claims for target in each.targets]
    holding = sum(bool(each["holds"]) for each in targets)
    shown = [(each, _origin(each), map(_target, each.targets)) for each in claims]
    return render(_PAGE, claims=shown, holding=holding, targets=len(targets), heads=HEADS)


def _origin(claim: Claim) -> str:
    """Where the figures come from, or why there are none."""
    if claim.summary is None:
        return claim.reason
    stamp = claim.summary["provenance"]
    kind = "quick run, which shows only that it works" if stamp["quick"] else "whole run"
    changed = ", with changes that are in no commit" if stamp["dirty"] else ""
    wrong = f"; {claim.reason}" if claim.reason else ""
    return f"{kind}, seed {stamp['seed']}, commit {stamp['commit']}{changed}{wrong}"


def _target(row: Row) -> Iterable[str]:
    better = "" if row.get("better") is None else f"{row['better']} of {row['of']}"
    return (
        str(row["what"]),
        str(row["target"]),
        _text(row["value"]),
        _interval(row.get("low"), row.get("high")),
        _text(row["holds"]),
        _text(row.get("median")),
        _interval(row.get("median low"), row.get("median high")),
        _text(row.get("median holds")),
        _text(row.get("one left out")),
        better,
    )


def _interval(low: Value, high: Value) -> str:
    return "" if low is None or high is None else f"{_text(low)} to {_text(high)}"


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
