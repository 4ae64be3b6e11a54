import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import psutil
import pytest

from fedperf_engines.trials.profiler import (
    Trial,
    TrialLimits,
    TrialRequest,
    UncountableProgramError,
    WorkerKey,
    WorkerPool,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ExecutionStatus, Measurement
from fedperf_shared.workflow.vocabulary import Platform

COMMAND = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
LIMITS = TrialLimits(timeout_seconds=20.0, memory_bytes=2_000_000_000)


@pytest.fixture(scope="module")
def shared_pool() -> Iterator[WorkerPool]:
    with WorkerPool(command=COMMAND) as pool:
        yield pool


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(command=COMMAND, max_trials=4, max_workers=2) as pool:
        yield pool


def request(
    task: str, value: object, *, platform: Platform = Platform.DUCKDB, threads: int = 1
) -> TrialRequest:
    return TrialRequest(orjson.dumps({task: value}), (platform,) * 2, Path("/tmp"), threads)


def run(pool: WorkerPool, task: str, value: object, limits: TrialLimits = LIMITS) -> Trial:
    return pool.run(request(task, value), limits)


def measured(trial: Trial) -> Measurement:
    assert trial.measurement is not None
    return trial.measurement


def pid_of(pool: WorkerPool) -> int:
    return pool._workers[WorkerKey(frozenset({Platform.DUCKDB}), 1)].child.pid


def test_worker_pool_trial_reports_duration_and_platform_segments(shared_pool: WorkerPool) -> None:
    trial = run(shared_pool, "sleep", 0.1)
    assert (trial.status, trial.reason) == (ExecutionStatus.OK, "")
    assert measured(trial).runtime_seconds >= 0.1
    assert measured(trial).cpu_seconds < measured(trial).runtime_seconds, "it slept"
    assert [(s.platform, s.seconds) for s in trial.segments] == [(Platform.DUCKDB, 0.25)] * 2
    assert trial.host_busy_cores >= 0


def test_worker_pool_trial_measures_cpu_seconds_of_its_work(shared_pool: WorkerPool) -> None:
    burnt = measured(run(shared_pool, "burn", 0.2)).cpu_seconds
    assert burnt >= 0.2
    assert measured(run(shared_pool, "sleep", 0.2)).cpu_seconds < burnt


def test_worker_pool_trial_measures_peak_memory_without_earlier_trials(
    shared_pool: WorkerPool,
) -> None:
    small = measured(run(shared_pool, "sleep", 0.0)).peak_memory_bytes
    large = measured(run(shared_pool, "allocate", 200)).peak_memory_bytes
    again = measured(run(shared_pool, "sleep", 0.0)).peak_memory_bytes
    assert 200_000_000 <= large - small < 260_000_000
    assert abs(again - small) < 20_000_000


def test_worker_pool_trial_counts_read_and_written_bytes(shared_pool: WorkerPool) -> None:
    used = measured(run(shared_pool, "write", 5))
    assert 5_000_000 <= used.written_bytes < 6_000_000
    assert 5_000_000 <= used.read_bytes < 6_000_000


def test_worker_pool_reply_is_unaffected_by_engine_output(shared_pool: WorkerPool) -> None:
    assert run(shared_pool, "print", '{"status": "OK"}\n').status is ExecutionStatus.OK


def test_worker_pool_trial_with_error_fails_with_its_reason(pool: WorkerPool) -> None:
    trial = run(pool, "fail", "column missing")
    assert trial.status is ExecutionStatus.FAILED
    assert trial.reason == "ValueError: column missing"
    assert trial.segments == ()


def test_worker_pool_trial_beyond_timeout_is_stopped(pool: WorkerPool) -> None:
    trial = run(pool, "sleep", 60, TrialLimits(0.4, 2_000_000_000))
    assert trial.status is ExecutionStatus.TIMEOUT
    assert 0.4 <= measured(trial).runtime_seconds < 60
    assert "0.4 s" in trial.reason


@pytest.mark.slow
def test_worker_pool_trial_beyond_memory_limit_is_stopped(pool: WorkerPool) -> None:
    trial = run(pool, "allocate", 20_000, TrialLimits(30.0, 400_000_000))
    assert trial.status is ExecutionStatus.OUT_OF_MEMORY
    assert 400_000_000 < measured(trial).peak_memory_bytes < 900_000_000


def test_worker_pool_trial_with_memory_error_is_out_of_memory(pool: WorkerPool) -> None:
    assert run(pool, "memory_error", 0).status is ExecutionStatus.OUT_OF_MEMORY


@pytest.mark.slow
def test_killed_worker_is_out_of_memory_only_near_its_limit(
    pool: WorkerPool,
) -> None:
    capped = TrialLimits(30.0, 400_000_000)
    near = run(pool, "allocate_and_die", 250, capped)
    assert near.status is ExecutionStatus.OUT_OF_MEMORY
    far = run(pool, "kill", int(signal.SIGKILL), LIMITS)
    assert far.status is ExecutionStatus.FAILED


@pytest.mark.parametrize(
    ("task", "value", "said"),
    [("exit", 3, "exit code 3.*about to leave"), ("kill", int(signal.SIGSEGV), "SIGSEGV")],
)
def test_crashed_worker_fails_trial_with_exit_code_or_signal(
    pool: WorkerPool, task: str, value: int, said: str
) -> None:
    trial = run(pool, task, value)
    assert trial.status is ExecutionStatus.FAILED
    assert re.search(said, trial.reason)
    assert run(pool, "sleep", 0.0).status is ExecutionStatus.OK


def test_worker_is_reused_and_replaced_after_its_maximum_of_trials(pool: WorkerPool) -> None:
    pids = []
    for _ in range(6):
        assert run(pool, "sleep", 0.0).status is ExecutionStatus.OK
        pids.append(pid_of(pool))
    assert pids[:4] == [pids[0]] * 4
    assert pids[4:] == [pids[4]] * 2
    assert pids[0] != pids[4]
    assert not psutil.pid_exists(pids[0])


def test_worker_is_replaced_after_a_failure(pool: WorkerPool) -> None:
    first = run(pool, "pid", 0)
    second = run(pool, "pid", 0)
    assert first.reason.startswith("ValueError: pid ")
    assert first.reason != second.reason


@pytest.mark.slow
def test_worker_that_retains_memory_is_replaced(pool: WorkerPool) -> None:
    run(pool, "leak", 300)
    leaking = pid_of(pool)
    run(pool, "sleep", 0.0)
    assert pid_of(pool) != leaking


def capped(memory_bytes: int | None, task: str = "memory", value: object = 0) -> TrialRequest:
    return replace(request(task, value), memory_bytes=memory_bytes)


def test_worker_engines_receive_memory_limit_of_request(pool: WorkerPool) -> None:
    assert "told 1500000000," in pool.run(capped(1_500_000_000), LIMITS).reason
    assert "told None," in pool.run(capped(None), LIMITS).reason


def test_worker_serves_requests_of_one_memory_limit_only(pool: WorkerPool) -> None:
    for memory in (None, 1_500_000_000):
        assert pool.run(capped(memory, "sleep", 0.0), LIMITS).status is ExecutionStatus.OK
    assert [key.memory_bytes for key in pool._workers] == [None, 1_500_000_000]
    pids = {worker.child.pid for worker in pool._workers.values()}
    assert len(pids) == 2
    pool.run(capped(1_500_000_000, "sleep", 0.0), LIMITS)
    assert {worker.child.pid for worker in pool._workers.values()} == pids


@pytest.mark.slow
def test_request_memory_limit_below_trial_limit_stops_the_trial(pool: WorkerPool) -> None:
    trial = pool.run(capped(400_000_000, "allocate", 20_000), LIMITS)
    assert trial.status is ExecutionStatus.OUT_OF_MEMORY
    assert "of 400000000 bytes" in trial.reason
    assert 400_000_000 < measured(trial).peak_memory_bytes < 900_000_000


@pytest.mark.slow
def test_request_memory_limit_above_trial_limit_has_no_effect(pool: WorkerPool) -> None:
    limits = TrialLimits(30.0, 400_000_000)
    trial = pool.run(capped(2_000_000_000, "allocate", 20_000), limits)
    assert trial.status is ExecutionStatus.OUT_OF_MEMORY
    assert measured(trial).peak_memory_bytes < 900_000_000


def test_request_with_zero_memory_limit_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="memory_bytes"):
        capped(0)


