"""The participants of the demo's year and the executions of each, all of which really ran.

The pretrained model learns DuckDB and pandas on whole cores, and no credit scoring. Members run
DuckDB and pandas with all families, and Polars; at some moment containers of half a core and 1 GB
take the place of all that. The new participant scores credit on Polars. The held-out workloads
belong to none of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule
from fedperf_engines.workloads.families import Family
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import Execution
from fedperf_shared.releases.period import DEFAULT_WINDOW, Period, ReleaseCalendar, default_calendar
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.corpus.organizations import (
    DriftingYear,
    MeasuredTimes,
    labelled_in,
    measured_of,
)
from fedperf_simulations.data.datasets import at_one_speed

NEW_FAMILY = Family.CREDIT
NEW_PLATFORM = "Polars"
"""Absent from pretraining: one of the families, on a platform of its own."""

OWN_RUNS = 3
"""Runs of the new participant in the case with own runs."""

BEGINS = datetime(2027, 1, 4, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class YearSize:
    """The size of the year. By default two cores compute it in four minutes.

    Attributes:
        windows: of four weeks.
        cap_window: the first window with only half a core.
        rounds: of each window, and as many more where a regime begins.
        organizations: that learn together.
        own: workloads of each of them, of each segment: two run until the cap, the third since.
        pool: of all of them together, likewise.
        held_out: workloads by which each line is evaluated.
        pretraining: workloads of the pretrained model.
        epochs: passes of pretraining over them.
        public_step: a step of n takes every n-th public plan.
    """

    windows: int = 8
    cap_window: int = 3
    rounds: int = 1
    organizations: int = 10
    own: int = 1000
    pool: int = 1050
    held_out: int = 200
    pretraining: int = 1000
    epochs: int = 20
    public_step: int = 2

    def __post_init__(self) -> None:
        if not self.own <= self.pool:
            raise ConfigurationError(f"{self.own} of {self.pool} workloads cannot be drawn")
        if not 0 < self.cap_window < self.windows:
            raise ConfigurationError(
                f"the cap comes between windows 0 and {self.windows}, got {self.cap_window}"
            )

    @property
    def workloads(self) -> int:
        """Workloads of each organization in the year."""
        return 3 * self.own

    def calendar(self) -> ReleaseCalendar:
        """Return the default calendar, shorter."""
        whole = default_calendar(BEGINS)
        return replace(
            whole,
            period=Period(BEGINS, DEFAULT_WINDOW, self.windows),
            model_slots=whole.model_slots[: self.rounds],
            extra_slots=whole.extra_slots[: self.rounds],
        )

    def planned(self) -> PlannedSchedule:
        """Return the schedule of each organization. It declares the mean number run in a window."""
        windows = 2 * self.cap_window + (self.windows - self.cap_window)
        policy = Policy(
            size_class=SizeClass.LARGE,
            nominal_workloads=self.workloads,
            workloads_per_window=self.own * windows / self.windows,
        )
        return plan_schedule(policy, self.calendar())


QUICK_YEAR = YearSize(
    windows=3,
    cap_window=1,
    organizations=3,
    own=20,
    pool=25,
    held_out=12,
    pretraining=60,
    epochs=2,
    public_step=20,
)


@dataclass(frozen=True, slots=True, eq=False)
class DemoParticipants:
    """The workloads of each participant, and those to judge predictions by.

    Attributes:
        pretraining: workloads of the pretrained model, as of one machine.
        organizations: what each executes.
        new_participant: the first executions of the one that joins last.
        similar_to_new: held-out workloads of its kind, to judge predictions by.
        old_machine: the same, on whole cores.
        new_machine: the same, under the cap.
    """

    pretraining: MeasuredTimes
    organizations: tuple[DriftingYear, ...]
    new_participant: tuple[Execution, ...]
    similar_to_new: tuple[Execution, ...]
    old_machine: MeasuredTimes
    new_machine: MeasuredTimes


def cast_of(
    segments: Sequence[Sequence[Execution]], size: YearSize, *, seed: int
) -> DemoParticipants:
    """Partition the workloads by `seed`.

    Args:
        segments: as `private_executions` has them.
        size: how many there are.
        seed: of all draws.

    Raises:
        ConfigurationError: there are not enough of them.
    """
    rng = np.random.default_rng([seed, 0])
    whole, capped, new = (
        [segment[each] for each in rng.permutation(len(segment)).tolist()] for segment in segments
    )
    period = size.calendar().period
    old_machine, whole_pool, rest = _cut(whole, size.held_out, size.pool)
    new_machine, capped_pool, _ = _cut(capped, size.held_out, size.pool)
    similar_to_new, new_participant, _ = _cut(
        [e for e in new if is_new_family(e)], size.held_out, OWN_RUNS
    )
    taken = {each.workload for each in (*similar_to_new, *new_participant)}
    new_pool, _, _ = _cut([e for e in new if e.workload not in taken], size.pool, 0)
    for_pretraining, _, _ = _cut([e for e in rest if not is_new_family(e)], size.pretraining, 0)
    pools = [
        labelled_in(pool, regime)
        for regime, pool in ((0, whole_pool), (0, new_pool), (1, capped_pool))
    ]
    begins = (period.start, period.window_start(size.cap_window))

    def year() -> DriftingYear:
        sample = (pool[e] for pool in pools for e in rng.permutation(size.pool)[: size.own])
        return DriftingYear(tuple(sample), begins)

    return DemoParticipants(
        measured_of(labelled_in([*at_one_speed(for_pretraining)], 0)),
        tuple(year() for _ in range(size.organizations)),
        tuple(new_participant),
        tuple(similar_to_new),
        measured_of(labelled_in(old_machine, 0)),
        measured_of(labelled_in(new_machine, 1)),
    )


def is_new_family(execution: Execution) -> bool:
    """Return whether it must be absent from pretraining."""
    return execution.workload.partition("-")[0] == NEW_FAMILY


def _cut(
    executions: Sequence[Execution], first: int, second: int
) -> tuple[Sequence[Execution], Sequence[Execution], Sequence[Execution]]:
    """So many, so many more, and the rest."""
    if len(executions) < first + second:
        raise ConfigurationError(
            f"there are {len(executions)} workloads of a kind, {first + second} are to be given"
        )
    return executions[:first], executions[first : first + second], executions[first + second :]
