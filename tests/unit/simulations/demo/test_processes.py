import os
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from fedperf_simulations.demo.processes import (
    ProgramCall,
    Programs,
    StepFailedError,
    client,
    server,
)


def python(code: str, *, step: str = "a step", seconds: float = 20.0) -> ProgramCall:
    return ProgramCall(step, (sys.executable, "-c", code), "one.log", seconds)


@pytest.fixture
def programs(tmp_path: Path) -> "Programs":
    return Programs(tmp_path / "logs", dict(os.environ))


def test_program_facts_returns_the_json_that_the_program_prints(programs: Programs) -> None:
    with programs:
        assert programs.facts(python("print('{\"a\": 1}')")) == {"a": 1}


def test_program_failure_message_names_step_reason_and_log(programs: Programs) -> None:
    failing = python("import sys; print('error: no room', file=sys.stderr); sys.exit(4)")
    with programs, pytest.raises(StepFailedError) as caught:
        programs.call(failing)
    message = str(caught.value)
    assert message.startswith("a step failed: exit code 4, no room; read ")
    assert message.endswith("one.log")
    assert "no room" in programs.log_of("one.log")


def test_program_exceeding_its_time_limit_is_stopped(programs: Programs) -> None:
    with programs, pytest.raises(StepFailedError, match=r"longer than 0\.3 s"):
        programs.call(python("import time; time.sleep(60)", seconds=0.3))


def test_program_lines_are_streamed_and_a_failing_exit_raises(programs: Programs) -> None:
    code = "import sys; print('one', flush=True); print('two', flush=True); sys.exit(4)"
    with programs:
        lines = programs.lines(python(code))
        assert [next(lines), next(lines)] == [b"one\n", b"two\n"]
        with pytest.raises(StepFailedError, match="exit code 4"):
            next(lines)


def test_concurrent_programs_report_the_step_that_failed_by_itself(programs: Programs) -> None:
    waiting = python("import time; time.sleep(60)", step="waiting")
    failing = python("import sys; sys.exit('no room')", step="failing")

    def nested() -> object:
        return programs.together([partial(programs.call, failing)], at_once=1)

    with programs, pytest.raises(StepFailedError, match="failing failed: exit code 1, no room"):
        programs.together([lambda: list(programs.lines(waiting)), nested], at_once=2)


@pytest.mark.slow
def test_program_runs_in_one_thread_despite_environment_settings(tmp_path: Path) -> None:
    many = {"OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "7", "OPENBLAS_NUM_THREADS": "7"}
    with Programs(tmp_path / "logs", {**os.environ, **many}) as programs:
        assert programs.facts(python("import torch; print(torch.get_num_threads())")) == 1


def test_program_facts_of_invalid_json_raise_step_failed_error(programs: Programs) -> None:
    with programs, pytest.raises(StepFailedError, match="no JSON"):
        programs.facts(python("print('hello')"))


def test_program_that_does_not_exist_raises_step_failed_error(
    programs: Programs, tmp_path: Path
) -> None:
    missing = ProgramCall("looking", (str(tmp_path / "missing"),), "one.log")
    with programs, pytest.raises(StepFailedError, match="cannot be started"):
        programs.call(missing)


def test_programs_block_left_by_interrupt_stops_all_processes(
    programs: Programs, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    write = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt), programs:  # noqa: PT012
        programs.start(python(write))
        while not (pid_file.exists() and pid_file.read_text()):
            time.sleep(0.02)
        raise KeyboardInterrupt
    assert not psutil.pid_exists(int(pid_file.read_text()))
    with pytest.raises(StepFailedError, match="being stopped"):
        programs.call(python("pass"))


def test_concurrent_programs_are_stopped_after_the_first_failure(programs: Programs) -> None:
    works = [
        partial(programs.call, python("import time; time.sleep(1000)")),  # beyond the time limit
        partial(programs.call, python("import sys; sys.exit(3)", step="the bad one")),
    ]
    with programs, pytest.raises(StepFailedError, match="the bad one failed: exit code 3"):
        programs.together(works, at_once=2)


def test_programs_check_detects_service_that_ended_by_itself(programs: Programs) -> None:
    with programs:
        programs.start(python("print('error: no such port')", step="serving"))
        with pytest.raises(StepFailedError, match="serving failed: exit code 0, no such port"):  # noqa: PT012
            for _ in range(200):
                programs.check()
                time.sleep(0.05)


def test_programs_after_pausing_services_accept_further_calls(programs: Programs) -> None:
    with programs:
        before = set(psutil.Process().children())
        programs.start(python("import time; time.sleep(60)"))
        (service,) = set(psutil.Process().children()) - before
        programs.pause()
        assert not service.is_running()
        programs.check()
        assert programs.call(python("print(1)")) == b"1\n"


def test_join_url_secret_is_removed_from_logs(programs: Programs) -> None:
    joining = ProgramCall(
        "joining", (sys.executable, "-c", "", "fedperf://host:1/#secret"), "one.log"
    )
    with programs:
        programs.call(joining)
    assert "fedperf://host:1/#..." in programs.log_of("one.log")
    assert "secret" not in programs.log_of("one.log")


def test_programs_inherit_the_environment_without_fedperf_variables(tmp_path: Path) -> None:
    environment = {**os.environ, "FEDPERF_HOME": "/somebody/elses", "KEPT": "yes"}
    asked = python("import os; print(os.environ.get('FEDPERF_HOME'), os.environ['KEPT'])")
    with Programs(tmp_path, environment) as programs:
        assert programs.call(asked) == b"None yes\n"


def test_demo_commands_use_the_installed_programs(tmp_path: Path) -> None:
    script, *rest = client(tmp_path, "status", "--json")
    assert Path(script).name == "fedperf"
    assert rest == ["--home", str(tmp_path), "status", "--json"]
    assert Path(server(tmp_path, "run")[0]).name == "fedperf-server"
