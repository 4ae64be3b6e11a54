"""Tests of slow-test selection in `make check` and of resumption in `make nightly`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

def test_fast(): ...

@pytest.mark.slow
def test_first(): ...

@pytest.mark.fault
def test_second(): assert {passes}
"""


def run(directory: Path, *options: str) -> set[str]:
    """Return the names of the tests that ran."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    places = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(directory), str(directory)]
    ended = subprocess.run(
        [*command, "-v", *options, *places], cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = [line for line in ended.stdout.splitlines() if "::" in line and "%" in line]
    return {line.partition("::")[2].split()[0] for line in lines}


def test_first_of_each_option_skips_later_slow_tests_of_a_file(tmp_path: Path) -> None:
    for name in ("test_one.py", "test_other.py"):
        (tmp_path / name).write_text(TESTS.format(passes=True))
    assert run(tmp_path, "--first-of-each") == {"test_fast", "test_first"}
    assert run(tmp_path) == {"test_fast", "test_first", "test_second"}


def test_resume_option_reruns_only_tests_that_did_not_pass(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(TESTS.format(passes=False))
    passed = tmp_path / "out" / "passed"
    assert run(tmp_path, "--resume", str(passed)) == {"test_fast", "test_first", "test_second"}
    assert run(tmp_path, "--resume", str(passed)) == {"test_second"}
