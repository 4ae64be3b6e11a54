"""One trial in real processes: measured resources, status, and cleanup of all processes."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fedperf_campaigns.campaign import trial_runner
from fedperf_campaigns.campaign.definition import Component, RunSettings
from fedperf_campaigns.campaign.journal import ResourceUse, TrialOutcome, TrialStatus
from fedperf_campaigns.campaign.trial_process import (
    ComponentEnd,
    run_components,
)
from fedperf_campaigns.campaign.trial_runner import (
    TOKEN_VARIABLE,
    TrialRunner,
    TrialStoppedError,
    kill_leftovers,
    own_seconds,
)
from fedperf_shared.errors import StorageError
from tests.fakes.functions import TOKEN, function_server

ROW = {"rows": 20_000, "workers": 2}
MARK = "271828"
"""A sleep duration that only tests use. A process with it is a leftover."""
CLOCK_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def runner(tmp_path: Path) -> TrialRunner:
    shutil.copy(Path(__file__).with_name("jobs.py"), tmp_path / "campaign_jobs.py")
    return TrialRunner(tmp_path, tmp_path / "scratch", stop=threading.Event())


@pytest.fixture(scope="module")
def functions() -> Iterator[str]:
    with function_server() as address:
        yield address


def shell(script: str, name: str = "job", after: tuple[str, ...] = ()) -> Component:
    return Component(name=name, command=("sh", "-c", script), after=after)


def python(script: str, name: str = "job", after: tuple[str, ...] = ()) -> Component:
    return Component(name=name, command=(sys.executable, "-S", "-c", script), after=after)


def function(name: str) -> Component:
    return Component.model_validate({"name": "job", "callable": f"campaign_jobs:{name}"})


def http(url: str, **more: object) -> Component:
    return Component.model_validate({"name": "job", "http": {"url": url, **more}})


def run(
    runner: TrialRunner, *components: Component, seconds: float = 30.0, memory: int | None = None
) -> TrialOutcome:
    return runner.run(
        components,
        ROW,
        limits=RunSettings(timeout_seconds=seconds, memory_bytes=memory),
        token=secrets.token_hex(),
    )


def sleeping() -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if MARK in (process.info["cmdline"] or ()) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def assert_nothing_left() -> None:
    deadline = time.monotonic() + 5
    while sleeping() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sleeping() == []


def test_trial_of_command_measures_time_cpu_and_memory(runner: TrialRunner) -> None:
    burn = "import time\nb = bytearray(50_000_000)\nwhile time.process_time() < 0.2: pass"
    outcome = run(runner, python(burn))
    assert outcome.status is TrialStatus.OK, outcome.reason
    used = outcome.resources
    assert outcome.wall_seconds is not None
    assert outcome.wall_seconds >= 0.2
    assert used.cpu_seconds is not None
    assert used.cpu_seconds >= 0.2
    assert used.peak_bytes is not None
    assert 50_000_000 < used.peak_bytes < 150_000_000
    assert used.context_switches is not None


def test_trial_counts_read_and_written_bytes_of_child_processes(runner: TrialRunner) -> None:
    outcome = run(
        runner,
        shell(
            "head -c 3000000 /dev/zero > {trial_directory}/x; cat {trial_directory}/x >/dev/null"
        ),
    )
    assert outcome.resources.written_bytes is not None
    assert outcome.resources.read_bytes is not None
    assert 6_000_000 <= outcome.resources.written_bytes < 6_500_000
    assert 6_000_000 <= outcome.resources.read_bytes < 7_000_000


def test_trial_of_short_command_measures_all_resources(runner: TrialRunner) -> None:
    used = run(runner, shell("true")).resources
    assert None not in (used.cpu_seconds, used.peak_bytes, used.read_bytes, used.written_bytes)


def test_peak_memory_of_command_is_exact_with_large_parent_process() -> None:
    ballast = b"x" * 200_000_000
    reaped = """
