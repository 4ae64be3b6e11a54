"""A job that mostly waits, as reading from far away does: two cores can feed four workers."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

ROWS_AT_ONCE = 10_000


def read(number: int) -> str:
    """One part of the rows: waited for, then looked at."""
    time.sleep(0.035)
    return hashlib.sha256(bytes(ROWS_AT_ONCE)).hexdigest() + str(number)


def total(rows: int, workers: int) -> int:
    """All parts, so many at a time."""
    time.sleep(0.1)
    with ThreadPoolExecutor(workers) as pool:
        return len(list(pool.map(read, range(rows // ROWS_AT_ONCE))))
