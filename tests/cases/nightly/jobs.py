"""A job that mostly waits, like a job that reads from remote storage.

Two cores are enough for four workers.
"""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

ROWS_AT_ONCE = 10_000


def read(number: int) -> str:
    """Read one part of the rows: wait first, then compute."""
    time.sleep(0.035)
    return hashlib.sha256(bytes(ROWS_AT_ONCE)).hexdigest() + str(number)


def total(rows: int, workers: int) -> int:
    """Read all parts, at most `workers` at a time."""
    time.sleep(0.1)
    with ThreadPoolExecutor(workers) as pool:
        return len(list(pool.map(read, range(rows // ROWS_AT_ONCE))))
