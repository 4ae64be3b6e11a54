"""One page of all claims: HTML for people, JSON for programs; nothing fetched, no scripts."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from fedperf_client.pictures.page import STYLE, table_of
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


def write_claims(out: Path, claims: Sequence[Claim]) -> None:
    """Write `claims.html` and `claims.json`."""
    write_json(out / "claims.json", {"claims": [each.as_row() for each in claims]})
    (out / "claims.html").write_text(page(claims), encoding="utf-8")


def page(claims: Sequence[Claim]) -> str:
    """The page as text."""
    targets = [target for each in claims for target in each.targets]
    holding = sum(bool(each["holds"]) for each in targets)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fedperf: all claims</title><style>{STYLE}</style></head><body><main>
<h1>All claims</h1>
<p class="sub">{len(claims)} experiments and benchmarks; {holding} of {len(targets)} targets hold.
Every figure follows from kept cells, which stand beside each summary.</p>
<p class="note">Value and median are over the cases of a comparison, with 95 % bootstrap intervals
that resample cases. "One left out" is the value without the case (or job) that speaks most for us.
"Better" counts the cases that became better.</p>
{"".join(map(_section, claims))}
</main></body></html>
"""


def _section(claim: Claim) -> str:
    table = table_of(HEADS, map(_target, claim.targets))
    notes = "".join(f'<p class="note">{escape(each)}.</p>' for each in _notes(claim))
    return f"""<section class="card"><h2>{escape(claim.name)}: {escape(claim.standing)}</h2>
<p>{escape(claim.claim)}</p>
<p class="note">{escape(_origin(claim))}</p>{table}{notes}</section>
"""


def _origin(claim: Claim) -> str:
    """Where the figures come from, or why there are none."""
    if claim.summary is None:
        return claim.reason
    stamp = claim.summary["provenance"]
    kind = "quick run, which shows only that it works" if stamp["quick"] else "whole run"
    changed = ", with changes that are in no commit" if stamp["dirty"] else ""
    wrong = f"; {claim.reason}" if claim.reason else ""
    return f"{kind}, seed {stamp['seed']}, commit {stamp['commit']}{changed}{wrong}"


def _notes(claim: Claim) -> Sequence[str]:
    return claim.summary["notes"] if claim.summary else ()


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
