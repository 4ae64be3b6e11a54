"""What reading a file adds to a process that has read an ordinary one already.

Peaks are the kernel's of that process alone (VmHWM): what getrusage says of a child begins at
the peak of its parent, so that a large test process would hide everything.
"""

import subprocess
import sys
from pathlib import Path

MOST_MEGABYTES = 64
"""That a hostile input may add."""

_READ = """
import pathlib, sys
from fedperf_client.workers.child_side import peak_bytes, reset_peak
from fedperf_client.sources import SkippedRecord
from fedperf_client.sources import read_source

plain, hostile = map(pathlib.Path, sys.argv[1:])
list(read_source(plain))
reset_peak()
before = peak_bytes()
skipped = sum(isinstance(each, SkippedRecord) for each in read_source(hostile))
print((peak_bytes() - before) >> 20, skipped)
"""


def megabytes_added(plain: Path, hostile: Path) -> tuple[int, int]:
    """Megabytes that reading `hostile` after `plain` adds, and how much of it was skipped."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(plain), str(hostile)],
        capture_output=True,
        text=True,
        check=True,
    )
    added, skipped = map(int, done.stdout.split())
    return added, skipped
