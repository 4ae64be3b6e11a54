"""`fedperf advise LOGS`: `--conf` lines that meet a deadline, from event logs alone."""

import json
from pathlib import Path

import pytest

from fedperf_client.commands import advise_logs
from fedperf_client.home.config import Home
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE
from tests.fakes.measured_logs import FakeTask, started
from tests.fakes.spark_logs import APP_START, SQL, grouped, node
from tests.unit.client.data_directories import empty_home, fedperf


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COLUMNS", "200")
    here = ClusterConfig(nodes=1, cores=2, memory_bytes=2**33)
    monkeypatch.setattr(advise_logs, "cluster_config", lambda cores: here)
    return empty_home(tmp_path, monkeypatch)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    log = started(executor_cores="4", executor_memory="4g").opened()
    for event in log.events:
        if event["Event"] == SQL + "SparkListenerSQLExecutionStart":
            event["sparkPlanInfo"] = grouped(node("Scan parquet t", rows=1))
    log.stage([FakeTask(1000, 11_000, held=2**30)] * 8)
    log.executor("late", APP_START + 500, host="host-9")
    directory = tmp_path / "logs"
    directory.mkdir()
    log.closed().write(directory / "app-1")
    return directory


def test_advise_logs_prints_conf_lines_and_stores_the_executions(home: Home, logs: Path) -> None:
    ended = fedperf(home, "advise", logs, "--deadline", "9d")
    assert ended.code == 0, ended.err
    assert "queries: 1\nrun time: 11 s\n" in ended.out
    assert "current: 3 executors of 4 cores: " in ended.out
    assert "deadline: 9.0 d\nmeets the deadline: yes, with a probability of" in ended.out
    assert "  --conf spark.executor.cores=4\n  --conf spark.executor.memory=4g" in ended.out
    assert len(fedperf(home, "runs", "--json").rows()) == 1


def test_advise_logs_orders_applications_by_core_hours_and_counts_runs(
    home: Home, logs: Path
) -> None:
    log = (logs / "app-1").read_text()
    name = json.loads(next(line for line in log.splitlines() if '"App Name"' in line))["App Name"]
    (logs / "app-2").write_text(log)
    once = fedperf(home, "advise", logs).out
    assert "runs in the logs: 2\n" in once
    assert " applications, most core-hours" not in once
    (logs / "app-3").write_text(log.replace(name, "payroll"))
    lines = fedperf(home, "advise", logs).out.splitlines()
    assert lines[0].startswith("2 of 2 applications, most core-hours in queries first")
    assert lines[2] == "runs in the logs: 2"
    assert any(each.startswith("application: payroll") for each in lines)
    found = fedperf(home, "advise", logs, "--json", "--top", "1").json()
    assert isinstance(found, dict)
    [first] = found["applications"]
    assert (first["runs"], first["core_seconds_of_runs"]) == (2, 2 * 12 * first["wall_seconds"])


def test_advise_logs_with_unmeetable_deadline_exits_with_its_code(home: Home, logs: Path) -> None:
    ended = fedperf(home, "advise", logs / "app-1", "--deadline", "1ms", "--json")
    assert ended.code == NO_FEASIBLE_SIZE
    found = ended.json()
    assert isinstance(found, dict)
    (application,) = found["applications"]
    assert application["meets_deadline"] is False
    assert [each["executors"] for each in application["sizes"]] == [1, 2, 3, 4]


def test_advise_logs_refuses_options_for_workflows_only(home: Home, logs: Path) -> None:
    ended = fedperf(home, "advise", logs, "--cores", "4", "--execute")
    assert ended.code == 2
    assert "--cores, --execute: not for Spark logs" in " ".join(ended.err.split())


def test_advise_logs_with_prices_shows_cost_in_currency(
    home: Home, logs: Path, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "EUR"\ncore = 36\n')
    assert "EUR " not in fedperf(home, "advise", logs).out
    found = fedperf(home, "advise", logs, "--prices", prices, "--json").json()
    assert isinstance(found, dict)
    choice = found["applications"][0]["choice"]
    assert choice["cost"] == pytest.approx(choice["core_seconds"] / 100)
    assert "EUR " in fedperf(home, "advise", logs, "--prices", prices).out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--by", "noon"), "time of day"),
        (("--memory", "1GB"), "its tasks need"),
        (("--memory", "duckdb=8GB"), "without a platform"),
        (("--prices", "none.toml"), "does not exist"),
    ],
)
def test_advise_logs_with_invalid_option_value_fails_in_one_line(
    home: Home, logs: Path, options: tuple[str, str], told: str
) -> None:
    ended = fedperf(home, "advise", logs, *options)
    assert ended.code == 3
    assert told in ended.complaint()


def test_advise_with_conflicting_options_exits_with_usage_error(home: Home, logs: Path) -> None:
    assert fedperf(home, "advise", logs, "--by", "06:00", "--deadline", "1h").code == 2
    assert fedperf(home, "advise", "--execution", "1", "--prices", "prices.toml").code == 2


def test_advise_logs_refuses_directory_without_logs(home: Home, tmp_path: Path) -> None:
    empty = tmp_path / "nothing"
    empty.mkdir()
    assert "no Spark log" in fedperf(home, "advise", empty).complaint()
