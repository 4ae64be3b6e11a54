"""The installed Spark runs applications with one fault each; diagnosis finds it in their logs."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.client.diagnosis.test_spark_faults import check

PROGRAM = Path(__file__).with_name("spark_faults.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
        reason="needs Java and the extra [spark]",
    ),
]


@pytest.mark.parametrize("name", ["straggler", "duplicate", "small_files_read", "killed_driver"])
def test_fault_of_the_installed_spark_is_found(tmp_path: Path, name: str) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path), name]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    (log,) = tmp_path.glob(f"{name}-*.gz")
    check(log, tmp_path)
