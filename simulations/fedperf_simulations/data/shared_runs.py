"""The 736 runs of the paper on sharing run times privately, its splits and its results.

Five Spark jobs, each on one machine type; a row is a configuration, measured once, and represents a
workload. Of k-means and linear regression the paper leaves out clusters of one or two machines.
With seed 0 the splits of few rows are the paper's own, and so are the large ones: its scripts
number them in the order of use, those of few rows first. Another seed gives splits of the same kind
that share no number with these.

The grid of a job (its inputs) is public, its run times are not: what must not see run
times takes a `PublicConfigurations`.

The data carry no licence: they are read from the folder of public data sets and never
part of the project. Sources: dos-group/pm-data-privacy (Will et al. 2024, arXiv
2403.05692) and dos-group/c3o-experiments (Will et al. 2020).
"""

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_simulations.data.datasets import public_files

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Texts = NDArray[np.str_]

FOLDER = "dos-pm-data-privacy"
C3O_FOLDER = "c3o-experiments"

PUBLISHED = ("experiment1.csv", "experiment2.csv")
"""Tables of the paper's results."""

SMALL_SIZES = tuple(range(3, 34, 3))
"""Training rows of the paper's second experiment."""

TEST_SHARE = 0.2
"""Share of all rows for testing in its first experiment. The other 80 % train."""

REPEATS = 10
"""Splits of every size."""

SYNTHETIC_ROWS = "1000"
"""Rows of the synthetic data sets whose published errors are shown."""

SLOTS_OF_A_MACHINE = 8
"""Slots of the five jobs' machine types. Smaller types count as parts of a machine."""

_MACHINES, _RUNTIME = "instance_count", "gross_runtime"
_SPLITS_OF_A_SEED = 600


@dataclass(frozen=True, slots=True)
class SharedJob:
    """One of the five jobs.

    Attributes:
        title: what the paper's tables call it.
        file: of its runs.
        c3o_file: of the runs of the same job on all machine types.
        machine_type: that it ran on.
        least_machines: smaller clusters are left out.
    """

    title: str
    file: str
    c3o_file: str
    machine_type: str
    least_machines: int = 0


JOBS = (
    SharedJob("Sort", "sort.csv", "sort.tsv", "c4.2xlarge"),
    SharedJob("Grep", "grep.csv", "grep.tsv", "m4.2xlarge"),
    SharedJob("Linear Regression", "linearregression.csv", "sgd.tsv", "r4.2xlarge", 3),
    SharedJob("K-Means", "kmeans.csv", "kmeans.tsv", "r4.2xlarge", 3),
    SharedJob("Page Rank", "pagerank.csv", "pagerank.tsv", "r4.2xlarge"),
)
"""Jobs in the order of the paper's scripts, which determines its splits."""


@dataclass(frozen=True, slots=True, eq=False)
class PublicConfigurations:
    """The configurations of one job, which are public.

    Attributes:
        job: which.
        columns: names of the inputs: machines, size of the problem, other arguments.
        inputs: what predictors see, float64 [rows, columns].
    """

    job: SharedJob
    columns: tuple[str, ...]
    inputs: Floats

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, slots=True, eq=False)
class JobRuns:
    """The runs of one job.

    Attributes:
        grid: their configurations.
        seconds: run times, float64 [rows].
    """

    grid: PublicConfigurations
    seconds: Floats

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True, slots=True, eq=False)
class RunsElsewhere:
    """Runs of a job on machine types that are not its own. Medians of their repeats.

    Attributes:
        machine_types: [rows].
        inputs: columns of the job's grid; machines of `SLOTS_OF_A_MACHINE`, [rows, columns].
        seconds: run times, float64 [rows].
    """

    machine_types: Texts
    inputs: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows to learn from and rows to judge by, int64 each."""

    train: Integers
    test: Integers


@unique
class Mode(StrEnum):
    """The training data of the paper's predictors."""

    ORIGINAL = "Original"
    SYNTHETIC = "Synthetic"


PublishedKey = tuple[str, str, Mode, int | None]
"""Predictor, title of the job, mode, and training rows: None for 80 %."""


