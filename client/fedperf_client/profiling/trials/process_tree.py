"""A process and its descendants, sampled: their resident memory and CPU time.

Whatever cannot be read because a process has just ended counts nothing.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

_LONGEST_END_SECONDS = 10.0
_TICK_SECONDS = 0.005


class ProcessTree:
    """A process and its descendants."""

    def __init__(self, pid: int, *, children_every: int = 1, counts_root: bool = True) -> None:
        """Watch the process `pid`.

        Args:
            pid: of the root, which is alive.
            children_every: samples from one look for new descendants to the next.
            counts_root: whether the root itself counts, or its descendants alone.
        """
        self._root = psutil.Process(pid)
        self._children_every = children_every
        self._counted: tuple[psutil.Process, ...] = (self._root,) if counts_root else ()
        self._children: list[psutil.Process] = []
        self._samples = 0
        self.peak_bytes = 0

    def sample(self) -> int:
        """Resident memory now, in bytes; the peak is kept."""
        self._samples += 1
        if self._samples % self._children_every == 0:
            self._children = self._descendants()
        resident = self.resident_bytes()
        self.peak_bytes = max(self.peak_bytes, resident)
        return resident

    def resident_bytes(self) -> int:
        """Resident memory now, in bytes."""
        total = 0
        for process in (*self._counted, *self._children):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    def cpu_seconds(self) -> float:
        """CPU time so far, ended children that the root has waited for included."""
        total = 0.0
        for process in (self._root, *self._children):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
                if process is self._root:
                    total += times.children_user + times.children_system
        return total

    def kill_children(self) -> None:
        """Kill all descendants that are known or can be found, not the root, and see them gone.

        The kernel takes a while to end a process that holds gigabytes; until then its memory
        is missing to whatever runs next.
        """
        killed = {*self._children, *self._descendants()}
        for process in killed:
            with contextlib.suppress(psutil.Error):
                process.kill()
        latest = time.monotonic() + _LONGEST_END_SECONDS
        while any(map(_is_alive, killed)) and time.monotonic() < latest:
            time.sleep(_TICK_SECONDS)

    def _descendants(self) -> list[psutil.Process]:
        """The processes below the root; those known already are kept as they are."""
        known = {process.pid: process for process in self._children}
        found: list[psutil.Process] = []
        try:
            for pid in _pids_below(self._root.pid):
                with contextlib.suppress(psutil.Error):
                    found.append(known.get(pid) or psutil.Process(pid))
        except OSError:  # this kernel does not list children: look through all processes
            with contextlib.suppress(psutil.Error):
                return self._root.children(recursive=True)
        return found


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _pids_below(pid: int) -> Iterator[int]:
    """As the kernel lists children, a hundred times faster than reading all of /proc."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            yield int(child)
            with contextlib.suppress(OSError):
                yield from _pids_below(int(child))
