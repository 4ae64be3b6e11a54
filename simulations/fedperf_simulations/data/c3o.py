"""The public C3O runs: 930 configurations of five Spark jobs, cut into 29 organizations.

A configuration is the median of its five repeats, and represents a workload. The three kinds of
organizations:

* published: the eight (job, machine) cells of six configurations. These 48 runs are public, so
  their cells are not organizations that could join.
* slices: the four large cells, each cut by one input size into what 18 organizations
  with data sets of their own would have (24 to 90 configurations each). A new participant is
  one slice, the others of its cell are the federation.
* sort: three cells of 42 configurations. Their labels are for the kernel's constants.

Public, and constants of this module: the box of every job (bounds of its inputs), the
scaling of the features into [-1, 1] and the physics prior. None is read off the data;
a configuration outside of its box is refused.

The data carry no licence: they are read from the folder of public data sets, and never
part of the project. Source: dos-group/c3o-experiments; Will et al. 2020.

There are fifteen scenarios: five Spark jobs, and three kinds of extrapolation.

* nodes between: trained on clusters of 2, 6, 10 and 12 nodes, evaluated on 4 and 8;
* nodes beyond: trained on up to 8 nodes, evaluated on 10 and 12;
* size beyond: trained on small inputs, evaluated on those above the job's limit.

Held-out configurations are evaluated on every execution, repeats included. Slots and memory follow
from the number of nodes and the machine type, so they are no columns of their own.

The 18 slices are also tables of their own columns, with every repeat in the order of the files. The
48 published runs and the job `sort` are not part of them, so nothing is judged by these.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.tables.layout import Table, TableLayout
from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.data.datasets import public_files

Floats = NDArray[np.float64]
Texts = NDArray[np.str_]
Bounds = tuple[float, float]

FOLDER = "c3o-experiments"

SLOTS, MEGABYTES, RUNTIME = "slots", "data_size_MB", "gross_runtime"

FEATURES = 5
"""Log slots, log megabytes, and up to three parameters of the job. 0 where a job has fewer."""

SLOT_BOUNDS: Bounds = (8, 96)
MEGABYTE_BOUNDS: Bounds = (100, 32_000)
"""Over all jobs, so that a doubling means the same step of the feature in each."""

START_SECONDS = 30.0
MEGABYTES_PER_SECOND = 5.0
DEFAULT_PASSES = 10
"""The physics prior: startup, megabytes a core reads per second, passes of iterative jobs."""

PUBLISHED_SIZE = 6
"""Configurations of a cell whose runs are public."""


@dataclass(frozen=True, slots=True)
class PublicJob:
    """The public facts of a job.

    Attributes:
        name: as its file is called.
        megabytes: box of its input size.
        parameters: box of each parameter, by column.
        cut: the column by which its large cell is cut into organizations, None for none.
        passes: over the data; a column or a number.
    """

    name: str
    megabytes: Bounds
    parameters: Mapping[str, Bounds]
    cut: str | None
    passes: str | int

    def features(self, columns: Mapping[str, Floats]) -> Floats:
        """Scaled features [configurations, FEATURES], every one in [-1, 1].

        Args:
            columns: `slots`, `data_size_MB` and each parameter, [configurations].

        Raises:
            InvalidInputError: a value lies outside of its public box.
        """
        slots, megabytes = columns[SLOTS], columns[MEGABYTES]
        _require_inside(self.name, MEGABYTES, megabytes, self.megabytes)
        scaled = np.zeros((len(slots), FEATURES))
        scaled[:, 0] = _scaled(self.name, SLOTS, slots, SLOT_BOUNDS)
        scaled[:, 1] = _scaled(self.name, MEGABYTES, megabytes, MEGABYTE_BOUNDS)
        for position, (name, bounds) in enumerate(self.parameters.items(), start=2):
            scaled[:, position] = _scaled(self.name, name, columns[name], bounds)
        return scaled

    def physics(self, columns: Mapping[str, Floats]) -> Floats:
        """Return log seconds that reading the data takes, [configurations]. Fixed beforehand."""
        passes = columns[self.passes] if isinstance(self.passes, str) else self.passes
        reading = columns[MEGABYTES] * passes / (MEGABYTES_PER_SECOND * columns[SLOTS])
        return np.asarray(np.log(START_SECONDS + reading), dtype=np.float64)

    def random_features(self, rng: np.random.Generator, count: int) -> Floats:
        """Features of `count` random points of the public box, [count, FEATURES]."""
        low, high = self.feature_box
        return rng.uniform(low, high, (count, FEATURES))

    @property
    def feature_box(self) -> tuple[Floats, Floats]:
        """Lower and upper bounds of the scaled features, [FEATURES] each."""
        low, high = np.zeros(FEATURES), np.zeros(FEATURES)
        low[0], high[0] = -1.0, 1.0
        ends = np.array(self.megabytes, dtype=np.float64)
        low[1], high[1] = _scaled(self.name, MEGABYTES, ends, MEGABYTE_BOUNDS)
        for position, (lower, upper) in enumerate(self.parameters.values(), start=2):
            if lower < upper:
                low[position], high[position] = -1.0, 1.0
        return low, high


GREP = PublicJob(
    "grep",
    (10_000, 21_000),
    {"line_length": (100, 100), "lines": (1e8, 2e8), "p_occurrence": (0, 1)},
    "lines",
    1,
)
KMEANS = PublicJob(
    "kmeans",
    (8_000, 31_000),
    {"features": (5, 15), "observations": (1e8, 2e8), "k": (3, 9)},
    "observations",
    DEFAULT_PASSES,
)
PAGERANK = PublicJob(
    "pagerank",
    (130, 440),
    {"pages": (1e6, 3e6), "links": (1e7, 3e7), "convergence_criterion": (1e-4, 1e-2)},
    "links",
    DEFAULT_PASSES,
)
SGD = PublicJob(
    "sgd",
    (9_700, 30_000),
    {"features": (5, 15), "observations": (1e8, 3e8), "iterations": (1, 100)},
    "observations",
    "iterations",
)
SORT = PublicJob(
    "sort", (9_500, 19_300), {"line_length": (100, 1_000), "lines": (1e7, 2e8)}, None, 1
)

JOBS: Mapping[str, PublicJob] = {job.name: job for job in (GREP, KMEANS, PAGERANK, SGD, SORT)}


@dataclass(frozen=True, slots=True, eq=False)
class JobConfigurations:
    """Configurations and what they took, one row each.

    Attributes:
        jobs: name of the job, [configurations].
        machines: machine type.
        organizations: whose it is: job, machine type and, for a slice, the size of its input.
        features: scaled into [-1, 1], [configurations, FEATURES].
        physics: physics prior, log seconds.
        log_seconds: log of the median run time of the repeats.
    """

    jobs: Texts
    machines: Texts
    organizations: Texts
    features: Floats
    physics: Floats
    log_seconds: Floats

    def __len__(self) -> int:
        return len(self.jobs)

    def where(self, places: NDArray[np.bool_ | np.int64]) -> "JobConfigurations":
        """Return the rows for which `places` [configurations] holds, or those at its places."""
        return JobConfigurations(
            self.jobs[places],
            self.machines[places],
            self.organizations[places],
            self.features[places],
            self.physics[places],
            self.log_seconds[places],
        )

    def of(self, organization: str) -> "JobConfigurations":
        """Return the rows of one organization."""
        return self.where(self.organizations == organization)


@dataclass(frozen=True, slots=True, eq=False)
class C3O:
    """The data as the experiments use them.

    Attributes:
        published: the 48 public runs.
        sort: the 126 configurations of the job `sort`.
        slices: the 756 configurations of the 18 slices.
        files: what was read.
    """

    published: JobConfigurations
    sort: JobConfigurations
    slices: JobConfigurations
    files: tuple[Path, ...]

    @property
    def new_participants(self) -> tuple[str, ...]:
        """Names of the 18 slices, each of which can be the new participant."""
        return tuple(sorted(set(self.slices.organizations.tolist())))


def load(data: Path | None) -> C3O:
    """Read the data from the folder of public data sets.

    Args:
        data: that folder (`Settings.data`), None where there is none.

    Raises:
        MissingDataError: there is no folder, or the files are not in it.
        InvalidInputError: a value lies outside of its public box.
    """
    files = data_files(data)
    tables = [read_job(path, job) for path, job in zip(files, JOBS.values(), strict=True)]
    everything = _joined(tables)
    sizes = dict(zip(*np.unique(everything.organizations, return_counts=True), strict=True))
    published = np.array([sizes[each] == PUBLISHED_SIZE for each in everything.organizations])
    sort = everything.jobs == SORT.name
    return C3O(
        everything.where(published),
        everything.where(sort),
        everything.where(~published & ~sort),
        files,
    )


def data_files(data: Path | None) -> tuple[Path, ...]:
    """Return the files of the runs in the folder of public data sets, in the order of `JOBS`.

    Raises:
        MissingDataError: there is no folder, or the files are not in it.
    """
    return public_files(data, *(f"{FOLDER}/{name}.tsv" for name in JOBS))


def read_job(path: Path, job: PublicJob, *, is_median: bool = True) -> JobConfigurations:
    """Return every configuration of a job, the median over its repeats, or every repeat as a row.

    Raises:
        InvalidInputError: the columns are others, or a value lies outside of its public box.
    """
    repeats: dict[tuple[str, ...], list[float]] = {}
    with path.open(newline="", encoding="utf-8") as lines:
        rows = csv.reader(lines, delimiter="\t")
        names = next(rows)
        for row in rows:
            repeats.setdefault(tuple(row[:-1]), []).append(float(row[-1]))
    if names[-1] != RUNTIME:
        raise InvalidInputError(f"{path}: the last column is {names[-1]!r}, expected {RUNTIME!r}")
    texts = dict(zip(names, zip(*repeats, strict=True), strict=False))
    needed = (SLOTS, MEGABYTES, *job.parameters)
    columns = {name: np.array(texts[name], dtype=np.float64) for name in needed}
    machines = np.array(texts["machine_type"])
    medians = JobConfigurations(
        jobs=np.full(len(repeats), job.name),
        machines=machines,
        organizations=_organizations(job, machines, columns),
        features=job.features(columns),
        physics=job.physics(columns),
        log_seconds=np.log([float(np.median(each)) for each in repeats.values()]),
    )
    if is_median:
        return medians
    counts = [len(each) for each in repeats.values()]
    every = medians.where(np.repeat(np.arange(len(repeats)), counts))
    return replace(every, log_seconds=np.log(np.concatenate(list(repeats.values()))))


def _organizations(job: PublicJob, machines: Texts, columns: Mapping[str, Floats]) -> Texts:
    """A cell is one organization. A large one is cut by the job's column."""
    names = [f"{job.name} {machine}" for machine in machines]
    if job.cut is None:
        return np.array(names)
    large = {each for each in names if names.count(each) > PUBLISHED_SIZE}
    sizes = columns[job.cut]
    return np.array(
        [
            f"{name} {size:.3g}" if name in large else name
            for name, size in zip(names, sizes, strict=True)
        ]
    )


