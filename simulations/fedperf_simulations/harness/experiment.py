"""The frame of every experiment and benchmark: settings, cells, targets, summary.

`fedperf-sim run NAME` tests a claim, `fedperf-sim bench NAME` measures a speed as a ratio within
one run. Both take the same `Settings`, and keep finished parts as cells, so that an interrupted one
goes on where it was. Both end in `OUT/summary.json` with the keys `name`, `rows`, `cases`,
`provenance` and `targets`. Its content follows from kept cells alone: an experiment runs once to
compute what is missing, and once more only to read. A target that is missed is a result, not an
error.
"""

import math
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, runtime_checkable

from fedperf_shared.errors import FedperfError
from fedperf_simulations.harness import cells
from fedperf_simulations.harness.cells import Row, Value, write_json
from fedperf_simulations.harness.dependencies import Dependencies, sha256_of, versions
from fedperf_simulations.harness.paired import PairedComparison

__all__ = ["Row", "Value", "write_json"]


class UndeclaredFileError(FedperfError):
    """An experiment read a file that its cells do not depend on."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(f"{name} read {path}, which is not among what its cells depend on")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run of an experiment.

    Attributes:
        seed: every random choice follows from it.
        out: folder for cells, plots and the summary.
        data: folder of public data sets, None where there is none.
        jobs: processes to use at once.
        quick: a small version that shows that everything runs.
        dependencies: digest of the code, data and libraries that cells depend on.
        stored_results: folder whose cells are only read, to compute nothing; None to compute.
        used: digest of every cell that this process was given, by name.
    """

    seed: int
    out: Path
    data: Path | None = None
    jobs: int = 1
    quick: bool = False
    dependencies: str = ""
    stored_results: Path | None = None
    used: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def variant(self) -> str:
        """A part of the names of kept files, of its own for each seed and for a quick run."""
        return f"seed{self.seed}{'-quick' if self.quick else ''}"

    @property
    def models(self) -> Path:
        """Folder of models that are trained once: other code or data has its own."""
        return self.out / "models" / f"{self.variant}-{self.dependencies[:12]}"

    def cases(self, key: str, compute: Callable[[], Sequence[Row]]) -> Sequence[Row]:
        """The rows kept under `key`, computed and kept where they are missing or out of date.

        A cell belongs to these settings: another seed or a quick run has its own.

        Raises:
            UnfitCellError: cells are only read, and this one is missing, edited, or of other
                code or data.
        """
        name = f"{key}-{self.variant}"
        if self.stored_results is None:
            path = self.out / "cells" / f"{name}.json"
            cell = cells.kept_or_computed(path, self.dependencies, compute)
        else:
            cell = cells.fit_cell(self.stored_results / "cells" / f"{name}.json", self.dependencies)
        self.used[name] = cell.digest
        return cell.rows

    def cell(self, key: str, compute: Callable[[], Row]) -> Row:
        """Return the single row of `cases`."""
        return self.cases(key, lambda: [compute()])[0]


