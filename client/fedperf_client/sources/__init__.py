"""What already ran elsewhere, read as executions.

A source yields what it can read and says why it skipped the rest: one bad record
never hides the others. A file that is no file of the source's kind at all is one error.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from fedperf_shared.execution import Execution


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that gave no execution.

    Attributes:
        reason: which record and what is wrong with it; local text, never released.
    """

    reason: str


class Source(Protocol):
    """Something that holds executions."""

    def read(self) -> Iterator[Execution | Skipped]:
        """Every record once, in the order of the source.

        Raises:
            InvalidInputError: this is not the kind of file that the source reads.
            StorageError: it cannot be read at all.
        """
        ...