def _joined(tables: Sequence[JobConfigurations]) -> JobConfigurations:
    return JobConfigurations(
        np.concatenate([each.jobs for each in tables]),
        np.concatenate([each.machines for each in tables]),
        np.concatenate([each.organizations for each in tables]),
        np.concatenate([each.features for each in tables]),
        np.concatenate([each.physics for each in tables]),
        np.concatenate([each.log_seconds for each in tables]),
    )


def _scaled(job: str, name: str, values: Floats, bounds: Bounds) -> Floats:
    """Into [-1, 1], linear in the log unless the box touches 0. 0 where the box is a point."""
    _require_inside(job, name, values, bounds)
    lower, upper = bounds
    if not lower < upper:
        return np.zeros(len(values))
    if lower > 0:
        values, lower, upper = np.log(values), math.log(lower), math.log(upper)
    return np.asarray(2 * (values - lower) / (upper - lower) - 1, dtype=np.float64)


def _require_inside(job: str, name: str, values: Floats, bounds: Bounds) -> None:
    inside = (values >= bounds[0]) & (values <= bounds[1])
    if not np.all(inside):
        raise InvalidInputError(
            f"{job}: {name} {values[~inside][0]:g} lies outside of its public box "
            f"{bounds[0]:g} to {bounds[1]:g}"
        )


