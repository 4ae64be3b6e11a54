"""Objects of S3, Google Cloud Storage and Azure, which sources read like local files.

`find_object` lists everything at an address by one recursive request. What it returns is a tree of
`ObjectPlace`s with sizes and modification times, so that walking it asks nothing more. Listing
10,000 objects takes some megabytes. Objects are read in blocks that grow while reading goes on.
Their first bytes are asked for once, although every kind of source looks at them.

Every call has a limit of time. After a store could not be reached, further calls fail at once for
a minute. An object that was written less than a minute ago may be incomplete, so it waits.
Errors are told in words of this module, because texts of the libraries may repeat what they sent.

`pyarrow.fs` connects; it is installed by the extra `s3`.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from io import BufferedReader
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

from fedperf_client.sources.opener import FileState, RangeStream
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.addresses import LOGIN, Address

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

T = TypeVar("T")

MAX_OBJECTS = 200_000
MAX_FOLDERS = 32  # deeper folders count as parts of names
WAITING_SECONDS = 60.0  # age from which an object counts as written completely

_CONNECT_SECONDS, _SILENCE_SECONDS, _ATTEMPTS = 5, 8, 2
_ANSWER_SECONDS = 25.0  # for any call, with all attempts
_AGAIN_SECONDS = 60.0  # until a store that was not reached is tried again
_HEAD_BYTES = 256 * 1024

# What texts of errors mean. Sources: Arrow's `S3ErrorToString`, Google's `StatusCode`, Azure's.
_MEANINGS = (
    (
        "cannot be reached; check the network and the option endpoint_override",
        r"NETWORK_CONNECTION|REQUEST_TIMEOUT|UNAVAILABLE|DEADLINE_EXCEEDED|[Cc]ould not connect"
        r"|new connection|not resolve",
    ),
    (
        "access was denied; {login}",
        r"ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE|EXPIRED|TOKEN"
        r"|UNAUTHENTICATED|PERMISSION_DENIED|Authenticat|Authoriz|\b40[13]\b|[Cc]redential",
    ),
    ("the bucket is in another region; add ?region=NAME", r"\b301\b|MOVED|REDIRECT"),
    ("no such bucket, folder or object", r"NO_SUCH|NOT_FOUND|No such|not exist|\b404\b"),
)


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object or a folder at an address; see `SourcePlace`."""

    address: Address
    size: int = field(compare=False)  # bytes, of all objects in a folder
    modified: int = field(compare=False)  # nanoseconds, latest of all objects in a folder
    entries: "tuple[ObjectPlace, ...] | None" = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name without folders."""
        return self.address.path.rpartition("/")[2] or self.address.host

    @property
    def may_be_incomplete(self) -> bool:
        """Whether it was written so recently that more may follow."""
        return self.modified > (time.time() - WAITING_SECONDS) * 1e9

    def __str__(self) -> str:
        return str(self.address)

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return self.entries is not None

    def is_file(self) -> bool:
        """Return whether it is an object."""
        return self.entries is None

    def iterdir(self) -> "Iterator[ObjectPlace]":
        """Yield the entries of a folder, sorted by name."""
        yield from self.entries or ()

    def stat(self) -> FileState:
        """Return size and time of modification as listed."""
        return FileState(self.size, self.modified)

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Open the bytes of an object; reading raises `OSError` with a text for people."""
        if self.is_dir():
            raise IsADirectoryError(21, "Is a directory", str(self))
        return BufferedReader(RangeStream(_Reader(self).read, self.size), _HEAD_BYTES // 2)


@dataclass(slots=True)
class _Reader:
    """Reads ranges of one object, which is opened when bytes behind its head are needed."""

    place: ObjectPlace
    file: Any = None

    def read(self, start: int, size: int) -> bytes:
        place = self.place
        with _named_errors(place.address):
            if start < _HEAD_BYTES:
                return _head(place.address, place.size, place.modified)[start:]
            if self.file is None:
                self.file = _open(place.address)
            self.file.seek(start)
            content: bytes = self.file.read(size)
            return content


@lru_cache(maxsize=16)
def _head(address: Address, size: int, modified: int) -> bytes:
    """Return the first bytes of an object, of that size and time of modification."""
    with _open(address) as file:
        content: bytes = file.read(min(size, _HEAD_BYTES))
    return content


def find_object(address: Address) -> ObjectPlace:
    """Return the object or folder at an address, with everything below it.

    Raises:
        InvalidInputError: the store does not respond in time, refuses, or has nothing of that name.
        ModuleNotFoundError: the extra `s3` is not installed.
    """
    from pyarrow.fs import FileSelector, FileType

    key = _key(address)
    try:
        with _named_errors(address):
            system = _file_system(address)
            info = _in_time(lambda: system.get_file_info(key))
            if info.type == FileType.File:
                return ObjectPlace(address, info.size, info.mtime_ns or 0)
            # The answer is the same for a missing bucket; listing tells which.
            infos = _in_time(lambda: system.get_file_info(FileSelector(key, recursive=True)))
    except OSError as error:
        raise InvalidInputError(f"{address}: {error.strerror}") from None
    files = [each for each in infos if each.type == FileType.File]
    if len(files) > MAX_OBJECTS:
        raise InvalidInputError(
            f"{address}: {len(files)} objects, at most {MAX_OBJECTS} are listed; name a folder"
        )
    return _folder(address, files, len(key) + 1)


def _folder(address: Address, files: "list[FileInfo]", start: int, depth: int = 0) -> ObjectPlace:
    """Return the folder whose files have their names from position `start` of their paths on."""
    inside: dict[str, list[FileInfo]] = {}
    entries: list[ObjectPlace] = []
    for each in files:
        name, slash, _ = each.path[start:].partition("/")
        if slash and depth < MAX_FOLDERS:
            inside.setdefault(name, []).append(each)
        else:
            entries.append(ObjectPlace(address / each.path[start:], each.size, each.mtime_ns or 0))
    for name, below in inside.items():
        entries.append(_folder(address / name, below, start + len(name) + 1, depth + 1))
    entries.sort(key=lambda each: each.name)
    size, modified = sum(e.size for e in entries), max((e.modified for e in entries), default=0)
    return ObjectPlace(address, size, modified, tuple(entries))


def _key(address: Address) -> str:
    """Return the path of `pyarrow.fs`: the bucket or container, and the path in it."""
    container = address.host.partition("@")[0]
    return f"{container}/{address.path}" if address.path else container


def _open(address: Address) -> Any:  # noqa: ANN401 (without type hints)
    system = _file_system(address)
    return _in_time(lambda: system.open_input_file(_key(address)))


def _file_system(address: Address) -> "FileSystem":
    account = address.host.partition("@")[2].partition(".")[0]
    return _connect(address.kind, account, address.options)


@cache
def _connect(kind: str, account: str, options: tuple[tuple[str, str], ...]) -> "FileSystem":
    """Return the file system of a kind of store. It looks for login data in the environment."""
    from pyarrow import fs

    options_by_name = dict(options)
    endpoint, scheme = options_by_name.get("endpoint_override"), options_by_name.get("scheme")
    is_anonymous = options_by_name.get("anonymous", "false").lower() in ("true", "1")
    if kind == "s3":
        return fs.S3FileSystem(
            anonymous=is_anonymous,
            region=options_by_name.get("region"),
            scheme=scheme,
            endpoint_override=endpoint,
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_SILENCE_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        )
    if kind == "gs":
        return fs.GcsFileSystem(
            anonymous=is_anonymous,
            scheme=scheme,
            endpoint_override=endpoint,
            retry_time_limit=timedelta(seconds=_SILENCE_SECONDS),
        )
    key = os.environ.get("AZURE_STORAGE_KEY")
    token = None if key else os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    if scheme == "http" and not (key or token):  # the library would end the process
        raise _RefusedError(13, f"http needs a key; {LOGIN['abfs']}")
    account = account or os.environ.get("AZURE_STORAGE_ACCOUNT", "")
    if not account:
        raise _RefusedError(
            22, "no account; expected abfss://CONTAINER@ACCOUNT.dfs.core.windows.net"
        )
    return fs.AzureFileSystem(
        account_name=account,
        account_key=key,
        sas_token=token,
        **dict.fromkeys(("blob_storage_authority", "dfs_storage_authority"), endpoint),
        **dict.fromkeys(("blob_storage_scheme", "dfs_storage_scheme"), scheme),
    )


def _in_time(call: Callable[[], T]) -> T:
    """Return the result of a call, or give up: not every store has a limit of time."""
    result = Future[T]()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result(_ANSWER_SECONDS)


class _RefusedError(OSError):
    """Raised with a text for people before the library is asked."""


# Stores that were not reached, with the time until which they are not tried again.
_unreachable: dict[tuple[str, str, str | None], float] = {}


@contextmanager
def _named_errors(address: Address) -> Iterator[None]:
    """Turn errors of a store into `OSError`s whose `strerror` is for people."""
    store = address.kind, address.host, address.option("endpoint_override")
    unreached = _MEANINGS[0][0]
    if time.monotonic() < _unreachable.get(store, 0.0):
        raise TimeoutError(110, unreached)
    try:
        yield
    except TimeoutError as error:
        _unreachable[store] = time.monotonic() + _AGAIN_SECONDS
        raise TimeoutError(110, unreached) from error
    except _RefusedError:
        raise
    except (OSError, ValueError) as error:  # Arrow's errors are of these
        text = f"{type(error).__name__} {error}"
        for meaning, signs in _MEANINGS:
            if re.search(signs, text) is not None:
                reason = meaning.format(login=LOGIN[address.kind])
                break
        else:
            reason = f"the store failed ({type(error).__name__})"
        if reason == unreached:
            _unreachable[store] = time.monotonic() + _AGAIN_SECONDS
            raise TimeoutError(110, reason) from None
        raise OSError(5, reason) from None