def test_worker_temporary_directory_is_removed_on_close(pool: WorkerPool) -> None:
    found = re.search("in (/.*)", pool.run(capped(None), LIMITS).reason)
    assert found is not None
    assert "fedperf-trials-" in found[1]
    pool.close()
    assert not Path(found[1]).exists()


@pytest.mark.slow
def test_worker_pool_keeps_at_most_max_workers(pool: WorkerPool) -> None:
    for platform in (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS):
        pool.run(request("sleep", 0.0, platform=platform), LIMITS)
    pool.run(request("sleep", 0.0, threads=2), LIMITS)
    assert len(pool._workers) == 2


@pytest.mark.slow
def test_worker_pool_close_leaves_no_child_or_grandchild_process() -> None:
    before = set(psutil.Process().children(recursive=True))
    pool = WorkerPool(command=COMMAND)
    trial = run(pool, "start_child", 101.375, TrialLimits(0.5, 2_000_000_000))
    assert trial.status is ExecutionStatus.TIMEOUT
    run(pool, "sleep", 0.0)
    pool.close()
    assert set(psutil.Process().children(recursive=True)) <= before
    commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert ["sleep", "101.375"] not in commands


def test_worker_that_fails_to_get_ready_fails_the_trial(pool: WorkerPool) -> None:
    trial = pool.run(request("sleep", 0.0, platform=Platform.FLINK), LIMITS)
    assert trial.status is ExecutionStatus.FAILED
    assert "no such engine here" in trial.reason


