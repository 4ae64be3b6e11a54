"""Work is counted in function calls: they are the same on every machine, however busy it is."""

import gc
import sys
from collections.abc import Callable
from types import FrameType


def count_calls(action: Callable[[], object]) -> int:
    """Return how many functions `action` calls in this thread, those of libraries included."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    gc.disable()  # what it calls back would be counted
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls
