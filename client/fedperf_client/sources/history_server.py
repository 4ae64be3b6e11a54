"""Applications of a Spark History Server, whose logs sources read like local zips.

An address is that of the server, of one application, or what a browser shows for it. A server
lists the attempts of its finished applications; options of the address limit them by their times
(Spark: Monitoring, REST API). An application that still runs is read only by its own address.

The log of an attempt is downloaded when it is read: as the zip that the server makes, into a file
without a name that vanishes with the process. Login data come from `~/.netrc`, as in curl.
The standard library asks, because the base of fedperf has no other client of HTTP, and two
requests need none.
"""

import base64
import os
import re
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import quote, urlencode, urlsplit

import orjson

from fedperf_client.sources.opener import FileState, RangeStream
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.addresses import LOGIN, Address

MAX_LIST_BYTES = 64 * 2**20
MAX_DOWNLOAD_BYTES = 16 * 2**30

# Of a server without an answer, for each of usually one or two network addresses.
_SILENCE_SECONDS = 14.0
_BLOCK_BYTES = 2**20
_PARTS = re.compile(
    r"(?:(.*?)/)?(?:history|api/v1/applications)(?:/([^/]+)(?:/(\d+))?)?"
    r"(?:/.*)?"
)


@dataclass(frozen=True, slots=True)
class Application:
    """The log of one attempt at an application; see `SourcePlace`."""

    server: str  # address of the server, without options
    id: str
    attempt: str | None
    modified: int = field(compare=False)  # milliseconds since 1970, of the log

    @property
    def name(self) -> str:
        """The id, with the number of the attempt if there may be several."""
        return self.id if self.attempt is None else f"{self.id}_{self.attempt}"

    @property
    def _path(self) -> str:
        return "/".join(quote(each, safe="") for each in (self.id, self.attempt) if each)

    def __str__(self) -> str:
        return f"{self.server}/history/{self._path}"

    def is_dir(self) -> bool:
        """Return False: it is a zip."""
        return False

    def is_file(self) -> bool:
        """Return True: it is a zip."""
        return True

    def iterdir(self) -> "Iterator[Application]":
        """Yield nothing."""
        yield from ()

    def stat(self) -> FileState:
        """Return the time at which the log was last modified. Its size is unknown, so 0."""
        return FileState(0, self.modified * 10**6)

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Download the log unless it was the last one, and open it."""
        url = f"{self.server}/api/v1/applications/{self._path}/logs"
        download = _download(url, self.modified)
        return BufferedReader(RangeStream(download.read, download.size), _BLOCK_BYTES // 8)


class _Download:
    """A file without a name, which is closed when nothing refers to it."""

    def __init__(self, content: IO[bytes]) -> None:
        self.size = 0
        self._descriptor, path = tempfile.mkstemp(prefix="fedperf-")
        Path(path).unlink()
        weakref.finalize(self, os.close, self._descriptor)
        with os.fdopen(self._descriptor, "wb", closefd=False) as file:
            while block := content.read(_BLOCK_BYTES):
                self.size += len(block)
                if self.size > MAX_DOWNLOAD_BYTES:
                    raise OSError(27, f"a log of more than {MAX_DOWNLOAD_BYTES} bytes is not read")
                file.write(block)

    def read(self, start: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, start)


@lru_cache(maxsize=1)
def _download(url: str, modified: int) -> _Download:
    """Return the file at `url`, as of the time of its modification."""
    del modified
    with _request(url) as response:
        return _Download(response)


def list_applications(address: Address) -> tuple[Sequence[Application], bool]:
    """Return the attempts at an address, oldest first, and whether it names an application.

    Raises:
        InvalidInputError: no History Server responds there, or it has no such application.
    """
    match = _PARTS.fullmatch(address.path)
    before, name, attempt = match.group(1, 2, 3) if match else (address.path, None, None)
    server = str(Address(address.scheme, address.host, before or ""))
    path = f"/{quote(name, safe='')}" if name else ""
    options = f"?{urlencode(address.options)}" if address.options and not name else ""
    try:
        with _request(f"{server}/api/v1/applications{path}{options}") as response:
            text = response.read(MAX_LIST_BYTES + 1)
    except OSError as error:
        raise InvalidInputError(f"{address}: {error.strerror}") from None
    if len(text) > MAX_LIST_BYTES:
        raise InvalidInputError(f"{address}: a list of too many applications; add ?limit=1000")
    try:
        content = orjson.loads(text)
        rows = [content] if name else content
        attempts = [each for row in rows for each in _attempts(server, row, is_named=bool(name))]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        raise InvalidInputError(f"{address}: {_NO_SERVER}") from None
    if attempt:
        attempts = [each for each in attempts if each.attempt == attempt]
    if name and not attempts:
        raise InvalidInputError(f"{address}: the server has no such attempt")
    return sorted(attempts, key=lambda each: (each.modified, each.name)), bool(name)


def _attempts(server: str, row: Mapping[str, Any], *, is_named: bool) -> Iterator[Application]:
    for each in row["attempts"]:
        if each["completed"] or is_named:
            number = each.get("attemptId")
            modified = int(each.get("lastUpdatedEpoch") or each["endTimeEpoch"])
            yield Application(server, str(row["id"]), number and str(number), modified)


_NO_SERVER = "no Spark History Server answers there; expected an address like http://HOST:18080"


@contextmanager
def _request(url: str) -> Iterator[IO[bytes]]:
    """Open what a server answers. Errors are `OSError`s whose `strerror` is for people."""
    # Ingestion of local logs needs none of these.
    import http.client
    import netrc
    import ssl
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"Accept": "application/json, */*"})
    host = urlsplit(url).hostname or ""
    with suppress(FileNotFoundError):
        try:
            login = netrc.netrc().authenticators(host)
        except netrc.NetrcParseError as error:
            line = "" if error.lineno is None else f", line {error.lineno}"
            raise OSError(5, f"~/.netrc{line}: wrong, or others can read it; correct it") from None
        if login is not None:
            encoded = base64.b64encode(f"{login[0]}:{login[2]}".encode()).decode()
            # Not sent to where the server redirects.
            request.add_unredirected_header("Authorization", f"Basic {encoded}")
    try:
        with urllib.request.urlopen(request, timeout=_SILENCE_SECONDS) as response:
            yield response
    except urllib.error.HTTPError as error:
        error.close()
        reasons = {401: f"it wants a login; {LOGIN['http']}", 403: "access was denied"}
        reasons[404] = "there is no such application" if "/applications/" in url else _NO_SERVER
        raise OSError(
            5, reasons.get(error.code, f"the server failed (HTTP {error.code})")
        ) from None
    except (TimeoutError, urllib.error.URLError, http.client.HTTPException, ssl.SSLError) as error:
        reason = getattr(error, "reason", error)
        words = getattr(reason, "strerror", None) or type(reason).__name__
        raise TimeoutError(110, f"cannot be reached ({words}); check host and port") from None
    except ConnectionError as error:
        raise OSError(5, f"the connection was lost ({error.strerror})") from None
