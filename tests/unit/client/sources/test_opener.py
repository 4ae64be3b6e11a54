"""Tests of the zip opener: members are listed within fixed bounds and read without unpacking."""

import io
import struct
import tracemalloc
import zipfile
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedperf_client.sources import NothingToReadError, opener
from fedperf_client.sources.opener import (
    FilePlace,
    JoinedFile,
    RangeStream,
    UnreadArchiveError,
    open_place,
)
from tests.work import count_calls

NAMED = (
    UnreadArchiveError,
    NothingToReadError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
)
"""Named errors. The last four are raised while a member is read, and `read_blocks` names them."""

with_files = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None
)


def zipped(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def opened(path: Path) -> FilePlace:
    found = open_place(path)
    assert found != path
    return found


def content(place: FilePlace) -> dict[str, object]:
    """Return everything below a directory by name."""
    return {
        each.name: content(each) if each.is_dir() else each.open("rb").read()
        for each in place.iterdir()
    }


@with_files
@given(st.data(), st.integers(0, 3_000_000))
def test_range_stream_seeks_and_reads_like_the_file(data: st.DataObject, size: int) -> None:
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    ranged = io.BufferedReader(
        RangeStream(lambda start, count: content[start : start + count], size), 4096
    )
    plain = io.BytesIO(content)
    for _ in range(data.draw(st.integers(1, 8))):
        at, count = data.draw(st.integers(0, size + 9)), data.draw(st.integers(0, 2 * 10**6))
        assert ranged.seek(at) == plain.seek(at)
        assert ranged.read(count) == plain.read(count)
    assert ranged.seek(0, io.SEEK_END) == size


def test_range_stream_read_to_its_end_asks_for_growing_ranges() -> None:
    asked: list[tuple[int, int]] = []

    def read(start: int, size: int) -> bytes:
        asked.append((start, size))
        return bytes(max(min(size, 10**7 - start), 0))

    stream = io.BufferedReader(RangeStream(read, 10**7), 4096)
    assert stream.read() == bytes(10**7)
    assert len(asked) < 8
    assert max(size for _, size in asked) <= opener.MAX_BLOCK_BYTES


def test_zip_is_listed_and_read_like_its_directory(tmp_path: Path) -> None:
    members = {"log": b"one", "v2/events_1": b"two", "v2/deep/er": b"", "__MACOSX/log": b"no"}
    found = opened(zipped(tmp_path / "a.zip", {**members, ".hidden": b"no"}))
    assert content(found) == {
        "log": b"one",
        "v2": {"events_1": b"two", "deep": {"er": b""}},
    }
    assert (found.is_dir(), found.is_file()) == (True, False)
    with pytest.raises(IsADirectoryError):
        found.open("rb")


def test_open_place_of_other_file_returns_the_path(tmp_path: Path) -> None:
    for each in (b"", b"PK", b'{"Event":"x"}', bytes(99)):
        (tmp_path / "log").write_bytes(each)
        assert open_place(tmp_path / "log") == tmp_path / "log"


def test_reading_a_zip_leaves_no_temporary_or_open_file(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"log": b"x" * 10**6})
    (log,) = opened(path).iterdir()
    with log.open("rb") as stream:
        assert len(stream.read()) == 10**6
    path.unlink()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        log.open("rb")


@pytest.mark.parametrize("name", ["../up", "a/../b", "/etc/passwd", "a//b", "a\\b", "./a"])
def test_zip_with_names_other_than_relative_paths_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnreadArchiveError, match="relative paths"):
        open_place(zipped(tmp_path / "a.zip", {name: b""}))


