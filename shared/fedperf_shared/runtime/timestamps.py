"""Timestamps for people, in UTC: in words in a sentence, short and sortable in a table."""

from datetime import UTC, datetime


def day(moment: datetime) -> str:
    """Format the day for a sentence: 2 December 2026."""
    at = moment.astimezone(UTC)
    return f"{at.day} {at:%B %Y}"


def minute(moment: datetime) -> str:
    """Format a timestamp for a sentence, to the minute: 2 December 2026, 00:00 UTC."""
    return f"{day(moment)}, {moment.astimezone(UTC):%H:%M} UTC"


def table_minute(moment: datetime) -> str:
    """Format a timestamp for a table whose heading or help names UTC: 2026-12-02 00:00."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
