"""Two hosts that only reach each other run the README's command lines, host by host.

Each host is a network namespace with its own address. A veth pair connects them.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from fedperf_client.sources.history_file import write_history
from fedperf_server.config import FILE_NAME
from tests.integration.organizations.deployments import (
    ROOT,
    command,
    environment,
    make_executions,
    make_public_files,
    now,
    pace_of_machine,
    wait_until,
    whole_second,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SERVER, CLIENT = "10.77.13.1", "10.77.13.2"
LEAD, REPORT, WINDOW = 30, 15, 80
"""Seconds on a machine of the usual speed. The calendar is stretched on slower machines."""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Yield the names of two namespaces, with addresses 10.77.13.1 and 10.77.13.2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip (iproute2)")
    names = (f"fedperf-s{os.getpid()}", f"fedperf-c{os.getpid()}")
    try:
        ip("netns", "add", names[0])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    try:
        ip("netns", "add", names[1])
        ends = (f"fs{os.getpid()}", f"fc{os.getpid()}")
        ip("link", "add", ends[0], "netns", names[0], "type", "veth",
           "peer", "name", ends[1], "netns", names[1])  # fmt: skip
        for name, end, address in zip(names, ends, (SERVER, CLIENT), strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


class Host:
    """Runs the README's command lines in one namespace."""

    def __init__(self, name: str, directory: Path, public: Path) -> None:
        self._name = name
        self._directory = directory
        directory.mkdir()
        self._environment: Mapping[str, str] = {
            **environment(public),
            "FEDPERF_HOME": str(directory / "home"),
            "FEDPERF_SERVER_DIRECTORY": str(directory / "server"),
            "PYTHONPATH": str(ROOT),
        }

    def _line(self, line: str) -> list[str]:
        program, *arguments = re.findall(r"[^ \"]+|\"[^\"]*\"", line)
        words = [each.strip('"') for each in arguments]
        return ["ip", "netns", "exec", self._name, *command(program, *words)]

    def run(self, line: str) -> str:
        return subprocess.run(
            self._line(line),
            cwd=self._directory,
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def start(self, line: str) -> "subprocess.Popen[bytes]":
        with (self._directory / "output.log").open("wb") as output:
            return subprocess.Popen(
                self._line(line),
                cwd=self._directory,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def output(self) -> str:
        return (self._directory / "output.log").read_text(errors="replace")


def set_calendar(path: Path, pace: float) -> None:
    """Edit the configuration as an operator does: a calendar of minutes instead of a year."""
    start = whole_second(now() + timedelta(seconds=LEAD * pace))
    text = path.read_text()
    calendar = f"""[calendar]
period_start = {start.isoformat()}
window_seconds = {WINDOW * pace:.1f}
windows = 1
report_slots = [{{ opens_after_seconds = {pace:.1f}, replies_after_seconds = {REPORT * pace:.1f} }}]
model_slots = []
"""
    path.write_text(text[: text.index("[calendar]")] + calendar)


def test_two_hosts_join_and_submit_a_report_with_documented_commands(
    tmp_path: Path, hosts: tuple[str, str]
) -> None:
    public = make_public_files(tmp_path / "public")
    there = Host(hosts[0], tmp_path / "coordinator", public)
    here = Host(hosts[1], tmp_path / "organization", public)
    write_history(tmp_path / "organization" / "history.parquet", make_executions(50, seed=1))

    pace = pace_of_machine()
    there.run(f"fedperf-server init --host {SERVER}")
    set_calendar(tmp_path / "coordinator" / "server" / FILE_NAME, pace)
    serving = there.start("fedperf-server run")
    try:
        wait_until(lambda: "serving" in there.output(), seconds=60, what="the coordinator")
        url = json.loads(there.run('fedperf-server org add "Acme" --json'))["join_url"]
        here.run("fedperf init --size small --workloads 200")
        joined = json.loads(here.run(f'fedperf join "{url}" --json'))
        (member,) = json.loads(there.run("fedperf-server org list --json"))["rows"]
        assert (member["name"], member["fingerprint"]) == ("Acme", joined["fingerprint"])
        assert joined["exchange"].startswith(f"{SERVER}:")
        here.run("fedperf ingest history.parquet")
        daemon = here.start("fedperf daemon")
        try:
            wait_until(
                lambda: "report handed in" in here.output(),
                seconds=(LEAD + WINDOW) * pace,
                what="a report",
            )
        finally:
            daemon.terminate()
            assert daemon.wait(30) == 0
        (listed,) = json.loads(here.run("fedperf release list --json"))["rows"]
        assert (listed["state"], listed["receipt"]) == ("confirmed", True)
        (member,) = json.loads(there.run("fedperf-server org list --json"))["rows"]
        assert (member["accepted"], member["refused"]) == (1, {})
    finally:
        print(
            there.output(),
            here.output() if (tmp_path / "organization" / "output.log").exists() else "",
        )
        serving.terminate()
        assert serving.wait(30) == 0
