"""Plans of one program run in turns, so that whatever the machine does meets all alike."""

import math
import statistics
from collections.abc import Iterable

from fedperf_client.platforms.program import Program
from fedperf_client.profiling.profiler import Profiler
from fedperf_shared.execution import ExecutionStatus
from fedperf_shared.workflow.vocabulary import Platform

Assignment = tuple[Platform, ...]


def in_turns(
    profiler: Profiler, program: Program, plans: Iterable[Assignment], *, repeats: int
) -> dict[Assignment, float]:
    """Median wall seconds of each plan; infinity where one of its runs did not end well."""
    runs: dict[Assignment, list[float]] = {plan: [] for plan in plans}
    for _ in range(repeats):
        for plan, seconds in runs.items():
            trial = profiler.trial(program, plan, threads=1)
            measured = trial.measurement
            ended = trial.status is ExecutionStatus.OK and measured is not None
            seconds.append(measured.runtime_seconds if measured and ended else math.inf)
    return {plan: statistics.median(seconds) for plan, seconds in runs.items()}
