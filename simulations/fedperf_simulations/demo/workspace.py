"""A demo's directory, and the programs that work in it.

A directory that was not made by a demo is never touched.
"""

import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fedperf_client.home.config import Home
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_simulations.demo.processes import ProgramCall, Programs, client, server
from fedperf_simulations.demo.scenario import DemoSize

HOST = "127.0.0.1"
MARKER = ".fedperf-demo"

Clock = Callable[[], datetime]
Sleep = Callable[[float], None]


class ForeignDirectoryError(InvalidInputError):
    """The output directory holds something that no demo wrote."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is not empty and was not written by a demo; name another with --out"
        )
        self.path = path


@dataclass(frozen=True, slots=True)
class DemoWorkspace:
    """The directory of a demo, and the means to run it.

    Attributes:
        out: directory of everything.
        seed: of everything that is drawn.
        size: how large its programs' part is.
        is_quick: whether the year in memory is a small one.
        programs: what was started.
        clock: moments with time zone.
        sleep: waits for so many seconds.
    """

    out: Path
    seed: int
    size: DemoSize
    is_quick: bool
    programs: Programs
    clock: Clock
    sleep: Sleep

    @property
    def coordinator(self) -> Path:
        """The coordinator's directory."""
        return self.out / "coordinator"

    def home(self, name: str) -> Home:
        """Return an organization's home."""
        return Home(self.out / name)

    def history(self, name: str) -> Path:
        """Return the file of an organization's earlier runs."""
        return self.out / "histories" / f"{name}.parquet"

    def client(self, step: str, name: str, *arguments: str) -> ProgramCall:
        """Return a command of an organization."""
        command = client(self.home(name).directory, *arguments)
        return ProgramCall(f"{name}: {step}", command, f"{name}.log")

    def server(self, step: str, *arguments: str) -> ProgramCall:
        """Return a command of the coordinator's operator."""
        return ProgramCall(
            f"coordinator: {step}", server(self.coordinator, *arguments), "operator.log"
        )


def fresh_directory(out: Path) -> Path:
    """`out`, empty: what an earlier demo left there is removed.

    Raises:
        ForeignDirectoryError: it holds something else.
        StorageError: it cannot be written.
    """
    marker = out / MARKER
    try:
        if out.exists() and any(out.iterdir()) and not marker.is_file():
            raise ForeignDirectoryError(out)
        if marker.is_file():
            shutil.rmtree(out)
        out.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise StorageError(f"cannot write {out}: {error.strerror}; name another --out") from error
    return out.resolve()


def free_ports(count: int) -> list[int]:
    """Unused ports of this machine."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
