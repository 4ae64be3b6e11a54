"""`fedperf profile` as a real program, from the campaign file to the report."""

import csv
import signal
import sys
import time
from pathlib import Path

import orjson
import pytest

from fedperf_client.home.store import ExecutionStore
from tests.fakes.functions import TOKEN, function_server
from tests.integration.campaigns.programs import Here

pytestmark = pytest.mark.slow

JOB = """
import time

def sort(rows, workers):
    end = time.process_time() + rows / workers * 1e-6
    while time.process_time() < end:
        pass
"""
GRID = """
[grid]
size = "rows"
parallelism = "workers"
constraints = ["workers == 1 or rows > 10000"]
[grid.columns]
rows = { start = 10000, stop = 20000, doubling = true }
workers = [1, 2]
"""
TRIAL_COUNT = 3 * (2 + 1)
"""Three allowed configurations, each with two repetitions and a warm-up. No repeated trials."""


def everything(address: str) -> str:
    return f"""
name = "nightly"
[[component]]
name = "prepare"
command = [
    "{sys.executable}", "-S", "-c", "open('{{trial_directory}}/x', 'w').write('y' * {{rows}})",
]
kind = "file_source"
[[component]]
name = "sort"
callable = "campaign_job:sort"
after = ["prepare"]
kind = "sort"
[[component]]
name = "score"
after = ["prepare"]
[component.http]
url = "{address}/run/timed?rows={{rows}}"
token_env = "SCORE_TOKEN"
{GRID}
[run]
repetitions = 2
warmup = 1
retries = 0
timeout_seconds = 60
[machine]
node_type = "tiny.small"
"""


def sleeps(seconds: float, repetitions: int = 3) -> str:
    return f"""
name = "sleeps"
[[component]]
name = "sleep"
command = ["sleep", "{seconds}"]
{GRID}
[run]
repetitions = {repetitions}
retries = 0
"""


def test_profile_runs_campaign_from_file_to_report_and_stored_executions(tmp_path: Path) -> None:
    (tmp_path / "campaign_job.py").write_text(JOB)
    with function_server() as address:
        here = Here.make(tmp_path, everything(address))
        planned = here.facts("--dry-run")
        assert (planned["trials"], planned["done"], planned["ruled_out"]) == (TRIAL_COUNT, 0, 1)
        _, err = here.run(code=3)
        assert "SCORE_TOKEN is not set" in err
        facts = here.facts("--out", str(tmp_path / "out"), SCORE_TOKEN=TOKEN)
        again = here.facts(SCORE_TOKEN=TOKEN)
    status = facts["status"]
    assert isinstance(status, dict)
    assert status["ok"] + status["noisy"] == 6
    assert status["warmup"] == 3
    assert facts["complete"] is True
    assert again["status"] == status
    assert len(here.trials()) == TRIAL_COUNT
    rows = table(tmp_path / "out" / "trials.csv")
    assert {row["cpu_seconds"] for row in rows} == {""}  # part of each trial ran on another machine
    assert {row["queue_seconds"] for row in rows} == {"0.1255"}
    assert "tiny.small" in (tmp_path / "out" / "report.html").read_text()
    with ExecutionStore.open(here.home.store) as store:
        found = list(store.executions())
    assert len(found) == 6
    assert {each.workload for each in found} == {"nightly"}
    assert len(found[0].plan.workflow.operators) == 3


def test_profile_of_local_trials_records_time_memory_and_io(tmp_path: Path) -> None:
    here = Here.make(tmp_path, sleeps(0.02))
    here.facts()
    rows = table(here.home.directory / "campaigns/sleeps/trials.csv")
    measured = [row for row in rows if row["status"] in ("ok", "noisy")]
    seen = ("wall_seconds", "cpu_seconds", "peak_bytes", "read_bytes", "written_bytes")
    assert len(measured) == 9
    assert all(float(row["peak_bytes"]) > 0 for row in measured)
    assert [row for row in measured if not all(row[name] for name in seen)] == []


def test_profile_with_failed_trials_reports_the_last_failure(tmp_path: Path) -> None:
    text = sleeps(0.0, repetitions=1).replace('["sleep", "0.0"]', '["sh", "-c", "echo no; exit 3"]')
    _, err = Here.make(tmp_path, text).run(code=8)
    assert "3 trials did not end well, the last one: sleep: exit code 3. no" in err


def test_profile_with_raised_budget_measures_remaining_configurations(tmp_path: Path) -> None:
    here = Here.make(tmp_path, sleeps(0.01, repetitions=1) + "max_trials = 2\n")
    out, err = here.run("--json")
    assert orjson.loads(out)["complete"] is False
    assert f"the budget of 2 trials is spent; raise it in {here.file} to go on" in err
    here.file.write_text(here.file.read_text().replace("max_trials = 2", "max_trials = 20"))
    assert here.facts()["complete"] is True
    assert len({each.key for each in here.trials()}) == 3


def test_profile_of_a_running_campaign_is_refused_with_pid_of_the_first(tmp_path: Path) -> None:
    here = Here.make(tmp_path, sleeps(30, repetitions=1))
    first = here.start()
    wait_for_a_trial(here)
    _, err = here.run(code=4)
    assert f"process {first.pid}" in err
    assert len(err.splitlines()) == 1
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)


def test_interrupted_profile_exits_130_with_command_to_resume(tmp_path: Path) -> None:
    here = Here.make(tmp_path, sleeps(30, repetitions=1))
    process = here.start()
    wait_for_a_trial(here)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert f"go on with: fedperf profile {here.file}" in err
    assert "Traceback" not in err
    content = orjson.loads((here.home.directory / "campaigns/sleeps/summary.json").read_bytes())
    assert content["complete"] is False
    assert [each.outcome for each in here.trials()] == [None]


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def wait_for_a_trial(here: Here) -> None:
    deadline = time.monotonic() + 60
    while not list((here.home.directory / "campaigns").glob("*.trials/logs/*.log")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
