"""SQL text explained by DuckDB: what is explained, what is refused, and that nothing is run."""

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedperf_client.sources.duckdb.explain import IN_MEMORY, QueryDatabase, read_sql
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import OperatorKind

duckdb = pytest.importorskip("duckdb", reason="DuckDB is of the extra engines")

VERSION_AT = 12  # of a file, in bytes
HOLD = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(1, flush=True); sys.stdin.read()"


def checksum(content: bytes) -> bytes:
    """Return the checksum that DuckDB writes before a block (`Checksum` in its sources)."""
    result = 5381
    for (word,) in struct.iter_unpack("<Q", content):
        result ^= word * 0xBF58476D1CE4E5B9 % 2**64
    return struct.pack("<Q", result)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS a, 'x' AS b FROM range(5000)")
        connection.execute("CREATE TABLE u AS SELECT range AS a, 'x' AS b FROM range(700)")
    return path


@pytest.fixture
def database(path: Path) -> Iterator[QueryDatabase]:
    with QueryDatabase.open(path) as database:
        yield database


def test_explain_gives_rows_of_tables_and_estimates_behind_them(database: QueryDatabase) -> None:
    workflow, origin = database.explain("SELECT sum(a) FROM t WHERE a < 10")
    kinds = [(each.kind, each.output_rows) for each in workflow.operators[:2]]
    assert kinds[0] == (OperatorKind.TABLE_SOURCE, 5000)
    assert kinds[1][0] is OperatorKind.FILTER
    assert 0 < kinds[1][1] < 5000
    assert workflow.operators[0].row_bytes == 8
    assert origin.statement
    assert len(origin.operator_keys) == len(workflow.operators)


def test_explain_of_one_shape_on_two_tables_shares_no_key(database: QueryDatabase) -> None:
    one, other = (database.explain(f"FROM {each} SELECT sum(a) WHERE b = 'y'")[1] for each in "tu")
    assert one.statement != other.statement
    assert set(one.operator_keys) & set(other.operator_keys) <= {""}


def test_explain_of_files_distinguishes_them_by_name_also_through_views(tmp_path: Path) -> None:
    for name in ("p", "q"):
        duckdb.sql(f"COPY (FROM range(9) t(a)) TO '{tmp_path / name}.parquet'")
    keys = []
    for name in ("p", "q"):
        path = tmp_path / f"{name}.duckdb"
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"CREATE VIEW v AS FROM '{tmp_path / name}.parquet'")
        with QueryDatabase.open(path) as database:
            keys.append(database.explain("SELECT sum(a) FROM v WHERE a > 0")[1].statement)
    with QueryDatabase.open(IN_MEMORY) as database:
        assert database.explain(f"FROM '{tmp_path / 'p'}.parquet' WHERE a > 0")[1].statement
    assert keys[0] != keys[1]
    assert all(keys)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected one SELECT, got nothing"),
        ("SELECT 1; DELETE FROM t", "expected one SELECT, got SELECT, DELETE"),
        ("SELECT 1; SELECT 2", "expected one SELECT, got SELECT, SELECT"),
        ("DROP TABLE t", "expected one SELECT, got DROP"),
        ("COPY t TO 'out.csv'", "expected one SELECT, got COPY"),
        ("SELECT * FROM nowhere", "Table with name nowhere does not exist"),
        ("SELECT a FROM t WHERE a = ?", "parameters"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM 's3://bucket/x.parquet'", "requires the extension httpfs"),
    ],
)
def test_explain_of_anything_but_one_select_is_refused_and_changes_nothing(
    path: Path, text: str, reason: str
) -> None:
    before = path.read_bytes()
    with QueryDatabase.open(path) as database, pytest.raises(InvalidInputError) as caught:
        database.explain(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_open_of_missing_foreign_or_newer_database_is_refused_in_one_line(
    path: Path, tmp_path: Path
) -> None:
    foreign, newer = tmp_path / "notes.txt", tmp_path / "newer.duckdb"
    foreign.write_text("no database " * 2000)
    content = bytearray(path.read_bytes())
    content[VERSION_AT : VERSION_AT + 8] = struct.pack("<Q", 99_999)
    content[:8] = checksum(bytes(content[8:4096]))
    newer.write_bytes(content)
    reasons = {
        tmp_path / "missing.duckdb": "is not a file: --database takes a DuckDB database",
        foreign: "not a valid DuckDB database file",
        newer: f"not read by DuckDB {duckdb.__version__}",
    }
    for each, reason in reasons.items():
        with pytest.raises(InvalidInputError, match=each.name) as caught:
            QueryDatabase.open(each)
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)


def test_open_of_database_that_another_process_writes_is_refused(path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            with pytest.raises(InvalidInputError, match="another process has the database open"):
                QueryDatabase.open(path)
        finally:
            holder.communicate()


def test_read_sql_refuses_binary_and_long_files(tmp_path: Path) -> None:
    path = tmp_path / "q.sql"
    for content, reason in ((b"\xff\xfe", "no text"), (b" " * 2**19, "longer than")):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match=rf"q\.sql: {reason}"):
            read_sql(path)
    path.write_bytes("\ufeffSELECT 'é'".encode())
    assert read_sql(path) == "SELECT 'é'"
