"""Files that only their owner can read, whatever the umask and the directory allow."""

import contextlib
import os
from pathlib import Path

_OWNER_ONLY = 0o600
_OTHERS = 0o077


def create_private(path: Path) -> None:
    """Make an empty file that only its owner can read, where there is none.

    A place where none can be made is left to whoever opens the file, who knows what to say.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY))


def close_to_others(path: Path) -> None:
    """Take from everybody but the owner what rights they have; somebody else's file stays."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_mode & _OTHERS:
            path.chmod(_OWNER_ONLY)
