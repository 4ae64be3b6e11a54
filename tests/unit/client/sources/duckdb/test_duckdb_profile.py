"""Tests of DuckDB profiles: every schema is read, and no text of a profile is stored."""

import json
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedperf_client import cli
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import SkippedRecord, Source
from fedperf_client.sources.duckdb.operators import KINDS
from fedperf_client.sources.duckdb.profile_file import (
    ASSUMED_MEMORY_BYTES,
    MAX_PROFILE_BYTES,
    ProfileFile,
    execution_of,
    open_profile,
)
from fedperf_client.sources.history_file import write_history
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution, ExecutionWarning
from fedperf_shared.workflow.vocabulary import MAX_OPERATORS, OperatorKind, Platform
from tests.fakes.duckdb_profiles import (
    VERSIONS,
    Json,
    Scanned,
    Version,
    grouped,
    node_1,
    node_2,
    profile_0,
    profile_1,
    profile_2,
)
from tests.unit.client.executions import make_execution
from tests.unit.shared.console_programs import Ended, run

AT = datetime(2026, 3, 1, tzinfo=UTC)
K = OperatorKind


def of(profile: object) -> Execution:
    return execution_of(profile, execution_id="one", finished_at=AT)


def shape(execution: Execution) -> list[tuple[OperatorKind, tuple[int, ...], float]]:
    return [(o.kind, o.inputs, o.output_rows) for o in execution.plan.workflow.operators]


def written(path: Path, *profiles: object, indent: int | None = None) -> Path:
    path.write_text("\n".join(json.dumps(each, indent=indent) for each in profiles) + "\n")
    return path


def source_of(path: Path) -> Source:
    source = open_profile(path)
    assert source is not None
    return source


def read(path: Path) -> list[Execution | SkippedRecord]:
    return list(source_of(path).read())


def test_duckdb_profile_of_any_schema_gives_the_same_plan() -> None:
    new, old, oldest = (of(grouped(version)) for version in (2, 1, 0))
    assert shape(new) == [
        (K.TABLE_SOURCE, (), 200),
        (K.FILTER, (0,), 100),
        (K.AGGREGATE, (1,), 5),
        (K.SORT, (2,), 5),
        (K.SINK, (3,), 5),
    ]
    assert old.workload == new.workload
    assert [kind for kind, _, _ in shape(oldest)] == [K.TABLE_SOURCE, K.AGGREGATE, K.SORT, K.SINK]
    assert [each.output_rows for each in oldest.plan.workflow.operators] == [100, 5, 5, 5]
    for each in (new, old):
        assert each.plan.workflow.sources.columns == 2
        assert [o.row_bytes for o in each.plan.workflow.operators] == [8, 8, 12, 8, 8]
        assert each.plan.workflow.operators[2].key_distinct_ratio == 0.05


@pytest.mark.parametrize(("function", "steps"), [("READ_CSV_AUTO", 31), ("PARQUET_SCAN", 0)])
def test_duckdb_scan_of_text_file_counts_parsing_steps(function: str, steps: int) -> None:
    found = of(profile_2(node_2("TABLE_SCAN", 10, notes={"Function": function})))
    assert found.plan.workflow.operators[0].code_steps == steps


def test_duckdb_file_scan_without_row_group_counts_has_unknown_rows() -> None:
    scan = node_2("TABLE_SCAN", 10, notes={"Filters": "q", "Filename(s)": "/secret.parquet"})
    found = of(profile_2(scan | {"rows_scanned": 10}))
    assert [kind for kind, _, _ in shape(found)] == [K.FILE_SOURCE, K.FILTER, K.SINK]
    assert found.origin.rows_known == 2 / 3


