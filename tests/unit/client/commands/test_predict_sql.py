"""`fedperf predict` and `advise` of SQL: files, directories and dbt projects."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources.dbt import RunResults
from fedperf_client.sources.ingestion import ingest
from fedperf_shared.execution import Execution
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE
from tests.fakes.dbt_artifacts import manifest, result, run_results
from tests.unit.client.data_directories import empty_home, fedperf
from tests.unit.shared.console_programs import contents

duckdb = pytest.importorskip("duckdb", reason="DuckDB is of the extra engines")

TABLE = "CREATE OR REPLACE TABLE {} AS SELECT range AS a, range % 7 AS b FROM range({})"
QUERY = "SELECT b, sum(a) FROM {} WHERE a >= {} AND a % 3 = 0 GROUP BY b"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.chdir(tmp_path)
    return empty_home(tmp_path, monkeypatch)


def make_database(path: Path, rows: int = 50_000) -> Path:
    with duckdb.connect(str(path)) as connection:
        for table, size in (("big", rows), ("small", 300)):
            connection.execute(TABLE.format(table, size))
    return path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return make_database(tmp_path / "shop.duckdb")


def run(home: Home, database: Path, *texts: str) -> None:
    """Run the queries under profiling and ingest the profiles."""
    profiles = []
    with duckdb.connect(str(database), read_only=True) as connection:
        for number, text in enumerate(texts):
            profile = database.parent / f"{len(list(database.parent.iterdir()))}-{number}.json"
            connection.execute(f"SET enable_profiling = 'json'; SET profiling_output = '{profile}'")
            connection.execute(text).fetchall()
            connection.execute("PRAGMA disable_profiling")
            profiles.append(profile)
    list(ingest(profiles, home.store))


def predict(home: Home, database: Path, text: str, *options: object) -> dict[str, Any]:
    path = database.parent / "query.sql"
    path.write_text(text)
    found = fedperf(home, "predict", path, "--database", database, *options, "--json").json()
    assert isinstance(found, dict)
    return found


def test_predict_sql_says_where_its_rows_are_from(home: Home, database: Path) -> None:
    text = QUERY.format("big", 10)
    assert predict(home, database, text)["rows_from"] == "estimates"
    run(home, database, text, text)
    same = predict(home, database, text.lower() + " -- nightly")
    assert (same["rows_from"], same["rows_from_runs"]) == ("same query", 2)
    assert same["rows_are_estimates"] is False
    other = predict(home, database, QUERY.format("big", 40_000))
    assert (other["rows_from"], other["rows_from_runs"]) == ("other constants", 2)
    shared = predict(home, database, text.replace("b, sum(a)", "count(a)").partition(" GROUP")[0])
    assert shared["rows_from"] == "shared operators"
    assert shared["measured_operators"]


def test_predict_sql_with_other_constants_has_wider_interval(home: Home, database: Path) -> None:
    run(home, database, QUERY.format("big", 10))

    def width(text: str) -> float:
        [found] = predict(home, database, text)["predictions"]
        return float(found["upper_seconds"] / found["lower_seconds"])

    assert width(QUERY.format("big", 40_000)) > 1.2 * width(QUERY.format("big", 10))


def test_predict_sql_of_one_shape_on_another_table_shares_no_rows(
    home: Home, database: Path
) -> None:
    run(home, database, QUERY.format("big", 10))
    with ExecutionStore.open(home.store) as store:
        [stored] = store.executions()
    found = predict(home, database, QUERY.format("small", 10))
    assert found["rows_from"] == "estimates"
    run(home, database, QUERY.format("small", 10))
    with ExecutionStore.open(home.store) as store:
        assert store.workloads() == (stored.workload,)  # one shape
    assert predict(home, database, QUERY.format("small", 10))["rows_from_runs"] == 1


def test_predict_sql_of_grown_table_is_predicted_at_the_new_size(
    home: Home, database: Path
) -> None:
    text = QUERY.format("big", 10)
    run(home, database, text)
    assert predict(home, database, text)["table_growth"] == 1
    make_database(database, 150_100)
    grown = predict(home, database, text)
    assert grown["table_growth"] == pytest.approx(150_100 / 50_000)
    [found] = grown["predictions"]
    assert found["input_rows"] == pytest.approx(150_100)
    [twice] = predict(home, database, text, "--at", "rows=2x")["predictions"]
    assert twice["input_rows"] == pytest.approx(300_200)


def test_predict_of_directory_gives_a_row_per_query_and_names_failures(
    home: Home, database: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "queries"
    (directory / "nightly").mkdir(parents=True)
    (directory / "a.sql").write_text(QUERY.format("big", 1))
    (directory / "nightly" / "b.sql").write_text(QUERY.format("small", 1))
    found = fedperf(home, "predict", directory, "--database", database, "--json").json()
    assert isinstance(found, list)
    assert [each["query"] for each in found] == ["a.sql", "nightly/b.sql"]
    (directory / "c.sql").write_text("SELECT 1; DROP TABLE big")
    (directory / "d.sql").write_text("SELECT 1; DROP TABLE small")
    before = contents(directory)
    ended = fedperf(home, "predict", directory, "--database", database)
    assert ended.code == 3
    assert "a.sql" in ended.out
    assert ended.err.splitlines()[-1] == (
        "error: c.sql and 1 more: expected one SELECT, got SELECT, DROP"
    )
    assert contents(directory) == before


def test_predict_of_directory_with_late_query_exits_with_its_code(
    home: Home, database: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "queries"
    directory.mkdir()
    (directory / "a.sql").write_text(QUERY.format("big", 1))
    options = ("predict", directory, "--database", database, "--deadline")
    assert fedperf(home, *options, "1ms").code == NO_FEASIBLE_SIZE
    assert fedperf(home, *options, "10h").code == 0


def test_predict_of_dbt_project_uses_runs_of_the_present_text_else_explains_it(
    home: Home, database: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    results, code = target / "run_results.json", QUERY.format("shop.main.big", 10)
    results.write_bytes(orjson.dumps(run_results(result("orders", seconds=7.0, code=code))))
    with ExecutionStore.open(home.store) as store:
        store.add([each for each in RunResults(results).read() if isinstance(each, Execution)])
    changed = code.replace("sum", "max")
    (target / "manifest.json").write_bytes(orjson.dumps(manifest(orders=code, totals=changed)))
    found = fedperf(home, "predict", tmp_path, "--database", database, "--json").json()
    assert isinstance(found, list)
    rows = {each["query"]: each for each in found}
    assert rows["model.shop.orders"]["rows_from"] == "dbt runs"
    assert rows["model.shop.orders"]["p50_seconds"] == pytest.approx(7)
    assert rows["model.shop.totals"]["rows_from"] == "estimates"
    (target / "manifest.json").write_bytes(orjson.dumps(manifest(orders=changed, raw=None)))
    ended = fedperf(home, "predict", tmp_path, "--database", database, "--json")
    assert ended.code == 3
    assert "model.shop.raw: not compiled yet; run: dbt compile" in ended.err
    assert "estimates" in ended.out


def test_advise_of_sql_names_source_of_rows(home: Home, database: Path, tmp_path: Path) -> None:
    run(home, database, QUERY.format("big", 10))
    path = tmp_path / "q.sql"
    path.write_text(QUERY.format("big", 10))
    found = fedperf(home, "advise", path, "--database", database, "--json").json()
    assert isinstance(found, dict)
    assert found["rows_from"] == "same query"
    assert (
        "rows are from 1 run of this query"
        in fedperf(home, "advise", path, "--database", database).out
    )


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("predict", "q.sql"), 3, "SQL needs the database that it reads"),
        (("advise", "q.sql"), 3, "SQL needs the database that it reads"),
        (("predict", "q.sql", "--database", "no.duckdb"), 3, "no.duckdb is not a file"),
        (("predict", "q.sql", "--database", "shop.duckdb", "--platform", "spark"), 2, "--platform"),
        (("predict", "empty", "--database", "shop.duckdb"), 3, "no files that end with .sql"),
        (("predict", "w.json", "--database", "shop.duckdb"), 2, "--database goes with queries"),
        (("predict", "empty", "--database", "shop.duckdb", "--cores", "2"), 2, "--cores"),
        (("advise", "empty", "--database", "shop.duckdb"), 2, "--database"),
    ],
)
def test_sql_with_wrong_options_is_refused_in_one_line(
    home: Home, database: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    (tmp_path / "q.sql").write_text("SELECT 1")
    (tmp_path / "empty").mkdir()
    ended = fedperf(home, *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert reason in ended.err.replace("\n", " ")


WITHOUT_DUCKDB = """
import sys
sys.modules["duckdb"] = None
from fedperf_client.cli import main
sys.argv = ["fedperf", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_predict_of_sql_without_duckdb_names_the_extra(
    home: Home, database: Path, tmp_path: Path
) -> None:
    (tmp_path / "q.sql").write_text("SELECT 1")
    arguments = ("--home", home.directory, "predict", "q.sql", "--database", database)
    command = [sys.executable, "-c", WITHOUT_DUCKDB, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 3
    assert "pip install 'fedperf[engines]'" in ended.stderr
    assert "Traceback" not in ended.stderr
