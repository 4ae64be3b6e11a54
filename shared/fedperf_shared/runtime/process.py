"""Locks, private files, resources and signals of a process.

The kernel releases a lock when its holder ends, even by kill -9. The lock file contains the process
id of the holder, for people.
"""

import contextlib
import fcntl
import logging
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Self

from fedperf_shared.errors import StorageError

_OWNER_ONLY = 0o600
_OTHERS = 0o077


class InUseError(StorageError):
    """Another process holds the lock."""

    def __init__(self, what: str, holder: str) -> None:
        super().__init__(f"{what} is in use by process {holder or 'unknown'}; end that one first")


@contextmanager
def process_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path` while inside.

    Args:
        path: the lock file. It is created if missing, and stays.
        what: the name of the locked thing, for the message.

    Raises:
        InUseError: another process holds it.
        StorageError: the file cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
            raise InUseError(what, holder) from None
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at `path` now.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def create_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists.

    A failure is left to the caller that opens the file and can explain it.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY))


def close_to_others(path: Path) -> None:
    """Remove all rights of others to a file of this user, for any umask."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_mode & _OTHERS:
            path.chmod(_OWNER_ONLY)


class Closing(ABC):
    """A resource that is closed at the end of its `with` block, with or without an error."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release the resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def stop_on_signals() -> threading.Event:
    """Return an event that SIGINT or SIGTERM sets. A second signal has its usual effect."""
    stop = threading.Event()

    def set_stop(number: int, frame: FrameType | None) -> None:
        del frame
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, set_stop)
    return stop


def quiet_flower() -> None:
    """Turn off Flower's telemetry, update check and output.

    Call it before anything imports flwr, which reads these settings once.
    """
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    logging.getLogger("flwr").disabled = True
    logging.getLogger("httpx").setLevel(logging.WARNING)
