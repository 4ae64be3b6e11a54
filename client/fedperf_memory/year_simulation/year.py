"""A simulated year in memory: the organization, simulated peers and a coordinator, by the calendar.

Everything is the product's own (`memory_federation`). The schedule is planned as a daemon plans it
on joining (`release.schedule.plan_schedule`). Charges and their times are read from the ledger of
the organization's participant. Homes are in a temporary directory, and noise is seeded, so nothing
of it may be released. Where the policy is "ask", the simulation approves everything, which
changes no charge.

The organization's home is read and stays as it is. Its future is unknown. The assumption is that
its history runs again in the same order, evenly over the rest of the period, with the same run
times. Some workloads are held out from everything that is learned. At most `MOST_WORKLOADS` are
drawn, so that a simulation takes about as long for every organization. Simulated peers declare
what the organization declares, and have as many workloads of the shipped measured set, as far as
there are so many. No workload belongs to two members.

The gain is the change of errors on the held-out workloads, predicted in three ways: from local
executions alone, from these with the pretrained model, and with the result of joining. Ways are
compared case by case, and workloads are resampled.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import LabelledGraph, label_executions
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.enrollment import Membership
from fedperf_client.node.exchange import read_receipt
from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.joining_gain import (
    LOCAL,
    PERSONALIZED,
    PUBLIC_ENSEMBLE,
    errors_by_way,
)
from fedperf_client.release.history import LEFT, Spending, past_releases, read_spending
from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule
from fedperf_memory.histories import HistoryCompute, SharedContributions, SharedGradients
from fedperf_memory.memory_federation import (
    HOST,
    Clock,
    FederationMember,
    MemoryFleet,
    NewMember,
    directory_in_memory,
    join_member,
    open_federation,
)
from fedperf_memory.paired import Interval, interval_by_groups
from fedperf_memory.seeded_noise import noise_of
from fedperf_server.app.composition import ggfn_task
from fedperf_server.config import ServerConfig
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import ReleaseKind, Schedule

MOST_WORKLOADS = 2000
MOST_EXECUTIONS = 3  # of a workload, the ones that finished last
TEST_SHARE, MOST_TEST_WORKLOADS = 0.25, 50  # of the workloads, those that are kept away


@dataclass(frozen=True, slots=True)
class LocalHistory:
    """An organization's local executions."""

    stored: int  # workloads in the home
    training: tuple[Execution, ...]  # executions that the organization has when it joins
    test: tuple[Execution, ...]  # executions of other workloads that predictions are evaluated on

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all workloads."""
        return frozenset(each.workload for each in (*self.training, *self.test))


def read_history(home: Home, *, seed: int) -> LocalHistory:
    """Read the executions in the home; `seed` decides which workloads are held out.

    Raises:
        StorageError: the store cannot be read.
    """
    if not home.store.is_file():
        return LocalHistory(0, (), ())
    with ExecutionStore.open_unchanged(home.store) as store:
        names = store.workloads()
        order = np.random.default_rng([seed, 1]).permutation(len(names))[:MOST_WORKLOADS]
        runs = [
            deque(store.executions(workload=names[place]), MOST_EXECUTIONS)
            for place in order.tolist()
        ]
    ended_well = [any(each.is_ok for each in every) for every in runs]
    count = min(MOST_TEST_WORKLOADS, int(TEST_SHARE * sum(ended_well)))
    test = np.flatnonzero(ended_well)[:count].tolist()
    training = [each for place, each in enumerate(runs) if place not in test]
    return LocalHistory(len(names), _flat(training), _flat([runs[place] for place in test]))


def _flat(workloads: Sequence[Sequence[Execution]]) -> tuple[Execution, ...]:
    return tuple(each for executions in workloads for each in executions)


ALONE, WITH_PRETRAINED, JOINED = "alone", "with the pretrained model", "joined"

_WAYS = {ALONE: LOCAL, WITH_PRETRAINED: PUBLIC_ENSEMBLE, JOINED: PERSONALIZED}


@dataclass(frozen=True, slots=True)
class ErrorChange:
    """The change of a typical prediction's q-error in percent. Below 0 is better."""

    percent: float  # change of the geometric mean over the cases
    interval: Interval | None  # 95 %, resampling workloads; None of a single one

    @classmethod
    def of(
        cls,
        ours: NDArray[np.float64],
        theirs: NDArray[np.float64],
        workloads: Sequence[str],
    ) -> Self:
        """Return the change from absolute log errors of the same cases."""
        changes = ours - theirs
        percent, interval = _percent(float(changes.mean())), interval_by_groups(changes, workloads)
        if interval is None:
            return cls(percent, None)
        return cls(percent, (_percent(interval[0]), _percent(interval[1])))

    @property
    def verdict(self) -> str:
        """Return the verdict in words: a difference has an interval that excludes 0."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return "no difference"
        return "better" if self.percent < 0 else "worse"


@dataclass(frozen=True, slots=True)
class LocalGain:
    """Errors of each way to predict, and their change by joining."""

    training: int  # executions that were learned from
    test: int  # executions that were predicted
    workloads: int  # that these are of
    errors: Mapping[str, float]  # median q-error by way to predict
    means: Mapping[str, float]  # geometric mean of the q-errors by way to predict
    changes: Mapping[str, ErrorChange]  # of that mean, of `JOINED` against each other way

    @classmethod
    def of(
        cls, errors: Mapping[str, NDArray[np.float64]], workloads: Sequence[str], *, training: int
    ) -> Self:
        """Return the gain from absolute log errors by method, [held-out executions].

        A way without a prediction of everything is left out: local executions alone where there are
        none.
        """
        finite = {way: each for way, each in errors.items() if np.isfinite(each).all()}
        joined = finite[JOINED]
        return cls(
            training=training,
            test=len(joined),
            workloads=len(set(workloads)),
            errors={way: math.exp(float(np.median(each))) for way, each in finite.items()},
            means={way: math.exp(float(np.mean(each))) for way, each in finite.items()},
            changes={
                way: ErrorChange.of(joined, each, workloads)
                for way, each in finite.items()
                if way != JOINED
            },
        )


def measure_gain(jobs: LocalHistory, models: FetchedModels) -> LocalGain | None:
    """Measure the gain of `models`; None where no local execution is held out."""
    training, test = History.from_executions(jobs.training), History.from_executions(jobs.test)
    if not len(test):
        return None
    errors_by_name = errors_by_way(training, test, models.base_models(), models)
    errors = {way: errors_by_name[name] for way, name in _WAYS.items()}
    return LocalGain.of(errors, test.workloads, training=len(training))


def _percent(log_change: float) -> float:
    return 100 * math.expm1(log_change)


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedHistory:
    """A history that exists when its member joins (`histories.MemberHistory`)."""

    executed: Sequence[LabelledGraph]  # in the order in which it finished
    joins: datetime  # all of it finished before
    again: Sequence[datetime]  # when each finishes once more, in that order

    @classmethod
    def of(cls, executions: Iterable[Execution], *, joins: datetime, ends: datetime) -> Self:
        """Return the history of executions that ended well, in a period that ends at `ends`."""
        executed = label_executions(sorted(executions, key=lambda each: each.finished_at))
        step = (ends - joins) / max(len(executed), 1)
        return cls(executed, joins, [joins + place * step for place in range(len(executed))])

    def between(self, since: datetime | None, until: datetime) -> Sequence[LabelledGraph]:
        """Return the executions that finished then, each once."""
        if (since is None or since < self.joins) and self.joins <= until:
            return self.executed
        return [
            each
            for each, at in zip(self.executed, self.again, strict=True)
            if (since is None or since <= at) and at < until
        ]


# Thousands of drawn workloads that ran on one machine: `fedperf-sim measure --install`.
MEASURED_RUNS = Path(__file__).with_name("measured.parquet")


def draw_peers(
    measured: Iterable[Execution],
    *,
    members: int,
    workloads: int,
    others: Collection[str],
    seed: int,
) -> tuple[tuple[Execution, ...], ...]:
    """Draw the executions of each simulated peer.

    Args:
        measured: what they are drawn from.
        members: how many there are.
        workloads: of each, where there are enough.
        others: names of workloads that none of them has.
        seed: of the draw.
    """
    by_workload: dict[str, list[Execution]] = {}
    for each in measured:
        if each.workload not in others:
            by_workload.setdefault(each.workload, []).append(each)
    names = sorted(by_workload)
    count = min(workloads, len(names) // max(members, 1))
    order = np.random.default_rng([seed, 2]).permutation(len(names)).tolist()
    return tuple(
        tuple(each for place in order[first : first + count] for each in by_workload[names[place]])
        for first in range(0, members * count, count or 1)
    )


OnProgress = Callable[[int, int], None]

JUST_BEFORE = timedelta(milliseconds=1)

OWN = 0  # number of the organization in the seed of noise; simulated peers follow


class PeriodPassedError(InvalidInputError):
    """The organization would join after the calendar's end."""

    def __init__(self, joins: datetime, ends: datetime) -> None:
        super().__init__(
            f"the calendar ends on {ends:%Y-%m-%d %H:%M} UTC, and joining on "
            f"{joins:%Y-%m-%d %H:%M} is too late for it; name an earlier --joining-day, or the "
            "--calendar of the next period"
        )


