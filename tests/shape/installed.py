"""Installs the wheel in fresh environments: how large a role is, whether newest versions fit.

    python -m tests.shape.installed sizes [--extras join,simulate]
    python -m tests.shape.installed newest [--extras join]
    python -m tests.shape.installed beside

`sizes` prints MB and CPU seconds of base and extras, with tested versions (constraints.txt).
`newest` runs fast tests with the newest versions that the bounds allow, on each Python that is
found. `beside` asks pip whether the base resolves with what its users have; nothing is installed.
Torch is no part of any set here, so that pip takes no CUDA.
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHONS = ("python3.11", "python3.12", "python3.13")
NEIGHBOURS = ("dbt-core==1.10.*", "apache-airflow==3.3.*", "pandas", "mlflow", "jupyterlab")
TESTERS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
BASE_TESTS = (
    "tests/unit/client/diagnosis",
    "tests/unit/client/prediction/changes",
    "tests/unit/client/home",
    "tests/unit/client/sources",
    "tests/unit/client/formatting",
)
NEED_MORE = (
    "tests/unit/client/prediction/changes/test_adwin.py",
    "tests/unit/client/release/test_noise.py",
    "tests/unit/client/release/test_preview.py",
    "tests/unit/client/sources/duckdb",
    "tests/unit/client/sources/test_follower.py",
    "tests/unit/client/sources/test_history_file.py",
    "tests/unit/client/sources/test_ingestion.py",
    "tests/unit/client/sources/test_kinds.py",
)
"""Tests of the rooms above that compare with a library of another extra, or write its files."""
JOIN_TESTS = (
    "tests/unit/client/release",
    "tests/unit/client/contributions/test_directed_report.py",
    "tests/unit/client/contributions/test_linearized_update.py",
    "tests/unit/client/contributions/test_report_mechanism.py",
)
_MB = 1e6


def built_wheel(directory: Path) -> Path:
    """Build the wheel of this checkout."""
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", directory, CHECKOUT)
    return next(directory.glob("fedperf-*.whl"))


def environment(directory: Path, python: str, *arguments: object) -> Path:
    """Make an environment, install into it, return its Python."""
    _run(python, "-m", "venv", directory)
    made = directory / "bin" / "python"
    _run(made, "-m", "pip", "install", "-q", *arguments)
    return made


def constraints(directory: Path) -> Path:
    """Write the tested versions without extras, which pip refuses in constraints."""
    path = directory / "constraints.txt"
    text = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8")
    path.write_text(re.sub(r"\[[^\]]*\]", "", text), encoding="utf-8")
    return path


def size_of(directory: Path) -> float:
    """Return the MB of all files below."""
    files = (each for each in directory.rglob("*") if each.is_file() and not each.is_symlink())
    return sum(each.stat().st_size for each in files) / _MB


def sizes(wheel: Path, extras: Sequence[str], place: Path) -> Iterator[str]:
    """Yield a line for base and each extra: MB without and with bytecode, CPU seconds."""
    tested = constraints(place)
    for extra in ("", *extras):
        what = f"{wheel}[{extra}]" if extra else str(wheel)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        made = environment(
            place / f"size-{extra}", sys.executable, "--no-compile", "-c", tested, what
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        bare = size_of(made.parents[1])
        _run(made, "-m", "compileall", "-q", made.parents[1] / "lib", check=False)
        compiled = size_of(made.parents[1])
        size = f"{bare:6.0f} MB {compiled:6.0f} MB compiled"
        yield f"{extra or 'base':12} {size} {seconds:5.0f} CPU s"


def newest(wheel: Path, extras: Sequence[str], place: Path) -> Iterator[str]:
    """Yield a line for each Python and role: whether its fast tests pass."""
    for python in filter(_runs, PYTHONS):
        for extra in ("", *extras):
            what = f"{wheel}[{extra}]" if extra else str(wheel)
            tests = (*BASE_TESTS, *(JOIN_TESTS if extra else ()))
            made = environment(place / f"{python}-{extra}", python, what, *TESTERS)
            marks = "not slow and not statistical and not fault"
            ignored = [f"--ignore={each}" for each in NEED_MORE]
            words = ["-q", "-n", "2", "-m", marks, *ignored, *tests]
            done = _run(made, "-m", "pytest", *words, check=False)
            verdict = "passes" if done.returncode == 0 else "FAILS"
            yield f"{python:12} {extra or 'base':8} {verdict}\n{done.stdout[-2000:]}"


def beside(wheel: Path) -> Iterator[str]:
    """Yield a line for each neighbour: whether pip finds versions for both."""
    for neighbour in NEIGHBOURS:
        asked = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-q"]
        done = _run(*asked, wheel, neighbour, check=False)
        last = (done.stderr.strip().splitlines() or [""])[-1]
        yield f"{neighbour:24} {'resolves' if done.returncode == 0 else last}"


def _runs(python: str) -> bool:
    """Whether there is such a Python; a shim of a version that is not installed is none."""
    return shutil.which(python) is not None and not _run(python, "-V", check=False).returncode


def _run(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(each) for each in command]
    return subprocess.run(
        words, check=check, capture_output=True, text=True, env=kept, cwd=CHECKOUT
    )


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["sizes", "newest", "beside"])
    parser.add_argument("--extras", default="join")
    options = parser.parse_args()
    extras = [each for each in options.extras.split(",") if each]
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        wheel = built_wheel(place)
        lines = {
            "sizes": lambda: sizes(wheel, extras, place),
            "newest": lambda: newest(wheel, extras, place),
            "beside": lambda: beside(wheel),
        }[options.what]()
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
