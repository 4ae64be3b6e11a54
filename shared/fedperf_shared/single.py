"""One program at a time on a directory: a lock that ends with the process that holds it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedperf_shared.errors import StorageError


class RunsAlreadyError(StorageError):
    """Another process works on the directory."""

    def __init__(self, directory: Path, pid: str) -> None:
        super().__init__(
            f"{directory} is in use by process {pid or '(unknown)'}; stop it first, or choose "
            "another directory"
        )


@contextmanager
def single_program(directory: Path) -> Iterator[None]:
    """Keep other programs from running on the directory until the block is left.

    Raises:
        RunsAlreadyError: another one does.
        StorageError: the lock cannot be written.
    """
    path = directory / "running.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunsAlreadyError(
                directory, os.pread(descriptor, 32, 0).decode().strip()
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
