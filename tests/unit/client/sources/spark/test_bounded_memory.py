"""Tests that small hostile event logs with large content are read in bounded memory."""

import gzip
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from fedperf_client.sources.opener import (
    MAX_DEPTH,
    MAX_MEMBERS,
    MAX_PARSED_BYTES,
    MAX_WINDOW_BYTES,
    RATIO_FROM_BYTES,
    exceeds_json_memory,
)
from fedperf_client.sources.spark.event_log import MAX_HELD_BYTES, MAX_LINE_BYTES
from tests.fakes.added_memory import MOST_MEGABYTES, megabytes_added

USUAL_WINDOW_BYTES = 8 * 1024**2
"""Window size that every zstd decoder must support (RFC 8878, section 3.1.1.1.2)."""

MOST_MEGABYTES_OF_WINDOWS = 256
START = b'{"Event":"SparkListenerLogStart","Spark Version":"4.0.0"}\n'
JOB = b'{"Event":"SparkListenerJobStart","Job ID":1,"Stage IDs":['
ENVIRONMENT = b'{"Event":"SparkListenerEnvironmentUpdate","Spark Properties":{'
UPDATE = (
    b'{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate",'
    b'"executionId":1,"sparkPlanInfo":['
)


def repeated(path: Path, line: bytes, count: int) -> None:
    with gzip.open(path, "wb", 9) as log:
        log.write(START)
        for _ in range(100):
            log.write(line * (count // 100))


def one_line(path: Path, content: bytes) -> None:
    with gzip.open(path, "wb", 9) as log:
        log.write(START + JOB + content * ((MAX_LINE_BYTES - 1000) // len(content)) + b"0]}\n")


def one_event(path: Path, start: bytes, parts: Iterable[bytes], end: bytes) -> None:
    with gzip.open(path, "wb", 9) as log:
        log.write(START + start + b",".join(parts) + end + b"\n")


def numbered(pair: bytes, count: int) -> Iterator[bytes]:
    return (pair.replace(b"#", b"%d" % number) for number in range(count))


def beside_what_is_held(path: Path, pair: bytes) -> None:
    """Write the largest plan update that is held and an event with the most parsed pairs."""
    update = UPDATE + b" " * (MAX_HELD_BYTES - 2 * len(UPDATE)) + b"0]}\n"
    count = MAX_PARSED_BYTES // 64
    while exceeds_json_memory(b",".join(numbered(pair, count))):
        count = 15 * count // 16
    with gzip.open(path, "wb", 9) as log:
        log.write(START + update + JOB + b",".join(numbered(pair, count)) + b"]}\n")


def stages_of_a_job(path: Path, count: int, parents: int) -> None:
    """Write a job that never ends and whose stages have RDDs with very many parents."""
    stages = b",".join(b"%d" % number for number in range(count))
    with gzip.open(path, "wb", 9) as log:
        started = b'{"Event":"SparkListenerJobStart","Job ID":1,"Submission Time":5,"Stage IDs":['
        log.write(START + started + stages + b"]}\n")
        for number in range(count):
            log.write(
                b'{"Event":"SparkListenerStageCompleted","Stage Info":{"Stage ID":%d,' % number
            )
            first = 10**9 + number * parents
            read = b",".join(b"%d" % (first + each) for each in range(parents))
            log.write(b'"RDD Info":[{"RDD ID":0,"Parent IDs":[' + read + b"]}]}}\n")


def window(path: Path, size: int, megabytes: int) -> None:
    settings = zstandard.ZstdCompressionParameters.from_level(1, window_log=size.bit_length() - 1)
    with (
        path.open("wb") as file,
        zstandard.ZstdCompressor(compression_params=settings).stream_writer(file) as log,
    ):
        log.write(START)
        for _ in range(megabytes):
            log.write(b'{"Event":"Other","Text":"' + b"x" * 2**20 + b'"}\n')


def zip_of_names(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("log", START + b"{}\n")
        for number in range(MAX_MEMBERS - 1):
            archive.writestr(f"{'a/' * (MAX_DEPTH - 2)}{number:0400}", b"")


def in_blocks(path: Path, content: bytes) -> None:
    """Write the content in the fewest blocks that lz4 allows."""
    packed = lz4.frame.compress(content, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    path.write_bytes(packed)


def nothing_in_a_zip(path: Path) -> None:
    """Write a zip with one line, just below the size at which its compression ratio is checked."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log", START + bytes(RATIO_FROM_BYTES - 1000))


LOGS: dict[str, Callable[[Path], None]] = {
    "lines that are no events": lambda path: repeated(path, b"{}\n", 1_000_000),
    "events that lack everything": lambda path: repeated(
        path, b'{"Event":"SparkListenerJobStart"}\n', 200_000
    ),
    "small values in one event": lambda path: one_line(path, b"{},"),
    "small strings in one event": lambda path: one_line(path, b'"a",'),
    "small objects in one event": lambda path: one_event(
        path, JOB, [b'{"a":{"b":{"c":{}}}}'] * 395_000, b"]}"
    ),
    "many keys in one event": lambda path: one_event(
        path, JOB + b'0],"Other":{', numbered(b'"#":1', 399_000), b"}}"
    ),
    "many properties": lambda path: one_event(
        path, ENVIRONMENT, numbered(b'"#":"#"', 390_000), b"}}"
    ),
    "a wide character in one long text": lambda path: one_event(
        path, JOB, ['"\U0001f600'.encode() + b"a" * 8_000_000 + b'"'], b"]}"
    ),
    "wide texts in one event": lambda path: one_event(
        path, JOB, ['"\U0001f600aaaaaaaaaaaa"'.encode()] * 399_000, b"]}"
    ),
    "small objects beside what is held": lambda path: beside_what_is_held(path, b'{"a":1}'),
    "keys and texts beside what is held": lambda path: beside_what_is_held(
        path, '{"#\U0001f600":"#\U0001f600"}'.encode()
    ),
    "wide texts beside what is held": lambda path: beside_what_is_held(
        path, '"#\U0001f600aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"'.encode()
    ),
    "stages that are kept": lambda path: stages_of_a_job(path, 100, 50_000),
    "names of events in one event": lambda path: one_event(
        path, b'{"a":[', numbered(b'{"Event":"a#"}', 350_000), b"]}"
    ),
    "an event over many lines": lambda path: in_blocks(
        path, START + b"{\n" + b' "a":\n' * 1_300_000 + b"}\n" + START
    ),
    "an event over lines without end": lambda path: repeated(path, b"{\n" + b" 1,\n" * 99, 200_000),
    "16 bits a character": lambda path: in_blocks(
        path,
        (START + b'{"Event":"' + b"x" * (MAX_LINE_BYTES - 99) + b"\n").decode().encode("utf-16"),
    ),
    "a long text in another encoding": lambda path: one_event(
        path, JOB, [b'"\x80' + b"a" * 8_000_000 + b'"'], b"]}"
    ),
    "a zip of as many names as are read": zip_of_names,
    "a zip of nothing": nothing_in_a_zip,
    "a window that every program writes": lambda path: window(path, USUAL_WINDOW_BYTES, 48),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_hostile_event_log_adds_little_memory(name: str, tmp_path: Path) -> None:
    plain, hostile = tmp_path / "plain", tmp_path / "hostile"
    plain.write_bytes(START)
    LOGS[name](hostile)
    added, skipped = megabytes_added(plain, hostile)
    assert added <= MOST_MEGABYTES
    assert skipped >= 1


@pytest.mark.slow
def test_event_log_with_widest_zstd_window_stays_within_memory_bound(tmp_path: Path) -> None:
    plain, wide = tmp_path / "plain", tmp_path / "wide"
    plain.write_bytes(START)
    window(wide, MAX_WINDOW_BYTES, 300)  # longer than the window, so that all of it is used
    added, _ = megabytes_added(plain, wide)
    assert MAX_WINDOW_BYTES / 2**20 / 2 < added <= MOST_MEGABYTES_OF_WINDOWS
