"""A small log that unpacks to much is read in bounded memory, whatever is in it."""

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from fedperf_client.sources.spark.streams import MAX_LINE_BYTES, MAX_WINDOW_BYTES

MOST_MEGABYTES = 64
"""That reading may add to a process that has read an ordinary log already."""

START = b'{"Event":"SparkListenerLogStart","Spark Version":"4.0.0"}\n'
JOB = b'{"Event":"SparkListenerJobStart","Job ID":1,"Stage IDs":['

READ = """
import collections, pathlib, sys
from fedperf_client.profiling.trials.peak_memory import peak_bytes, reset_peak
from fedperf_client.sources.kinds import read_source

plain, hostile = map(pathlib.Path, sys.argv[1:])
list(read_source(plain))
reset_peak()
before = peak_bytes()
reasons = collections.Counter(each.reason for each in read_source(hostile))
print((peak_bytes() - before) >> 20, sum(reasons.values()))
"""


def repeated(path: Path, line: bytes, count: int) -> None:
    with gzip.open(path, "wb", 9) as log:
        log.write(START)
        for _ in range(100):
            log.write(line * (count // 100))


def one_line(path: Path, content: bytes) -> None:
    with gzip.open(path, "wb", 9) as log:
        log.write(START + JOB + content * ((MAX_LINE_BYTES - 1000) // len(content)) + b"0]}\n")


def widest_window(path: Path) -> None:
    window = MAX_WINDOW_BYTES.bit_length() - 1
    settings = zstandard.ZstdCompressionParameters.from_level(19, window_log=window)
    with (
        path.open("wb") as file,
        zstandard.ZstdCompressor(compression_params=settings).stream_writer(file) as log,
    ):
        log.write(START)
        for _ in range(48):
            log.write(b'{"Event":"Other","Text":"' + b"x" * 2**20 + b'"}\n')


LOGS: dict[str, Callable[[Path], None]] = {
    "lines that are no events": lambda path: repeated(path, b"{}\n", 1_000_000),
    "events that lack everything": lambda path: repeated(
        path, b'{"Event":"SparkListenerJobStart"}\n', 200_000
    ),
    "small values in one event": lambda path: one_line(path, b"{},"),
    "small strings in one event": lambda path: one_line(path, b'"a",'),
    "the widest window": widest_window,
}


@pytest.mark.parametrize("name", LOGS)
def test_a_hostile_log_adds_little_memory(name: str, tmp_path: Path) -> None:
    plain, hostile = tmp_path / "plain", tmp_path / "hostile"
    plain.write_bytes(START)
    LOGS[name](hostile)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(plain), str(hostile)],
        capture_output=True,
        text=True,
        check=True,
    )
    added, skipped = map(int, done.stdout.split())
    assert added <= MOST_MEGABYTES
    assert skipped >= 1
