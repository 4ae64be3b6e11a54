"""Durations as people write and read them."""

UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of each unit."""


def duration_text(seconds: float) -> str:
    """A duration for people, in the largest unit that it has more than two of."""
    if seconds >= 2 * UNITS["d"]:
        return f"{seconds / UNITS['d']:.1f} d"
    if seconds >= 2 * UNITS["h"]:
        return f"{seconds / UNITS['h']:.1f} h"
    if seconds >= 2 * UNITS["m"]:
        return f"{seconds / UNITS['m']:.1f} min"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