@pytest.mark.parametrize("version", [0, 1, 2])
def test_duckdb_profile_measurements_become_an_execution(version: int) -> None:
    found = of(grouped(version))
    measured = found.measurement
    assert measured is not None
    assert measured.runtime_seconds == 0.02
    assert measured.cpu_seconds == pytest.approx(0.04 if version == 0 else 0.03)
    assert found.cluster.cores == 2  # a lower bound: CPU seconds / wall seconds, rounded up
    assert found.cluster.nodes == 1
    assert found.cluster.memory_bytes == ASSUMED_MEMORY_BYTES
    assert set(found.plan.platforms) == {Platform.DUCKDB}
    assert found.workload.startswith("duckdb/")
    assert found.origin.source == ["duckdb 1.0 or older", "duckdb 1.x", "duckdb 2.x"][version]
    assert found.origin.remarks == ((ExecutionWarning.INCOMPLETE,) if version == 0 else ())
    if version:
        assert (measured.read_bytes, measured.written_bytes) == (4096, 5)
        assert measured.peak_memory_bytes == 30_000


def test_duckdb_cte_is_one_operator_with_several_consumers() -> None:
    def node(kind: str, rows: int, *children: Json, index: str = "") -> Json:
        key = "Table Index" if kind == "CTE" else "CTE Index"
        return node_1(kind, rows, *children, notes={key: index} if index else {})

    scans = (node("CTE_SCAN", 7, index="3"), node("CTE_SCAN", 7, index="3"))
    body = node("HASH_JOIN", 9, *scans)
    plan = profile_1(node("CTE", 0, node("TABLE_SCAN", 7), body, index="3"))
    assert shape(of(plan)) == [
        (K.TABLE_SOURCE, (), 7),
        (K.JOIN, (0, 0), 9),
        (K.SINK, (1,), 9),
    ]
    unknown = profile_1(node("CTE", 0, node("TABLE_SCAN", 7), node("CTE_SCAN", 7, index="4")))
    assert [kind for kind, _, _ in shape(of(unknown))] == [
        K.TABLE_SOURCE,
        K.TABLE_SOURCE,
        K.OTHER,
        K.SINK,
    ]


def test_duckdb_union_and_copy_have_rows_of_their_inputs() -> None:
    union = node_2("UNION", 0, node_2("TABLE_SCAN", 3), node_2("TABLE_SCAN", 4))
    copied = profile_2(node_2("RESULT_COLLECTOR", 0, node_2("BATCH_COPY_TO_FILE", 1, union)))
    assert [rows for _, _, rows in shape(of(copied))] == [3, 4, 7, 7]
    assert shape(of(copied))[-1][0] is K.SINK
    assert of(copied).origin.rows_known == 1.0


def test_duckdb_operator_outside_the_table_becomes_other() -> None:
    found = of(profile_2(node_2("QUANTUM_JOIN", 3, node_2("TABLE_SCAN", 3))))
    assert [kind for kind, _, _ in shape(found)] == [K.TABLE_SOURCE, K.OTHER, K.SINK]


def test_duckdb_missing_rows_are_inferred_or_unknown() -> None:
    scan = node_1("TABLE_SCAN", 7)
    sort = {key: value for key, value in node_1("ORDER_BY", 0, scan).items() if "card" not in key}
    join = {key: value for key, value in node_1("HASH_JOIN", 0, sort).items() if "card" not in key}
    found = of(profile_1(join))
    assert [rows for _, _, rows in shape(found)] == [7, 7, 0, 0]
    assert found.origin.rows_known == 2 / 4
    assert found.origin.remarks == (ExecutionWarning.INCOMPLETE,)


def deep(levels: int) -> Json:
    node = node_2("TABLE_SCAN", 1)
    for _ in range(levels):
        node = node_2("PROJECTION", 1, node)
    return profile_2(node)


