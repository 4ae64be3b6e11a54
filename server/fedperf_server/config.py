"""The coordinator's configuration is one TOML file in its directory.

All errors of the file are reported at once, each with its key and the allowed values. Unknown keys
are refused, because a misspelt limit must not be ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from fedperf_shared.errors import ConfigurationError, StorageError
from fedperf_shared.releases.period import (
    DEFAULT_WINDOW,
    DEFAULT_WINDOWS,
    ModelMethod,
    Period,
    ReleaseCalendar,
    SlotTimes,
    default_calendar,
)
from fedperf_shared.runtime.process import close_to_others, create_private
from fedperf_shared.runtime.settings_file import (
    WrongSettingsError,
    problems_of,
    read_settings,
    rename_keys,
)

FILE_NAME = "fedperf-server.toml"
DEFAULT_BIND = "0.0.0.0"
DEFAULT_EXCHANGE_PORT = 8751
DEFAULT_ENROLLMENT_PORT = 8752
DEFAULT_FLEET_PORT = 8753
DEFAULT_QUORUM = 2
DEFAULT_GRACE = timedelta(minutes=5)

_MAX_PORT = 65_535
# Names in the file. Rounds of an older calendar with "dp_sgd" are skipped.
_METHODS = {ModelMethod.TANGENT: "tangent", ModelMethod.UNSPECIFIED: "dp_sgd"}
_SLOT_KINDS = ("report", "model", "extra", "first")
_NO_START = datetime.fromtimestamp(0, tz=UTC)
# Seconds that fit into a `timedelta`.
_Seconds = Annotated[float, Field(ge=0, lt=86_400e9, allow_inf_nan=False)]

_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of one coordinator."""

    directory: Path  # keys, certificates and the default database
    host: str  # name or address under which clients reach this server
    calendar: ReleaseCalendar  # the public calendar
    exchange_port: int = DEFAULT_EXCHANGE_PORT  # gRPC with mutual TLS
    enrollment_port: int = DEFAULT_ENROLLMENT_PORT  # gRPC for joining
    fleet_port: int = DEFAULT_FLEET_PORT  # Flower's fleet routes over TLS
    quorum: int = DEFAULT_QUORUM  # a round with fewer accepted updates makes no new version
    # How long after its reply time a round still waits for replies.
    grace: timedelta = DEFAULT_GRACE
    database_url: str = ""  # SQLAlchemy URL
    bind: str = DEFAULT_BIND  # address to listen on

    def __post_init__(self) -> None:
        ports = {
            "exchange_port": self.exchange_port,
            "enrollment_port": self.enrollment_port,
            "fleet_port": self.fleet_port,
        }
        problems = [
            f"{key} must be 1 to {_MAX_PORT}, got {port}"
            for key, port in ports.items()
            if not 0 < port <= _MAX_PORT
        ]
        if len(set(ports.values())) != len(ports):
            problems.append("exchange_port, enrollment_port and fleet_port must differ")
        if not self.host or "/" in self.host or any(c.isspace() for c in self.host):
            problems.append(f"host must be a name or an address, got {self.host!r}")
        if not self.quorum >= 1:
            problems.append(f"quorum must be at least 1, got {self.quorum}")
        if not self.grace > timedelta(0):
            problems.append(f"grace_seconds must be more than 0, got {self.grace.total_seconds()}")
        if problems:
            raise ConfigurationError("; ".join(problems))
        if not self.database_url:
            object.__setattr__(self, "database_url", _default_database(self.directory))

    @property
    def exchange_address(self) -> str:
        """Return host:port of the Exchange."""
        return f"{self.host}:{self.exchange_port}"

    @property
    def fleet_address(self) -> str:
        """Return host:port of the gateway."""
        return f"{self.host}:{self.fleet_port}"


def write_config(config: ServerConfig) -> Path:
    """Write `config` into its directory."""
    path = config.directory / FILE_NAME
    create_private(path)
    close_to_others(path)  # the database URL may contain a password
    path.write_text(_to_toml(config), encoding="utf-8")
    return path


def load_config(directory: Path) -> ServerConfig:
    """Read the configuration of the server in `directory`.

    Raises:
        ConfigurationError: the file is missing, not TOML, or has wrong values; lists all of them.
    """
    path = directory / FILE_NAME
    content = _read_file(path, absent="run `fedperf-server init`")
    problems: list[str] = []
    calendar = _calendar(content, problems)
    settings = _read(_Settings, content, problems)
    try:
        config = ServerConfig(
            directory=directory,
            calendar=calendar or default_calendar(_NO_START),
            grace=timedelta(seconds=settings.grace_seconds),
            **settings.model_dump(exclude={"calendar", "grace_seconds", "update_norm_bound"}),
        )
    except ConfigurationError as error:
        problems.append(str(error))
    if problems:
        raise WrongSettingsError(str(path), problems)
    return config


def write_calendar(calendar: ReleaseCalendar, path: Path) -> None:
    """Write a calendar without the rest of the configuration, for `load_calendar`.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        path.write_text(_calendar_to_toml(calendar), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def load_calendar(path: Path) -> ReleaseCalendar:
    """Return the calendar in a file of `write_calendar` or in a server's configuration.

    Raises:
        ConfigurationError: the file is missing, not TOML, or has wrong values; lists all of them.
    """
    problems: list[str] = []
    calendar = _calendar(_read_file(path, name=f"calendar {path}"), problems)
    if calendar is None or problems:
        raise WrongSettingsError(str(path), problems)
    return calendar


class _Table(BaseModel):
    """A table of the file, which refuses unknown keys and wrong types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Slot(_Table):
    opens_after_seconds: _Seconds
    replies_after_seconds: _Seconds

    @model_validator(mode="after")
    def _require_times(self) -> Self:
        try:
            self.times()
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return self

    def times(self) -> SlotTimes:
        return SlotTimes(
            timedelta(seconds=self.opens_after_seconds),
            timedelta(seconds=self.replies_after_seconds),
        )


