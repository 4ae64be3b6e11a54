"""Data that simulations use: the project's measured set, and public data sets of others.

The measured set ships with the project; the others are found through the environment
variable FEDPERF_DATA and are never part of the project.
"""

from collections.abc import Iterator
from pathlib import Path

from fedperf_client.sources.history_file import executions_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution

MEASURED_DIRECTORY = Path(__file__).parent / "measured"


class MissingDataError(InvalidInputError):
    """A data set is not where it should be."""


def measured_files() -> tuple[Path, ...]:
    """The files of the measured set.

    Raises:
        MissingDataError: there are none.
    """
    files = tuple(sorted(MEASURED_DIRECTORY.glob("*.parquet")))
    if not files:
        raise MissingDataError(
            f"{MEASURED_DIRECTORY} holds no measured set; make one with: fedperf-sim measure"
        )
    return files


def measured_executions() -> Iterator[Execution]:
    """Every execution of the measured set, failed ones included.

    Raises:
        MissingDataError: there is no measured set.
        InvalidInputError: a row of it cannot be read.
    """
    for path in measured_files():
        yield from executions_of(path)