import subprocess, sys
from fedperf_campaigns.campaign.trial_process import reap
command = subprocess.Popen([sys.executable, "-S", "-c", "b = bytearray(50_000_000)"])
_, usage = reap(command.pid)
print(usage["peak_bytes"], usage["peak_is_exact"])
"""
    done = subprocess.run([sys.executable, "-c", reaped], stdout=subprocess.PIPE, check=True)
    peak, is_exact = done.stdout.split()
    del ballast
    assert 50_000_000 < int(peak) < 150_000_000
    assert is_exact == b"True"


def test_process_that_outlives_its_command_is_counted_and_killed(
    runner: TrialRunner, tmp_path: Path
) -> None:
    """The command ends after the surviving process has written its own CPU time."""
    said = tmp_path / "said"
    burn = (
        "import os, pathlib, time\n"
        "while time.process_time() < 0.15: pass\n"
        f'pathlib.Path("{said}.new").write_text(str(time.process_time()))\n'
        f'os.rename("{said}.new", "{said}")\n'
        "time.sleep(600)"
    )
    outcome = run(
        runner,
        shell(
            f"setsid sleep {MARK} & (setsid {sys.executable} -S -c '{burn}' &) ; "
            f"until [ -e {said} ]; do sleep 0.02; done"
        ),
    )
    assert outcome.status is TrialStatus.OK, outcome.reason
    assert outcome.resources.cpu_seconds is not None
    assert outcome.resources.cpu_seconds >= float(said.read_text()) - CLOCK_TICK_SECONDS
    assert_nothing_left()


@pytest.mark.slow
def test_cpu_time_of_trial_processes_is_not_interference(runner: TrialRunner) -> None:
    before = own_seconds()
    burn = f"setsid {sys.executable} -S -c 'while True: pass' & sleep 0.4"
    outcome = run(runner, shell(burn))
    assert outcome.resources.cpu_seconds is not None
    assert own_seconds() - before >= outcome.resources.cpu_seconds > 0


def test_trial_of_function_measures_time_startup_cpu_and_memory(runner: TrialRunner) -> None:
    outcome = run(runner, function("work"))
    assert outcome.status is TrialStatus.OK, outcome.reason
    used = outcome.resources
    assert outcome.wall_seconds is not None
    assert outcome.startup_seconds is not None
    assert outcome.startup_seconds > 0
    assert used.cpu_seconds is not None
    assert used.cpu_seconds >= 0.05
    assert used.peak_bytes is not None
    assert used.peak_bytes > 20_000_000
    assert used.read_bytes is not None


def test_trial_function_reads_file_written_by_earlier_component(runner: TrialRunner) -> None:
    write = shell("printf {rows} > {trial_directory}/rows", "write")
    read = function("read").model_copy(update={"after": ("write",)})
    outcome = run(runner, write, read)
    assert outcome.status is TrialStatus.OK, outcome.reason


@pytest.mark.parametrize(
    ("component", "status", "reason"),
    [
        (function("fail"), TrialStatus.FAILED, "RuntimeError: <b>20000</b> rows and 2 workers"),
        (function("leave"), TrialStatus.FAILED, "exit code 7"),
        (function("leave_a_child"), TrialStatus.FAILED, "exit code 7"),
        (function("run_out"), TrialStatus.OOM, "MemoryError"),
        (function("not_callable"), TrialStatus.FAILED, "cannot be called"),
        (function("nothing"), TrialStatus.FAILED, "cannot be imported: AttributeError"),
        (shell("echo oh no >&2; exit 3"), TrialStatus.FAILED, "job: exit code 3. oh no"),
        (shell("kill -9 $$"), TrialStatus.FAILED, "SIGKILL. (killed by somebody else)"),
        (shell("kill -9 $PPID; sleep 1"), TrialStatus.FAILED, "process was lost"),
        (Component(name="job", command=("no such program",)), TrialStatus.FAILED, "not be started"),
        (shell("printf '\\377\\376'; exit 1"), TrialStatus.FAILED, "exit code 1"),
    ],
)
def test_failed_trial_has_status_and_reason(
    runner: TrialRunner, component: Component, status: TrialStatus, reason: str
) -> None:
    outcome = run(runner, component)
    assert outcome.status is status
    assert reason in outcome.reason


def test_trial_beyond_timeout_is_killed_with_all_processes(runner: TrialRunner) -> None:
    outcome = run(runner, shell(f"setsid sleep {MARK} & sleep {MARK}"), seconds=0.3)
    assert outcome.status is TrialStatus.TIMEOUT
    assert outcome.reason == "stopped after 0.3 s"
    assert outcome.wall_seconds is not None
    assert outcome.wall_seconds >= 0.3
    assert_nothing_left()


def test_trial_beyond_memory_limit_is_killed(runner: TrialRunner) -> None:
    hungry = "import time\nb = bytearray(400_000_000)\ntime.sleep(600)"
    outcome = run(runner, python(hungry), memory=100_000_000)
    assert outcome.status is TrialStatus.OOM
    assert "of 100000000 bytes" in outcome.reason


def test_peak_memory_of_concurrent_components_is_summed(runner: TrialRunner) -> None:
    hold = "import time\nb = bytearray(40_000_000)\ntime.sleep(0.5)"
    outcome = run(runner, python(hold, "a"), python(hold, "b"))
    assert outcome.resources.peak_bytes is not None
    assert outcome.resources.peak_bytes > 80_000_000


def test_component_starts_when_its_dependencies_have_ended(runner: TrialRunner) -> None:
    outcome = run(
        runner,
        shell("sleep 0.1; echo a > {trial_directory}/a", "a"),
        shell("sleep 0.4", "b"),
        shell("cat {trial_directory}/a", "c", ("a",)),
        shell("true", "d", ("b", "c")),
    )
    assert outcome.status is TrialStatus.OK, outcome.reason
    spans = {each.component: each for each in outcome.spans}
    assert list(spans) == ["a", "c", "b", "d"]
    assert spans["a"].end_seconds <= spans["c"].start_seconds < spans["b"].end_seconds
    assert spans["b"].end_seconds <= spans["d"].start_seconds
    assert outcome.wall_seconds is not None
    assert outcome.wall_seconds >= 0.4


def test_failed_component_stops_remaining_components(runner: TrialRunner) -> None:
    outcome = run(
        runner,
        shell("sleep 0.1; exit 2", "a"),
        shell(f"sleep {MARK}", "b"),
        shell("true", "c", ("a",)),
    )
    assert outcome.status is TrialStatus.FAILED
    assert outcome.reason.startswith("a: exit code 2")
    assert_nothing_left()


def test_trial_runner_stop_kills_the_trial_in_flight(runner: TrialRunner, tmp_path: Path) -> None:
    stop = threading.Event()
    stopped = TrialRunner(tmp_path, tmp_path / "scratch", stop=stop)
    threading.Timer(0.4, stop.set).start()
    with pytest.raises(TrialStoppedError):
        run(stopped, shell(f"sleep {MARK}"))
    assert_nothing_left()


def test_scratch_directory_is_removed_after_the_trial(runner: TrialRunner, tmp_path: Path) -> None:
    run(runner, shell("touch {trial_directory}/x"))
    assert not (tmp_path / "scratch").exists()


def test_relative_scratch_directory_is_resolved_before_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job").mkdir()
    monkeypatch.chdir(tmp_path)
    runner = TrialRunner(tmp_path / "job", Path("scratch"), stop=threading.Event())
    outcome = run(runner, shell("touch {trial_directory}/x"))
    assert outcome.status is TrialStatus.OK, outcome.reason


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_directories_in_scratch_are_removed(runner: TrialRunner, tmp_path: Path) -> None:
    script = "mkdir -p {trial_directory}/a/b; touch {trial_directory}/a/b/x; "
    run(runner, shell(script + "ln -s / {trial_directory}/all; chmod -R a-w {trial_directory}/a"))
    assert not (tmp_path / "scratch").exists()


def test_scratch_directory_that_cannot_be_written_raises_storage_error(tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("a file")
    with pytest.raises(StorageError, match="cannot write"):
        run(TrialRunner(tmp_path, tmp_path / "scratch", stop=threading.Event()), shell("true"))


def test_trial_output_beyond_log_limit_is_discarded(
    runner: TrialRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_runner, "MOST_LOG_BYTES", 1_000_000)
    script = "head -c 3000000 /dev/zero; sleep 0.3; du -sk {trial_directory}/../logs >&2; exit 1"
    outcome = run(runner, shell(script))
    (kibibytes,) = re.findall(r"(\d+) \S*/logs", outcome.reason)
    assert int(kibibytes) < 100
    assert outcome.resources.written_bytes is not None
    assert outcome.resources.written_bytes >= 3_000_000


def test_component_that_raises_os_error_is_a_failure() -> None:
    def breaks() -> ComponentEnd:
        raise OSError(28, "no space left")

    reply = run_components({"job": breaks}, {"job": []})
    assert reply["status"] == "failed"
    assert reply["reason"] == "job: OSError: [Errno 28] no space left"


def test_campaign_files_never_shadow_modules_of_trial_process(
    runner: TrialRunner, tmp_path: Path
) -> None:
    for name in ("json", "orjson", "subprocess", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')")
    assert run(runner, shell("true")).status is TrialStatus.OK
    assert run(runner, function("work")).status is TrialStatus.OK


def test_leftover_processes_are_found_by_token_and_killed() -> None:
    command = ["sleep", MARK]
    with subprocess.Popen(command, env=os.environ | {TOKEN_VARIABLE: "lost one"}) as process:
        assert kill_leftovers(["another", "lost one"]) == 1
        assert process.wait(5) == -signal.SIGKILL


def test_http_trial_measures_time_and_leaves_resources_empty(
    runner: TrialRunner, functions: str
) -> None:
    outcome = run(runner, http(f"{functions}/function/slow"))
    assert outcome.status is TrialStatus.OK, outcome.reason
    assert outcome.wall_seconds is not None
    assert outcome.wall_seconds >= 0.2
    assert outcome.resources == ResourceUse()
    (span,) = outcome.spans
    assert span.resources == ResourceUse()
    assert span.compute_seconds is not None
    assert span.compute_seconds >= 0.2
    assert span.queue_seconds is not None
    assert 0 <= span.queue_seconds <= outcome.wall_seconds - span.compute_seconds + 0.01


def test_http_trial_reads_queue_and_compute_seconds_from_reply(
    runner: TrialRunner, functions: str
) -> None:
    (span,) = run(runner, http(f"{functions}/function/timed", method="GET")).spans
    assert (span.queue_seconds, span.compute_seconds) == (0.1255, 0.25)


@pytest.mark.slow
def test_http_trial_reads_token_from_environment(
    runner: TrialRunner, functions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = http(f"{functions}/run/echo", token_env="OSCAR_TOKEN", body='{"rows": {rows}}')
    assert "holds no token" in run(runner, call).reason
    monkeypatch.setenv("OSCAR_TOKEN", "wrong")
    assert "status 401 instead of 200" in run(runner, call).reason
    monkeypatch.setenv("OSCAR_TOKEN", TOKEN)
    assert run(runner, call).status is TrialStatus.OK


@pytest.mark.parametrize("token", [TOKEN + "\r", f"x\n{TOKEN}", f" {TOKEN}", TOKEN + "\u00e9"])
def test_http_token_unusable_in_header_is_refused_and_not_printed(
    runner: TrialRunner, functions: str, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("OSCAR_TOKEN", token)
    outcome = run(runner, http(f"{functions}/run/echo", token_env="OSCAR_TOKEN"))
    assert outcome.status is TrialStatus.FAILED
    assert "OSCAR_TOKEN holds no token" in outcome.reason
    assert TOKEN not in outcome.reason


@pytest.mark.parametrize("before", [0, 250, 290, 298])
def test_http_token_echoed_in_reply_is_redacted_from_reason(
    runner: TrialRunner, functions: str, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setenv("OSCAR_TOKEN", TOKEN)
    said = {"token_env": "OSCAR_TOKEN", "expected_status": 404, "body": before * "-" + TOKEN}
    outcome = run(runner, http(f"{functions}/run/echo", **said))
    assert outcome.reason.startswith("job: status 200 instead of 404")
    assert TOKEN[:3] not in outcome.reason


@pytest.mark.slow
def test_http_trial_with_unexpected_reply_fails(runner: TrialRunner, functions: str) -> None:
    broken = run(runner, http(f"{functions}/function/broken"))
    assert broken.status is TrialStatus.FAILED
    assert "status 500 instead of 200. <b>it broke</b>" in broken.reason
    assert run(runner, http(f"{functions}/x", expected_status=404)).status is TrialStatus.OK
    assert "ConnectError" in run(runner, http("http://127.0.0.1:9/")).reason
    missing = run(runner, http(functions, body_file="no-such-file")).reason
    assert missing.startswith("job: ")
    assert "no-such-file" in missing
    hangs = run(runner, http(f"{functions}/function/hang"), seconds=0.5)
    assert hangs.status is TrialStatus.TIMEOUT
