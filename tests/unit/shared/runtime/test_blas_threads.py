"""Tests of BLAS threads: programs use one for small matrices, user code keeps its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) == 1, reason="one core has one thread anyway"
)

PROGRAM = """
import os, subprocess, sys
from {package} import cli
from fedperf_client.workers.worker_process import WorkerProcess
from threadpoolctl import threadpool_info

def blas():
    import numpy, scipy.linalg
    numpy.linalg.svd(numpy.eye(200))
    found = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
    assert len(found) == 2, found
    return sorted(found)

def torch_threads():
    import torch
    return torch.get_num_threads()

def shown():
    print({what})

if __name__ == "__main__":
    cli.app = shown
    cli.main()
"""


def answer(tmp_path: Path, what: str, *, first: str = "", package: str = "fedperf_client") -> str:
    """Return the output of a program. Several threads compute unless the program limits them."""
    script = tmp_path / "program.py"
    script.write_text(first + PROGRAM.replace("{what}", what).replace("{package}", package))
    unset = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    ended = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "import numpy\n", "import numpy, scipy.linalg\n"])
def test_blas_uses_one_thread_even_if_loaded_before_the_program(tmp_path: Path, first: str) -> None:
    assert answer(tmp_path, "blas()", first=first) == "[1, 1]"


@pytest.mark.slow
@pytest.mark.parametrize("package", ["fedperf_client", "fedperf_server", "fedperf_simulations"])
def test_blas_uses_one_thread_in_every_program(tmp_path: Path, package: str) -> None:
    assert answer(tmp_path, "blas()", package=package) == "[1, 1]"


def test_blas_uses_one_thread_in_worker_processes(tmp_path: Path) -> None:
    with_worker = "WorkerProcess(()).__enter__()(__import__('program').blas)"
    assert answer(tmp_path, with_worker) == "[1, 1]"


@pytest.mark.slow
def test_torch_training_keeps_multiple_threads(tmp_path: Path) -> None:
    assert int(answer(tmp_path, "torch_threads()")) > 1


def test_child_process_of_a_program_inherits_no_blas_thread_limit(tmp_path: Path) -> None:
    code = "import os; print(os.getenv('OPENBLAS_NUM_THREADS'))"
    started = f"subprocess.check_output([sys.executable, '-c', {code!r}], env=dict(os.environ))"
    assert answer(tmp_path, f"{started}.decode().strip()") == "None"