REFUSED: dict[str, tuple[object, str]] = {
    "not an object": ([1], "not an object"),
    "no time": (profile_1(node_1("TABLE_SCAN", 1), latency=None), "no wall time"),
    "time 0": (profile_1(node_1("TABLE_SCAN", 1), latency=0.0), "no wall time"),
    "negative time": (profile_1(node_1("TABLE_SCAN", 1), latency=-1.0), "negative"),
    "endless": (profile_1(node_1("TABLE_SCAN", 1), latency=1e7), "no wall time between"),
    "time a text": (profile_1(node_1("TABLE_SCAN", 1), latency="long"), "not a number"),
    "time a truth": (profile_1(node_1("TABLE_SCAN", 1), latency=True), "not a number"),
    "no operators": (profile_1(), "no operators"),
    "operators no list": (profile_1(children={}), "no operators"),
    "operator a text": (profile_1(children=["x"]), "an operator is not an object"),
    "no name": (profile_2({"timing": 1.0}), "without a name"),
    "name a number": (profile_2({"type": 3}), "without a name"),
    "children no list": (profile_2({"type": "X", "children": "x"}), "no list"),
    "rows a list": (profile_2({"type": "X", "intermediate_rows": []}), "rows: not a number"),
    "negative rows": (profile_2(node_2("X", -1)), "rows: negative"),
    "too many rows": (profile_2(node_2("X", 10**13)), "more than 1e+12 rows"),
    "rows beyond any number": (profile_2(node_2("X", 10**400)), "rows"),
    "too many bytes read": (
        profile_2(node_2("X", 1), io={"total_bytes_read": 2**63}),
        "bytes read: more",
    ),
    "commands alone": (profile_1(node_1("CREATE_VIEW", 0)), "commands alone"),
    "only a collector": (profile_2(node_2("RESULT_COLLECTOR", 0)), "no operators"),
    "too many operators": (deep(MAX_OPERATORS - 1), f"more than {MAX_OPERATORS} operators"),
    "endless nodes": (
        profile_2(*[node_2("RESULT_COLLECTOR", 0)] * 3 * MAX_OPERATORS),
        f"more than {MAX_OPERATORS} operators",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_duckdb_profile_is_refused_with_a_reason(case: str) -> None:
    content, said = REFUSED[case]
    with pytest.raises(InvalidInputError, match=said.replace("+", r"\+")):
        of(content)


def test_duckdb_profile_with_maximum_operators_is_read() -> None:
    assert len(of(deep(MAX_OPERATORS - 2)).plan.workflow.operators) == MAX_OPERATORS


@pytest.mark.parametrize("indent", [None, 4])
def test_duckdb_profile_file_with_one_profile_is_read(tmp_path: Path, indent: int | None) -> None:
    path = written(tmp_path / "no-suffix", grouped(2), indent=indent)
    os.utime(path, (AT.timestamp(), AT.timestamp()))
    [found] = read(path)
    assert isinstance(found, Execution)
    assert found.finished_at == AT
    assert shape(found) == shape(of(grouped(2)))


def test_duckdb_profile_file_with_invalid_line_keeps_other_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", grouped(2), {"a": 1}, grouped(1), profile_0())
    with path.open("a") as stream:
        stream.write('\n{"operator": [\n' + json.dumps(grouped(0)))
    found = read(path)
    assert [str(each) for each in found if isinstance(each, SkippedRecord)] == [
        "line 2: no wall time between 0 and 1e+06 seconds",
        "line 4: no operators",
        "line 6: no JSON, or cut off, or nested too deeply",
    ]
    assert [type(each) for each in found].count(Execution) == 3


def test_duckdb_profiles_read_from_copied_or_grown_file_are_stored_once(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "p", grouped(2), grouped(1))
    grown = written(tmp_path / "q", grouped(0), grouped(2), grouped(1))
    with ExecutionStore.open(tmp_path / "store") as store:
        assert store.add(kept(read(path))) == 2
        assert store.add(kept(read(path))) == 0
        assert store.add(kept(read(grown))) == 1


def kept(found: Iterable[Execution | SkippedRecord]) -> list[Execution]:
    return [each for each in found if isinstance(each, Execution)]


def test_oversized_duckdb_profile_line_or_file_is_skipped(tmp_path: Path) -> None:
    long = profile_1(node_1("TABLE_SCAN", 1)) | {"x": "y" * 2 * MAX_PROFILE_BYTES}
    lines = written(tmp_path / "lines", grouped(2), long, grouped(1))
    found = read(lines)
    assert [isinstance(each, Execution) for each in found] == [True, False, True]
    assert str(found[1]) == "line 2: longer than 8 MiB"
    [whole] = read(written(tmp_path / "whole", long, indent=1))
    assert str(whole) == "profile: longer than 8 MiB"


OTHERS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("select 1"),
    "list": lambda path: path.write_text("[1, 2]"),
    "other JSON": lambda path: path.write_text('{"operators": [], "platform": "duckdb"}'),
    "Spark": lambda path: path.write_text(
        '{"Event":"SparkListenerLogStart","Spark Version":"3.5.3","operator":1,'
        '"intermediate_rows":1}'
    ),
    "history": lambda path: write_history(path, [make_execution()]),
    "zeros": lambda path: path.write_bytes(bytes(100_000)),
    "directory": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("case", OTHERS)
def test_open_profile_of_other_file_types_returns_none(tmp_path: Path, case: str) -> None:
    OTHERS[case](tmp_path / "q1.json")
    assert open_profile(tmp_path / "q1.json") is None


def test_duckdb_profile_with_very_long_query_is_recognized(tmp_path: Path) -> None:
    for version in (0, 1, 2):
        key = ("extra-info", "query_name", "query")[version]
        text = "select " * 100_000
        value = {"sql": text, "total_time": 1.0} if version == 2 else text
        [found] = read(written(tmp_path / str(version), {**grouped(version), key: value}))
        assert isinstance(found, Execution)


def test_duckdb_profile_deleted_before_reading_raises_invalid_input(tmp_path: Path) -> None:
    source = source_of(written(tmp_path / "p", grouped(2)))
    (tmp_path / "p").unlink()
    with pytest.raises(InvalidInputError, match="no profile"):
        list(source.read())


def test_deeply_nested_duckdb_profile_is_skipped(tmp_path: Path) -> None:
    start = json.dumps(grouped(2))[:-1]
    (tmp_path / "p").write_text(start + ', "x": ' + "[" * 1_000_000)
    assert isinstance(read(tmp_path / "p")[0], SkippedRecord)


CANARY = "canary-7351"


def planted(value: object) -> object:
    """Insert the canary into every text except those that identify a profile."""
    if isinstance(value, dict):
        return {key: planted(each) for key, each in value.items()} | {CANARY: CANARY}
    if isinstance(value, list):
        return [planted(each) for each in value]
    return value if not isinstance(value, str) or value in {*KINDS, "Query"} else f"{CANARY}{value}"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_duckdb_profile_texts_never_reach_an_execution_or_skip_reason(
    tmp_path: Path, version: int
) -> None:
    [found] = read(written(tmp_path / CANARY, planted(grouped(version))))
    assert isinstance(found, Execution)
    assert CANARY not in repr(found)
    broken = planted({**grouped(version), "operator": [CANARY], "children": [CANARY]})
    [skipped] = ProfileFile(written(tmp_path / CANARY, broken)).read()
    assert CANARY not in str(skipped)


_NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63, 10**13, 1e308, -1, 0, True])
_ANY = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def _nodes(version: int) -> st.SearchStrategy[object]:
    make = {1: node_1, 2: node_2}[version]
    names = st.sampled_from(sorted(KINDS)) | st.text(max_size=5)
    leaf = st.builds(make, names, st.integers(-1, 10**6))
    keys = st.sampled_from(sorted(make("X", 1, make("X", 1))))

    def around(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        node = st.builds(
            lambda name, rows, children: make(name, rows, *children),
            names,
            st.integers(0, 10**6),
            st.lists(inner, max_size=3),
        )
        spoiled = st.builds(lambda each, key, value: {**each, key: value}, node, keys, _ANY)
        return node | spoiled | inner

    return st.recursive(leaf, around, max_leaves=10)


def _spoiled(scan: Json, key: str, value: object, *, is_note: bool) -> Json:
    notes = scan["extra_info"]
    assert isinstance(notes, dict)
    return scan | ({"extra_info": notes | {key: value}} if is_note else {key: value})


def _scans(version: Version, spoil: int, value: object, *, is_table: bool, rows: int) -> object:
    """Return a profile of a scan in which one field that determines its rows is replaced."""
    scan = Scanned(rows, rows // 9, version, is_table=is_table, threads=3).node()
    keys = ("Estimated Cardinality", "Filters", "Table", "Total Files Read", "Filename(s)", "Type")
    counts = ("operator_rows_scanned", "rows_scanned", "row_groups_scanned")
    names = [*((key, True) for key in keys), *((key, False) for key in counts)]
    key, is_note = [*names, ("total_row_groups_to_scan", False)][spoil]
    make = profile_2 if version == "2.0" else profile_1
    return make(_spoiled(scan, key, value, is_note=is_note))


_PROFILES = st.one_of(
    st.builds(
        _scans,
        st.sampled_from(VERSIONS),
        st.integers(0, 9),
        _ANY | st.sampled_from(["0", "1", "9" * 15, "9" * 400, "-1"]),
        is_table=st.booleans(),
        rows=st.integers(0, 10**9),
    ),
    st.builds(profile_1, _nodes(1), latency=st.floats(0, 10) | _ANY),
    st.builds(profile_2, _nodes(2), _nodes(2), io=_ANY, system=_ANY),
    st.builds(lambda key, value: {**grouped(1), key: value}, st.sampled_from([*grouped(1)]), _ANY),
    st.builds(lambda key, value: {**grouped(2), key: value}, st.sampled_from([*grouped(2)]), _ANY),
    st.builds(lambda key, value: {**grouped(0), key: value}, st.sampled_from([*grouped(0)]), _ANY),
    _ANY,
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(profiles=st.lists(_PROFILES, min_size=1, max_size=3), cut=st.floats(0, 1))
def test_arbitrary_duckdb_profiles_are_read_or_skipped_and_can_be_stored(
    tmp_path: Path, profiles: list[object], cut: float
) -> None:
    path = written(tmp_path / "p", grouped(2), *profiles)
    content = path.read_bytes()
    for taken in (content, content[: round(cut * len(content))]):
        path.write_bytes(taken)
        source = open_profile(path)
        if source is None:
            continue
        found = list(source.read())
        with ExecutionStore.open(tmp_path / "store") as store:
            store.add(kept(found))


QUERIES = {
    "select s, sum(q) from t where q < 50 group by s order by s": {
        K.TABLE_SOURCE: 1,
        K.FILTER: 1,
        K.AGGREGATE: 1,
        K.SORT: 1,
        K.SINK: 1,
    },
    "select count(*) from t join u using (k) where name > 'n5'": {
        K.TABLE_SOURCE: 2,
        K.JOIN: 1,
        K.GLOBAL_AGGREGATE: 1,
        K.SINK: 1,
    },
    "select * from t order by q desc limit 3": {K.SINK: 1},
    "select k, row_number() over (partition by s order by q) from t": {K.WINDOW: 1},
    "copy (select * from t where q = 1) to 'out.parquet'": {K.SINK: 1, K.FILTER: 1},
    "select * from 'in.parquet' where q = 1": {K.FILE_SOURCE: 1, K.SINK: 1},
    "select * from t union all select * from t": {K.TABLE_SOURCE: 2, K.UNION: 1},
    "with w as materialized (select k, sum(q) q from t group by k) "
    "select * from w a join w b on a.q = b.q": {K.TABLE_SOURCE: 1, K.AGGREGATE: 1, K.JOIN: 1},
    "select * from t a, u b where a.k < b.k": {K.TABLE_SOURCE: 2, K.JOIN: 1},
    "create table x as select distinct s from t": {K.SINK: 1, K.AGGREGATE: 1},
    "select unnest([1, 2, 3]), k from u": {K.FLATMAP: 1},
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 9) "
    "select sum(n) from r": {K.GLOBAL_AGGREGATE: 1},
}


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with one profile of the installed DuckDB per query."""
    directory = tmp_path_factory.mktemp("profiles")
    here = tmp_path_factory.mktemp("data")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(
            "create table t as select range % 100 as k, range % 70 as q, 's' || range % 5 as s "
            "from range(20000)"
        )
        connection.execute("create table u as select range k, 'n' || range as name from range(9)")
        connection.execute(f"copy t to '{here}/in.parquet'")
        connection.execute("set enable_profiling = 'json'")
        for number, query in enumerate(QUERIES):
            connection.execute(f"set profiling_output = '{directory}/{number}.json'")
            placed = query.replace("in.parquet", f"{here}/in.parquet")
            connection.execute(placed.replace("out.parquet", f"{here}/out.parquet")).fetchall()
    return directory


@pytest.mark.parametrize("query", QUERIES)
def test_profiles_of_installed_duckdb_are_read(profiled: Path, query: str) -> None:
    [found] = read(profiled / f"{list(QUERIES).index(query)}.json")
    assert isinstance(found, Execution)
    kinds = [kind for kind, _, _ in shape(found)]
    for kind, count in QUERIES[query].items():
        assert kinds.count(kind) == count, kinds
    assert kinds.count(K.OTHER) == ("recursive" in query)
    assert found.measurement is not None
    assert found.measurement.runtime_seconds > 0


def test_duckdb_profile_rows_are_actual_cardinalities(profiled: Path) -> None:
    [found] = read(profiled / "0.json")
    assert isinstance(found, Execution)
    operators = found.plan.workflow.operators
    by_kind = {each.kind: each for each in operators}
    below_50 = sum(number % 70 < 50 for number in range(20_000))
    assert by_kind[K.TABLE_SOURCE].output_rows == 20_000
    assert by_kind[K.FILTER].output_rows == below_50
    assert by_kind[K.AGGREGATE].output_rows == by_kind[K.SINK].output_rows == 5
    assert all(each.row_bytes > 0 for each in operators)
    assert found.origin.rows_known == 1.0


def test_explain_analyze_and_programmatic_profile_give_the_same_plan(
    tmp_path: Path,
) -> None:
    query = "select k, count(*) from range(5000) t(k) where k % 3 = 0 group by k"
    with duckdb.connect(config={"threads": 1}) as connection:
        explained = connection.execute(f"explain (analyze, format json) {query}").fetchall()
        connection.execute("pragma enable_profiling = 'no_output'")
        connection.execute(query).fetchall()
        asked = connection.get_profiling_information()
    (tmp_path / "p").write_text(
        "\n".join(json.dumps(json.loads(each)) for each in (explained[0][1], asked))
    )
    one, other = kept(read(tmp_path / "p"))
    assert one.workload == other.workload
    assert shape(one) == shape(other)


def test_directory_of_duckdb_profiles_is_ingested_once_and_listed(
    profiled: Path, tmp_path: Path
) -> None:
    def fedperf(*arguments: object) -> Ended:
        ended = run(cli.main, "--home", tmp_path / "home", *arguments)
        assert ended.code == 0, ended.err
        return ended

    fedperf("init")
    for new in (len(QUERIES), 0):
        found = fedperf("ingest", profiled, "--jobs", 1, "--json").json()
        assert isinstance(found, dict)
        assert (found["read"], found["new"], found["skipped"]) == (len(QUERIES), new, {})
    rows = fedperf("runs", "--json").rows()
    assert {row["source"] for row in rows} == {"duckdb 2.x"}
    [first] = [each for each in read(profiled / "0.json") if isinstance(each, Execution)]
    shown = fedperf("runs", "show", first.execution_id[:12], "--json").json()
    assert isinstance(shown, dict)
    assert [each["kind"] for each in shown["plan"]] == [
        operator.kind.name.lower() for operator in first.plan.workflow.operators
    ]
    assert [each["output_rows"] for each in shown["plan"]][-1] == 5