@dataclass(frozen=True, slots=True)
class Target:
    """A promised figure and the reached one.

    Attributes:
        what: the figure is of.
        limit: that was promised.
        value: that was reached.
        at_most: whether the limit bounds from above.
        paired: the same comparison case by case, where there are cases.
    """

    what: str
    limit: float
    value: float
    at_most: bool = True
    paired: PairedComparison | None = None

    @property
    def holds(self) -> bool:
        """Return whether the value keeps the limit. NaN never does."""
        return self._keeps(self.value)

    def as_row(self) -> dict[str, Value]:
        """Return the target as `summary.json` shows it."""
        sign = "<=" if self.at_most else ">="
        row: dict[str, Value] = {
            "what": self.what,
            "target": f"{sign} {self.limit:g}",
            "value": self.value if math.isfinite(self.value) else None,
            "holds": self.holds,
        }
        if self.paired is None:
            return row
        nowhere = None, None
        low, high = self.paired.interval or nowhere
        median_low, median_high = self.paired.median_interval or nowhere
        return row | {
            "low": low,
            "high": high,
            "median": self.paired.median,
            "median low": median_low,
            "median high": median_high,
            "median holds": self._keeps(self.paired.median),
            "one left out": self.paired.one_left_out,
            "better": self.paired.wins,
            "of": self.paired.cases,
        }

    def _keeps(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit


@dataclass(frozen=True, slots=True)
class ExperimentOutcome:
    """The results of an experiment.

    Attributes:
        rows: the table.
        targets: what was promised.
        data_files: what was read.
        plots: files of charts.
        cases: one raw row per case that the table is made of; more than one table may.
        notes: what a reader must know of how constants were chosen.
    """

    rows: Sequence[Row]
    targets: Sequence[Target] = ()
    data_files: Sequence[Path] = ()
    plots: Sequence[Path] = field(default=())
    cases: Sequence[Row] = ()
    notes: Sequence[str] = ()


class Experiment(Protocol):
    """One claim and the way to test it."""

    @property
    def name(self) -> str:
        """Its name in `fedperf-sim run NAME`."""

    @property
    def claim(self) -> str:
        """The claim, one line."""

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Answer the claim. Must be repeatable for a seed and resumable by cells.

        Everything that is computed or measured is a cell: the outcome follows from cells alone.
        """


@runtime_checkable
class OnPublicData(Protocol):
    """An experiment whose cells depend on files that do not ship with the project."""

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Return the public files that its cells depend on, in the folder of public data sets.

        Raises:
            MissingDataError: there is no such folder, or a file is not in it.
        """


def conduct(experiment: Experiment, settings: Settings) -> Mapping[str, object]:
    """Run an experiment and write `OUT/summary.json`. The summary is returned.

    Raises:
        UndeclaredFileError: it read a file that its cells do not depend on.
    """
    depends = dependencies_of(experiment, settings.data)
    keyed = replace(settings, dependencies=depends.digest)
    experiment.run(keyed)
    reading = replace(keyed, stored_results=settings.out, jobs=1, used={})
    outcome = outcome_of_kept(experiment, reading, depends)
    stamp = provenance(settings, outcome.data_files)
    summary: dict[str, object] = {
        "name": experiment.name,
        "claim": experiment.claim,
        **tables(outcome),
        "notes": list(outcome.notes),
        "provenance": {**stamp, "dependencies": asdict(depends), "cells": reading.used},
        "plots": [path.name for path in outcome.plots],
    }
    write_json(settings.out / "summary.json", summary)
    return summary


def dependencies_of(experiment: Experiment, data: Path | None) -> Dependencies:
    """Return the code and data that an experiment's cells depend on.

    Raises:
        MissingDataError: a public file is not there.
    """
    files = experiment.public_files(data) if isinstance(experiment, OnPublicData) else ()
    return Dependencies.of(type(experiment).__module__, files)


def outcome_of_kept(
    experiment: Experiment, reading: Settings, depends: Dependencies
) -> ExperimentOutcome:
    """Return the outcome that follows from kept cells alone.

    Raises:
        UnfitCellError: a cell is missing, edited, or of other code or data.
        UndeclaredFileError: the experiment read a file that its cells do not depend on.
    """
    outcome = experiment.run(reading)
    for path in outcome.data_files:
        if sha256_of(path) not in depends.files.values():
            raise UndeclaredFileError(experiment.name, path)
    return outcome


def tables(outcome: ExperimentOutcome) -> dict[str, list[Row]]:
    """Return the tables of an outcome in `summary.json`."""
    return {
        "rows": list(outcome.rows),
        "targets": [target.as_row() for target in outcome.targets],
        "cases": list(outcome.cases),
    }


def provenance(settings: Settings, data_files: Iterable[Path]) -> Mapping[str, object]:
    """Versions, data hashes, seed and machine: what is needed to run it again.

    `dirty` is true if code differed from the commit.
    """
    changed = _git("status", "--porcelain", "--", *CODE)
    return {
        "seed": settings.seed,
        "quick": settings.quick,
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if changed is None else bool(changed),
        "versions": {"fedperf": version("fedperf"), **versions()},
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "data": {path.name: sha256_of(path) for path in data_files},
    }


CODE = (":/client", ":/server", ":/shared", ":/simulations", ":/pyproject.toml")
"""Paths given to git, from the top of the repository."""


def _git(*arguments: str) -> str | None:
    """Return git's output for this file's repository. None outside of a repository."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None
