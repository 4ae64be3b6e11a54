"""A digest of the code that runs, so that what one code kept is not taken for another's.

Versions are raised by people, who forget. Every Python source below the packages counts,
wherever it lies there; what else is installed counts by the version of fedperf alone.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import fedperf_client
import fedperf_shared


@cache
def source_digest() -> bytes:
    """32 bytes of the sources of fedperf_shared and fedperf_client; computed once per process."""
    return digest_of(Path(each) for p in (fedperf_shared, fedperf_client) for each in p.__path__)


def digest_of(directories: Iterable[Path]) -> bytes:
    """32 bytes that differ where a source below the directories does, by its path or its bytes."""
    found = hashlib.sha256()
    for directory in directories:
        sources = sorted((each.relative_to(directory), each) for each in directory.rglob("*.py"))
        for name, path in sources:
            content = path.read_bytes()
            found.update(f"{name.as_posix()} {len(content)}\n".encode() + content)
        found.update(b"\n")
    return found.digest()
