"""Fifty kills of releasing processes. `python -m tests.fault.kill_ledger` runs a thousand."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.fault


def test_ledger_harness_passes_with_fifty_kills() -> None:
    """The kills run in a separate process with one thread, which may fork."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fault.kill_ledger", "--kills", "50", "--seed", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "50 kills" in ended.stdout


def test_ledger_kill_harness_imports_no_torch() -> None:
    script = "import sys, tests.fault.kill_ledger; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"
