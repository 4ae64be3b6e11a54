"""Tests of reading lines: every codec, as Spark's libraries frame it, within fixed bounds."""

import contextlib
import gzip
import io
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedperf_client.sources import SkippedRecord, read_source
from fedperf_client.sources.opener import CutLogError, DamagedLogError
from fedperf_client.sources.spark import event_log
from fedperf_client.sources.spark.event_log import (
    MAX_LINE_BYTES,
    NEAR_BYTES,
    Events,
    SkippedLines,
    lines,
)
from fedperf_client.sources.spark.fields import Event
from fedperf_shared.errors import InvalidInputError


def texts(path: Path) -> Iterator[bytes | None]:
    """Yield the lines without their numbers."""
    for _, line in lines(path):
        yield line


BLOCK = 32 * 1024

settings.register_profile("files", suppress_health_check=[HealthCheck.function_scoped_fixture])
with_files = settings.get_profile("files")


def zstd(content: bytes) -> bytes:
    """Compress to several frames, because Spark writes one at each flush."""
    half = len(content) // 2
    return zstandard.compress(content[:half]) + zstandard.compress(content[half:])


def lz4_java(content: bytes) -> bytes:
    """Compress like `LZ4BlockOutputStream`: blocks with headers, then an empty block."""
    pieces = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
    return b"".join(map(lz4_block, [*pieces, b""]))


def lz4_block(piece: bytes) -> bytes:
    packed = lz4.block.compress(piece, store_size=False) if piece else b""
    raw = len(packed) >= len(piece)
    held = piece if raw else packed
    token = (0x10 if raw else 0x20) | 5
    return b"LZ4Block" + struct.pack("<Biii", token, len(held), len(piece), 0) + held


def snappy_java(content: bytes) -> bytes:
    """Compress like `SnappyOutputStream`, twice, as in a log that was appended to."""
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    half = len(content) // 2
    stream = io.BytesIO()
    for part in (content[:half], content[half:]):
        stream.write(header)
        for at in range(0, len(part), BLOCK):
            packed = bytes(cramjam.snappy.compress_raw(part[at : at + BLOCK]))
            stream.write(struct.pack(">i", len(packed)) + packed)
    return stream.getvalue()


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "zstd": zstd,
    "gzip": lambda content: gzip.compress(content[:100]) + gzip.compress(content[100:]),
    "lz4": lz4_java,
    "lz4 frame": lz4.frame.compress,
    "snappy": snappy_java,
}


@pytest.mark.parametrize("codec", CODECS)
def test_lines_of_a_log_in_any_codec_are_unchanged(tmp_path: Path, codec: str) -> None:
    content = [f"line {number} ".encode() * (number % 700) for number in range(3000)]
    (tmp_path / "log").write_bytes(CODECS[codec](b"\n".join(content)))
    assert list(texts(tmp_path / "log")) == content


@with_files
@given(content=st.binary(max_size=3000), codec=st.sampled_from(sorted(CODECS)))
def test_lines_of_any_bytes_in_any_codec_are_unchanged(
    tmp_path: Path, content: bytes, codec: str
) -> None:
    packed = CODECS[codec](content)
    if content.startswith((*MAGIC, *ENCODED)):
        return
    (tmp_path / "log").write_bytes(packed)
    expected = content.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert list(texts(tmp_path / "log")) == expected


ENCODED = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"{\0", b"\0{", b"\0\0")
MAGIC = (
    b"BZh",
    b"\xfd7z",
    b"7z",
    b"\x28\xb5\x2f\xfd",
    b"\x1f\x8b",
    b"LZ4Block",
    b"\x04\x22\x4d\x18",
    b"\x82SNAPPY",
    b"ZV",
)


@pytest.mark.parametrize("share", [0.1, 2 / 3, 0.99])
@pytest.mark.parametrize("codec", sorted(set(CODECS) - {"plain"}))
def test_lines_of_truncated_log_are_read_up_to_the_cut_and_raise_cut_log_error(
    tmp_path: Path, codec: str, share: float
) -> None:
    content = b"\n".join(b"line %d" % number for number in range(50_000))
    packed = CODECS[codec](content)
    (tmp_path / "log").write_bytes(packed[: int(len(packed) * share)])
    found: list[bytes | None] = []
    with pytest.raises(CutLogError, match=r"log: cut off in the middle of compressed bytes"):
        found += texts(tmp_path / "log")
    assert found == content.split(b"\n")[: len(found)]
    least = 1000 if codec == "gzip" else 0  # others unpack nothing of a truncated block
    assert len(found) >= (least if share < 0.5 else 20_000)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("content", [b"", b"one line\n", b"\x00" * 10**6, bytes(range(256)) * 4096])