@dataclass(frozen=True, slots=True)
class YearSettings:
    """The settings of a simulation: calendar, policy, simulated peers."""

    policy: Policy  # of the organization, which its simulated peers declare as well
    calendar: ReleaseCalendar  # of the coordinator
    joins: datetime  # when the organization does; simulated peers join at the period's start
    others: Sequence[Sequence[Execution]]  # executions of each simulated peer
    seed: int  # of the noise

    def __post_init__(self) -> None:
        if not self.joins < self.calendar.period.end:
            raise PeriodPassedError(self.joins, self.calendar.period.end)


@dataclass(frozen=True, slots=True)
class SimulatedRelease:
    """A release of the simulated year, from the ledger and receipt of its member."""

    slot: str  # its name
    kind: str  # what it releases
    charged_at: datetime  # when it was charged and drawn
    leaves_at: datetime  # when it left
    payload_bytes: int  # its size
    epsilon: float  # what it costs alone, add or remove one workload
    replace_one_epsilon: float  # the same when one is replaced
    spent: float  # epsilon of the period up to it
    has_left: bool  # the coordinator took it


@dataclass(frozen=True, slots=True)
class SimulatedYear:
    """The organization's results in the simulated year."""

    planned: PlannedSchedule  # its schedule, with what it leaves out
    releases: Sequence[SimulatedRelease]  # in the order in which they left
    spending: Spending  # of the period
    needs_approval: bool  # some releases need an approval
    gain: LocalGain | None  # by joining; None where there are too few workloads