_Slots = Annotated[tuple[_Slot, ...], Field(strict=False)]


def _slot_titles(key: str) -> Callable[[int, object], str]:
    return lambda position, _: f"{key}, slot {position + 1}"


_TITLES = {f"{kind}_slots": _slot_titles(f"{kind}_slots") for kind in _SLOT_KINDS}


def _method(name: object) -> ModelMethod:
    for method, method_name in _METHODS.items():
        if name == method_name:
            return method
    raise ValueError(f'must be "tangent", got {name!r}')


class _Calendar(_Table):
    period_start: datetime = _NO_START
    window_seconds: _Seconds = DEFAULT_WINDOW.total_seconds()
    windows: int = DEFAULT_WINDOWS
    report_slots: _Slots = ()
    model_slots: _Slots = ()
    extra_slots: _Slots = ()
    extra_round_windows: int = 0
    first_slots: _Slots = ()
    model_method: Annotated[ModelMethod, PlainValidator(_method)] = ModelMethod.TANGENT

    def to_release_calendar(self) -> ReleaseCalendar:
        reports, models, extra, first = (
            tuple(slot.times() for slot in getattr(self, f"{kind}_slots")) for kind in _SLOT_KINDS
        )
        window = timedelta(seconds=self.window_seconds)
        period = Period(self.period_start, window, self.windows)
        return ReleaseCalendar(
            period, reports, models, self.model_method, extra, self.extra_round_windows, first
        )


class _Settings(_Table):
    host: str = ""
    bind: str = DEFAULT_BIND
    exchange_port: int = DEFAULT_EXCHANGE_PORT
    enrollment_port: int = DEFAULT_ENROLLMENT_PORT
    fleet_port: int = DEFAULT_FLEET_PORT
    quorum: int = DEFAULT_QUORUM
    grace_seconds: _Seconds = DEFAULT_GRACE.total_seconds()
    update_norm_bound: object = None  # key of DP-SGD in older files, ignored
    database_url: str = ""
    calendar: object = None  # a _Calendar, read by itself


def _read_file(path: Path, *, name: str | None = None, absent: str = "") -> dict[str, object]:
    """Read a file, whose keys may be those of older versions."""
    name = name or str(path)
    content = rename_keys(
        read_settings(path, name=name, absent=absent), {"timetable": "calendar"}, name=name
    )
    table = content.get("calendar")
    if isinstance(table, dict):
        new_names = {"extra_windows": "extra_round_windows"}
        content["calendar"] = rename_keys(table, new_names, name=name)
    return content


def _calendar(content: Mapping[str, object], problems: list[str]) -> ReleaseCalendar | None:
    """Return the calendar in a file, and add its problems to `problems`."""
    table = content.get("calendar")
    if not isinstance(table, dict):
        problems.append("calendar must be a table with period_start")
        return None
    wrong: list[str] = []
    calendar = _read(_Calendar, table, wrong)
    problems += [f"calendar.{each}" for each in wrong]
    try:
        return calendar.to_release_calendar()
    except ConfigurationError as error:
        problems.append(f"calendar: {error}")
        return None


def _read(model: type[_M], table: Mapping[str, object], problems: list[str]) -> _M:
    """Read a table, with defaults for wrong values so that the rest is checked too."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        problems += problems_of(error, model, table, _TITLES)
        wrong = {each["loc"][0] for each in error.errors()}
        return model.model_validate({key: table[key] for key in table if key not in wrong})


def _default_database(directory: Path) -> str:
    return f"sqlite:///{directory / 'coordinator.sqlite'}"


def _database_line(config: ServerConfig) -> str:
    """Return the line of the URL, a comment for the default, as the directory may move."""
    if config.database_url == _default_database(config.directory):
        return (
            '# database_url = "sqlite:////elsewhere/coordinator.sqlite"; default: in this directory'
        )
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

{_calendar_to_toml(config.calendar)}"""


def _calendar_to_toml(calendar: ReleaseCalendar) -> str:
    period = calendar.period
    return f"""\
# The public calendar. `fedperf-server calendar` shows it in dates. Times are seconds after the
# start of a window. A day has 86400.
[calendar]
period_start = {period.start.isoformat()}
window_seconds = {period.window.total_seconds()!r}
windows = {period.windows}
report_slots = [{_slots(calendar.report_slots)}]
model_slots = [{_slots(calendar.model_slots)}]
# Extra model rounds of windows in which a drift regime begins, in at most so many windows.
extra_slots = [{_slots(calendar.extra_slots)}]
extra_round_windows = {calendar.extra_windows}
# Days on which a new organization may send its first report.
first_slots = [{_slots(calendar.first_slots)}]
# How model rounds train: steps at the model's "tangent".
model_method = "{_METHODS[calendar.model_method]}"
"""


def _slots(slots: tuple[SlotTimes, ...]) -> str:
    return ", ".join(
        f"{{ opens_after_seconds = {each.opens_after.total_seconds()!r}, "
        f"replies_after_seconds = {each.replies_after.total_seconds()!r} }}"
        for each in slots
    )
