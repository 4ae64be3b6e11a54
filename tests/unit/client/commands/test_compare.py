"""`fedperf compare` by version, by date, and between two directories of logs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_shared.execution import ExecutionMetadata, Measurement
from tests.fakes.spark_logs import SparkLog, grouped, node
from tests.unit.client.data_directories import fedperf, made_home
from tests.unit.client.executions import START, make_execution


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COLUMNS", "240")
    home = made_home(tmp_path / "home")
    old, new = ExecutionMetadata(source="spark 3.4"), ExecutionMetadata(source="spark 3.5")
    with ExecutionStore.open(home.store) as store:
        for number, (seconds, origin) in enumerate([(4.0, old), (4.1, old), (120.0, new)]):
            made = make_execution(number, workload="nightly", origin=origin)
            store.add([replace(made, measurement=Measurement(seconds))])
    return home


def test_compare_contrasts_newest_version_with_all_others(home: Home) -> None:
    ended = fedperf(home, "compare")
    assert ended.code == 0
    for shown in ("nightly", "slower", "4.05 s", "120 s", "29.6"):
        assert shown in ended.out
    assert "\n1 workload ran on both sides, 1 of them slower" in ended.out


def test_compare_names_both_sides_with_their_versions(home: Home) -> None:
    said = fedperf(home, "compare").out
    assert said.startswith("before: runs on other versions (spark 3.4)\n")
    assert "\nafter: runs on the version of each workload's newest run (spark 3.5)\n" in said
    facts = fedperf(home, "compare", "--json").json()
    assert isinstance(facts, dict)
    (row,) = facts["workloads"]
    assert (row["sources_before"], row["sources_after"]) == (["spark 3.4"], ["spark 3.5"])
    by_day = fedperf(home, "compare", "--since", f"{START:%Y-%m-%dT%H:%M:02}").out
    assert f"before: runs that finished before {START:%Y-%m-%d %H:%M} UTC (spark 3.4)" in by_day
    assert "\nafter: runs that finished since then (spark 3.5)\n" in by_day


@pytest.mark.parametrize(
    ("day", "told"),
    [
        ("2036-01-01", "no stored execution finished since 2036-01-01 00:00 UTC: the newest one"),
        ("2006-01-01", "no stored execution finished before 2006-01-01 00:00 UTC: the oldest one"),
    ],
)
def test_compare_since_date_without_runs_on_one_side_is_refused(
    home: Home, day: str, told: str
) -> None:
    for form in ((), ("--json",)):
        ended = fedperf(home, "compare", "--since", day, *form)
        assert (ended.code, ended.out) == (3, "")
        assert told in ended.complaint()


def test_compare_with_one_version_or_empty_store_suggests_next_step(
    home: Home, tmp_path: Path
) -> None:
    empty = made_home(tmp_path / "empty")
    assert "fedperf ingest FILE" in fedperf(empty, "compare").complaint()
    with ExecutionStore.open(empty.store) as store:
        store.add([make_execution(1, origin=ExecutionMetadata(source="spark 3.4"))])
    ended = fedperf(empty, "compare")
    assert ended.code == 0
    assert "before: runs on other versions (none: compare by a day with --since DAY)" in ended.out
    assert "newest run (spark 3.4)\nno workload ran on both sides\n0 workloads ran" in ended.out


def test_compare_since_date_splits_stored_runs(home: Home) -> None:
    found = fedperf(home, "compare", "--since", f"{START:%Y-%m-%dT%H:%M:02}", "--json").json()
    assert isinstance(found, dict)
    (row,) = found["workloads"]
    assert (row["runs_before"], row["runs_after"], row["verdict"]) == (2, 1, "slower")


def test_compare_two_log_directories_stores_no_execution(home: Home, tmp_path: Path) -> None:
    scan = node("Scan parquet t", rows=1)
    for name, app_id in (("before", "app-1"), ("after", "app-2")):
        (tmp_path / name).mkdir()
        log = SparkLog(app_id=app_id).begin().query(7, grouped(scan), {1: 1000})
        log.write(tmp_path / name / "log")
    before, after = tmp_path / "before", tmp_path / "after"
    found = fedperf(home, "compare", "--before", before, "--after", after, "--json").json()
    assert isinstance(found, dict)
    (row,) = found["workloads"]
    assert (row["ratio"], row["verdict"]) == (1.0, "too few runs")
    assert len(fedperf(home, "runs", "--json").rows()) == 3


def test_compare_with_unreadable_input_fails_in_one_line(home: Home, tmp_path: Path) -> None:
    assert (
        "is not a date such as 2027-01-01"
        in fedperf(home, "compare", "--since", "Monday").complaint()
    )
    none = tmp_path / "none"
    ended = fedperf(home, "compare", "--before", none, "--after", none)
    assert "no such file" in ended.complaint()
    assert fedperf(home, "compare", "--before", none).code == 2
    none.mkdir()
    ended = fedperf(home, "compare", "--before", none, "--after", none)
    assert ended.code == 3
    assert f"no execution was found in {none}" in ended.complaint()
