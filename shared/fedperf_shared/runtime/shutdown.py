"""End a long-running program cleanly: the first signal asks, the second insists."""

import signal
import threading
from types import FrameType


def stop_on_signals() -> threading.Event:
    """An event that SIGINT or SIGTERM sets; a second signal has its usual effect."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    return stop
