"""The progress of a simulation on the standard error: its stages, with bars and seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

Timer = Callable[[], float]


@dataclass(frozen=True, slots=True)
class ProgressStage:
    """One running stage. `advance` moves its bar, `announce` changes its text."""

    _progress: Progress
    _task: TaskID
    _title: str

    def advance(self, by: float = 1.0) -> None:
        """Move the bar."""
        self._progress.advance(self._task, by)

    def announce(self, words: str) -> None:
        """Show what is going on now."""
        self._progress.update(self._task, description=f"{self._title}: {words}")


@dataclass(slots=True)
class Stages:
    """Shows stages one after the other and keeps their seconds."""

    progress: Progress
    timer: Timer
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(
        self, name: str, title: str, *, total: float | None = None
    ) -> Iterator[ProgressStage]:
        """Yield a stage. Without `total` the bar only shows that it goes on."""
        task = self.progress.add_task(title, total=total)
        began = self.timer()
        yield ProgressStage(self.progress, task, title)
        self.seconds[name] = round(self.timer() - began, 2)
        done = total or 1.0
        self.progress.update(task, description=title, total=done, completed=done)


@contextmanager
def stages_shown(timer: Timer, console: Console | None = None) -> Iterator[Stages]:
    """Stages with a bar each on the standard error."""
    columns = (
        SpinnerColumn(finished_text="[green]done[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as progress:
        yield Stages(progress, timer)


@contextmanager
def bar(title: str, total: float) -> Iterator[Callable[[str], None]]:
    """Yield one bar on the standard error. Yields what to call, with words, after each step."""
    with stages_shown(time.monotonic) as stages, stages.stage(title, title, total=total) as stage:

        def advance(words: str) -> None:
            stage.announce(words)
            stage.advance()

        yield advance