def simulate_year(
    ahead: YearSettings, jobs: LocalHistory, *, on_progress: OnProgress
) -> SimulatedYear:
    """Live the year, from the start of the period to its end.

    Args:
        ahead: calendar, policy, simulated peers.
        jobs: local executions.
        on_progress: called after every window, and after the gain was measured.

    Raises:
        ConfigurationError: no schedule meets the policy's budget.
    """
    planned = plan_schedule(ahead.policy, ahead.calendar, at=ahead.joins)
    theirs = plan_schedule(ahead.policy, ahead.calendar)
    table = simulated_calendar(ahead.calendar, [planned.schedule, theirs.schedule])
    period, steps = table.period, ahead.calendar.period.windows + 1
    gradients = SharedGradients()
    shared, clock, fleet = (
        SharedContributions(gradients=gradients),
        Clock(period.start),
        MemoryFleet(),
    )
    allowed = approve_all(ahead.policy)

    def new_member(
        number: int, plan: PlannedSchedule, executions: Sequence[Execution], at: datetime
    ) -> NewMember:
        history = RepeatedHistory.of(executions, joins=at, ends=period.end)
        return NewMember(
            "own" if number == OWN else f"simulated-peer-{number}",
            plan.budget,
            replace(plan.schedule, calendar=table),
            noise_of([ahead.seed, 3], number),
            HistoryCompute(history, shared, clock),
            policy=allowed,
        )

    with directory_in_memory() as place:
        config = ServerConfig(place / "coordinator", HOST, table)
        task = ggfn_task()
        if isinstance(task.strategy, LinearizedAvg):
            task.strategy.gradients = gradients
        with open_federation(config, task, fleet, clock=clock) as (federation, service):
            for number, executions in enumerate(ahead.others, OWN + 1):
                new = new_member(number, theirs, executions, period.start)
                join_member(federation, service, fleet, new)
            federation.live(ahead.joins - JUST_BEFORE)
            clock.now = begins = max(ahead.joins, period.start)
            own = join_member(
                federation, service, fleet, new_member(OWN, planned, jobs.training, begins)
            )
            federation.step(begins)
            for window in range(period.nearest_window(begins), period.windows):
                on_progress(window, steps)
                federation.live(period.window_start(window + 1))
            on_progress(period.windows, steps)
            _, spending = read_spending([own.ledger.path], at=period.end)
            releases = _releases(own)
            gain = measure_gain(jobs, FetchedModels(own.home.models))
            on_progress(steps, steps)
    return SimulatedYear(planned, releases, spending, allowed != ahead.policy, gain)


def simulated_calendar(calendar: ReleaseCalendar, schedules: Sequence[Schedule]) -> ReleaseCalendar:
    """Return the calendar, without model rounds where no member planned one."""
    kinds = {slot.key.kind for each in schedules for slot in each.slots}
    if ReleaseKind.MODEL_UPDATE in kinds:
        return calendar
    return replace(calendar, model_slots=(), extra_slots=(), extra_windows=0)


def approve_all(policy: Policy) -> Policy:
    """Return the policy with every "ask" replaced by "auto"."""
    approved = {ReleaseMode.ASK: ReleaseMode.AUTO}
    return replace(
        policy,
        residual_report=approved.get(policy.residual_report, policy.residual_report),
        model_update=approved.get(policy.model_update, policy.model_update),
    )


def _releases(own: FederationMember) -> list[SimulatedRelease]:
    ledger, schedule = own.ledger, own.ledger.schedule
    membership = Membership.load(own.home.identity)
    past = past_releases(
        [ledger], own.home.receipts, read=lambda signed: read_receipt(signed, membership)
    )
    releases = [
        SimulatedRelease(
            slot=each.name,
            kind=each.kind,
            charged_at=each.entry.reserved_at,
            leaves_at=schedule.replies_at(each.key),
            payload_bytes=each.entry.payload_bytes,
            epsilon=each.epsilon,
            replace_one_epsilon=each.replace_one_epsilon,
            spent=ledger.spent(each.entry.reserved_at),
            has_left=each.state in LEFT,
        )
        for each in past
    ]
    return sorted(releases, key=lambda each: each.leaves_at)