NODES, SIZE = "instance_count", "data_size_MB"

NODES_BETWEEN = (4, 8)
MOST_TRAINING_NODES = 8
MOST_TRAINING_MEGABYTES: Mapping[str, float] = {
    "sort": 13_482,
    "grep": 15_150,
    "sgd": 19_558,
    "kmeans": 16_000,
    "pagerank": 284,
}
"""Largest training inputs by job, in the order of the published tables."""

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
    requested: RequestedRange

    @property
    def key(self) -> str:
        """The scenario in the names of cells."""
        return f"{self.job}-{self.requested.replace(' ', '-')}"


SCENARIOS = tuple(
    Scenario(job, requested) for job in MOST_TRAINING_MEGABYTES for requested in RequestedRange
)


@dataclass(frozen=True, slots=True, eq=False)
class Executions:
    """Rows of a table and what they took.

    Attributes:
        table: columns by name.
        seconds: wall time, float64 [rows].
    """

    table: Table
    seconds: Floats

    def where(self, is_selected: NDArray[np.bool_]) -> "Executions":
        """Return the rows for which `is_selected` [rows] holds."""
        rows = np.flatnonzero(is_selected).tolist()
        table = {name: [values[row] for row in rows] for name, values in self.table.items()}
        return Executions(table, self.seconds[is_selected])


@dataclass(frozen=True, slots=True, eq=False)
class ScenarioParts:
    """Executions to learn from, and those to judge by."""

    training: Executions
    held_out: Executions


