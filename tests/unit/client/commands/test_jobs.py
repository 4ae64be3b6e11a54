"""Tables of past runs by the commands: `ingest`, `jobs` and `predict JOB`."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources.history_file import HistoryFile
from fedperf_shared.execution import Execution
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE
from tests.unit.client.data_directories import fedperf

RUNS = "job,nodes,cores,input_gb,seconds\nnightly,4,16,120,610\nnightly,8,32,120,340\n"
START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS_PER_ROW = 2e-5
MIDDLING = {"rows": 2_000_000, "workers": 3}  # a query between measured ones


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create("")
    return home


def facts_of(home: Home, *words: object) -> Any:
    return fedperf(home, *words, "--json").json()


def write(home: Home, text: str, name: str = "runs.csv") -> Path:
    path = home.directory.parent / name
    path.write_text(text)
    return path


def seconds_of(rows: float, workers: float) -> float:
    """Return the true time: three seconds, and the rows shared by the workers."""
    return 3.0 + rows / workers * SECONDS_PER_ROW


def job_rows(count: int, *, jobs: int = 1, seed: int = 0) -> Iterator[dict[str, object]]:
    rng = np.random.default_rng(seed)
    for number in range(count):
        rows, workers = int(np.exp(rng.uniform(13, 16))), int(rng.choice([1, 2, 4, 8]))
        yield {
            "job": f"load{number % jobs}",
            "started": (START + timedelta(minutes=number)).isoformat(),
            "rows": rows,
            "workers": workers,
            "elapsed_ms": round(1e3 * seconds_of(rows, workers) * np.exp(rng.normal(0, 0.03)), 2),
        }


def write_rows(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def median_of(home: Home, job: str, *more: str) -> float:
    at = ",".join(f"{name}={value}" for name, value in MIDDLING.items())
    facts = facts_of(home, "predict", job, "--at", at, *more)
    [found] = facts["predictions"]
    return float(found["p50_seconds"])


def stored(home: Home) -> list[Execution]:
    with ExecutionStore.open(home.store) as store:
        return list(store.executions())


def test_table_is_ingested_listed_and_predicted(home: Home) -> None:
    path = write(home, RUNS)
    found = facts_of(home, "ingest", path)
    assert (found["read"], found["new"], found["stored"]) == (2, 2, True)
    [listed] = facts_of(home, "jobs")
    assert (listed["job"], listed["kind"], listed["runs"]) == ("nightly", "table", 2)
    assert listed["measured"] == {"nodes": "4 to 8", "input_gb": "120"}
    facts = facts_of(home, "predict", "nightly", "--at", "cores=16,32,64")
    assert (facts["job"], facts["campaign"]) == ("nightly", None)
    assert [each["columns"]["nodes"] for each in facts["predictions"]] == [4, 8, 16]
    medians = [each["p50_seconds"] for each in facts["predictions"]]
    assert medians == sorted(medians, reverse=True)
    assert facts["predictions"][2]["extrapolating"]


def test_job_without_columns_is_predicted_from_its_times(home: Home) -> None:
    fedperf(home, "ingest", write(home, "job,seconds\na,60\na,62\na,58\n"))
    facts = facts_of(home, "predict", "a", "--deadline", "2m")
    [found] = facts["predictions"]
    assert found["columns"] == {}
    assert found["p50_seconds"] == pytest.approx(60, rel=0.05)
    assert found["meets_deadline"]
    assert facts_of(home, "jobs") == [{"job": "a", "kind": "table", "runs": 3, "measured": {}}]


def test_table_ingested_twice_or_otherwise_is_stored_once(home: Home) -> None:
    path = write(home, RUNS)
    fedperf(home, "ingest", path)
    assert facts_of(home, "ingest", path)["new"] == 0
    ended = fedperf(home, "ingest", path, "--time", "seconds:ms")
    assert ended.code == 3
    assert "fedperf runs delete --workload 'nightly' --yes" in ended.complaint()
    assert sorted(each.runtime_seconds for each in stored(home)) == [340.0, 610.0]


def test_dry_run_of_table_shows_columns_and_stores_nothing(home: Home) -> None:
    path = write(home, "name,took,n\na,1500,4\n")
    words = ("--job", "name", "--time", "took:ms", "--cores", "n", "--dry-run")
    [table] = facts_of(home, "ingest", path, *words)["tables"]
    assert [(e["column"], e["role"], e["unit"]) for e in table["columns"]] == [
        ("name", "job", None),
        ("took", "time", "ms"),
        ("n", "cores", None),
    ]
    assert "time, ms" in fedperf(home, "ingest", path, *words).out
    assert not stored(home)


def test_mapping_file_names_columns_and_options_count_more(home: Home) -> None:
    path = write(home, "name,took,n\na,1500,4\n")
    mapping = write(home, 'job = "name"\ntime = "took:s"\ncores = "n"\n', "columns.toml")
    assert fedperf(home, "ingest", path, "--mapping", mapping, "--time", "took:ms").code == 0
    [run] = stored(home)
    assert (run.workload, run.runtime_seconds, run.cluster.cores) == ("a", 1.5, 4)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--time", "took"), "time: there is no column 'took'; there are job, nodes"),
        (("--time", "seconds:weeks"), "unit 'weeks' is unknown; expected one of"),
        (("--columns", "a"), "columns: there is no column 'a'"),
        (("--time", ""), "the name of a column is empty"),
    ],
)
def test_wrong_columns_are_refused_in_one_line_and_nothing_is_stored(
    home: Home, words: tuple[str, ...], complaint: str
) -> None:
    ended = fedperf(home, "ingest", write(home, RUNS), *words)
    assert ended.code == 3
    assert complaint in ended.complaint()
    assert not stored(home)


def test_wrong_mapping_file_names_its_keys(home: Home) -> None:
    mapping = write(home, 'jobs = "name"\n', "columns.toml")
    ended = fedperf(home, "ingest", write(home, RUNS), "--mapping", mapping)
    assert ended.code == 3
    assert "columns.toml" in ended.complaint()
    assert 'did you mean "job"' in ended.complaint()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("rows=5", "there is no column 'rows'; there are nodes, input_gb, cores"),
        ("nodes=x", "column nodes holds numbers; got 'x'"),
        ("cores=16,nodes=4", "follows from nodes, which is named too"),
        ("cores=18", "column nodes counts whole units; got 4.5"),
    ],
)
def test_predict_job_at_wrong_column_is_refused(home: Home, setting: str, complaint: str) -> None:
    fedperf(home, "ingest", write(home, RUNS))
    ended = fedperf(home, "predict", "nightly", "--at", setting)
    assert ended.code == 3
    assert complaint in ended.complaint()


def test_predict_job_reads_sizes_in_bytes_in_the_unit_of_the_column(home: Home) -> None:
    fedperf(home, "ingest", write(home, RUNS))
    facts = facts_of(home, "predict", "nightly", "--at", "input_gb=240GB")
    assert facts["predictions"][0]["columns"]["input_gb"] == pytest.approx(240)


@pytest.mark.slow
def test_predict_job_finds_the_law_and_the_cheapest_that_meets_a_deadline(home: Home) -> None:
    fedperf(home, "ingest", write_rows(home.directory.parent / "load.csv", [*job_rows(60)]))
    assert median_of(home, "load0") == pytest.approx(seconds_of(**MIDDLING), rel=0.1)
    picture = home.directory.parent / "curve.html"
    prices = write(home, "core = 1.0\n", "prices.toml")
    words = ("--at", "rows=3e6,workers=1,2,4,8", "--cheapest", "--prices", prices)
    ended = fedperf(home, "predict", "load0", *words, "--deadline", "40s", "--plot", picture)
    assert ended.code == 0
    assert "cheapest: rows=3000000,workers=2, for $" in ended.out
    assert picture.read_text().startswith("<!doctype html>")
    assert fedperf(home, "predict", "load0", *words, "--deadline", "1s").code == NO_FEASIBLE_SIZE


def test_predict_job_plot_over_several_columns_is_refused(home: Home) -> None:
    fedperf(home, "ingest", write(home, RUNS))
    words = ("--at", "nodes=4,8,input_gb=120,240", "--plot", home.directory / "x.png")
    ended = fedperf(home, "predict", "nightly", *words)
    assert ended.code == 3
    assert "--plot draws times over one column of numbers" in ended.complaint()


def test_column_that_never_varied_gets_no_promise(home: Home) -> None:
    fedperf(home, "ingest", write(home, RUNS))
    words = ("predict", "nightly", "--at", "input_gb=240", "--deadline", "10h")
    ended = fedperf(home, *words)
    assert ended.code == NO_FEASIBLE_SIZE
    assert "no promise: input_gb was never varied, it was 120 in all runs" in ended.out


@pytest.mark.slow
def test_table_with_words_and_missing_values_is_predicted(home: Home) -> None:
    rows = list(job_rows(80))
    for number, row in enumerate(rows):
        row["format"] = ["csv", "parquet", "csv", "N/A"][number % 4]
        row["k"] = "" if number % 9 == 0 else 7
        row["trace"] = f"t{number}-{number * 7919}"
        row["elapsed_ms"] = "" if number == 5 else row["elapsed_ms"]
    path = write_rows(home.directory.parent / "words.csv", rows)
    counts = facts_of(home, "ingest", path)
    assert (counts["read"], counts["skipped"]) == (79, {"has no time": 1})
    assert median_of(home, "load0") == pytest.approx(seconds_of(**MIDDLING), rel=0.1)
    [listed] = facts_of(home, "jobs")
    assert set(listed["measured"]) == {"rows", "workers", "format", "k"}


@pytest.mark.slow
def test_wide_parquet_table_is_predicted_from_its_roles(home: Home) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(3)
    rows = [row | {f"counter{n}": float(rng.normal()) for n in range(200)} for row in job_rows(60)]
    path = home.directory.parent / "wide.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    fedperf(home, "ingest", path)
    assert median_of(home, "load0") == pytest.approx(seconds_of(**MIDDLING), rel=0.1)
    assert {each.name for each in stored(home)[0].origin.columns} == {"rows", "workers"}


def test_exported_runs_are_read_again_without_storing_any_twice(home: Home, tmp_path: Path) -> None:
    fedperf(home, "ingest", write(home, RUNS))
    exported, history = tmp_path / "out.csv", tmp_path / "out.parquet"
    fedperf(home, "runs", "export", exported)
    fedperf(home, "runs", "export", history)
    assert facts_of(home, "ingest", exported)["new"] == 0
    assert sorted(map(repr, HistoryFile(history).read())) == sorted(map(repr, stored(home)))
    other = Home(tmp_path / "other")
    other.create("")
    assert facts_of(other, "ingest", exported)["new"] == 2
    assert {e.origin.columns for e in stored(other)} == {e.origin.columns for e in stored(home)}
    assert facts_of(other, "jobs")[0]["job"] == "nightly"


def test_job_of_later_dates_takes_part_in_compare(home: Home) -> None:
    rows = [
        {"job": "etl", "date": (START + timedelta(days=day)).date(), "rows": 1000, "seconds": took}
        for day, took in enumerate([60, 61, 59, 60, 120, 121, 119])
    ]
    fedperf(home, "ingest", write_rows(home.directory.parent / "etl.csv", rows))
    found = facts_of(home, "compare", "--since", "2026-01-05")
    assert "etl" in json.dumps(found)


@pytest.mark.slow
def test_table_of_200_000_rows_is_ingested_and_predicted(home: Home) -> None:
    path = write_rows(home.directory.parent / "big.csv", [*job_rows(200_000, jobs=20)])
    began = process_time()
    assert facts_of(home, "ingest", path)["new"] == 200_000
    assert median_of(home, "load3") == pytest.approx(seconds_of(**MIDDLING), rel=0.1)
    assert process_time() - began < 60  # busy machines count more than idle ones


def test_parquet_table_without_pyarrow_names_the_extra(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.directory.parent / "runs.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ended = fedperf(home, "ingest", path)
    assert ended.code == 3
    assert "pip install 'fedperf[" in ended.complaint()