def test_lines_of_a_complete_zstd_log_raise_no_cut_log_error(
    tmp_path: Path, content: bytes, checksum: bool
) -> None:
    """The log also contains a skippable frame, as parallel compressors write them."""
    frame = zstandard.ZstdCompressor(write_checksum=checksum).compress(content)
    skipped = struct.pack("<II", 0x184D2A53, 4) + b"size"
    (tmp_path / "log").write_bytes(frame + skipped + frame)
    for _ in texts(tmp_path / "log"):
        pass


def test_lines_with_incomplete_last_line_raise_cut_log_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"{}\n{")
    reading = lines(tmp_path / "log", is_whole=lambda tail: tail.endswith(b"}"))
    assert next(reading) == (1, b"{}")
    with pytest.raises(CutLogError, match=r"log: cut off in the middle of a line"):
        next(reading)


@with_files
@given(
    codec=st.sampled_from(sorted(set(CODECS) - {"plain"})),
    at=st.floats(0, 1),
    byte=st.integers(0, 255),
)
def test_lines_of_a_log_with_a_corrupt_byte_raise_only_damaged_log_error(
    tmp_path: Path, codec: str, at: float, byte: int
) -> None:
    content = b"\n".join(b"line %d" % number for number in range(2000))
    packed = bytearray(CODECS[codec](content))
    packed[int(at * (len(packed) - 1))] = byte
    (tmp_path / "log").write_bytes(packed)
    with contextlib.suppress(DamagedLogError):
        for _ in texts(tmp_path / "log"):
            pass


def test_zstd_window_above_the_limit_is_refused(tmp_path: Path) -> None:
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=28)
    with (
        (tmp_path / "log").open("wb") as file,
        zstandard.ZstdCompressor(compression_params=wide).stream_writer(file) as log,
    ):
        log.write(b'{"Event":"SparkListenerLogStart"}\n' * 10**6)
    said = r"^\S+/log: a zstd window of more than 128 MiB is not read; compress the log again with"
    with pytest.raises(InvalidInputError, match=said):
        list(read_source(tmp_path / "log"))


def test_oversized_line_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as stream:
        stream.write(b"before\n")
        for _ in range(8 * MAX_LINE_BYTES // 2**20):
            stream.write(b"x" * 2**20)
        stream.write(b"\nafter")
    tracemalloc.start()
    assert list(texts(tmp_path / "log")) == [b"before", None, b"after"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * MAX_LINE_BYTES


def test_line_of_maximum_length_is_read_and_longer_one_is_skipped(tmp_path: Path) -> None:
    longest = b"x" * MAX_LINE_BYTES
    (tmp_path / "log").write_bytes(longest + b"\n" + longest + b"y\nz")
    assert [line and len(line) for line in texts(tmp_path / "log")] == [MAX_LINE_BYTES, None, 1]


class CountedBytes(bytearray):
    """Counts the bytes that are copied where it grows."""

    copied = 0

    def __iadd__(self, more: bytes) -> "CountedBytes":  # type: ignore[override]
        CountedBytes.copied += len(more)
        super().__iadd__(more)
        return self

    def __add__(self, more: bytes) -> "CountedBytes":  # type: ignore[override]
        CountedBytes.copied += len(self) + len(more)
        return CountedBytes(super().__add__(more))


def test_long_line_in_tiny_blocks_takes_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = 20_000
    (tmp_path / "log").write_bytes(lz4_block(b"xy") * blocks + lz4_block(b"\nz"))
    monkeypatch.setattr(event_log, "bytearray", CountedBytes, raising=False)
    CountedBytes.copied = 0
    assert list(texts(tmp_path / "log")) == [b"xy" * blocks, b"z"]
    assert CountedBytes.copied <= 2 * blocks + 1


def test_decompression_bombs_are_refused(tmp_path: Path) -> None:
    bombs = {
        "lz4": b"LZ4Block" + struct.pack("<Biii", 0x25, 2**30, 2**30, 0),
        "lz4 out": b"LZ4Block" + struct.pack("<Biii", 0x25, 4, 2**30, 0) + b"abcd",
        "snappy": b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 2**30),
        "snappy out": b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 6) + b"\xff\xff\xff\xff\x07a",
        "zstd": b"\x28\xb5\x2f\xfd\x00" + bytes([(29 - 10) << 3]) + b"\x01\x00\x00",
    }
    for name, bomb in bombs.items():
        (tmp_path / "log").write_bytes(bomb)
        with pytest.raises(DamagedLogError, match="window" if name == "zstd" else "at most"):
            list(texts(tmp_path / "log"))