def files(data: Path | None) -> tuple[Path, ...]:
    """Return the files that the scenarios are read from.

    Raises:
        MissingDataError: there is no folder, or a file is not in it.
    """
    return public_files(data, *(f"{FOLDER}/{job}.tsv" for job in MOST_TRAINING_MEGABYTES))


def parts(data: Path | None, scenario: Scenario) -> ScenarioParts:
    """Return both parts of a scenario.

    Raises:
        MissingDataError: there is no folder, or the job's file is not in it.
    """
    executions = of_job(data, scenario.job)
    nodes, megabytes = (np.array(executions.table[each]) for each in (NODES, SIZE))
    held = _held_out(scenario, nodes, megabytes)
    return ScenarioParts(executions.where(~held), executions.where(held))


def of_job(data: Path | None, job: str) -> Executions:
    """Return all executions of a job, repeats included.

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
    """Return one row for each configuration, in the order of their first, with its median time."""
    seconds: dict[tuple[float | str, ...], list[float]] = {}
    rows = zip(*executions.table.values(), strict=True)
    for row, took in zip(rows, executions.seconds.tolist(), strict=True):
        seconds.setdefault(row, []).append(took)
    columns = zip(executions.table, zip(*seconds, strict=True), strict=True)
    return Executions(dict(columns), np.array([np.median(each) for each in seconds.values()]))


def _held_out(scenario: Scenario, nodes: Floats, megabytes: Floats) -> NDArray[np.bool_]:
    match scenario.requested:
        case RequestedRange.NODES_BETWEEN:
            return np.isin(nodes, NODES_BETWEEN)
        case RequestedRange.NODES_BEYOND:
            return nodes > MOST_TRAINING_NODES
        case RequestedRange.SIZE_BEYOND:
            return megabytes > MOST_TRAINING_MEGABYTES[scenario.job]


ScaleAndSize = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class JobSlice:
    """One slice.

    Attributes:
        name: as `c3o` calls it: job, machine type, size of its input.
        job: its job.
        configurations: one row each, with the median time of its repeats.
        repeats: seconds of each configuration, in the order of the file.
    """

    name: str
    job: str
    configurations: Executions
    repeats: tuple[Floats, ...]

    def __len__(self) -> int:
        return len(self.repeats)

    @property
    def layout(self) -> TableLayout:
        """Its columns: the configurations are no secret, their run times are."""
        return TableLayout.of(self.configurations.table, scale=NODES, size=SIZE)

    @property
    def nodes(self) -> Floats:
        """Machines of each configuration."""
        return np.array([float(each) for each in self.configurations.table[NODES]])

    def inputs(self) -> list[ScaleAndSize]:
        """Return the configurations of each input: all columns are the same but the machines."""
        groups: dict[tuple[float | str, ...], list[int]] = defaultdict(list)
        table = self.configurations.table
        others = [values for name, values in table.items() if name != NODES]
        for place, row in enumerate(zip(*others, strict=True)):
            groups[row].append(place)
        return [np.array(each) for each in groups.values()]

    def rows(self, places: ScaleAndSize) -> Table:
        """Return the columns of those configurations."""
        table = self.configurations.table
        return {name: [values[place] for place in places] for name, values in table.items()}


def slices(data: Path | None) -> tuple[JobSlice, ...]:
    """Return all slices, sorted by their names.

    Raises:
        MissingDataError: there is no folder, or a file is not in it.
    """
    job_slices = (
        each for job in JOBS.values() if job.cut for each in _of_job(data, job.name, job.cut)
    )
    return tuple(sorted(job_slices, key=lambda each: each.name))


def _of_job(data: Path | None, job: str, cut: str) -> Iterator[JobSlice]:
    executions = of_job(data, job)
    machines = np.array([str(each) for each in executions.table["machine_type"]])
    sizes = np.array([float(each) for each in executions.table[cut]])
    for machine in dict.fromkeys(machines.tolist()):
        cell = machines == machine
        if len(medians(executions.where(cell)).seconds) <= PUBLISHED_SIZE:
            continue
        for size in dict.fromkeys(sizes[cell].tolist()):
            selection = executions.where(cell & (sizes == size))
            yield JobSlice(
                f"{job} {machine} {size:.3g}", job, medians(selection), tuple(_repeats(selection))
            )


def _repeats(executions: Executions) -> Iterator[Floats]:
    """Yield the repeats of each configuration in the order of `medians`."""
    repeats: dict[tuple[float | str, ...], list[float]] = defaultdict(list)
    rows = zip(*executions.table.values(), strict=True)
    for row, seconds in zip(rows, executions.seconds.tolist(), strict=True):
        repeats[row].append(seconds)
    yield from (np.array(each) for each in repeats.values())