def load_runs(data: Path | None) -> tuple[JobRuns, ...]:
    """Return the runs of the five jobs, in the order of `JOBS`.

    Raises:
        MissingDataError: there is no folder, or a file is not in it.
    """
    paths = public_files(data, *(f"{FOLDER}/{job.file}" for job in JOBS))
    return tuple(_read_runs(path, job) for path, job in zip(paths, JOBS, strict=True))


def load_elsewhere(data: Path | None, grid: PublicConfigurations) -> RunsElsewhere:
    """Return the C3O runs of a grid's job with the same arguments on other machine types.

    Raises:
        MissingDataError: there is no folder, or a file is not in it.
    """
    on_grid = {tuple(row[1:]) for row in grid.inputs.tolist()}
    repeats: dict[tuple[str, tuple[float, ...]], list[float]] = defaultdict(list)
    [path] = public_files(data, f"{C3O_FOLDER}/{grid.job.c3o_file}")
    for row in _table(path, delimiter="\t"):
        arguments = tuple(float(row[name]) for name in grid.columns[1:])
        large_enough = float(row[_MACHINES]) >= grid.job.least_machines
        if row["machine_type"] != grid.job.machine_type and large_enough and arguments in on_grid:
            machines = float(row["slots"]) / SLOTS_OF_A_MACHINE
            repeats[row["machine_type"], (machines, *arguments)].append(float(row[_RUNTIME]))
    return RunsElsewhere(
        machine_types=np.array([machine_type for machine_type, _ in repeats]),
        inputs=np.array([inputs for _, inputs in repeats]),
        seconds=np.array([np.median(each) for each in repeats.values()]),
    )


def files(data: Path | None) -> tuple[Path, ...]:
    """Return the files that runs and published results are read from.

    Raises:
        MissingDataError: there is no folder, or a file is not in it.
    """
    own = [f"{FOLDER}/{name}" for name in (*(job.file for job in JOBS), *PUBLISHED)]
    return public_files(data, *own, *(f"{C3O_FOLDER}/{job.c3o_file}" for job in JOBS))


def split(job: int, rows: int, training: int | None, repeat: int, *, seed: int) -> Split:
    """Return one split of a job's rows.

    Args:
        job: its place in `JOBS`.
        rows: that the job has.
        training: rows to learn from, one of `SMALL_SIZES`; None for 80 %.
        repeat: which split of that size, 0 to 9.
        seed: 0 for the paper's own.
    """
    from sklearn.model_selection import train_test_split

    number = _SPLITS_OF_A_SEED * seed + _split_number(job, training, repeat)
    sizes = {"test_size": TEST_SHARE} if training is None else {"train_size": training}
    train, test = train_test_split(np.arange(rows), random_state=number, **sizes)
    return Split(train, test)


def published(data: Path | None) -> Mapping[PublishedKey, float]:
    """Mean MAPE of the paper's tables, in percent.

    Raises:
        MissingDataError: the tables are not there.
    """
    errors: dict[PublishedKey, list[float]] = defaultdict(list)
    for path in public_files(data, *(f"{FOLDER}/{name}" for name in PUBLISHED)):
        for row in _table(path):
            if row["NumSyntheticSamples"] in {"0", SYNTHETIC_ROWS}:
                size = int(row["NumOriginalSamples"]) if "NumOriginalSamples" in row else None
                key = (row["Model"], row["Job"], Mode(row["Mode"]), size)
                errors[key].append(float(row["MAPE"]))
    return {key: 100 * float(np.mean(values)) for key, values in errors.items()}


def _split_number(job: int, training: int | None, repeat: int) -> int:
    """Return what the paper's scripts hand to the random generator, counting from 1."""
    if training is None:
        return 1 + len(JOBS) * REPEATS * len(SMALL_SIZES) + job * REPEATS + repeat
    return 1 + (job * REPEATS + repeat) * len(SMALL_SIZES) + SMALL_SIZES.index(training)


def _read_runs(path: Path, job: SharedJob) -> JobRuns:
    rows = [row for row in _table(path) if float(row[_MACHINES]) >= job.least_machines]
    columns = tuple(name for name in rows[0] if name != _RUNTIME)
    inputs = np.array([[float(row[name]) for name in columns] for row in rows])
    return JobRuns(
        PublicConfigurations(job, columns, inputs), np.array([float(row[_RUNTIME]) for row in rows])
    )


def _table(path: Path, *, delimiter: str = ",") -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines, delimiter=delimiter))
