"""`fedperf simulate` starts `fedperf-sim`, where that is installed, and ends as it ends."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from tests.unit.shared.console_programs import Ended, run


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.create("")
    return found


def fedperf(home: Home, *arguments: object) -> Ended:
    return run(cli.main, "--home", home.directory, *arguments)


def install(directory: Path, patch: pytest.MonkeyPatch, *, code: int = 0) -> Path:
    """A `fedperf-sim` on the path that writes down how it was called."""
    said = directory / "said"
    program = directory / "fedperf-sim"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {said}\nexit {code}\n')
    program.chmod(0o755)
    patch.setenv("PATH", str(directory))
    return said


def test_it_passes_on_what_it_was_asked(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = install(tmp_path, monkeypatch)
    options = ("--joining-day", "2026-12-01", "--calendar", "next.toml", "--members", 2)
    assert fedperf(home, "simulate", *options, "--plot", "year.html", "--json").code == 0
    assert said.read_text().split("\n")[:-1] == [
        *("rehearse", str(home.directory), "--members", "2", "--seed", "0"),
        *("--joining-day", "2026-12-01T00:00:00", "--calendar", "next.toml"),
        *("--plot", "year.html", "--json"),
    ]


def test_simulate_exit_code_is_that_of_its_process(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, code=3)
    assert fedperf(home, "simulate").code == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_it_ends_the_rehearsal_as_well(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    install(tmp_path, monkeypatch)
    ready = tmp_path / "ready"
    program = tmp_path / "fedperf-sim"
    program.write_text(
        # No shell: it cannot listen to what was ignored when the tests were started.
        f"#!{sys.executable} -S\nimport signal, sys, time\n"
        "for each in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(each, lambda *_: sys.exit(130))\n"
        f"open({str(ready)!r}, 'w').close()\ntime.sleep(60)\n"
    )

    def end_it() -> None:
        while not ready.exists():
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(os.getpid(), number)

    ending = threading.Thread(target=end_it)
    ending.start()
    assert fedperf(home, "simulate").code == 130
    ending.join()


def test_where_simulations_are_not_installed_one_line_says_what_to_do(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    ended = fedperf(home, "simulate")
    assert ended.code == 3
    assert "install the whole of fedperf" in ended.complaint()


def test_a_home_that_is_none_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = install(tmp_path, monkeypatch)
    ended = fedperf(Home(tmp_path / "nowhere"), "simulate")
    assert ended.code == 3
    assert "fedperf init" in ended.complaint()
    assert not said.exists()


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--joining-day", "yesterday", "'yesterday' is no day or moment like 2027-01-01"),
        ("--plot", "year.txt", "--plot writes a .html file, got year.txt"),
    ],
)
def test_a_wrong_value_is_one_line_that_says_what_would_be_right(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str, says: str
) -> None:
    said = install(tmp_path, monkeypatch)
    ended = fedperf(home, "simulate", option, value)
    assert ended.code == 3
    assert says in ended.complaint()
    assert not said.exists()
