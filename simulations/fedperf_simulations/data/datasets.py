"""Data that simulations use: the project's measured set, and public data sets of others.

The measured set ships with the project; the others are found through the environment
variable FEDPERF_DATA and are never part of the project.
"""

from collections.abc import Iterator
from pathlib import Path

from fedperf_client.sources.history_file import executions_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution

MEASURED_DIRECTORY = Path(__file__).parents[1] / "measured_set" / "logs"

COMPARISONS = "comparisons"
LESSONS = "lessons"
CAPPED = "capped"
LARGE = "large"
SPARK_SESSIONS = "spark_sessions"
DUCKDB_SESSIONS = "duckdb_sessions"
JUDGED_SESSIONS = "judged_sessions"
CAMPAIGNS = "campaigns"
"""Folders of the comparison set, of the lessons, of the set under a cap, of large inputs, of
sessions of SQL and of campaigns (`fedperf profile` on a job that mostly waits) there; nothing
learns from the judged ones and from campaigns. Other folders are named like the platform they
ran on."""

HOW_TO_MAKE = {
    COMPARISONS: "--comparisons",
    LESSONS: "--lessons",
    CAPPED: "--cpu-limit 0.5 --memory-limit 1GB --seed 3",
    LARGE: "--large",
    SPARK_SESSIONS: "--sessions spark",
    DUCKDB_SESSIONS: "--sessions duckdb",
    JUDGED_SESSIONS: "--sessions judged",
}


class MissingDataError(InvalidInputError):
    """A data set is not where it should be."""


def public_files(data: Path | None, *names: str) -> tuple[Path, ...]:
    """Files, or folders, below the folder of public data sets (`Settings.data`).

    Raises:
        MissingDataError: there is no folder, or some of `names` are not in it.
    """
    if data is None:
        raise MissingDataError("no folder of public data sets: set FEDPERF_DATA or give --data")
    found = tuple(data / name for name in names)
    missing = [str(path) for path in found if not path.exists()]
    if missing:
        raise MissingDataError(f"public data are not there: {', '.join(missing)}")
    return found


def measured_files(folder: str | None = None) -> tuple[Path, ...]:
    """The files of the measured set, or of another one: by its folder.

    Raises:
        MissingDataError: there are none.
    """
    directory = MEASURED_DIRECTORY / (folder or "")
    files = tuple(sorted(directory.glob("*.parquet")))
    if not files:
        option = "" if folder is None else f" {HOW_TO_MAKE.get(folder, f'--platform {folder}')}"
        raise MissingDataError(
            f"{directory} holds no measured set; make one with: fedperf-sim measure{option}"
        )
    return files


def is_measured(folder: str) -> bool:
    """Whether that set is there; sets that come later may not be."""
    return any((MEASURED_DIRECTORY / folder).glob("*.parquet"))


def measured_executions(folder: str | None = None) -> Iterator[Execution]:
    """Every execution of the measured set, or of another one, failed ones included.

    Raises:
        MissingDataError: there is no such set.
        InvalidInputError: a row of it cannot be read.
    """
    for path in measured_files(folder):
        yield from executions_of(path)
