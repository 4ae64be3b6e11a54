"""Values that people ask about, as `--at` takes them: `rows=2x`, `bytes=10GB`, `workers=1,2,4`.

Numbers may have a suffix of thousands (k, M, G, T), of bytes (kB, MB, GB, TB) or of their binary
kin (KiB, MiB, GiB, TiB).
"""

import math
import re
from collections.abc import Sequence

from fedperf_shared.errors import InvalidInputError

_SI = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_NUMBER = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(?:([kKMGTP]?)(B)?|([KMGTP])iB)"
)


class InvalidValueError(InvalidInputError):
    """What is asked about is not written as `--at` takes it."""


def values_by_name(settings: Sequence[str]) -> dict[str, list[str]]:
    """The values of every name, as they are written; a comma stands between values and names.

    Raises:
        InvalidValueError: a value has no name, or a name stands twice.
    """
    found: dict[str, list[str]] = {}
    for setting in settings:
        name = ""
        for part in setting.split(","):
            head, is_named, tail = part.partition("=")
            if is_named:
                name = head.strip()
                if name in found:
                    raise InvalidValueError(f"{name!r} stands twice in --at; give its values once")
                found[name] = []
            elif not name:
                raise InvalidValueError(f"--at is like rows=1000,workers=1,2,4; got {part[:80]!r}")
            found[name].append((tail if is_named else head).strip())
    return found


def number_of(word: str, *, is_bytes: bool = False) -> float | None:
    """A number like 5e6, 10k or 3M, and of bytes like 10GB or 1GiB; None where it is none."""
    match = _NUMBER.fullmatch(word)
    if match is None:
        return None
    digits, thousands, of_bytes, binary = match.groups()
    if (of_bytes or binary) and not is_bytes:
        return None
    times = 1024.0 ** ("KMGTP".index(binary) + 1) if binary else _SI[thousands.lower()]
    value = float(digits) * times
    return value if math.isfinite(value) else None
