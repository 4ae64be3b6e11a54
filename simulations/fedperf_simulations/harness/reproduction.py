"""Reproduces all claims: every experiment is run and verified in a process of its own.

An experiment that fails or lacks its data reports the reason and stops no other. Cells of an
earlier run are used where they still fit, so an interrupted reproduction goes on.

The claims page is HTML for people and JSON for programs. It has no scripts and loads nothing.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path
from typing import Any

from fedperf_client.charts.kit import render
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.command_line import DIFFERENT
from fedperf_simulations.harness.cells import Row, Value, write_json
from fedperf_simulations.harness.experiment import Experiment, OnPublicData, Settings
from fedperf_simulations.harness.verification import read_summary

PROGRAM = (sys.executable, "-c", "from fedperf_simulations.cli import main; main()")

Process = Callable[[Sequence[str], Path], int]
"""Runs the program with arguments, keeps what it prints in a file, and gives its exit code."""


@unique
class ClaimStatus(StrEnum):
    """The standing of a claim after its experiment."""

    VERIFIED = "verified"
    SKIPPED = "skipped"
    FAILED = "failed"
    DIFFERENT = "differs"


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and what came of it.

    Attributes:
        name: of the experiment.
        claim: one line.
        standing: what came of it.
        reason: why it was skipped, failed or differs; empty where all is well.
        seconds: that running and verifying took.
        summary: what it found; None where there is none.
    """

    name: str
    claim: str
    standing: ClaimStatus
    reason: str = ""
    seconds: float = 0.0
    summary: Mapping[str, Any] | None = None

    @property
    def is_wrong(self) -> bool:
        """Return whether it failed, or differs from its cells."""
        return self.standing in {ClaimStatus.FAILED, ClaimStatus.DIFFERENT}

    @property
    def targets(self) -> Sequence[Row]:
        """Promised figures and reached ones."""
        return self.summary["targets"] if self.summary else ()

    def as_row(self) -> dict[str, object]:
        """Return all of it but tables and cases, which stand in the summary of the experiment."""
        stamp = self.summary["provenance"] if self.summary else {}
        return {
            "name": self.name,
            "claim": self.claim,
            "standing": self.standing.value,
            "reason": self.reason,
            "seconds": round(self.seconds, 1),
            **{key: stamp.get(key) for key in ("commit", "dirty", "seed", "quick")},
            "targets": list(self.targets),
            "notes": self.summary["notes"] if self.summary else [],
        }

    def summed_up(self) -> dict[str, object]:
        """Return one line of a table."""
        holding = sum(bool(each["holds"]) for each in self.targets)
        return {
            "name": self.name,
            "standing": self.standing.value,
            "targets that hold": f"{holding} of {len(self.targets)}" if self.summary else "",
            "seconds": round(self.seconds),
            "reason": self.reason,
        }


def reproduced(
    experiments: Sequence[tuple[str, Experiment]],
    settings: Settings,
    *,
    announce: Callable[[str], None],
    process: Process | None = None,
) -> Iterator[Claim]:
    """Run and verify all of them, one after the other.

    Args:
        experiments: each with the command that runs it.
        settings: of each; its results are in a folder of its own below `settings.out`.
        announce: receives the progress, a line each.
        process: runs the program; by default as a process.
    """
    for command, experiment in experiments:
        announce(f"{experiment.name}: {experiment.claim}")
        claim = _reproduced(command, experiment, settings, process or _process)
        announce(f"{experiment.name}: {claim.standing} after {claim.seconds:.0f} s {claim.reason}")
        yield claim


def _reproduced(
    command: str, experiment: Experiment, settings: Settings, process: Process
) -> Claim:
    name, claim = experiment.name, experiment.claim
    try:
        if isinstance(experiment, OnPublicData):
            experiment.public_files(settings.data)
    except InvalidInputError as error:
        return Claim(name, claim, ClaimStatus.SKIPPED, str(error))
    out = settings.out / name
    out.mkdir(parents=True, exist_ok=True)
    data = ["--data", str(settings.data)] if settings.data else []
    began = time.monotonic()
    code = process([command, name, "--out", str(out), *data, *_options(settings)], out / "run.log")
    if code:
        reason = f"exit code {code}: {_last_line(out / 'run.log')}"
        return Claim(name, claim, ClaimStatus.FAILED, reason, time.monotonic() - began)
    code = process(["verify", str(out), *data], out / "verify.log")
    standing, reason = ClaimStatus.VERIFIED, ""
    if code:
        standing = ClaimStatus.DIFFERENT if code == DIFFERENT else ClaimStatus.FAILED
        reason = _last_line(out / "verify.log")
    return Claim(name, claim, standing, reason, time.monotonic() - began, read_summary(out))


def _options(settings: Settings) -> Iterator[str]:
    yield from ("--seed", str(settings.seed), "--jobs", str(settings.jobs))
    if settings.quick:
        yield "--quick"


def _process(arguments: Sequence[str], log: Path) -> int:
    with log.open("wb") as file:
        done = subprocess.run(
            [*PROGRAM, *arguments], stdout=file, stderr=subprocess.STDOUT, check=False
        )
    return done.returncode


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"


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
Every figure follows from kept cells, which are stored with each summary.</p>
<p class="note">Value and median are over the cases of a comparison, with 95 % bootstrap intervals
that resample cases. "One left out" is the value without the case (or job) that favours us most.
"Better" counts the cases that improved.</p>
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
    """Return the page as text."""
    targets = [target for each in claims for target in each.targets]
    holding = sum(bool(each["holds"]) for each in targets)
    entries = [(each, _origin(each), map(_target, each.targets)) for each in claims]
    return render(_PAGE, claims=entries, holding=holding, targets=len(targets), heads=HEADS)


def _origin(claim: Claim) -> str:
    """Return where the figures come from, or why there are none."""
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
