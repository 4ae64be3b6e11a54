"""The fifteen C3O scenarios: five Spark jobs, three ways to ask about what was not run.

* nodes between: trained on clusters of 2, 6, 10 and 12 nodes, asked about 4 and 8;
* nodes beyond: trained on up to 8 nodes, asked about 10 and 12;
* size beyond: trained on small inputs, asked about those above the job's limit.

What is asked about is judged on every execution, repeats included. Slots and memory
follow from the number of nodes and the machine type, so they are no columns of their own.

The data carry no licence: they are read from the folder of public data sets and never
part of the project. Source: dos-group/c3o-experiments (Will et al. 2020).
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.tables.layout import Table
from fedperf_client.prediction.prediction import Floats
from fedperf_simulations.data.c3o import FOLDER, RUNTIME
from fedperf_simulations.data.datasets import public_files

NODES, SIZE = "instance_count", "data_size_MB"

NODES_BETWEEN = (4, 8)
MOST_NODES_KNOWN = 8
MOST_MEGABYTES_KNOWN: Mapping[str, float] = {
    "sort": 13_482,
    "grep": 15_150,
    "sgd": 19_558,
    "kmeans": 16_000,
    "pagerank": 284,
}
"""By job, in the order of the published tables."""

_WORDS = frozenset({"machine_type"})
_FOLLOW = frozenset({"slots", "memory", RUNTIME})


@unique
class RequestedRange(StrEnum):
    """The three ways."""

    NODES_BETWEEN = "nodes between"
    NODES_BEYOND = "nodes beyond"
    SIZE_BEYOND = "size beyond"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One job and one way."""

    job: str
    asked: RequestedRange

    @property
    def key(self) -> str:
        """The scenario in the names of cells."""
        return f"{self.job}-{self.asked.replace(' ', '-')}"


SCENARIOS = tuple(Scenario(job, asked) for job in MOST_MEGABYTES_KNOWN for asked in RequestedRange)


@dataclass(frozen=True, slots=True, eq=False)
class Executions:
    """Rows of a table and what they took.

    Attributes:
        table: columns by name.
        seconds: wall time, float64 [rows].
    """

    table: Table
    seconds: Floats

    def where(self, chosen: NDArray[np.bool_]) -> "Executions":
        """The rows for which `chosen` [rows] holds."""
        rows = np.flatnonzero(chosen).tolist()
        table = {name: [values[row] for row in rows] for name, values in self.table.items()}
        return Executions(table, self.seconds[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class ScenarioParts:
    """Executions to learn from, and those to judge by."""

    known: Executions
    asked: Executions


def files(data: Path | None) -> tuple[Path, ...]:
    """The files that the scenarios are read from.

    Raises:
        MissingDataError: there is no folder, or a file is not in it.
    """
    return public_files(data, *(f"{FOLDER}/{job}.tsv" for job in MOST_MEGABYTES_KNOWN))


def parts(data: Path | None, scenario: Scenario) -> ScenarioParts:
    """Both parts of a scenario.

    Raises:
        MissingDataError: there is no folder, or the job's file is not in it.
    """
    executions = of_job(data, scenario.job)
    nodes, megabytes = (np.array(executions.table[each]) for each in (NODES, SIZE))
    held = _held_out(scenario, nodes, megabytes)
    return ScenarioParts(executions.where(~held), executions.where(held))


def of_job(data: Path | None, job: str) -> Executions:
    """All executions of a job, repeats included.

    Raises:
        MissingDataError: there is no folder, or the job's file is not in it.
    """
    [path] = public_files(data, f"{FOLDER}/{job}.tsv")
    with path.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    table: Table = {
        name: [row[name] if name in _WORDS else float(row[name]) for row in rows]
        for name in rows[0]
        if name not in _FOLLOW
    }
    return Executions(table, np.array([float(row[RUNTIME]) for row in rows]))


def medians(executions: Executions) -> Executions:
    """One row for each configuration, in the order of their first, with its median time."""
    seconds: dict[tuple[float | str, ...], list[float]] = {}
    rows = zip(*executions.table.values(), strict=True)
    for row, took in zip(rows, executions.seconds.tolist(), strict=True):
        seconds.setdefault(row, []).append(took)
    columns = zip(executions.table, zip(*seconds, strict=True), strict=True)
    return Executions(dict(columns), np.array([np.median(each) for each in seconds.values()]))


def _held_out(scenario: Scenario, nodes: Floats, megabytes: Floats) -> NDArray[np.bool_]:
    match scenario.asked:
        case RequestedRange.NODES_BETWEEN:
            return np.isin(nodes, NODES_BETWEEN)
        case RequestedRange.NODES_BEYOND:
            return nodes > MOST_NODES_KNOWN
        case RequestedRange.SIZE_BEYOND:
            return megabytes > MOST_MEGABYTES_KNOWN[scenario.job]
