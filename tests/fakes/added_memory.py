"""Memory that reading a file adds to a process that has already read an ordinary file.

Peaks are the kernel's VmHWM of that process alone. The peak that getrusage reports for a child
starts at its parent's peak, so a large test process would hide the difference.
"""

import subprocess
import sys
from pathlib import Path

MOST_MEGABYTES = 64
"""Maximum memory that a hostile input may add."""

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
    """Return the megabytes that reading `hostile` after `plain` adds, and the skipped records."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(plain), str(hostile)],
        capture_output=True,
        text=True,
        check=True,
    )
    added, skipped = map(int, done.stdout.split())
    return added, skipped
