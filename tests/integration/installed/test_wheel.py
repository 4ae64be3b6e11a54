"""The wheel's base installation, with tested versions in a fresh environment, on Spark logs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.pages.test_participant_pages import write_logs
from tests.shape.installed import built_wheel, constraints, environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HEAVY = ("torch", "flwr", "sdv", "opendp", "grpc", "duckdb", "sqlalchemy", "pyarrow")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    wheel = built_wheel(place)
    return environment(place / "env", sys.executable, "-c", constraints(place), wheel)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("spark") / "logs"
    write_logs(directory)
    return directory


def run(python: Path, home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    program = python.parent / "fedperf"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [program, "--home", home, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        cwd=home.parent,
    )


def test_base_wheel_installs_no_packages_of_other_roles(python: Path) -> None:
    code = f"from importlib.util import find_spec; print([m for m in {HEAVY} if find_spec(m)])"
    assert subprocess.check_output([python, "-c", code], text=True).strip() == "[]"


def test_base_wheel_diagnoses_ingests_predicts_and_advises(
    python: Path, logs: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    assert run(python, home, "diagnose", logs, "--json").returncode == 0
    assert run(python, home, "init").returncode == 0
    assert run(python, home, "ingest", logs).returncode == 0
    rows = json.loads(run(python, home, "runs", "--json").stdout)["rows"]
    assert len(rows) == 6
    predicted = run(python, home, "predict", "--execution", rows[0]["id"], "--json")
    assert predicted.returncode == 0, predicted.stderr
    assert json.loads(predicted.stdout)["predictions"]
    assert run(python, home, "advise", next(logs.iterdir()), "--json").returncode == 0


@pytest.mark.parametrize("words", [("daemon",), ("simulate",), ("profile", "campaign.toml")])
def test_base_wheel_command_without_extra_fails_in_one_line_writing_no_file(
    python: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    run(python, home, "init")
    (tmp_path / "campaign.toml").write_text('name = "x"\n')
    before = sorted(home.rglob("*"))
    done = run(python, home, *words)
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(home.rglob("*")) == before