PASSED_OVER = SkippedLines((b"skip", b"away"), b"end", b"well")
LONG = b" " * NEAR_BYTES
KEPT = st.sampled_from([b"kept", b"end" + LONG, b"end badly" + LONG, b"end" + LONG + b"well", b""])
PASSED = st.sampled_from([b"skip", b"skip this", b"away", b"end well" + LONG, b"skip well"])


@with_files
@given(
    drawn=st.lists(st.tuples(st.booleans(), KEPT, PASSED), max_size=30), size=st.integers(1, 500)
)
def test_skipped_lines_are_recognized_across_block_boundaries_and_numbered(
    tmp_path: Path, drawn: list[tuple[bool, bytes, bytes]], size: int
) -> None:
    content = [kept if is_kept else passed for is_kept, kept, passed in drawn]
    blocks = b"".join(line + b"\n" for line in content)
    packed = b"".join(lz4_block(blocks[at : at + size]) for at in range(0, len(blocks), size))
    (tmp_path / "log").write_bytes(packed + lz4_block(b""))
    expected = [(at, each[1]) for at, each in enumerate(drawn, 1) if each[0]]
    assert list(lines(tmp_path / "log", PASSED_OVER)) == expected


def test_oversized_line_is_numbered(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\nskip\n" + b"x" * (MAX_LINE_BYTES + 1) + b"\nb\nskip\nc")
    found = list(lines(tmp_path / "log", PASSED_OVER))
    assert found == [(1, b"a"), (3, None), (4, b"b"), (6, b"c")]


def test_lzf_log_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"ZV\x01\x00\x05")
    with pytest.raises(DamagedLogError, match=r"lzf.*zstd"):
        list(texts(tmp_path / "log"))


def task(name: str, stage: int, reason: str = "Success") -> bytes:
    end = b',"Task End Reason":{"Reason":"%b"}' % reason.encode() if name == "TaskEnd" else b""
    return b'{"Event":"SparkListener%b","Stage ID":%d,"Stage Attempt ID":0%b,"More":"%b"}' % (
        name.encode(), stage, end, LONG,
    )  # fmt: skip


@with_files
@given(
    drawn=st.lists(
        st.tuples(
            st.sampled_from(["TaskStart", "TaskEnd"]),
            st.integers(0, 3),
            st.sampled_from(["Success", "Success", "TaskKilled"]),
        ),
        max_size=40,
    ),
    size=st.integers(50, 2000),
)
def test_events_count_successful_task_ends_and_yield_first_task_event_per_stage(
    tmp_path: Path, drawn: list[tuple[str, int, str]], size: int
) -> None:
    blocks = b"".join(task(*each) + b"\n" for each in drawn)
    packed = b"".join(lz4_block(blocks[at : at + size]) for at in range(0, len(blocks), size))
    (tmp_path / "log").write_bytes(packed + lz4_block(b""))
    found = Events(frozenset({"SparkListenerTaskStart", "SparkListenerTaskEnd"}))
    given = [(name, event["Stage ID"]) for name, event in map(as_event, found.of(tmp_path / "log"))]
    for stage in range(4):
        starts = [each for each in drawn if each[:2] == ("TaskStart", stage)]
        well = [each for each in drawn if each == ("TaskEnd", stage, "Success")]
        badly = [each for each in drawn if each == ("TaskEnd", stage, "TaskKilled")]
        ends = given.count(("SparkListenerTaskEnd", stage))
        assert given.count(("SparkListenerTaskStart", stage)) == bool(starts)
        assert ends in {len(badly), len(badly) + bool(well)}
        assert found.skipped_ends(stage) == len(well) - (ends - len(badly))


def as_event(found: tuple[str, Event] | SkippedRecord) -> tuple[str, Event]:
    assert not isinstance(found, SkippedRecord)
    return found


def test_events_of_more_stages_than_remembered_have_unknown_task_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MAX_STAGES", 10)
    every = [task("TaskEnd", stage) for stage in range(30) for _ in range(2)]
    (tmp_path / "log").write_bytes(b"\n".join(every))
    found = Events(frozenset())
    assert list(found.of(tmp_path / "log")) == []
    assert found.skipped_ends(29) is None
    assert len(found.skipped.stages) <= 11
