"""The coordinator's configuration: one TOML file in its directory.

Every problem of the file is reported at once, each with its key and what would be
right. Unknown keys are refused: a misspelt limit must not be ignored.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from fedperf_shared.errors import ConfigurationError, StorageError
from fedperf_shared.programs.private_files import close_to_others, create_private
from fedperf_shared.programs.settings_file import (
    WrongSettingsError,
    read_settings,
    unknown_key,
)
from fedperf_shared.releases.period import (
    DEFAULT_WINDOW,
    DEFAULT_WINDOWS,
    ModelMethod,
    Period,
    SlotTimes,
    Timetable,
    default_timetable,
)

FILE_NAME = "fedperf-server.toml"
DEFAULT_EXCHANGE_PORT = 8751
DEFAULT_ENROLLMENT_PORT = 8752
DEFAULT_FLEET_PORT = 8753
DEFAULT_QUORUM = 2
DEFAULT_GRACE = timedelta(minutes=5)

_MAX_PORT = 65_535
_KEYS = (
    "host",
    "bind",
    "exchange_port",
    "enrollment_port",
    "fleet_port",
    "quorum",
    "grace_seconds",
    "database_url",
    "timetable",
)
_CALENDAR_KEYS = (
    "period_start",
    "window_seconds",
    "windows",
    "report_slots",
    "model_slots",
    "extra_slots",
    "extra_windows",
    "first_slots",
    "model_method",
)
_METHODS = {ModelMethod.TANGENT: "tangent", ModelMethod.UNSPECIFIED: "dp_sgd"}
"""Names in the file. No round is held of a calendar that says "dp_sgd", as those of before may."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of one coordinator.

    Attributes:
        directory: keys, certificates and the default database.
        host: name or address under which clients reach this server.
        exchange_port: gRPC with mutual TLS.
        enrollment_port: gRPC for joining.
        fleet_port: Flower's fleet routes over TLS.
        timetable: the public calendar.
        quorum: a round with fewer accepted updates makes no new version.
        grace: how long after its reply time a round still waits for replies.
        database_url: SQLAlchemy URL.
        bind: address to listen on.
    """

    directory: Path
    host: str
    timetable: Timetable
    exchange_port: int = DEFAULT_EXCHANGE_PORT
    enrollment_port: int = DEFAULT_ENROLLMENT_PORT
    fleet_port: int = DEFAULT_FLEET_PORT
    quorum: int = DEFAULT_QUORUM
    grace: timedelta = DEFAULT_GRACE
    database_url: str = ""
    bind: str = "0.0.0.0"

    def __post_init__(self) -> None:
        problems = [text for text in _problems(self) if text]
        if problems:
            raise ConfigurationError("; ".join(problems))
        if not self.database_url:
            object.__setattr__(self, "database_url", _own_database(self.directory))

    @property
    def exchange_address(self) -> str:
        """host:port of the Exchange."""
        return f"{self.host}:{self.exchange_port}"

    @property
    def fleet_address(self) -> str:
        """host:port of the gateway."""
        return f"{self.host}:{self.fleet_port}"


def write_config(config: ServerConfig) -> Path:
    """Write `config` into its directory."""
    path = config.directory / FILE_NAME
    create_private(path)
    close_to_others(path)  # a URL of the database may hold a password
    path.write_text(_to_toml(config), encoding="utf-8")
    return path


def load_config(directory: Path) -> ServerConfig:
    """Read the configuration of the server in `directory`.

    Raises:
        ConfigurationError: no such file, no TOML, or wrong values: all of them, with their keys.
    """
    path = directory / FILE_NAME
    return _Reader(path).config(read_settings(path, absent="run `fedperf-server init`"))


def write_calendar(timetable: Timetable, path: Path) -> None:
    """Write a calendar by itself, public as it is, for `load_calendar`.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        path.write_text(_calendar_to_toml(timetable), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def load_calendar(path: Path) -> Timetable:
    """The calendar in a file of `write_calendar`, or in a server's configuration.

    Raises:
        ConfigurationError: no such file, no TOML, or wrong values: all of them, with their keys.
    """
    found = read_settings(path, name=f"calendar {path}").get("timetable")
    return _Reader(path).calendar(found)


def _problems(config: ServerConfig) -> list[str]:
    ports = {
        "exchange_port": config.exchange_port,
        "enrollment_port": config.enrollment_port,
        "fleet_port": config.fleet_port,
    }
    found = [
        f"{key} must be 1 to {_MAX_PORT}, got {port}"
        for key, port in ports.items()
        if not 0 < port <= _MAX_PORT
    ]
    if len(set(ports.values())) != len(ports):
        found.append("exchange_port, enrollment_port and fleet_port must differ")
    if not config.host or "/" in config.host or any(c.isspace() for c in config.host):
        found.append(f"host must be a name or an address, got {config.host!r}")
    if not config.quorum >= 1:
        found.append(f"quorum must be at least 1, got {config.quorum}")
    if not config.grace > timedelta(0):
        found.append(f"grace_seconds must be more than 0, got {config.grace.total_seconds()}")
    return found


class _Reader:
    """Takes values out of a TOML table and collects what is wrong with them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problems: list[str] = []

    def config(self, content: Mapping[str, object]) -> ServerConfig:
        rest = dict(content)
        timetable = self._timetable(rest.pop("timetable", None))
        host = self._take(rest, "host", str, "")
        ports = {
            key: self._take(rest, key, int, default)
            for key, default in (
                ("exchange_port", DEFAULT_EXCHANGE_PORT),
                ("enrollment_port", DEFAULT_ENROLLMENT_PORT),
                ("fleet_port", DEFAULT_FLEET_PORT),
            )
        }
        quorum = self._take(rest, "quorum", int, DEFAULT_QUORUM)
        grace = self._number(rest, "grace_seconds", DEFAULT_GRACE.total_seconds())
        rest.pop("update_norm_bound", None)  # of DP-SGD, in every file of before
        database_url = self._take(rest, "database_url", str, "")
        bind = self._take(rest, "bind", str, "0.0.0.0")
        self._problems += [f"{key}: {unknown_key(key, _KEYS)}" for key in rest]
        try:
            config = ServerConfig(
                directory=self._path.parent,
                host=host,
                timetable=timetable or default_timetable(datetime(2000, 1, 1, tzinfo=UTC)),
                **ports,
                quorum=quorum,
                grace=self._span(grace, "grace_seconds"),
                database_url=database_url,
                bind=bind,
            )
        except ConfigurationError as error:
            self._problems.append(str(error))
        if self._problems:
            raise WrongSettingsError(str(self._path), self._problems)
        return config

    def calendar(self, table: object) -> Timetable:
        timetable = self._timetable(table)
        if timetable is None or self._problems:
            raise WrongSettingsError(str(self._path), self._problems)
        return timetable

    def _take(self, table: dict[str, object], key: str, kind: type[_T], default: _T) -> _T:
        value = table.pop(key, default)
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
        self._problems.append(f"{key} must be of type {kind.__name__}, got {value!r}")
        return default

    def _number(self, table: dict[str, object], key: str, default: float) -> float:
        value = table.pop(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        self._problems.append(f"{key} must be a number, got {value!r}")
        return default

    def _span(self, seconds: float, key: str) -> timedelta:
        try:
            return timedelta(seconds=seconds)
        except (OverflowError, ValueError):
            self._problems.append(f"{key} must be a number of seconds, got {seconds}")
            return DEFAULT_GRACE

    def _timetable(self, table: object) -> Timetable | None:
        if not isinstance(table, dict):
            self._problems.append("timetable must be a table with period_start")
            return None
        rest = dict(table)
        start = self._take(rest, "period_start", datetime, datetime.fromtimestamp(0, tz=UTC))
        window = self._span(
            self._number(rest, "window_seconds", DEFAULT_WINDOW.total_seconds()),
            "timetable.window_seconds",
        )
        windows = self._take(rest, "windows", int, DEFAULT_WINDOWS)
        reports, models, extra, first = (
            self._slots(rest, key)
            for key in ("report_slots", "model_slots", "extra_slots", "first_slots")
        )
        extra_windows = self._take(rest, "extra_windows", int, 0)
        method = self._method(rest)
        self._problems += [f"timetable.{key}: {unknown_key(key, _CALENDAR_KEYS)}" for key in rest]
        try:
            return Timetable(
                Period(start, window, windows),
                reports,
                models,
                method,
                extra,
                extra_windows,
                first,
            )
        except ConfigurationError as error:
            self._problems.append(f"timetable: {error}")
            return None

    def _method(self, table: dict[str, object]) -> ModelMethod:
        name = table.pop("model_method", _METHODS[ModelMethod.TANGENT])
        for method, known in _METHODS.items():
            if name == known:
                return method
        self._problems.append(f'timetable.model_method must be "tangent", got {name!r}')
        return ModelMethod.TANGENT

    def _slots(self, table: dict[str, object], key: str) -> tuple[SlotTimes, ...]:
        found = []
        for number, each in enumerate(self._take(table, key, list, []), start=1):
            try:
                found.append(self._times(each))
            except ConfigurationError as error:
                self._problems.append(f"timetable.{key}, slot {number}: {error}")
        return tuple(found)

    def _times(self, table: object) -> SlotTimes:
        rest = dict(table) if isinstance(table, dict) else {}
        opens = self._number(rest, "opens_after_seconds", math.nan)
        replies = self._number(rest, "replies_after_seconds", math.nan)
        if rest or not (math.isfinite(opens) and math.isfinite(replies)):
            raise ConfigurationError(
                "a slot is {opens_after_seconds = ..., replies_after_seconds = ...}"
            )
        return SlotTimes(timedelta(seconds=opens), timedelta(seconds=replies))


def _own_database(directory: Path) -> str:
    return f"sqlite:///{directory / 'coordinator.sqlite'}"


def _database_line(config: ServerConfig) -> str:
    """Nothing that names a path where the database is the directory's own, which may move."""
    if config.database_url == _own_database(config.directory):
        return '# database_url = "sqlite:////elsewhere/coordinator.sqlite"; by default here'
    quoted = config.database_url.replace("\\", "\\\\").replace('"', '\\"')
    return f'database_url = "{quoted}"'


def _to_toml(config: ServerConfig) -> str:
    return f"""\
host = "{config.host}"
bind = "{config.bind}"
exchange_port = {config.exchange_port}
enrollment_port = {config.enrollment_port}
fleet_port = {config.fleet_port}
quorum = {config.quorum}
grace_seconds = {config.grace.total_seconds()!r}
{_database_line(config)}

{_calendar_to_toml(config.timetable)}"""


def _calendar_to_toml(timetable: Timetable) -> str:
    period = timetable.period
    return f"""\
# The public calendar; `fedperf-server calendar` shows it in dates. Moments are seconds after the
# start of a window; a day has 86400.
[timetable]
period_start = {period.start.isoformat()}
window_seconds = {period.window.total_seconds()!r}
windows = {period.windows}
report_slots = [{_slots(timetable.report_slots)}]
model_slots = [{_slots(timetable.model_slots)}]
# More model rounds of windows in which an epoch begins, in so many windows at most.
extra_slots = [{_slots(timetable.extra_slots)}]
extra_windows = {timetable.extra_windows}
# Days on which the first report of whoever joined may leave.
first_slots = [{_slots(timetable.first_slots)}]
# How model rounds train: steps at the model's "tangent".
model_method = "{_METHODS[timetable.model_method]}"
"""


def _slots(slots: tuple[SlotTimes, ...]) -> str:
    return ", ".join(
        f"{{ opens_after_seconds = {each.opens_after.total_seconds()!r}, "
        f"replies_after_seconds = {each.replies_after.total_seconds()!r} }}"
        for each in slots
    )
