"""Moments in the one form in which people read them: in UTC, to the day or to the minute."""

from datetime import UTC, datetime


def day(moment: datetime) -> str:
    """The day of a moment."""
    return f"{moment.astimezone(UTC):%Y-%m-%d}"


def minute(moment: datetime) -> str:
    """A moment to the minute."""
    return f"{table_minute(moment)} UTC"


def table_minute(moment: datetime) -> str:
    """The same where the heading or the help of a table says that times are in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
