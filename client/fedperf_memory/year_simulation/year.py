"""The year itself: the organization, its stand-ins and a coordinator, in memory, by the calendar.

Everything is the product's own (`federation.memory_federation`). The schedule is planned as a
daemon plans it when it joins (`release.schedule.plan_schedule`); what is charged, and when, is
read from the ledger that the organization's participant kept. Homes lie in a temporary directory,
and noise is seeded: nothing that is drawn here may leave.

Where the policy says "ask" it is taken that everything is approved, which changes no charge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fedperf_client.node.enrollment import Membership
from fedperf_client.node.exchange import read_receipt
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.release.history import LEFT, Spending, past_releases, spending_of
from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule
from fedperf_memory.histories import HistoryCompute, SharedAnswers, SharedGradients
from fedperf_memory.memory_federation import (
    HOST,
    Clock,
    FederationMember,
    NewMember,
    directory_in_memory,
    founded,
    joined,
)
from fedperf_memory.memory_transport import MemoryFleet
from fedperf_memory.seeded_noise import noise_of
from fedperf_memory.year_simulation.own_gain import OwnGain, own_gain
from fedperf_memory.year_simulation.own_jobs import LocalHistory
from fedperf_memory.year_simulation.repeated_history import RepeatedHistory
from fedperf_server.app.composition import ggfn_task
from fedperf_server.config import ServerConfig
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import ReleaseKind, Schedule

OnProgress = Callable[[int, int], None]

JUST_BEFORE = timedelta(milliseconds=1)

OWN = 0
"""Number of the organization where noise is seeded; stand-ins follow."""


class PeriodPassedError(InvalidInputError):
    """The organization would join after the calendar's end."""

    def __init__(self, joins: datetime, ends: datetime) -> None:
        super().__init__(
            f"the calendar ends on {ends:%Y-%m-%d %H:%M} UTC, and joining on "
            f"{joins:%Y-%m-%d %H:%M} is too late for it; name an earlier --joining-day, or the "
            "--calendar of the next period"
        )


@dataclass(frozen=True, slots=True)
class YearAhead:
    """The plan of a rehearsal: calendar, policy, stand-ins.

    Attributes:
        policy: of the organization, which its stand-ins declare as well.
        calendar: of the coordinator.
        joins: when the organization does; stand-ins are there from the period's start.
        others: executions of each stand-in.
        seed: of the noise.
    """

    policy: Policy
    calendar: ReleaseCalendar
    joins: datetime
    others: Sequence[Sequence[Execution]]
    seed: int

    def __post_init__(self) -> None:
        if not self.joins < self.calendar.period.end:
            raise PeriodPassedError(self.joins, self.calendar.period.end)


@dataclass(frozen=True, slots=True)
class RehearsedRelease:
    """A release of the rehearsed year, as ledger and receipt of its member have it.

    Attributes:
        slot: its name.
        kind: what it releases.
        charged_at: when it was charged and drawn.
        leaves_at: when it left.
        payload_bytes: its size.
        epsilon: what it costs alone, add or remove one workload.
        replace_one_epsilon: the same when one is replaced.
        spent: epsilon of the period up to it.
        has_left: the coordinator took it.
    """

    slot: str
    kind: str
    charged_at: datetime
    leaves_at: datetime
    payload_bytes: int
    epsilon: float
    replace_one_epsilon: float
    spent: float
    has_left: bool


@dataclass(frozen=True, slots=True)
class RehearsedYear:
    """The organization's results in the rehearsed year.

    Attributes:
        planned: its schedule, with what it leaves out.
        releases: in the order in which they left.
        spending: of the period.
        needs_approval: some of it leaves only where somebody approves it.
        gain: what joining brought; None where it has too few workloads to tell.
    """

    planned: PlannedSchedule
    releases: Sequence[RehearsedRelease]
    spending: Spending
    needs_approval: bool
    gain: OwnGain | None


def rehearsed_year(
    ahead: YearAhead, jobs: LocalHistory, *, on_progress: OnProgress
) -> RehearsedYear:
    """Live the year, from the start of the period to its end.

    Args:
        ahead: calendar, policy, stand-ins.
        jobs: own executions.
        on_progress: told after every window, and after what was learned was judged.

    Raises:
        ConfigurationError: no schedule meets the policy's budget.
    """
    planned = plan_schedule(ahead.policy, ahead.calendar, at=ahead.joins)
    theirs = plan_schedule(ahead.policy, ahead.calendar)
    table = lived_calendar(ahead.calendar, [planned.schedule, theirs.schedule])
    period, steps = table.period, ahead.calendar.period.windows + 1
    gradients = SharedGradients()
    shared, clock, fleet = SharedAnswers(gradients=gradients), Clock(period.start), MemoryFleet()
    allowed = approved(ahead.policy)

    def newcomer(
        number: int, plan: PlannedSchedule, executions: Sequence[Execution], at: datetime
    ) -> NewMember:
        history = RepeatedHistory.of(executions, joins=at, ends=period.end)
        return NewMember(
            "own" if number == OWN else f"stand-in-{number}",
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
        with founded(config, task, fleet, clock=clock) as (federation, service):
            for number, executions in enumerate(ahead.others, OWN + 1):
                new = newcomer(number, theirs, executions, period.start)
                joined(federation, service, fleet, new)
            federation.live(ahead.joins - JUST_BEFORE)
            clock.now = begins = max(ahead.joins, period.start)
            own = joined(federation, service, fleet, newcomer(OWN, planned, jobs.known, begins))
            federation.step(begins)
            for window in range(period.nearest_window(begins), period.windows):
                on_progress(window, steps)
                federation.live(period.window_start(window + 1))
            on_progress(period.windows, steps)
            _, spending = spending_of([own.ledger.path], at=period.end)
            releases = _releases(own)
            gain = own_gain(jobs, FetchedModels(own.home.models))
            on_progress(steps, steps)
    return RehearsedYear(planned, releases, spending, allowed != ahead.policy, gain)


def lived_calendar(calendar: ReleaseCalendar, schedules: Sequence[Schedule]) -> ReleaseCalendar:
    """The calendar without model rounds where nobody planned one: nobody would be asked."""
    kinds = {slot.key.kind for each in schedules for slot in each.slots}
    if ReleaseKind.MODEL_UPDATE in kinds:
        return calendar
    return replace(calendar, model_slots=(), extra_slots=(), extra_windows=0)


def approved(policy: Policy) -> Policy:
    """The policy with every "ask" answered."""
    answers = {ReleaseMode.ASK: ReleaseMode.AUTO}
    return replace(
        policy,
        residual_report=answers.get(policy.residual_report, policy.residual_report),
        model_update=answers.get(policy.model_update, policy.model_update),
    )


def _releases(own: FederationMember) -> list[RehearsedRelease]:
    ledger, schedule = own.ledger, own.ledger.schedule
    membership = Membership.load(own.home.identity)
    past = past_releases(
        [ledger], own.home.receipts, read=lambda signed: read_receipt(signed, membership)
    )
    found = [
        RehearsedRelease(
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
    return sorted(found, key=lambda each: each.leaves_at)
