"""Functions that test campaigns call. Tests copy this file next to the campaign file."""

import os
import time
from pathlib import Path


def work(rows: int, workers: int) -> None:
    print("functions print what they like")
    block = bytearray(rows * 1000)
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    del block


def read(rows: int, workers: int, trial_directory: str) -> None:
    if Path(trial_directory, "rows").read_text() != f"{rows}":
        raise ValueError("these are other rows")


def fail(rows: int, workers: int) -> None:
    raise RuntimeError(f"<b>{rows}</b> rows and {workers} workers")


def leave(rows: int, workers: int) -> None:
    os._exit(7)


def leave_a_child(rows: int, workers: int) -> None:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(7)


def run_out(rows: int, workers: int) -> None:
    raise MemoryError


not_callable = 3
