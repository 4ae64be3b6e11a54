"""`fedperf-server run` in a process whose database calls fail while a marker file exists.

`python -m ... DIRECTORY MARKER`.
"""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from fedperf_server import cli


def main(directory: str, marker: Path) -> None:
    """Serve until killed."""
    begin = Session.begin

    @contextmanager
    def failing(self: Session) -> Iterator[object]:
        if marker.exists():
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("disk I/O error"))
        with begin(self) as transaction:
            yield transaction

    Session.begin = failing  # type: ignore[method-assign, assignment]
    sys.argv = ["fedperf-server", "--directory", directory, "run"]
    cli.main()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
