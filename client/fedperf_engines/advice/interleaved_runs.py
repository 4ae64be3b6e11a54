"""Plans run in turns on this machine: what was predicted beside what was measured.

All plans run the same number of times, one after the other and over again, so that
whatever else the machine does meets all of them alike. Every second turn goes backwards, so that
no plan always runs behind the same one.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedperf_engines.advice.advice import Advice
from fedperf_engines.optimizer.enumeration import Alternative, Assignment
from fedperf_engines.platforms.support import EMBEDDED_PLATFORMS
from fedperf_engines.trials.pool import Trial
from fedperf_shared.execution import ExecutionStatus


@dataclass(frozen=True, slots=True)
class PlanRuns:
    """How the runs of one plan went.

    Attributes:
        runtime_seconds: median of its runs on engines that are awake; None where one of them
            did not end well.
        reason: why it did not; empty otherwise.
    """

    runtime_seconds: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredChoice(PlanRuns):
    """How the runs of `plan` went, beside what was predicted of it."""

    plan: Alternative = field(kw_only=True)

    @property
    def seconds(self) -> float | None:
        """What plans are compared by: the run time, and the start-up as it was predicted."""
        if self.runtime_seconds is None:
            return None
        return self.runtime_seconds + self.plan.startup_seconds


NEXT_BEST = 2
"""Mixed plans that run beside the choice and the single platforms."""

RunTrial = Callable[[Assignment], Trial]
"""Runs one plan once."""


def runnable_rivals(advice: Advice, *, all_of_them: bool) -> list[Alternative]:
    """Single platforms, the next best plans, and the one that is advised.

    Args:
        advice: whose choice they are to be compared with.
        all_of_them: also on platforms outside of this process that neither the choice nor what
            is advised uses;
            without, nobody waits for a JVM that he did not ask for.
    """
    wanted = {*EMBEDDED_PLATFORMS, *advice.choice.plan.platforms, *advice.advised.plan.platforms}
    able = [each for each in advice.rivals if all_of_them or wanted.issuperset(each.plan.platforms)]
    single = [each for each in able if len(set(each.plan.platforms)) == 1]
    mixed = [each for each in able if len(set(each.plan.platforms)) > 1]
    return sorted([*single, *mixed[:NEXT_BEST]], key=lambda each: each.seconds)


def in_turns(
    run: RunTrial,
    plans: Sequence[Assignment],
    *,
    repeats: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[PlanRuns]:
    """Every plan `repeats` times; one that failed is not run again."""
    seconds: list[list[float]] = [[] for _ in plans]
    failed: dict[int, str] = {}
    for turn in range(repeats):
        there = range(len(plans))
        for count, place in enumerate(reversed(there) if turn % 2 else there):
            if place not in failed:
                trial = run(plans[place])
                if trial.status is ExecutionStatus.OK and trial.measurement is not None:
                    seconds[place].append(trial.measurement.runtime_seconds)
                else:
                    failed[place] = trial.reason or trial.status.name.lower().replace("_", " ")
            if on_progress is not None:
                on_progress(turn * len(plans) + count + 1, repeats * len(plans))
    return [
        PlanRuns(None, failed[place]) if place in failed else PlanRuns(statistics.median(runs))
        for place, runs in enumerate(seconds)
    ]


def measured(
    run: RunTrial,
    plans: Sequence[Alternative],
    *,
    repeats: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[MeasuredChoice]:
    """As `in_turns`, beside what was predicted."""
    assignments = [each.plan.platforms for each in plans]
    found = in_turns(run, assignments, repeats=repeats, on_progress=on_progress)
    return [
        MeasuredChoice(runs.runtime_seconds, runs.reason, plan=plan)
        for plan, runs in zip(plans, found, strict=True)
    ]


def fastest(runs: Sequence[MeasuredChoice]) -> MeasuredChoice | None:
    """The one that really was; None where all failed."""
    ended = [(each.seconds, place) for place, each in enumerate(runs) if each.seconds]
    return runs[min(ended)[1]] if ended else None