def test_worker_command_that_cannot_start_fails_the_trial() -> None:
    with WorkerPool(command=("/no/such/program",)) as pool:
        trial = run(pool, "sleep", 0.0)
    assert trial.status is ExecutionStatus.FAILED
    assert "could not be started" in trial.reason


def test_worker_that_died_while_idle_is_replaced(pool: WorkerPool) -> None:
    run(pool, "sleep", 0.0)
    os.kill(pid_of(pool), signal.SIGKILL)
    time.sleep(0.1)
    assert run(pool, "sleep", 0.0).status is ExecutionStatus.OK


def test_worker_with_one_thread_is_pinned_to_one_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with WorkerPool(command=COMMAND, cores=cores) as pool:
        for threads in {1, len(cores)}:
            found = pool.run(request("cores", 0, threads=threads), LIMITS)
            assert found.reason == f"ValueError: cores {cores[-threads:]}"


@pytest.mark.slow
def test_worker_pool_measures_interference_and_excludes_own_load() -> None:
    with WorkerPool(command=COMMAND) as pool:
        run(pool, "sleep", 0.3)
        quiet = min(run(pool, "burn", 0.25).host_busy_cores for _ in range(3))
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loud:
            disturbed = max(run(pool, "sleep", 0.25).host_busy_cores for _ in range(2))
            loud.kill()
    assert disturbed - quiet > 0.2


def test_worker_pool_count_returns_reply_of_worker(shared_pool: WorkerPool) -> None:
    reply = shared_pool.count(request("sleep", 0.0), LIMITS)
    assert reply["steps"] == [[3, 8.0, 0.5]]


def test_worker_pool_count_with_error_raises_uncountable_program(pool: WorkerPool) -> None:
    with pytest.raises(UncountableProgramError, match="no such file"):
        pool.count(request("fail", "no such file"), LIMITS)


def test_worker_and_scratch_directory_end_with_parent_process() -> None:
    code = f"""
import os, sys
from pathlib import Path
from fedperf_engines.trials.profiler import WorkerPool
from fedperf_engines.trials.profiler import TrialLimits, TrialRequest
from fedperf_shared.workflow.vocabulary import Platform
pool = WorkerPool(command={COMMAND!r})
request = TrialRequest(b'{{"sleep": 0.0}}', (Platform.DUCKDB,), Path("/tmp"), 1)
pool.run(request, TrialLimits(20.0, 2e9))
(worker,) = pool._workers.values()
print(worker.child.pid, worker.scratch, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    child, scratch = done.stdout.split()
    deadline = time.monotonic() + 10
    while _runs(int(child)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(int(child))
    assert not Path(scratch).exists()


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("timeout", "memory"), [(0.0, 1), (float("nan"), 1), (1.0, 0), (2e6, 1)])
def test_trial_limits_with_invalid_values_are_refused(timeout: float, memory: int) -> None:
    with pytest.raises(InvalidInputError):
        TrialLimits(timeout, memory)


def test_trial_request_without_threads_or_platforms_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="threads"):
        request("sleep", 0.0, threads=0)
    with pytest.raises(InvalidInputError, match="platform"):
        TrialRequest(b"{}", (), Path("/tmp"), 1)


def test_warmed_worker_runs_the_next_trial(pool: WorkerPool) -> None:
    pool.warm(
        [WorkerKey(frozenset({Platform.DUCKDB}), 1), WorkerKey(frozenset({Platform.POLARS}), 1)]
    )
    warm = pid_of(pool)
    assert run(pool, "sleep", 0.0).status is ExecutionStatus.OK
    assert pid_of(pool) == warm


def test_warming_keeps_existing_workers_within_max_workers(pool: WorkerPool) -> None:
    platforms = (Platform.DUCKDB, *list(Platform)[2:6])
    pool.warm(WorkerKey(frozenset({platform}), 1) for platform in platforms)
    assert len(pool._workers) == 2
    warm = pid_of(pool)
    pool.warm([WorkerKey(frozenset({Platform.PANDAS}), 1)])
    assert pid_of(pool) == warm


@pytest.mark.slow
def test_worker_that_fails_to_warm_up_fails_its_next_trial() -> None:
    with WorkerPool(command=(sys.executable, "-c", "raise SystemExit(3)")) as pool:
        pool.warm([WorkerKey(frozenset({Platform.DUCKDB}), 1)])
        trial = run(pool, "sleep", 0.0)
    assert trial.status is ExecutionStatus.FAILED
    assert "exit code 3" in trial.reason
