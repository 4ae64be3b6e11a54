"""Data that simulations use: the project's measured set, and public data sets of others.

The measured set ships with the project; the others are found through the environment
variable FEDPERF_DATA and are never part of the project.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fedperf_client.sources.history_file import executions_of
from fedperf_memory.year_simulation.year import MEASURED_RUNS
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, Execution

MEASURED_DIRECTORY = Path(__file__).parents[1] / "corpus" / "logs"

COMPARISONS = "comparisons"
TRAINING = "train"
CAPPED = "capped"
LARGE = "large"
SPARK_SESSIONS = "spark_sessions"
DUCKDB_SESSIONS = "duckdb_sessions"
HELD_OUT_SESSIONS = "heldout_sessions"
CAMPAIGNS = "campaigns"
"""Folders of the comparison set, of the training set, of the set under a cap, of large inputs, of
sessions of SQL and of campaigns (`fedperf profile` on a job that mostly waits) there; nothing
learns from the judged ones and from campaigns. Of 400 large inputs 274 were measured. Other
folders are named like the platform they ran on."""

HOW_TO_MAKE = {
    COMPARISONS: "--comparisons",
    TRAINING: "--train-only",
    CAPPED: "--cpu-limit 0.5 --memory-limit 1GB --seed 3",
    LARGE: "--large",
    SPARK_SESSIONS: "--sessions spark",
    DUCKDB_SESSIONS: "--sessions duckdb",
    HELD_OUT_SESSIONS: "--sessions judged",
}

MACHINE_SPEED = 1.01
"""Speed of the machine of all measurements, the median of the largest set.

A benchmark of a fraction of a second gave 0.36 to 1.45 at the beginning of sets and sessions. Over
150 sessions log seconds fall by 0.3 (standard error 0.1) with the log of its result. They should
fall by 1 on the same machine, so the result was mostly noise.
"""


class MissingDataError(InvalidInputError):
    """A data set is not where it should be."""


def public_files(data: Path | None, *names: str) -> tuple[Path, ...]:
    """Files, or folders, below the folder of public data sets (`Settings.data`).

    Raises:
        MissingDataError: there is no folder, or some of `names` are not in it.
    """
    if data is None:
        raise MissingDataError("no folder of public data sets: set FEDPERF_DATA or give --data")
    paths = tuple(data / name for name in names)
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise MissingDataError(f"public data are not there: {', '.join(missing)}")
    return paths


def measured_directory(folder: str | None = None) -> Path:
    """Return where the measured set, which ships with `fedperf_memory`, or another one is."""
    return MEASURED_DIRECTORY / folder if folder else MEASURED_RUNS.parent


def measured_files(folder: str | None = None) -> tuple[Path, ...]:
    """Return the files of the measured set, or of another one: by its folder.

    Raises:
        MissingDataError: there are none.
    """
    directory = measured_directory(folder)
    files = tuple(sorted(directory.glob("*.parquet")))
    if not files:
        option = "" if folder is None else f" {HOW_TO_MAKE.get(folder, f'--platform {folder}')}"
        raise MissingDataError(
            f"{directory} holds no measured set; make one with: fedperf-sim measure{option}"
        )
    return files


def is_measured(folder: str) -> bool:
    """Return whether that set is there. Sets that come later may not be."""
    return any(measured_directory(folder).glob("*.parquet"))


def measured_executions(folder: str | None = None) -> Iterator[Execution]:
    """Yield every execution of the measured set, or of another one, failed ones included.

    Raises:
        MissingDataError: there is no such set.
        InvalidInputError: a row of it cannot be read.
    """
    for path in measured_files(folder):
        yield from executions_of(path)


def at_one_speed(executions: Iterable[Execution]) -> Iterator[Execution]:
    """Executions of the measured sets as of the one machine that they ran on."""
    for each in executions:
        yield replace(each, cluster=of_one_speed(each.cluster))


def of_one_speed(cluster: ClusterConfig) -> ClusterConfig:
    """Return the resources with `MACHINE_SPEED`."""
    return replace(cluster, machine_speed=MACHINE_SPEED)
