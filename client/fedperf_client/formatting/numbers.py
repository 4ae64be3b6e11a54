"""Numbers of things and of bytes in words."""

from rich.filesize import decimal


def counted(number: int, thing: str) -> str:
    """So many of a thing, whose plural ends with s."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def size_text(count: float) -> str:
    """A number of bytes for people."""
    return decimal(round(count))
