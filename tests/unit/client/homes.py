"""Homes for tests of commands: made by `fedperf init`, on the tests' own public start."""

from pathlib import Path

import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from tests.unit.client.prediction.worlds import executions_of_world
from tests.unit.client.public import install_start
from tests.unit.shared.console_programs import Ended, run


def fedperf(home: Home, *arguments: object) -> Ended:
    return run(cli.main, "--home", home.directory, *arguments)


def empty_home(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    install_start(directory, monkeypatch)
    home = Home(directory / "home")
    assert fedperf(home, "init").code == 0
    return home


def with_history(home: Home) -> Home:
    """The home, with twelve executions in its store."""
    with ExecutionStore.open(home.store) as store:
        store.add(executions_of_world(0, 12, "own"))
    return home
