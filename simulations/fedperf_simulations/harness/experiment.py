"""What every experiment and benchmark has in common: settings, cells, targets, summary.

`fedperf-sim run NAME` answers a claim, `fedperf-sim bench NAME` measures a speed as a
ratio within one run. Both take the same `Settings`, keep finished parts as cells so
that an interrupted one goes on where it was, and end in `OUT/summary.json` with the
keys `name`, `rows`, `provenance` and `targets`. A target that is missed is a result,
not an error.
"""

import hashlib
import math
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import orjson

Value = str | int | float | bool | None
Row = Mapping[str, Value]

PROVENANCE_PACKAGES = ("fedperf", "torch", "flwr", "duckdb", "polars", "pandas", "scikit-learn")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run an experiment.

    Attributes:
        seed: every random choice follows from it.
        out: folder for cells, plots and the summary.
        data: folder of public data sets, None where there is none.
        jobs: processes to use at once.
        quick: a small version that shows that everything runs.
    """

    seed: int
    out: Path
    data: Path | None = None
    jobs: int = 1
    quick: bool = False

    @property
    def variant(self) -> str:
        """In names of what is kept: another seed or a quick run has its own."""
        return f"seed{self.seed}{'-quick' if self.quick else ''}"

    def cell(self, key: str, compute: Callable[[], Row]) -> Row:
        """The result kept under `key`, computed and kept where it is missing.

        A cell belongs to these settings: another seed or a quick run has its own.
        """
        path = self.out / "cells" / f"{key}-{self.variant}.json"
        if path.is_file():
            kept: Row = orjson.loads(path.read_bytes())
            return kept
        row = compute()
        write_json(path, row)
        return row


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that was promised, beside the one that was reached."""

    what: str
    limit: float
    value: float
    at_most: bool = True

    @property
    def holds(self) -> bool:
        """Whether the value keeps the limit; NaN never does."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def as_row(self) -> Row:
        """The target as `summary.json` shows it."""
        sign = "<=" if self.at_most else ">="
        value = self.value if math.isfinite(self.value) else None
        return {
            "what": self.what,
            "target": f"{sign} {self.limit:g}",
            "value": value,
            "holds": self.holds,
        }


@dataclass(frozen=True, slots=True)
class ExperimentOutcome:
    """What an experiment found."""

    rows: Sequence[Row]
    targets: Sequence[Target] = ()
    data_files: Sequence[Path] = ()
    plots: Sequence[Path] = field(default=())


class Experiment(Protocol):
    """One claim and the way to answer it."""

    @property
    def name(self) -> str:
        """What `fedperf-sim run NAME` calls it."""

    @property
    def claim(self) -> str:
        """The claim, one line."""

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Answer the claim; must be repeatable for a seed and resumable by cells."""


def conduct(experiment: Experiment, settings: Settings) -> Mapping[str, object]:
    """Run an experiment and write `OUT/summary.json`; the summary is returned."""
    outcome = experiment.run(settings)
    summary = {
        "name": experiment.name,
        "claim": experiment.claim,
        "rows": list(outcome.rows),
        "targets": [target.as_row() for target in outcome.targets],
        "provenance": provenance(settings, outcome.data_files),
        "plots": [path.name for path in outcome.plots],
    }
    write_json(settings.out / "summary.json", summary)
    return summary


def provenance(settings: Settings, data_files: Sequence[Path]) -> Mapping[str, object]:
    """Versions, data hashes, seed and machine: what is needed to run it again."""
    return {
        "seed": settings.seed,
        "quick": settings.quick,
        "commit": _commit(),
        "python": sys.version.split()[0],
        "versions": {name: version(name) for name in PROVENANCE_PACKAGES},
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "data": {path.name: _sha256(path) for path in data_files},
    }


def write_json(path: Path, content: object) -> None:
    """Write `content` as JSON; a reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    scratch.write_bytes(orjson.dumps(content, option=options))
    scratch.replace(path)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None
