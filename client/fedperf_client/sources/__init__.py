"""Sources of executions that already ran elsewhere.

A source yields what it can read and says why it skipped the rest: one bad record never hides the
others. A file that is no file of the source's kind at all is one error.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from fedperf_client.home.counted_rows import RowCount
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record that gave no execution; local text, never released.

    Attributes:
        record: which one, such as "row 7" or "query 12".
        reason: what is wrong with it; the same words for the same reason.
    """

    record: str
    reason: str

    def __str__(self) -> str:
        return f"{self.record}: {self.reason}"


class NothingToReadError(InvalidInputError):
    """A file holds no record, of whatever kind it is: empty, damaged or cut off before the first.

    It may be that more of it is being written just now.
    """


class Source(Protocol):
    """Something that holds executions."""

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Every record once, in the order of the source.

        Raises:
            InvalidInputError: this is not the kind of file that the source reads.
            StorageError: it cannot be read at all.

        Whatever else it raises costs this source alone and names its kind.
        """
        ...


Counted = Callable[[str], Collection[RowCount]]
"""What is known to have been counted of a table or of files, by the digest of its name."""


@runtime_checkable
class CountingSource(Source, Protocol):
    """A source with records that count rows which others of its kind only hint at."""

    def counts(self) -> Iterator[RowCount]:
        """What its records counted of whole tables and files; errors as `read`."""
        ...

    def read_beside(self, counted: Counted) -> Iterator[Execution | SkippedRecord]:
        """As `read`, beside what was counted elsewhere; its own counts are among that."""
        ...


class OpenSource(Protocol):
    """A kind of source: what an entry point of the group `fedperf.sources` names."""

    def __call__(self, path: Path, /) -> Source | None:
        """The source that lies at `path`, a file or a directory; None if it is of another kind.

        Looks at names and the first bytes only. Raises OSError where these cannot be read, and
        NothingToReadError where they tell that nothing is there; other kinds are asked then.
        """
        ...
