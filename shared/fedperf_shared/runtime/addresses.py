"""Addresses of places on other machines, and texts without the secrets of addresses.

`parse_place` turns what people write into a `Path` or an `Address` of logs: an object store or a
Spark History Server. An address has no login data: they would show in lists of processes, shell
histories and configuration files. The usual environment and files of each store give them instead.

People still paste addresses with passwords, keys and signatures, also of databases. Every message
that repeats an address passes through `without_secrets`: login data before the last `@`, and
options that are not known to be harmless, become `***`.
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fedperf_shared.errors import InvalidInputError

SERVERS = ("http", "https")
STORES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("abfs", "abfss"), "abfs"),
}
# How to give login data, by kind of store or server.
LOGIN = {
    "s3": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or add ?anonymous=true for a public bucket",
    "abfs": "set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or log in with: az login",
    "http": "put them into ~/.netrc",
}
_OPTIONS = {
    "s3": ("endpoint_override", "scheme", "region", "anonymous"),
    "gs": ("endpoint_override", "scheme", "anonymous"),
    "abfs": ("endpoint_override", "scheme"),
    "http": ("minDate", "maxDate", "minEndDate", "maxEndDate", "limit"),
}

_HARMLESS = frozenset(name for names in _OPTIONS.values() for name in names)

_BEGINNING = re.compile(r"([a-z][a-z0-9+.-]+):/{2,}", re.IGNORECASE)
_READABLE = "/:=+,!$()*[]~"
_PAGE = re.compile("/(history|applications)/")  # what a browser shows has options of its own
_COPY = (
    "copy the logs to this machine first, such as with {}, or mount them, and name the directory"
)
_TOOLS = {
    "hdfs": "hdfs dfs -get",
    **dict.fromkeys(("wasb", "wasbs"), "azcopy copy"),
    "dbfs": "databricks fs cp -r",
}

_EXAMPLES = {
    "s3": "s3://BUCKET/PREFIX",
    "gs": "gs://BUCKET/PREFIX",
    "abfs": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
    "http": "http://HOST:18080",
}

HIDDEN = "***"
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*:/+)(\S*[^\s'\"<>:,.)])", re.IGNORECASE)
_WHOLE = re.compile(r"^([a-z][a-z0-9+.-]*:/+)(.*)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"([?&;#])([^=&;#]*)(=[^&;#]*)?")
_FORM = re.compile(r"[A-Z.]*")
# In these, a name before `@` is that of a container.
_CONTAINERS = re.compile(r"(abfs|wasb)s?:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """A place on another machine, as a user names it, without login data."""

    scheme: str  # in lower case, such as s3a
    host: str  # the bucket, `container@account`, or `host:port`
    path: str = ""  # below it, decoded, without slashes around it
    options: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """The kind of store or server: s3, gs, abfs or http."""
        return STORES.get(self.scheme, "http")

    def option(self, name: str) -> str | None:
        """Return the value of an option, None if it is not given."""
        return dict(self.options).get(name)

    def __truediv__(self, name: str) -> "Address":
        """Return the address of what is below this one."""
        return replace(self, path=f"{self.path}/{name}".removeprefix("/"))

    def __str__(self) -> str:
        path = f"/{quote(self.path, safe=_READABLE)}" if self.path else ""
        options = f"?{urlencode(self.options, safe='/:')}" if self.options else ""
        return f"{self.scheme}://{self.host}{path}{options}"


def parse_place(text: str) -> Path | Address:
    """Return the path or the address that a text names.

    Raises:
        InvalidInputError: it is an address that is not read; the message repeats no secret.
    """
    match = _BEGINNING.match(text)
    if match is None or os.path.lexists(text):
        return Path(text)
    scheme, displayed = match[1].lower(), _WHOLE.sub(_shown, text)
    if scheme not in (*SERVERS, *STORES):
        tool = _TOOLS.get(scheme, "the tools of that store")
        raise InvalidInputError(
            f"{displayed}: {scheme}:// addresses are not read; {_COPY.format(tool)}"
        )
    kind = STORES.get(scheme, "http")
    no_address = InvalidInputError(f"{displayed}: not an address; expected {_EXAMPLES[kind]}")
    try:
        parts = urlsplit(f"{scheme}://{text[match.end() :]}")
        is_address = (
            bool(parts.netloc) if kind != "http" else bool(parts.hostname and parts.port != 0)
        )
    except ValueError:  # its text may repeat a part of the address
        raise no_address from None
    is_page = kind == "http" and _PAGE.search(parts.path) is not None
    options = () if is_page else tuple(parse_qsl(parts.query, keep_blank_values=True))
    if HIDDEN in displayed.partition("?")[0]:
        raise InvalidInputError(
            f"{displayed}: login data do not belong into an address (in a name, write @ as %40); "
            f"leave them out and {LOGIN[kind]}"
        )
    if any(name not in _OPTIONS[kind] for name, _ in options):
        raise InvalidInputError(
            f"{displayed}: an unknown option; allowed are {', '.join(_OPTIONS[kind])}; "
            f"for login data, {LOGIN[kind]}"
        )
    if not is_address:
        raise no_address
    return Address(scheme, parts.netloc, unquote(parts.path).strip("/"), options)


def without_secrets(text: str) -> str:
    """Return the text with the secrets of all addresses in it replaced by `***`."""
    return _ADDRESS.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    scheme, rest = match.groups()
    login, _, after = rest.rpartition("@")  # a password may hold any other character
    if login and _CONTAINERS.match(scheme):
        container = "" if "/" in login else login.partition(":")[0]
        hidden = container if container == login else ":".join(filter(None, (container, HIDDEN)))
        login = f"{hidden}@"
    elif login:
        login = f"{HIDDEN}@"
    return f"{scheme}{login}{_OPTION.sub(_option, after)}"


def _option(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    if mark == "#":  # an invitation has its token there; the form of one is all capitals
        return match[0] if _FORM.fullmatch(f"{name}{value or ''}") else f"#{HIDDEN}"
    return match[0] if name in _HARMLESS or not match[0][1:] else f"{mark}{HIDDEN}"
