"""Numbers of things in words."""


def counted(number: int, thing: str) -> str:
    """So many of a thing, whose plural ends with s."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
