"""Fifty kills at random moments; `python -m tests.fault.kill_ledger` makes a thousand."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.fault


def test_fifty_kills_break_no_promise() -> None:
    """In a process of its own, which has one thread and so may fork."""
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


def test_the_harness_starts_without_torch() -> None:
    script = "import sys, tests.fault.kill_ledger; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"
