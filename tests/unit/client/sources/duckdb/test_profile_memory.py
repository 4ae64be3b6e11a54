"""Tests that any DuckDB profile of at most 8 MiB is parsed in bounded memory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedperf_client.sources.duckdb.profile_file import MAX_PROFILE_BYTES, open_profile
from fedperf_client.sources.opener import exceeds_json_memory
from fedperf_shared.workflow.vocabulary import MAX_OPERATORS
from tests.fakes.added_memory import MOST_MEGABYTES, megabytes_added
from tests.fakes.duckdb_profiles import Json, grouped, node_1, profile_1

ROOM = MAX_PROFILE_BYTES - 10_000


def with_many(part: bytes, *, indented: bool = False) -> bytes:
    start = json.dumps(profile_1(node_1("TABLE_SCAN", 1)), indent=4 if indented else None).encode()
    return start[:-1] + b',"more":[' + part * (ROOM // len(part)) + b"0]}\n"


PROFILES: dict[str, Callable[[], bytes]] = {
    "small values": lambda: with_many(b"1,"),
    "small lists": lambda: with_many(b"[],"),
    "small objects": lambda: with_many(b'{"a":{}},'),
    "small objects over many lines": lambda: with_many(b'{"a":{}},', indented=True),
    "small texts": lambda: with_many('"\U0001f600",'.encode()),
    "a wide character in one long text": lambda: with_many(
        '"\U0001f600'.encode() + b"a" * (ROOM - 100) + b'",'
    ),
}


@pytest.mark.parametrize("name", PROFILES)
def test_hostile_duckdb_profile_adds_little_memory(name: str, tmp_path: Path) -> None:
    plain, hostile = tmp_path / "plain", tmp_path / "hostile"
    plain.write_text(json.dumps(profile_1(node_1("TABLE_SCAN", 1))) + "\n")
    hostile.write_bytes(PROFILES[name]())
    assert open_profile(hostile) is not None
    added, _ = megabytes_added(plain, hostile)
    assert added <= MOST_MEGABYTES


def test_duckdb_profile_with_too_many_values_is_skipped_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "profile"
    path.write_bytes(json.dumps(grouped(2)).encode() + b"\n" + with_many(b'{"a":{}},'))
    source = open_profile(path)
    assert source is not None
    _, skipped = source.read()
    assert str(skipped) == "line 2: more values than are read"


def test_largest_readable_duckdb_profile_is_far_below_memory_bound() -> None:
    notes: Json = {f"a note {number}": "[columns, of, an, operator]" for number in range(10)}
    nodes = [node_1("PROJECTION", 1, notes=notes) for _ in range(2 * MAX_OPERATORS)]
    assert not exceeds_json_memory(2 * json.dumps(profile_1(*nodes)).encode())
