"""Tasks of an experiment in several processes, with a progress bar on standard error.

Each process computes in one thread: pools of threads of several processes get into each other's
way, which made small matrices ten times slower.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from rich.console import Console
from rich.progress import track
from threadpoolctl import threadpool_limits

Task = TypeVar("Task")
Result = TypeVar("Result")


def computed(
    compute: Callable[[Task], Result], tasks: Sequence[Task], what: str, *, jobs: int
) -> Iterator[Result]:
    """Yield the results in the order of the tasks.

    Args:
        compute: a function that other processes can be handed, where `jobs` is above one.
        tasks: what it is called with.
        what: they are, for the bar.
        jobs: processes at once; with one, all happens here.
    """

    def with_progress(results: Iterator[Result]) -> Iterator[Result]:
        console = Console(stderr=True)
        yield from track(results, what, len(tasks), console=console, transient=True)

    if jobs > 1 and len(tasks) > 1:
        with ProcessPoolExecutor(min(jobs, len(tasks)), initializer=_in_one_thread) as pool:
            yield from with_progress(pool.map(compute, tasks))
    else:
        yield from with_progress(map(compute, tasks))


def _in_one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # of libraries that are loaded later
    threadpool_limits(1)
