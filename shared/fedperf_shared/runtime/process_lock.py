"""One process at a time: a lock on a file that the kernel takes back when its holder ends.

However it ends, kill -9 included. The file holds the holder's process id, for people.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedperf_shared.errors import StorageError


class InUseError(StorageError):
    """Another process holds the lock."""

    def __init__(self, what: str, holder: str) -> None:
        super().__init__(f"{what} is in use by process {holder or 'unknown'}; end that one first")


@contextmanager
def process_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path` while inside.

    Args:
        path: of the file, made where there is none; it stays.
        what: is locked, for the message.

    Raises:
        InUseError: another process holds it.
        StorageError: the file cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """Whether a process holds the lock at `path` now; not where there is no such file.

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
