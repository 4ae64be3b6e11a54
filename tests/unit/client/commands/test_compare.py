"""`fedperf compare`: by version, by date, or between two directories of logs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_shared.execution import Measurement, Origin
from tests.fakes.spark_logs import SparkLog, grouped, node
from tests.unit.client.executions import START, make_execution
from tests.unit.client.homes import fedperf, made_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COLUMNS", "240")
    home = made_home(tmp_path / "home")
    old, new = Origin(source="spark 3.4"), Origin(source="spark 3.5")
    with ExecutionStore.open(home.store) as store:
        for number, (seconds, origin) in enumerate([(4.0, old), (4.1, old), (120.0, new)]):
            made = make_execution(number, workload="nightly", origin=origin)
            store.add([replace(made, measurement=Measurement(seconds))])
    return home


def test_the_newest_version_is_compared_with_the_others(home: Home) -> None:
    ended = fedperf(home, "compare")
    assert ended.code == 0
    for shown in ("nightly", "slower", "4.05 s", "120 s", "29.6"):
        assert shown in ended.out
    assert "1 workloads ran on both sides, 1 of them slower" in ended.out


def test_a_day_divides_what_is_stored(home: Home) -> None:
    found = fedperf(home, "compare", "--since", f"{START:%Y-%m-%dT%H:%M:02}", "--json").json()
    assert isinstance(found, dict)
    (row,) = found["workloads"]
    assert (row["runs_before"], row["runs_after"], row["verdict"]) == (2, 1, "slower")
    later = fedperf(home, "compare", "--since", "2027-01-01", "--json").json()
    assert later == {"workloads": [], "only_one_side": ["nightly"]}


def test_two_directories_are_compared_and_nothing_is_stored(home: Home, tmp_path: Path) -> None:
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


def test_what_cannot_be_read_is_refused_in_one_line(home: Home, tmp_path: Path) -> None:
    assert "2026-03-01" in fedperf(home, "compare", "--since", "Monday").complaint()
    none = tmp_path / "none"
    ended = fedperf(home, "compare", "--before", none, "--after", none)
    assert "no such file" in ended.complaint()
    assert fedperf(home, "compare", "--before", none).code == 2
