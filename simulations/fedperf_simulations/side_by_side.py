"""Tasks of an experiment in several processes, with a progress bar on standard error."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Task = TypeVar("Task")
Result = TypeVar("Result")


def computed(
    compute: Callable[[Task], Result], tasks: Sequence[Task], what: str, *, jobs: int
) -> Iterator[Result]:
    """The results in the order of the tasks.

    Args:
        compute: a function that other processes can be handed, where `jobs` is above one.
        tasks: what it is called with.
        what: they are, for the bar.
        jobs: processes at once; with one, all happens here.
    """

    def shown(results: Iterator[Result]) -> Iterator[Result]:
        console = Console(stderr=True)
        yield from track(results, what, len(tasks), console=console, transient=True)

    if jobs > 1 and len(tasks) > 1:
        with ProcessPoolExecutor(min(jobs, len(tasks))) as pool:
            yield from shown(pool.map(compute, tasks))
    else:
        yield from shown(map(compute, tasks))