def test_zip_with_too_deep_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadArchiveError):
        open_place(zipped(tmp_path / "a.zip", {"a/" * 30_000 + "b": b""}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_zip_with_ambiguous_names_is_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    with pytest.raises(UnreadArchiveError, match="twice"):
        open_place(tmp_path / "a.zip")


def test_zip_with_too_many_members_is_refused(tmp_path: Path) -> None:
    members = {str(number): b"" for number in range(opener.MAX_MEMBERS + 1)}
    with pytest.raises(UnreadArchiveError, match="files, above"):
        open_place(zipped(tmp_path / "a.zip", members))


@pytest.mark.slow
def test_zip_with_oversized_name_list_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    members = {f"{number:0200d}": b"" for number in range(20_000)}
    path = zipped(tmp_path / "a.zip", members, zipfile.ZIP_STORED)
    tracemalloc.start()
    with pytest.raises(UnreadArchiveError, match="bytes of names"):
        open_place(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_zip_bomb_is_refused_by_its_claimed_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "RATIO_FROM_BYTES", 2**20)
    path = zipped(tmp_path / "a.zip", {str(n): bytes(2**20) for n in range(3)})
    with pytest.raises(UnreadArchiveError, match="claims to hold 3145728"):
        open_place(path)
    monkeypatch.setattr(opener, "MAX_UNPACKED_BYTES", 2**20)
    path = zipped(tmp_path / "b.zip", {"a": bytes(2**20 + 1)}, zipfile.ZIP_STORED)
    with pytest.raises(UnreadArchiveError, match="claims to hold"):
        open_place(path)


def test_zip_member_larger_than_claimed_raises_bad_zip_file(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"log": bytes(10**6)})
    spoiled = path.read_bytes().replace(struct.pack("<I", 10**6), struct.pack("<I", 1000))
    path.write_bytes(spoiled)
    (log,) = opened(path).iterdir()
    with log.open("rb") as stream, pytest.raises(zipfile.BadZipFile):
        stream.read()


def test_zip_with_encrypted_or_unknown_member_is_refused(tmp_path: Path) -> None:
    plain = zipped(tmp_path / "a.zip", {"log": b"abc"}).read_bytes()
    at = plain.index(b"PK\x01\x02")
    for offset, value, told in ((8, 1, "encrypted"), (10, 93, "method 93")):
        spoiled = bytearray(plain)
        spoiled[at + offset] = value
        (tmp_path / "b.zip").write_bytes(spoiled)
        with pytest.raises(UnreadArchiveError, match=told):
            open_place(tmp_path / "b.zip")


@with_files
@given(at=st.floats(0, 1), byte=st.integers(0, 255), cut=st.booleans())
def test_damaged_zip_raises_only_named_errors(
    tmp_path: Path, at: float, byte: int, cut: bool
) -> None:
    path = zipped(tmp_path / "a.zip", {"v2/events_1": b"one line\n" * 99, "log": b"two"})
    spoiled = bytearray(path.read_bytes())
    place = int(at * (len(spoiled) - 1))
    spoiled[place] = byte
    path.write_bytes(spoiled[:place] if cut else spoiled)
    with suppress(*NAMED):
        found = open_place(path)
        if found != path:
            content(found)


def test_zip_with_maximum_members_is_listed_quickly(tmp_path: Path) -> None:
    calls = []
    for count in (opener.MAX_MEMBERS // 4, opener.MAX_MEMBERS):
        path = zipped(tmp_path / f"{count}.zip", {f"{n % 40}/{n}": b"x" for n in range(count)})
        calls.append(count_calls(partial(opened, path)))
    few, many = calls
    assert many < 4.5 * few
    directory = next(iter(opened(path).iterdir()))
    file = next(iter(directory.iterdir()))
    assert count_calls(lambda: file.open("rb").read()) < many


def test_joined_file_reads_parts_as_one_file(tmp_path: Path) -> None:
    parts = []
    for number, each in enumerate((b"ab", b"", b"c\n" * 100_000)):
        parts.append(tmp_path / str(number))
        parts[-1].write_bytes(each)
    joined = JoinedFile("log", tuple(parts))
    with joined.open("rb") as stream:
        assert stream.read(1) == b"a"
        assert stream.read() == b"b" + b"c\n" * 100_000
    assert isinstance(joined.open("rb"), io.BufferedReader)
