"""Data directories as `fedperf init` creates them, with the tests' own pretrained model."""

from pathlib import Path

import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.encoding import home_encoder
from fedperf_client.release.policy import policy_template
from fedperf_shared.releases.release import SizeClass
from tests.unit.client.prediction.synthetic_executions import executions_of_world
from tests.unit.client.pretrained_model import install_start
from tests.unit.shared.console_programs import Ended, run


def fedperf(home: Home, *arguments: object) -> Ended:
    return run(cli.main, "--home", home.directory, *arguments)


def made_home(directory: Path, *, workloads: int = 200) -> Home:
    """Return a new data directory like one of `fedperf init`."""
    home = Home(directory)
    home.create(policy_template(SizeClass.SMALL, workloads))
    return home


def empty_home(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    install_start(directory, monkeypatch)
    return made_home(directory / "home")


def with_history(home: Home) -> Home:
    """Store twelve executions in the data directory, as `fedperf ingest` does."""
    with ExecutionStore.open(home.store) as store:
        store.add(executions_of_world(0, 12, "own"), home_encoder())
    return home
