"""The start of a period: its ledger is made, its schedule declared, and receipts are compared.

A period's schedule is the policy's, and is fixed when the period's ledger is created. A ledger that
exists is only opened. It is held against the coordinator's receipts before anything is drawn.
"""

from datetime import datetime

import structlog

from fedperf_client.federation.exchange import Exchange
from fedperf_client.home.config import Home, write_private
from fedperf_client.release.active_policy import frozen_part
from fedperf_client.release.effective_modes import pending_changes
from fedperf_client.release.ledger.errors import LedgerDisagreesError
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.policy import Policy, load_policy
from fedperf_client.release.receipts import store_receipt
from fedperf_client.release.schedule import plan_schedule
from fedperf_shared.errors import FedperfError
from fedperf_shared.releases.period import Period, ReleaseCalendar
from fedperf_shared.runtime.failure_tracker import FailureTracker

_NEXT_PERIOD = "the next period"
"""The name of this step in the log of failures."""

log = structlog.get_logger()


class PeriodOverError(FedperfError):
    """The period is over and the coordinator's calendar has no other."""

    def __init__(self, period: Period) -> None:
        super().__init__(
            f"the period ended on {period.end:%Y-%m-%d %H:%M} UTC and the coordinator's calendar "
            "has no next one; its operator begins it there, and this daemon follows"
        )


def open_ledger(
    home: Home, policy: Policy, calendar: ReleaseCalendar, *, now: datetime
) -> PrivacyLedger:
    """The ledger of the calendar's period, begun with the policy's schedule where there is none.

    A period's schedule is fixed, from the moment `now` on at which it begins here: a policy that
    changed since applies from the next one.

    Raises:
        ConfigurationError: the policy has no schedule that meets its budget.
        PrivacyRefusedError: the organization's lifetime budget has no room for the period.
        StorageError: the ledger cannot be used.
    """
    path = home.ledger(calendar.period.start)
    if path.exists():
        ledger = PrivacyLedger.open(path)
        for pending in pending_changes(home, policy, ledger.schedule):
            if not pending.is_of_mode:
                log.warning("policy changed", change=str(pending.change), counts=pending.counts)
        return ledger
    planned = plan_schedule(policy, calendar, at=now)
    for left_out in planned.not_planned:
        log.info("not planned", what=left_out.what.name.lower(), reason=left_out.reason)
    write_private(home.begun_policy(calendar.period.start), frozen_part(policy))
    return PrivacyLedger.create(path, planned.budget, planned.schedule, lifetime=policy.lifetime)


def begin_period(home: Home, policy: Policy, exchange: Exchange, *, now: datetime) -> PrivacyLedger:
    """The ledger of the coordinator's period, declared there, with what was confirmed before.

    Raises:
        FedperfError: as `open_ledger` and `recall`, or the coordinator does not take the schedule.
    """
    ledger = open_ledger(home, policy, exchange.calendar(), now=now)
    exchange.declare_schedule(ledger.schedule)
    recall(ledger, exchange)
    return ledger


def next_ledger(
    ledger: PrivacyLedger,
    home: Home,
    exchange: Exchange,
    *,
    now: datetime,
    failures: FailureTracker,
) -> PrivacyLedger | None:
    """The ledger of the next period, begun once `ledger`'s is over and the calendar goes on.

    Until then None: a calendar that nobody continues, or a policy that has no schedule for
    it, is said in the log and looked at again later.
    """
    period = ledger.schedule.calendar.period
    if now < period.end or failures.in_backoff(_NEXT_PERIOD):
        return None
    try:
        if exchange.calendar().period.start == period.start:
            raise PeriodOverError(period)
        begun = begin_period(home, load_policy(home.policy), exchange, now=now)
    except (FedperfError, OSError) as error:
        failures.failed(_NEXT_PERIOD, error)
        return None
    failures.worked(_NEXT_PERIOD)
    return begun


def recall(ledger: PrivacyLedger, exchange: Exchange) -> None:
    """Compare the ledger with the coordinator's confirmations before any noise is sampled.

    A home that was restored from a backup as a whole has forgotten releases and cannot know
    it by itself. Where the two disagree, here or from before, the daemon goes on without
    releases: they are absent, and the node is still seen to be up.

    Raises:
        ConnectionRefusedByPeerError: the coordinator does not say what it confirmed.
        InvalidInputError: what it sent is no receipt of this organization in this period.
    """
    try:
        for receipt in exchange.receipts():
            store_receipt(ledger, receipt)
    except LedgerDisagreesError:
        pass  # kept beside the ledger
    problem = ledger.disagreement()
    if problem is not None:
        log.error("nothing leaves", reason=str(LedgerDisagreesError(ledger.path, problem)))
