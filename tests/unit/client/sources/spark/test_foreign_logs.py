"""Tests of logs that another program packed, split or rewrote: read, or refused with a reason."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lz4.frame
import orjson
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import (
    NothingToReadError,
    SkippedRecord,
    UnknownSourceError,
    find_sources,
    open_source,
    read_source,
)
from fedperf_client.sources.ingestion import ingest_source
from fedperf_client.sources.opener import UnreadCodecError
from fedperf_client.sources.spark.event_log import NO_EVENT, TORN, open_event_log
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution
from tests.fakes.spark_logs import SparkLog, grouped, node, sample, split

with_files = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
COUNTERS = {1: 1000, 2: 90, 3: 30, 103: 90, 104: 1800, 105: 8}


def nightly(app_id: str = "app-1", queries: int = 3) -> SparkLog:
    log = SparkLog(app_id=app_id, app_name="Nightly café").begin()
    for number in range(queries):
        log.query(number, grouped(node("Scan parquet ", rows=1)), COUNTERS, at=9000 * number)
    return log.add("SparkListenerApplicationEnd", Timestamp=1_750_000_900_000)


PLAIN = nightly().bytes()


def found_in(path: Path) -> tuple[list[Execution], list[SkippedRecord]]:
    return split(read_source(path))


def measured(execution: Execution) -> Execution:
    """Return the execution without warnings.

    Dropped events are detected by the beginning of their lines, which a rewrite changes.
    """
    return replace(execution, origin=replace(execution.origin, remarks=()))


@pytest.fixture(name="expected")
def expected_executions(tmp_path: Path) -> list[Execution]:
    (tmp_path / "plain-one").write_bytes(PLAIN)
    found, skipped = found_in(tmp_path / "plain-one")
    assert (len(found), skipped) == (3, [])
    (tmp_path / "plain-one").unlink()
    return found


def dumped(**options: object) -> bytes:
    return b"".join(
        json.dumps(each, **options).encode() + b"\n"  # type: ignore[arg-type]
        for each in nightly().events
    )


def any_order(seed: int) -> bytes:
    """Return the log with another key order in every event and its name at any position."""
    shift = [
        dict(sorted(each.items(), key=lambda item: hash((len(item[0]) * seed) % 7)))
        for each in nightly().events
    ]
    return b"".join(orjson.dumps(each) + b"\n" for each in shift)


REWRITTEN: dict[str, Callable[[], bytes]] = {
    "sorted keys": lambda: dumped(sort_keys=True),
    "sorted keys, no spaces": lambda: dumped(sort_keys=True, separators=(",", ":")),
    "spaces": dumped,
    "any order": lambda: any_order(3),
    "pretty": lambda: dumped(indent=2),
    "pretty, sorted, Windows": lambda: dumped(indent=4, sort_keys=True).replace(b"\n", b"\r\n"),
    "a list": lambda: json.dumps(nightly().events, indent=1, sort_keys=True).encode(),
    "a list, an event a line": lambda: b"[\n" + PLAIN.strip().replace(b"\n", b",\n") + b"\n]\n",
    "not only ASCII": lambda: dumped(ensure_ascii=False),
    "Windows": lambda: PLAIN.replace(b"\n", b"\r\n"),
    "blank lines": lambda: PLAIN.replace(b"\n", b"\n\n"),
    "UTF-8 with a mark": lambda: PLAIN.decode().encode("utf-8-sig"),
    "UTF-16": lambda: PLAIN.decode().encode("utf-16"),
    "UTF-16 big": lambda: b"\xfe\xff" + PLAIN.decode().encode("utf-16-be"),
    "UTF-16 without a mark": lambda: PLAIN.decode().encode("utf-16-le"),
    "UTF-16 big without a mark": lambda: PLAIN.decode().encode("utf-16-be"),
    "UTF-32": lambda: PLAIN.decode().encode("utf-32"),
    "UTF-16, zstd": lambda: zstandard.compress(PLAIN.decode().encode("utf-16")),
    "Latin 1": lambda: PLAIN.decode().encode("latin-1"),
    "zstd in gzip": lambda: gzip.compress(zstandard.compress(PLAIN)),
    "gzip in zstd": lambda: zstandard.compress(gzip.compress(PLAIN)),
    "lz4 in gzip": lambda: gzip.compress(lz4.frame.compress(PLAIN)),
}


@pytest.mark.parametrize("way", REWRITTEN)
@pytest.mark.parametrize("name", ["app.txt", "app.log", "app.json", "app.inprogress", "app"])
def test_rewritten_event_log_gives_the_same_executions(
    tmp_path: Path, way: str, name: str, expected: list[Execution]
) -> None:
    (tmp_path / name).write_bytes(REWRITTEN[way]())
    assert found_in(tmp_path / name) == (expected, [])


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent",
        "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent",
        "com.acme.Listeners$Metrics$",
        "org.apache.spark.sql.kafka$010.Offsets",
    ],
)
def test_events_of_inner_classes_are_recognized_and_ignored(
    tmp_path: Path, name: str, expected: list[Execution]
) -> None:
    event = orjson.dumps({"Event": name, "progress": {"Event": "inner", "batchId": 3}})
    other = orjson.dumps({"progress": {"batchId": 3}, "Event": name})
    first, *rest = PLAIN.splitlines()
    (tmp_path / "log").write_bytes(b"\n".join([event, other, first, event, *rest, other]))
    assert found_in(tmp_path / "log") == (expected, [])
    (tmp_path / "alone").write_bytes(b"\n".join([event] * 9))
    (reason,) = {each.reason for each in found_in(tmp_path / "alone")[1]}
    assert reason == "no query and no job ran"


def test_event_name_nested_inside_an_event_is_ignored(
    tmp_path: Path, expected: list[Execution]
) -> None:
    inner = {"Event": "SparkListenerApplicationEnd", "Timestamp": 1}
    lines = PLAIN.splitlines()
    for event in ({"a": inner, "Event": "x.Custom"}, {"Event": "x.Custom", "a": inner}):
        (tmp_path / "log").write_bytes(b"\n".join([*lines[:3], orjson.dumps(event), *lines[3:]]))
        assert found_in(tmp_path / "log") == (expected, [])


@pytest.mark.slow
@with_files
@given(data=st.data())
def test_event_keys_in_any_order_give_the_same_executions(
    tmp_path: Path, data: st.DataObject
) -> None:
    """All events of one kind have the same order, as if one program wrote them."""
    order: dict[tuple[object, ...], list[str]] = {}

    def shuffled(event: dict[str, object]) -> dict[str, object]:
        kind = (event["Event"], *event)
        if kind not in order:
            order[kind] = data.draw(st.permutations(list(event)))
        return {key: event[key] for key in order[kind]}

    (tmp_path / "as-written").write_bytes(b"\n".join(map(orjson.dumps, sample())))
    (tmp_path / "log").write_bytes(b"\n".join(orjson.dumps(shuffled(each)) for each in sample()))
    rewritten, written = (found_in(tmp_path / each)[0] for each in ("log", "as-written"))
    assert [measured(each) for each in rewritten] == [measured(each) for each in written]


def test_incomplete_event_lines_are_skipped_with_line_number(tmp_path: Path) -> None:
    lines = PLAIN.splitlines()
    at = next(n for n, each in enumerate(lines) if b"SparkListenerSQLExecutionEnd" in each)
    cut = lines[at][:60]
    (tmp_path / "log").write_bytes(b"\n".join([*lines[:at], cut, *lines[at + 1 :]]))
    found, skipped = found_in(tmp_path / "log")
    assert len(found) >= 2
    assert next(str(each) for each in skipped) == f"line {at + 1} of log: {TORN}"
    wrapped = b"\n".join(each[n : n + 200] for each in lines for n in range(0, len(each), 200))
    (tmp_path / "log").write_bytes(wrapped)
    reasons = [each.reason for each in found_in(tmp_path / "log")[1]]
    assert reasons.count(TORN) > 10
    assert {TORN, NO_EVENT} <= set(reasons)


def test_unfinished_multi_line_event_keeps_other_events(
    tmp_path: Path, expected: list[Execution]
) -> None:
    lines = PLAIN.splitlines(keepends=True)
    (tmp_path / "log").write_bytes(
        b"".join([*lines[:1], b'{\n  "Event": "SparkListenerJobStart",\n', *lines[1:]])
    )
    found, skipped = found_in(tmp_path / "log")
    assert found == expected
    assert [each.reason for each in skipped] == [TORN]


@pytest.mark.parametrize(
    ("packed", "told"),
    [
        (bz2.compress(PLAIN), "bzip2"),
        (lzma.compress(PLAIN), "unxz"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(99), "7z"),
        (gzip.compress(gzip.compress(gzip.compress(PLAIN))), "too often"),
        (json.dumps(nightly().events).encode(), "one a line"),
        (zstandard.compress(zstandard.compress(PLAIN)), "twice by zstd"),
    ],
)
def test_unsupported_packing_of_log_is_refused_with_its_name(
    tmp_path: Path, packed: bytes, told: str
) -> None:
    (tmp_path / "log").write_bytes(packed)
    with pytest.raises(UnreadCodecError, match=told):
        open_source(tmp_path / "log")


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_tar_of_logs_is_refused_with_a_remedy(tmp_path: Path, mode: str) -> None:
    with tarfile.open(tmp_path / "logs.tgz", mode) as archive:  # type: ignore[call-overload]
        member = tarfile.TarInfo("app-1")
        member.size = len(PLAIN)
        archive.addfile(member, io.BytesIO(PLAIN))
    with pytest.raises(UnreadCodecError, match=r"logs\.tgz: a tar archive; unpack it.*tar -xf"):
        open_source(tmp_path / "logs.tgz")


def parts_of(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def by_lines(content: bytes, count: int) -> list[bytes]:
    lines = content.splitlines(keepends=True)
    return [b"".join(lines[at : at + count]) for at in range(0, len(lines), count)]


FRAMES = b"".join(map(zstandard.compress, by_lines(PLAIN, 2)))
"""Frames as Spark writes them, one at each flush."""

SPLIT: dict[str, tuple[Callable[[int], str], list[bytes]]] = {
    "split -b": (lambda n: f"xa{chr(97 + n)}", parts_of(PLAIN, 3000)),
    "split -b, zstd": (lambda n: f"log.zstd.{n:02}", parts_of(FRAMES, 1100)),
    "split -l": (lambda n: f"app.part-{n:04}.log", by_lines(PLAIN, 13)),
    "part files": (lambda n: f"part-{n:05}-0a1b-c000.txt", by_lines(PLAIN, 11)),
    "from 9 on": (lambda n: f"log.{n + 9}", by_lines(PLAIN, 11)),
    "each packed": (lambda n: f"{n}.gz", [gzip.compress(each) for each in by_lines(PLAIN, 11)]),
}


@pytest.mark.parametrize("way", SPLIT)
def test_event_log_in_parts_is_read_as_one(
    tmp_path: Path, way: str, expected: list[Execution]
) -> None:
    name, parts = SPLIT[way]
    (tmp_path / "logs").mkdir()
    assert len(parts) > 2
    for number, part in enumerate(parts):
        (tmp_path / "logs" / name(number)).write_bytes(part)
    (tmp_path / "logs" / "_SUCCESS").write_bytes(b"")
    assert [each for each, _ in find_sources([tmp_path], [])] == [tmp_path / "logs"]
    assert found_in(tmp_path / "logs") == (expected, [])


def test_rotated_event_log_is_read_from_its_oldest_part(
    tmp_path: Path, expected: list[Execution]
) -> None:
    parts = by_lines(PLAIN, 15)
    for number, part in enumerate(reversed(parts)):
        (tmp_path / ("log" if number == 0 else f"log.{number}")).write_bytes(part)
    assert found_in(tmp_path) == (expected, [])


@pytest.mark.parametrize("case", ["two logs", "a gap", "something else", "no beginning"])
def test_files_that_are_not_parts_of_one_log_are_read_separately(tmp_path: Path, case: str) -> None:
    parts = by_lines(PLAIN, 13)
    contents = {f"log.{number}": part for number, part in enumerate(parts)}
    if case == "two logs":
        contents = {f"log.{n}": nightly(f"app-{n}").bytes() for n in range(3)}
    elif case == "a gap":
        del contents["log.1"]
    elif case == "something else":
        contents["log.1"] = b"notes\n" * 9
    else:
        del contents["log.0"]
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert open_event_log(tmp_path) is None
    assert [each.name for each, _ in find_sources([tmp_path], [])] == sorted(contents)
    if case == "no beginning":
        _, skipped = found_in(tmp_path / "log.1")
        assert any("a part of a log" in each.reason for each in skipped)


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def rolled(app: str, content: bytes, *, suffix: str = "") -> dict[str, bytes]:
    pack = zstandard.compress if suffix else bytes
    members = {f"eventlog_v2_{app}/appstatus_{app}": b""}
    for number, part in enumerate(by_lines(content, 15), 1):
        members[f"eventlog_v2_{app}/events_{number}_{app}{suffix}"] = pack(part)
    return members


ZIPS: dict[str, dict[str, bytes]] = {
    "one file": {"application_1_0001": PLAIN},
    "zstd": {"app.zstd": zstandard.compress(PLAIN)},
    "rolling": rolled("app-1", PLAIN),
    "rolling, zstd": rolled("app-1", PLAIN, suffix=".zstd"),
    "rolling, no directory": {
        name.rpartition("/")[2]: each for name, each in rolled("app-1", PLAIN).items()
    },
    "deep": {"var/log/spark/app-1": PLAIN},
    "parts": {f"logs/xa{chr(97 + n)}": each for n, each in enumerate(parts_of(PLAIN, 3000))},
}


@pytest.mark.parametrize("kind", ZIPS)
def test_history_server_zip_gives_the_same_executions_as_the_log(
    tmp_path: Path, kind: str, expected: list[Execution]
) -> None:
    path = zipped(tmp_path / "eventLogs-app-1.zip", ZIPS[kind])
    assert found_in(path) == (expected, [])
    source = open_event_log(path)
    assert source is not None
    assert len(source.logs) == 1


def test_zip_of_several_attempts_gives_all_executions_and_skips_other_files(tmp_path: Path) -> None:
    second = nightly("app-2").bytes()
    members = {"a_1": PLAIN, "README": b"hello\n", "empty": b"", **rolled("app-2", second)}
    found, skipped = found_in(zipped(tmp_path / "logs.zip", members))
    assert len({each.execution_id for each in found}) == 6
    assert {each.record for each in skipped} == {"README", "empty"}


def test_executions_of_a_zip_record_the_zip_as_their_file(tmp_path: Path) -> None:
    path = zipped(tmp_path / "logs.zip", rolled("app-1", PLAIN, suffix=".zstd"))
    with ExecutionStore.open(tmp_path / "store") as store:
        assert ingest_source(path, store).new == 3
        assert {each.origin.file for each in store.executions()} == {str(path)}


def test_zip_without_event_log_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(UnknownSourceError):
        open_source(zipped(tmp_path / "a.zip", {"META-INF/MANIFEST.MF": b"Version: 1\n"}))
    with pytest.raises(NothingToReadError, match="empty"):
        open_source(zipped(tmp_path / "b.zip", {"app-1": b""}))
    (tmp_path / "c.zip").write_bytes((tmp_path / "a.zip").read_bytes()[:-9])
    with pytest.raises(NothingToReadError, match="damaged zip"):
        open_source(tmp_path / "c.zip")


@with_files
@given(at=st.floats(0, 1), byte=st.integers(0, 255))
def test_corrupt_zip_is_read_skipped_or_refused(tmp_path: Path, at: float, byte: int) -> None:
    path = zipped(tmp_path / "logs.zip", {"a": PLAIN, **rolled("app-1", PLAIN, suffix=".zstd")})
    spoiled = bytearray(path.read_bytes())
    spoiled[int(at * (len(spoiled) - 1))] = byte
    path.write_bytes(spoiled)
    try:
        source = open_event_log(path)
        found = [] if source is None else list(source.read())
    except InvalidInputError:
        return
    assert all(isinstance(each, Execution | SkippedRecord) for each in found)


def test_event_log_before_spark_1_2_is_refused_by_version(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    for name in ("SPARK_VERSION_1.1.0", "EVENT_LOG_1", "APPLICATION_COMPLETE"):
        (tmp_path / "app" / name).write_bytes(b"")
    problems: list[str] = []
    assert list(find_sources([tmp_path], problems)) == []
    (problem,) = problems
    assert "Spark 1.1.0 is not read" in problem


def test_unreadable_event_of_old_spark_version_names_the_version(tmp_path: Path) -> None:
    log = SparkLog()
    log.events.append({"Event": "SparkListenerLogStart", "Spark Version": "1.2.0"})
    log.add("SparkListenerApplicationStart", App_Name="old", App_ID="1", Timestamp=5)
    log.add("SparkListenerJobEnd", Job_Result={"Result": "JobSucceeded"})
    (reason,) = [each.reason for each in found_in(log.write(tmp_path / "log"))[1]]
    assert reason.startswith("Spark 1.2.0 is read in part: ")
