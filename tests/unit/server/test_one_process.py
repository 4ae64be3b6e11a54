"""Tests of `fedperf-server run`: one process serves a directory."""

import os
from pathlib import Path

import pytest

from fedperf_server import cli
from fedperf_server.config import ServerConfig
from tests.unit.shared.console_programs import Ended, run


def server(directory: Path, *arguments: str) -> Ended:
    return run(cli.main, "--directory", directory, *arguments)


def test_server_run_on_directory_in_use_is_refused_and_names_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "server"
    assert server(directory, "init", "--host", "127.0.0.1").code == 0
    refused: list[Ended] = []

    def serve(config: ServerConfig, stop: object, *, clock: object) -> None:
        del stop, clock
        if refused:
            pytest.fail("two serve one directory")
        refused.append(server(config.directory, "run"))

    monkeypatch.setattr("fedperf_server.app.process.run_server", serve)
    assert server(directory, "run").code == 0
    (second,) = refused
    assert (second.code, second.out) == (4, "")
    assert f"is in use by process {os.getpid()};" in second.complaint()
