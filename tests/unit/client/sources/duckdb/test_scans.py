"""Tests of rows read by DuckDB scans: exact if determined, otherwise a range around them."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import RowCount
from fedperf_client.sources.duckdb.profile_file import ProfileFile, counts_in, execution_of
from fedperf_client.sources.ingestion import ingest, total
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution
from tests.fakes.duckdb_profiles import (
    VERSIONS,
    Json,
    Scanned,
    node_1,
    profile_1,
)
from tests.unit.client.sources.duckdb.test_duckdb_profile import AT

every_version = pytest.mark.parametrize("version", VERSIONS)
multiplying = pytest.mark.parametrize("version", ["1.1", "1.2", "1.3", "1.4"])

EQUAL = ("flag='A'",)
WHOLE = ()


def judged(profile: Json, *others: Json) -> Execution:
    counts: dict[str, list[RowCount]] = {}
    for each in (count for other in (profile, *others) for count in counts_in(other)):
        counts.setdefault(each.place, []).append(each)
    found = lambda place: counts.get(place, [])  # noqa: E731
    return execution_of(profile, execution_id="one", finished_at=AT, counted=found)


def source_rows(execution: Execution) -> float:
    return execution.plan.workflow.operators[0].output_rows


def is_decided(execution: Execution) -> bool:
    return execution.origin.rows_known == 1.0


def may_be(execution: Execution, rows: float) -> bool:
    """Return True if the row range of the only source contains `rows`."""
    within = execution.origin.rows_within * 1.011
    return source_rows(execution) / within <= rows <= source_rows(execution) * within


@every_version
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("is_table", [True, False])
def test_duckdb_scan_filter_without_statistics_determines_source_rows(
    version: str, threads: int, is_table: bool
) -> None:
    scan = Scanned(600_000, 11_000, version, is_table=is_table, threads=threads)  # type: ignore[arg-type]
    whole = replace(scan, filters=WHOLE, returned=600_000)
    found = judged(scan.profile(), whole.profile())
    assert is_decided(found)
    assert source_rows(found) == pytest.approx(600_000, rel=0.01)
    assert found.origin.rows_within == pytest.approx(1, abs=0.01)


@multiplying
def test_duckdb_equality_filter_gives_a_range_until_table_is_read_whole(version: str) -> None:
    scan = Scanned(600_000, 9_000, version, is_table=True, threads=4, filters=EQUAL)  # type: ignore[arg-type]
    alone = judged(scan.profile())
    assert not is_decided(alone)
    assert alone.origin.rows_within > 1.5
    assert may_be(alone, 600_000)
    for other in (
        replace(scan, filters=WHOLE, returned=600_000),
        replace(scan, filters=("q<5",), returned=3),
    ):
        found = judged(scan.profile(), other.profile())
        assert is_decided(found)
        assert source_rows(found) == 600_000
        assert not is_decided(judged(scan.profile(), replace(other, name="orders").profile()))


def test_duckdb_table_of_one_row_group_has_exact_rows() -> None:
    small = Scanned(25, 5, is_table=True, threads=4, filters=("n=2",), values=5)
    assert is_decided(judged(small.profile()))
    assert source_rows(judged(small.profile())) == 25


@pytest.mark.parametrize("growth", [2, 3, 4])
def test_duckdb_table_that_grew_is_not_given_its_former_rows(growth: int) -> None:
    before = Scanned(300_000, 300_000, is_table=True, filters=WHOLE)
    after = Scanned(growth * 300_000, 900, is_table=True, filters=EQUAL)
    for threads in (1, 4):
        now = replace(after, threads=threads)
        found = judged(now.profile(), before.profile(), replace(before, threads=threads).profile())
        assert not is_decided(found) or source_rows(found) == growth * 300_000
        assert may_be(found, growth * 300_000)


@every_version
def test_duckdb_files_of_unequal_length_have_a_range_of_rows(version: str) -> None:
    scan = Scanned(500_000, 100_000, version, files=3, first=10_000, threads=4)  # type: ignore[arg-type]
    alone = judged(scan.profile())
    assert not is_decided(alone)
    assert may_be(alone, 500_000)
    whole = replace(scan, filters=WHOLE, returned=500_000)
    assert is_decided(judged(whole.profile()))
    assert not is_decided(judged(scan.profile(), whole.profile()))
    assert may_be(judged(scan.profile(), whole.profile()), 500_000)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_duckdb_unnamed_file_is_one_file_if_all_counted_scans_are(version: str) -> None:
    scan = Scanned(600_000, 11_000, version, threads=4)  # type: ignore[arg-type]
    other = Scanned(80, 80, version, filters=WHOLE)  # type: ignore[arg-type]
    several = Scanned(900, 900, version, filters=WHOLE, files=2, first=100)  # type: ignore[arg-type]
    assert not is_decided(judged(scan.profile()))
    assert source_rows(judged(scan.profile(), other.profile())) == 600_000
    assert not is_decided(judged(scan.profile(), other.profile(), several.profile()))


@pytest.mark.parametrize("limit", ["LIMIT", "STREAMING_LIMIT"])
def test_duckdb_scan_below_limit_has_exact_rows_only_if_read_whole(limit: str) -> None:
    scan = Scanned(600_000, 700)
    early = judged(scan.profile(limit, "PROJECTION"))
    assert not is_decided(early)
    assert may_be(early, 2_048)
    assert is_decided(judged(scan.profile(limit, "ORDER_BY")))


def test_duckdb_scan_below_recursion_has_a_range_of_rows() -> None:
    found = judged(Scanned(600_000, 700).profile("RECURSIVE_CTE"))
    assert not is_decided(found)


def test_duckdb_scan_filtered_by_join_has_rows_of_its_table() -> None:
    scan = Scanned(600_000, 84_000, is_table=True, threads=4, filters=WHOLE)
    build = Scanned(25, 5, is_table=True, name="nation")
    joined = profile_1(node_1("HASH_JOIN", 84_000, scan.node(), build.node()))
    found = judged(joined)
    assert source_rows(found) == 600_000
    assert is_decided(found)
    alone = judged(scan.profile())  # an index or sample scan: rows read equal rows returned
    assert source_rows(alone) == 84_000


def test_duckdb_scan_below_empty_join_has_a_range_of_rows() -> None:
    build = node_1("FILTER", 0, Scanned(25, 5, is_table=True, name="nation").node())
    joined = profile_1(node_1("HASH_JOIN", 0, Scanned(600_000, 2_000).node(), build))
    assert not is_decided(judged(joined))


def test_duckdb_scan_of_pruned_partition_files_has_a_range_of_rows() -> None:
    pruned: Json = {"File Filters": "(p = 2)", "Scanning Files": "1/5"}
    assert not is_decided(judged(Scanned(600_000, 700, notes=pruned).profile()))


def test_duckdb_scan_with_pruned_row_groups_has_a_range_of_rows() -> None:
    scan = Scanned(600_000, 100_000, "2.0").profile()
    text = json.dumps(scan).replace('"row_groups_scanned": 5', '"row_groups_scanned": 1')
    found = judged(json.loads(text))
    assert not is_decided(found)
    assert may_be(found, 122_880)


@pytest.mark.parametrize("is_table", [True, False])
def test_duckdb_estimate_of_1_x_still_includes_an_unlisted_filter(*, is_table: bool) -> None:
    fifth: Json = {"Estimated Cardinality": "120000"}
    scan = Scanned(600_000, 84_000, is_table=is_table, threads=4, filters=WHOLE, notes=fifth)
    build = Scanned(25, 5, is_table=True, name="nation")
    found = judged(profile_1(node_1("HASH_JOIN", 84_000, scan.node(), build.node())))
    assert is_decided(found) is is_table  # threads imply row groups of tables, not of files
    assert may_be(found, 600_000)


def test_duckdb_scan_with_more_threads_than_row_groups_read_several_files() -> None:
    several = Scanned(500_000, 3_000, "1.1", files=3, first=10_000, threads=4)
    single = Scanned(80, 80, "1.1", filters=WHOLE)
    assert not is_decided(judged(several.profile(), single.profile()))


def test_duckdb_sample_scan_contributes_no_row_count() -> None:
    scan = Scanned(600_000, 55_000, "1.2", is_table=True, threads=4, filters=WHOLE)
    assert counts_in(scan.profile()) == []
    assert len(counts_in(replace(scan, returned=600_000).profile())) == 1


def test_duckdb_partly_optional_filter_gives_a_range_of_rows() -> None:
    fifth: Json = {"Estimated Cardinality": "120000"}
    part = ("optional: q>3 AND q<50",)
    found = judged(Scanned(600_000, 9_000, "2.0", filters=part, notes=fifth).profile())
    assert not is_decided(found)
    assert may_be(found, 600_000)


ROWS = st.integers(1, 3_000_000)
FILTERS = st.sampled_from(
    [
        WHOLE,
        EQUAL,
        ("q<50",),
        ("q<50 AND q>=3", "d!='x'"),
        ("optional: s IN ('a', 'b')",),
        ("optional: s IN ('a', 'b')", "q<50"),
        ("q<50", *EQUAL),
    ]
)
SCANS = st.builds(
    lambda rows, share, version, **more: Scanned(
        rows, rows if not more["filters"] else int(rows * share), version, **more
    ),
    ROWS,
    st.floats(0, 1),
    st.sampled_from(VERSIONS),
    is_table=st.booleans(),
    threads=st.integers(1, 24),
    filters=FILTERS,
    values=st.integers(1, 1000),
    name=st.sampled_from(["lineitem", "orders"]),
)


@given(SCANS, st.lists(SCANS, max_size=4), st.booleans(), st.booleans())
def test_duckdb_scan_rows_called_known_are_always_correct(
    scan: Scanned, others: list[Scanned], forgets: bool, reads_again: bool
) -> None:
    """The other profiles are arbitrary, but a table of the same name has the same rows."""
    around = [replace(each, name=f"other {each.name}") for each in others]
    if reads_again:
        around += [
            replace(scan, filters=WHOLE, returned=scan.rows),
            replace(scan, threads=3, filters=("q<5",), returned=0),
        ]
    profile = scan.profile()
    if forgets and not scan.filters and scan.version != "2.0":  # a filter that is always true
        said, fifth = f'"{scan.announced}"', f'"{max(scan.announced // 5, 1)}"'
        profile = json.loads(json.dumps(profile).replace(said, fifth))
    found = judged(profile, *(each.profile() for each in around))
    assert may_be(found, scan.rows)
    if is_decided(found):
        assert source_rows(found) == pytest.approx(scan.rows, rel=0.01)


def test_duckdb_profile_of_an_unfinished_run_is_refused() -> None:
    idle = {"operator_timing": 0.0, "operator_rows_scanned": 0}
    scan = Scanned(600_000, 0).node() | idle
    read = Scanned(25, 5, is_table=True).node()
    aggregate = node_1("UNGROUPED_AGGREGATE", 0, scan)
    limit = node_1("STREAMING_LIMIT", 0, scan) | idle
    for case in (
        profile_1(aggregate),  # an error during the scan
        profile_1(node_1("CROSS_PRODUCT", 0, scan, read)),  # interrupted next to a complete scan
        profile_1(limit),  # no operator took any time
        profile_1(node_1("INVALID", 0, read)),
    ):
        with pytest.raises(InvalidInputError, match="did not run to its end"):
            judged(case)


def test_duckdb_idle_scan_below_empty_join_or_limit_is_not_an_error() -> None:
    scan = Scanned(600_000, 0).node() | {"operator_timing": 0.0, "operator_rows_scanned": 0}
    empty = node_1("EMPTY_RESULT", 0)
    assert judged(profile_1(node_1("HASH_JOIN", 0, scan, empty)))
    assert judged(profile_1(node_1("LIMIT", 5, Scanned(9, 5).node(), scan)))


def test_duckdb_explain_without_run_time_suggests_profiling_output() -> None:
    explained = profile_1(node_1("EXPLAIN_ANALYZE", 0, Scanned(9, 5).node()), latency=0.0)
    with pytest.raises(InvalidInputError, match="profiling_output"):
        judged(explained)


def stored_rows(store: Path) -> dict[str, tuple[float, float]]:
    with ExecutionStore.open(store) as opened:
        return {
            each.execution_id: (source_rows(each), each.origin.rows_known)
            for each in opened.executions()
        }


@pytest.fixture(name="profiles")
def written(tmp_path: Path) -> list[Path]:
    scan = Scanned(600_000, 9_000, is_table=True, threads=4, filters=EQUAL)
    whole = replace(scan, filters=WHOLE, returned=600_000)
    paths = [tmp_path / "1-equal.json", tmp_path / "2-whole.json"]
    for path, each in zip(paths, (scan, whole), strict=True):
        path.write_text(json.dumps(each.profile()))
    return paths


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_profiles_of_one_batch_determine_rows_in_any_order(
    tmp_path: Path, profiles: list[Path], jobs: int
) -> None:
    stores = [tmp_path / "one", tmp_path / "two"]
    for store, paths in zip(stores, (profiles, profiles[::-1]), strict=True):
        list(ingest(paths, store, jobs=jobs))
    first, second = map(stored_rows, stores)
    assert first == second
    assert set(first.values()) == {(600_000.0, 1.0)}


def test_stored_profiles_determine_rows_and_dry_run_stores_no_counts(
    tmp_path: Path, profiles: list[Path]
) -> None:
    equal, whole = profiles
    store = tmp_path / "store"
    dry = total(list(ingest([equal, whole], store, dry_run=True)))
    assert dry.known_operators == dry.operators
    with ExecutionStore.open(store) as opened:
        assert places_in(opened, whole) == []
    list(ingest([whole], store))
    list(ingest([equal], store))
    assert set(stored_rows(store).values()) == {(600_000.0, 1.0)}


def places_in(store: ExecutionStore, path: Path) -> list[RowCount]:
    return [
        RowCount(*found)
        for each in ProfileFile(path).counts()
        for found in store.row_counts(each.place)
    ]


def test_profiles_of_one_file_determine_rows_of_each_other(
    tmp_path: Path, profiles: list[Path]
) -> None:
    both = tmp_path / "both"
    both.write_text("\n".join(path.read_text() for path in profiles))
    os.utime(both, (AT.timestamp(), AT.timestamp()))
    found = [each for each in ProfileFile(both).read() if isinstance(each, Execution)]
    assert list(map(is_decided, found)) == [True, True]


def test_execution_store_keeps_newest_row_counts_of_each_place(tmp_path: Path) -> None:
    with ExecutionStore.open(tmp_path / "store") as store:
        for rows in range(300):
            store.add_row_counts([RowCount("a", rows, rows, 1), RowCount("b", 1, 1, 1)])
        assert max(store.row_counts("a"))[1] == 299
        assert len(store.row_counts("a")) == 100
        assert store.row_counts("b") == [RowCount("b", 1, 1, 1)]
