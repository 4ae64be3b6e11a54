"""Two programs never work on one directory, and a killed one leaves no lock."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedperf_shared.single import RunsAlreadyError, single_program

HOLD = """
import sys, time
from pathlib import Path
from fedperf_shared.single import single_program
with single_program(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_program_is_refused_by_pid_until_the_first_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(RunsAlreadyError, match=f"process {first.pid};"):
            single_program(tmp_path).__enter__()
        first.kill()
        first.wait(10)
        with single_program(tmp_path):
            pass
