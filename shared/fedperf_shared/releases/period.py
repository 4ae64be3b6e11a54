"""The public calendar: periods, their windows, and the times of their slots.

A period is the time of one privacy budget, a year by default. It has windows of equal length, and
every window has the same slots. Extra slots are model slots for windows in which a drift regime
begins. A period uses them in a limited number of windows. First slots are the days for first
reports: a new member sends its first report on the next of them. The calendar is public and does
not depend on private data.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, unique

from fedperf_shared.errors import ConfigurationError

DEFAULT_WINDOW = timedelta(weeks=4)
DEFAULT_WINDOWS = 13
MAX_WINDOWS = 400
MILLISECOND = timedelta(milliseconds=1)


@unique
class ModelMethod(IntEnum):
    """The training method of a period's model rounds; numbers as in exchange.proto.

    At the tangent an organization releases a sum in few directions, and the coordinator makes the
    step. Old calendars without a method used DP-SGD, which no version trains by any more. Such a
    period keeps its slots, and they release nothing.
    """

    UNSPECIFIED = 0
    TANGENT = 1


@dataclass(frozen=True, slots=True)
class Period:
    """Consecutive windows of equal length from a fixed start."""

    start: datetime
    window: timedelta = DEFAULT_WINDOW
    windows: int = DEFAULT_WINDOWS

    def __post_init__(self) -> None:
        if self.start.tzinfo is None:
            raise ConfigurationError(
                "period start needs a time zone, for example 2027-01-01T00:00Z"
            )
        if not self.window > timedelta(0):
            raise ConfigurationError(f"window must be longer than 0, got {_seconds(self.window)}")
        if self.start.microsecond % 1000 or self.window % MILLISECOND:
            raise ConfigurationError(
                "a period's start and window are whole milliseconds, as the wire has them, got "
                f"{self.start.isoformat()} and {_seconds(self.window)}"
            )
        if not 1 <= self.windows <= MAX_WINDOWS:
            raise ConfigurationError(f"windows must be 1 to {MAX_WINDOWS}, got {self.windows}")

    @property
    def end(self) -> datetime:
        """The end of the last window, exclusive."""
        return self.start + self.windows * self.window

    def window_start(self, window: int) -> datetime:
        """Return the beginning of `window` (0 is the first)."""
        return self.start + window * self.window

    def window_at(self, moment: datetime) -> int | None:
        """Return the window that contains `moment`, or None outside of the period."""
        window = (moment - self.start) // self.window
        return window if 0 <= window < self.windows else None

    def first_window(self, moment: datetime) -> int:
        """Return the first window that starts at or after `moment`; below 0 long before it.

        A drift regime declared for `moment` begins with this window. It may begin after the end of
        the previous calendar, less than a window before window 0.
        """
        return -((self.start - moment) // self.window)

    def nearest_window(self, moment: datetime) -> int:
        """Return the window that contains `moment`; 0 before the period, `windows` after it."""
        return min(max((moment - self.start) // self.window, 0), self.windows)


@dataclass(frozen=True, slots=True)
class SlotTimes:
    """The times of a slot's opening and reply, as offsets from the start of its window."""

    opens_after: timedelta
    replies_after: timedelta

    def __post_init__(self) -> None:
        if not timedelta(0) <= self.opens_after < self.replies_after:
            raise ConfigurationError(
                "a slot opens within its window and before it replies, got "
                f"{_seconds(self.opens_after)} and {_seconds(self.replies_after)}"
            )
        if self.opens_after % MILLISECOND or self.replies_after % MILLISECOND:
            raise ConfigurationError(
                "a slot opens and replies at whole milliseconds, as the wire has them, got "
                f"{_seconds(self.opens_after)} and {_seconds(self.replies_after)}"
            )


@dataclass(frozen=True, slots=True)
class ReleaseCalendar:
    """A period, the slots of its windows, and the training method of its model rounds."""

    period: Period
    report_slots: tuple[SlotTimes, ...]  # report slots of every window
    model_slots: tuple[SlotTimes, ...]  # model slots of every window
    model_method: ModelMethod = ModelMethod.TANGENT  # training method of model rounds
    # Additional model slots of windows in which a drift regime begins. Their indices follow those
    # of `model_slots`.
    extra_slots: tuple[SlotTimes, ...] = ()
    extra_windows: int = 0  # largest number of windows of the period that use extra slots
    # Days of every window for first reports of new members. Their indices follow those of
    # `report_slots`.
    first_slots: tuple[SlotTimes, ...] = ()

    def __post_init__(self) -> None:
        if not (0 <= self.extra_windows <= self.period.windows):
            raise ConfigurationError(
                f"extra_windows must be 0 to {self.period.windows}, got {self.extra_windows}"
            )
        if bool(self.extra_slots) != bool(self.extra_windows):
            raise ConfigurationError(
                "extra_slots need extra_windows of at least 1, and the other way round"
            )
        for times in (*self.report_times, *self.model_times):
            if not times.replies_after <= self.period.window:
                raise ConfigurationError(
                    f"a slot replies {_seconds(times.replies_after)} after the start of its "
                    f"window, which is only {_seconds(self.period.window)} long"
                )

    @property
    def report_times(self) -> tuple[SlotTimes, ...]:
        """The times of every report slot by its index, first ones included."""
        return (*self.report_slots, *self.first_slots)

    @property
    def model_times(self) -> tuple[SlotTimes, ...]:
        """The times of every model slot by its index, extra ones included."""
        return (*self.model_slots, *self.extra_slots)

    def is_first_report(self, index: int) -> bool:
        """Return whether report slots of that index are for first reports of new members."""
        return index >= len(self.report_slots)

    def reported_window(self, moment: datetime) -> int:
        """Return the last window whose reports were all due by `moment`, or -1.

        Without report slots it is the last one that began.
        """
        due = max((each.replies_after for each in self.report_slots), default=timedelta(0))
        window = (moment - due - self.period.start) // self.period.window
        return min(max(window, -1), self.period.windows - 1)

    @property
    def most_extra(self) -> int:
        """The largest number of extra slots that the period uses."""
        return self.extra_windows * len(self.extra_slots)


def default_calendar(start: datetime) -> ReleaseCalendar:
    """Return a calendar of thirteen windows with three stages of reports and three model rounds.

    A window has four weeks. Reports are sent before the next stage opens, because they determine
    its linear query. A window in which a drift regime begins has three more rounds, in at most two
    windows a year. Every week has a day for first reports of new members.
    """

    def on(*days: int) -> tuple[SlotTimes, ...]:
        return tuple(SlotTimes(timedelta(days=day), timedelta(days=day + 1)) for day in days)

    return ReleaseCalendar(
        Period(start, DEFAULT_WINDOW, DEFAULT_WINDOWS),
        report_slots=on(4, 6, 8),
        model_slots=on(10, 16, 22),
        extra_slots=on(13, 19, 25),
        extra_windows=2,
        first_slots=on(4, 11, 18, 25),
    )


def _seconds(span: timedelta) -> str:
    """Format a time in seconds, and also in days from one day on."""
    seconds, days = span.total_seconds(), span / timedelta(days=1)
    return f"{seconds:.15g} s" + (f" ({days:.4g} days)" if abs(days) >= 1 else "")


def from_unix_ms(milliseconds: int) -> datetime:
    """Return the UTC timestamp of a Unix time in milliseconds."""
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC)


def to_unix_ms(moment: datetime) -> int:
    """Return the Unix time in milliseconds, rounded down."""
    return int(moment.timestamp() * 1000)
