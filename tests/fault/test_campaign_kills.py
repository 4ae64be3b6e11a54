"""Campaigns and trials killed at random times: at most the trial in flight is lost."""

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from fedperf_campaigns.campaign.trial_runner import TRIAL_COMMAND
from fedperf_client.home.store import ExecutionStore
from fedperf_shared.runtime.command_line import NOTHING_MEASURED
from tests.integration.campaigns.programs import Here

pytestmark = pytest.mark.fault

KILLS = 12
SEED = 5
MARK = "0.31415"


def campaign(repetitions: int, retries: int = 0) -> str:
    script = f"import time; time.sleep({MARK})"
    return f"""
name = "killed"
[[component]]
name = "first"
command = ["sh", "-c", "setsid {sys.executable} -S -c '{script}' & sleep 0.05"]
[[component]]
name = "second"
command = ["{sys.executable}", "-S", "-c", "{script}"]
after = ["first"]
[grid]
size = "rows"
parallelism = "workers"
[grid.columns]
rows = [1, 2, 3]
workers = [1, 2]
[run]
repetitions = {repetitions}
retries = {retries}
"""


LONG = f"""
name = "long"
component = [{{ name = "sleep", command = ["sh", "-c", "setsid sleep {MARK}e3 & sleep {MARK}e3"] }}]
[grid]
size = "rows"
parallelism = "workers"
columns = {{ rows = [1], workers = [1] }}
[run]
repetitions = 1
retries = 0
timeout_seconds = 4
"""
"""Five minutes of sleep, in the trial's session and in another session."""


def test_campaign_killed_repeatedly_loses_at_most_one_trial_per_kill(tmp_path: Path) -> None:
    here, rng = Here.make(tmp_path, campaign(repetitions=4)), random.Random(SEED)
    finished: set[int] = set()
    for kills in range(1, KILLS + 1):
        process = here.start()
        time.sleep(rng.uniform(0.3, 2.5))
        process.kill()
        process.communicate(timeout=60)
        assert_nothing_left()
        trials = here.trials() if list(here.home.directory.glob("campaigns/*.sqlite")) else ()
        lost = [each for each in trials if each.outcome is None]
        assert len(lost) <= kills
        now_finished = {each.number for each in trials if each.outcome is not None}
        assert finished <= now_finished
        finished = now_finished
    here.run()
    trials = here.trials()
    done = Counter(each.key for each in trials if each.outcome is not None)
    assert len(done) == 24
    assert set(done.values()) == {1}  # no finished trial was repeated
    assert 0 < sum(each.outcome is None for each in trials) <= KILLS
    with ExecutionStore.open(here.home.store) as store:
        assert store.counts().executions == 24


def test_killed_trial_is_recorded_as_failed_and_retried(tmp_path: Path) -> None:
    here, rng = Here.make(tmp_path, campaign(repetitions=2, retries=20)), random.Random(SEED)
    killed = 0
    with here.start() as process:
        while process.poll() is None:
            time.sleep(rng.uniform(0.05, 0.5))
            for victim in trial_processes(process.pid)[: rng.randint(0, 1)]:
                with contextlib.suppress(psutil.NoSuchProcess):  # the process ended in the meantime
                    victim.send_signal(signal.SIGKILL)
                    killed += 1
            if killed == KILLS:
                process.communicate(timeout=120)
    assert process.returncode == 0
    assert_nothing_left()
    trials = here.trials()
    statuses = Counter(each.outcome.status.value if each.outcome else "lost" for each in trials)
    assert statuses["lost"] == 0
    assert 0 < statuses["failed"] <= killed
    measured = {t.key for t in trials if t.outcome is not None and t.outcome.status.is_data}
    assert len(measured) == 12


def test_killed_campaign_ends_processes_of_its_trial(tmp_path: Path) -> None:
    here = Here.make(tmp_path, LONG)
    process = started(here)
    process.kill()
    process.communicate(timeout=60)
    assert_nothing_left()


def test_processes_surviving_killed_campaign_are_ended_by_the_next_run(tmp_path: Path) -> None:
    here = Here.make(tmp_path, LONG)
    process = started(here)
    (trial,) = trial_processes(process.pid)
    process.send_signal(signal.SIGSTOP)  # prevents the cleanup
    trial.kill()
    process.kill()
    process.communicate(timeout=60)
    assert left() != []
    here.run(code=NOTHING_MEASURED)
    assert_nothing_left()
    statuses = [each.outcome.status.value if each.outcome else "lost" for each in here.trials()]
    assert statuses == ["lost", "timeout"]


def started(here: Here) -> subprocess.Popen[str]:
    process = here.start()
    deadline = time.monotonic() + 60
    while sum(f"{MARK}e3" in command for command in left()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def trial_processes(pid: int) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter(["ppid", "cmdline"]):
        if each.info["ppid"] == pid and each.info["cmdline"] == list(TRIAL_COMMAND):
            found.append(each)
    return found


def assert_nothing_left() -> None:
    deadline = time.monotonic() + 10
    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left() == []


def left() -> list[list[str]]:
    found = []
    for each in psutil.process_iter(["cmdline", "status"]):
        command = each.info["cmdline"] or []
        is_job = any(MARK in word for word in command) or command == list(TRIAL_COMMAND)
        if is_job and each.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(command)
    return found
