"""One organization's part in a period of its coordinator's calendar, from its start, tick by tick.

A period's schedule follows from the policy and is fixed when the period's ledger is created; an
existing ledger is only opened. It is compared with the coordinator's receipts before anything is
sampled.

When a slot is due, its release is made through the gate. It is sent at the slot's fixed time,
however long the computation took. A sum that is not there in time leaves as noise alone; any other
release that is not ready is not sent. A release that policy or operator withhold is just not sent.
There is no error and no other message, and everything else happens at the same times as if it had
been sent. A failure on the way to the coordinator is retried with a growing backoff. What the
coordinator refuses for good, and what fails inside the gate, is not retried.

A tick reads no clock and waits for no release: slow work runs in the background
(`BackgroundRunner`).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.contributions.mechanisms import NoiseSource
from fedperf_client.home.config import Home, write_private
from fedperf_client.node.exchange import Exchange, NoMemberError, RefusedByCoordinatorError
from fedperf_client.node.reports import ReportMaker
from fedperf_client.node.updates import (
    MethodRemovedError,
    PendingUpdates,
    RequestRefusedError,
    UpdateMaker,
)
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.learners.base_learners import CellCorrection
from fedperf_client.release.decisions import WithholdReason
from fedperf_client.release.gate import Mechanism, NoiseOf, ReleaseGate, WithheldError
from fedperf_client.release.history import receipt_path
from fedperf_client.release.ledger import (
    LedgerDisagreesError,
    PrivacyLedger,
    ReleaseState,
    SlotSpentError,
)
from fedperf_client.release.policy import (
    Policy,
    ReleaseMode,
    load_policy,
    pending_changes,
    store_settings,
)
from fedperf_client.release.schedule import plan_schedule, slot_name
from fedperf_client.workers.worker_process import BackgroundRunner, TaskRunner
from fedperf_shared.errors import FedperfError, PrivacyRefusedError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.period import Period, ReleaseCalendar
from fedperf_shared.releases.release import NoisySum, ReleaseKind, SignedRelease, Slot, SlotKey
from fedperf_shared.runtime.failure_tracker import FailureTracker

# Codes of the coordinator that may be gone at a later tick.
_TEMPORARY_REFUSALS = frozenset({"internal", "not_open", "no_receipt_yet"})

# Share of a slot's time in which its sum must be there; the rest is for the noise.
_COMPUTED_BY = 0.9

_CONFIRMED = {
    ReleaseKind.RESIDUAL_REPORT: "report handed in",
    ReleaseKind.MODEL_UPDATE: "update confirmed",
}

_FETCHING = "fetching"
_NEXT_PERIOD = "the next period"  # names of these steps in the failure tracker
log = structlog.get_logger()


class PeriodOverError(FedperfError):
    """Raised when the period is over and the coordinator's calendar has no other."""

    def __init__(self, period: Period) -> None:
        super().__init__(
            f"the period ended on {period.end:%Y-%m-%d %H:%M} UTC and the coordinator's calendar "
            "has no next one; its operator begins it there, and this daemon follows"
        )


class TooLateError(PrivacyRefusedError):
    """Raised when a release was not ready at its slot's time and is withheld."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(
            f"{key.kind.name.lower()} of window {key.window} was not ready at its fixed time and "
            "stays here; give the daemon more cores, or its schedule fewer steps"
        )


def open_ledger(
    home: Home, policy: Policy, calendar: ReleaseCalendar, *, now: datetime
) -> PrivacyLedger:
    """Open the ledger of the calendar's period, or begin it with the policy's schedule.

    The schedule is fixed from the time `now` on at which the period begins here: a policy that
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
                log.warning("policy changed", change=pending.change, counts=pending.counts)
        return ledger
    planned = plan_schedule(policy, calendar, at=now)
    for omitted in planned.not_planned:
        log.info("not planned", what=omitted.what.name.lower(), reason=omitted.reason)
    store_settings(home, policy, planned.schedule)
    return PrivacyLedger.create(path, planned.budget, planned.schedule, lifetime=policy.lifetime)


def begin_period(home: Home, policy: Policy, exchange: Exchange, *, now: datetime) -> PrivacyLedger:
    """Return the ledger of the coordinator's period, declared there and compared with receipts.

    Raises:
        FedperfError: as `open_ledger` and `compare_receipts`, or the coordinator refuses the
            schedule.
    """
    ledger = open_ledger(home, policy, exchange.calendar(), now=now)
    exchange.declare_schedule(ledger.schedule)
    compare_receipts(ledger, exchange)
    return ledger


def begin_next_period(
    ledger: PrivacyLedger,
    home: Home,
    exchange: Exchange,
    *,
    now: datetime,
    failures: FailureTracker,
) -> PrivacyLedger | None:
    """Begin the next period once that of `ledger` is over and the calendar goes on; else None.

    A calendar without a next period, or a policy without a schedule for it, is logged and tried
    again later.
    """
    period = ledger.schedule.calendar.period
    if now < period.end or failures.in_backoff(_NEXT_PERIOD):
        return None
    try:
        if exchange.calendar().period.start == period.start:
            raise PeriodOverError(period)
        next_ledger = begin_period(home, load_policy(home.policy), exchange, now=now)
    except (FedperfError, OSError) as error:
        failures.failed(_NEXT_PERIOD, error)
        return None
    failures.worked(_NEXT_PERIOD)
    return next_ledger


def compare_receipts(ledger: PrivacyLedger, exchange: Exchange) -> None:
    """Compare the ledger with the coordinator's receipts before any noise is sampled.

    A data directory that was restored from a backup as a whole has forgotten releases and cannot
    detect it by itself. Where the two disagree, now or before, the daemon goes on without releases:
    they are absent, and the node is still seen to be up.

    Raises:
        ConnectionRefusedByPeerError: the coordinator does not send its receipts.
        InvalidInputError: it sent something else than this organization's receipts of this period.
    """
    try:
        for receipt in exchange.receipts():
            ledger.confirm(receipt)
    except LedgerDisagreesError:
        pass  # stored next to the ledger
    problem = ledger.disagreement()
    if problem is not None:
        log.error("nothing leaves", reason=str(LedgerDisagreesError(ledger.path, problem)))


class Participant:
    """One organization in one period; reports and updates go through one gate."""

    def __init__(
        self,
        home: Home,
        exchange: Exchange,
        ledger: PrivacyLedger,
        noise: NoiseOf,
        key: ec.EllipticCurvePrivateKey,
        *,
        policy: Policy,
        reporting: TaskRunner,
        training: TaskRunner,
        start: BackgroundRunner,
        anchors: Sequence[PlanOnCluster] = (),
        failures: FailureTracker | None = None,
    ) -> None:
        """Run the ledger's schedule within the ledger's budget; `key` signs its releases.

        `reporting` computes the sums of reports and `training` those of updates; `start` begins
        slow work. Model rounds are about `anchors`, by default the public plans that ship.
        """
        self._failures = failures or FailureTracker()
        self._home = home
        self._exchange = exchange
        self._ledger = ledger
        self._schedule = ledger.schedule
        self._policy = policy
        self._gate = ReleaseGate(ledger, noise, key)
        self._models = FetchedModels(home.models)
        self._reports = ReportMaker(
            home, ledger.schedule, fetch=exchange.linear_query, compute=reporting
        )
        self._updates = UpdateMaker(home.store, self._models, compute=training, anchors=anchors)
        self._start = start
        self._given_up: set[SlotKey] = set()
        self._send_at: dict[SlotKey, datetime] = {}
        self._sampling: dict[SlotKey, Future[None]] = {}
        self._pending = PendingUpdates(ledger.schedule, send=self._send, withhold=self._withhold)
        self._receipt_from: dict[SlotKey, datetime] = {}
        self._corrected: tuple[datetime | None, int] = (None, 0)
        self._ticked_at: datetime | None = None
        self.heard_at: datetime | None = None
        """The time of the coordinator's last reply."""
        self.refused_at: datetime | None = None
        """The time when it last refused this organization as no member; None once it replies."""

    def tick(self, now: datetime) -> None:
        """Send updates that are due, fetch what is new, make and send reports.

        In this order: an update is sent at its time, however long the coordinator's Exchange takes,
        and a daemon that was away learns of a drift regime before it reports. Failed calls are
        retried with a growing backoff, and in any case at the first tick after a report opens or is
        due.
        """
        since, self._ticked_at = self._ticked_at, now
        self._pending.dispatch(now)
        passed = any((since is None or since < at) and at <= now for at in self._report_times(now))
        self._call(_FETCHING, partial(self._fetch, now), at_once=passed)
        opened = [
            slot for slot in self._coming_reports(now) if self._schedule.opens_at(slot.key) <= now
        ]
        for slot in opened:
            # Fetched whether or not the slot's report is sent: the request reveals nothing.
            self._call(
                f"linear query of {slot_name(slot.key)}", partial(self._reports.fetch_query, slot)
            )
        for slot in opened:
            if slot.key not in self._given_up and not self._receipt_path(slot.key).exists():
                self._call(slot_name(slot.key), partial(self._report, slot, now), at_once=True)
        for slot in self._unconfirmed_updates(now):
            self._call(
                f"receipt of {slot_name(slot.key)}", partial(self._fetch_receipt, slot.key, now)
            )

    def pause(self, poll: timedelta, *, now: datetime) -> timedelta:
        """Return the time until the next tick: `poll`, or less if a slot opens or is due before.

        Withheld reports count too, and updates whether or not they were requested: the calls of
        this node do not depend on it.
        """
        updates = (each for each in self._schedule.slots if not kind_of(each.parameters).is_report)
        times = [*self._report_times(now), *(self._schedule.replies_at(e.key) for e in updates)]
        return min([poll, *(at - now for at in times if at > now)])

    def handle(self, request: TrainRequest, *, now: datetime) -> Future[SignedRelease]:
        """Begin the requested update; a tick sends it at its slot's fixed time.

        May be called by another thread, and again for a slot, which returns the same future. The
        future raises RequestRefusedError where no such slot is due here, and another FedperfError
        where nothing can be sent for it.
        """
        return self._pending.reply(
            request.slot, lambda: self._start(partial(self._sample_update, request, now)), now=now
        )

    def dispatch(self, now: datetime) -> None:
        """Send the requested updates that are due and ready."""
        self._pending.dispatch(now)

    def close(self) -> None:
        """Refuse the requests that have no reply yet."""
        self._pending.close()

    def _sample_update(self, request: TrainRequest, now: datetime) -> None:
        """Sample and store the requested update.

        Raises:
            RequestRefusedError: no such slot is due here.
            FedperfError: nothing can be sent for this slot.
        """
        slot = self._schedule.slot(request.slot)
        if slot is None or not self._may_begin(slot.key, now):
            raise RequestRefusedError("no such slot is due", Refusal.NOT_DUE)
        self._updates.check_request(slot, request)
        replies_at = self._schedule.replies_at(slot.key)
        seconds = self._seconds_to_compute(slot.key, send_at=replies_at, now=now)

        def make(due: Slot, noise: NoiseSource) -> NoisySum:
            return self._updates.release(due, noise, request, seconds=seconds)

        try:
            self._seal(slot, make, at=now)
        except MethodRemovedError:  # charged, as the schedule requires
            self._gate.withhold(slot.key, at=now, reason=WithholdReason.METHOD_REMOVED)
            raise WithheldError(slot.key, WithholdReason.METHOD_REMOVED) from None

    def _send(self, key: SlotKey, now: datetime) -> SignedRelease:
        return self._gate.dispatch(key, at=now, mode=self._policy.mode(key.kind))

    def _withhold(self, key: SlotKey, now: datetime) -> None:
        """Withhold a late release for good: it is not sent after a restart either."""
        self._gate.withhold(key, at=now)
        raise TooLateError(key)

    def _report_times(self, now: datetime) -> Iterator[datetime]:
        """Yield the opening and sending times of present and later reports, withheld ones too."""
        for slot in self._coming_reports(now):
            yield self._schedule.opens_at(slot.key)
            yield self._send_at.get(slot.key, self._schedule.replies_at(slot.key))

    def _may_begin(self, key: SlotKey, now: datetime) -> bool:
        """Return whether an update requested now can be sent at its time, or was sent before."""
        if not self._schedule.opens_at(key) <= now < self._schedule.calendar.period.end:
            return False
        if now < self._schedule.replies_at(key):
            return True
        # A withheld update is refused like a slot that this node missed.
        mode = self._policy.mode(key.kind)
        return self._ledger.stored(key) is not None and self._gate.allows(key, at=now, mode=mode)

    def _seal(self, slot: Slot, make: Mechanism, *, at: datetime) -> None:
        """Sample and store the slot's release; notify an operator whose approval it needs, once.

        Raises:
            WithheldError: it was withheld in advance; nothing was charged.
        """
        is_sampled = self._ledger.stored(slot.key) is not None
        mode = self._policy.mode(slot.key.kind)
        self._gate.seal(slot.key, make, at=at, mode=mode)
        if not is_sampled and mode is ReleaseMode.ASK:
            log.info(
                "release sealed; it leaves if approved",
                look=f"fedperf release show {slot_name(slot.key)}",
                until=self._schedule.replies_at(slot.key).isoformat(),
            )

    def _report(self, slot: Slot, now: datetime) -> None:
        """Sample the report when its slot opens, send it at its fixed time.

        A daemon that was away at that time samples the report when it is back. It sends it as much
        later as the slot's span, so that no time depends on how long sampling took. Ticks do not
        either: sampling runs in parallel.
        """
        key = slot.key
        is_sampled = self._ledger.stored(key) is not None
        if not is_sampled and not self._reports.is_ready(slot):
            return
        opens_at, replies_at = self._schedule.opens_at(key), self._schedule.replies_at(key)
        if key not in self._send_at:
            is_missed = not is_sampled and now >= replies_at
            self._send_at[key] = now + (replies_at - opens_at) if is_missed else replies_at
        try:
            if not is_sampled and key not in self._sampling:
                seconds = self._seconds_to_compute(key, send_at=self._send_at[key], now=now)
                make = partial(self._reports.release, seconds=seconds)
                self._sampling[key] = self._start(partial(self._seal, slot, make, at=now))
            if not is_sampled and self._sampling[key].done():
                self._sampling.pop(key).result()
            if now < self._send_at[key]:
                return
            if self._ledger.stored(key) is None:
                self._withhold(key, now)
            release = self._send(key, now)
        except (TooLateError, WithheldError, SlotSpentError):
            self._given_up.add(key)
            raise
        self._call(f"handing in {slot_name(key)}", partial(self._submit, key, release))

    def _submit(self, key: SlotKey, release: SignedRelease) -> None:
        try:
            receipt = self._exchange.submit(release)
        except RefusedByCoordinatorError as error:
            if error.code not in _TEMPORARY_REFUSALS:
                self._given_up.add(key)
            raise
        self._ledger.confirm(receipt, key=key)
        write_private(self._receipt_path(key), receipt.signed)
        log.info(_CONFIRMED[key.kind], window=key.window, receipt=receipt.sequence)

    def _fetch_receipt(self, key: SlotKey, now: datetime) -> None:
        """Fetch the receipt of a sent update: once the round is over, its bytes return it.

        Requested at the slot's span after its time, then after twice the time, and so on.
        """
        replies_at = self._schedule.replies_at(key)
        self._receipt_from[key] = replies_at + 2 * (now - replies_at)
        stored = self._ledger.stored(key)
        if stored is not None:
            self._submit(key, stored)

    def _seconds_to_compute(self, key: SlotKey, *, send_at: datetime, now: datetime) -> float:
        span = self._schedule.replies_at(key) - self._schedule.opens_at(key)
        return (send_at - (1 - _COMPUTED_BY) * span - now).total_seconds()

    def _coming_reports(self, now: datetime) -> list[Slot]:
        """Return the report slots of this and later windows."""
        window = self._schedule.calendar.period.window_at(now)
        return [
            slot
            for slot in self._schedule.slots
            if slot.key.kind is ReleaseKind.RESIDUAL_REPORT
            and window is not None
            and slot.key.window >= window
        ]

    def _unconfirmed_updates(self, now: datetime) -> list[Slot]:
        """Return slots of sent updates whose receipt may be available."""
        due = []
        for slot in self._schedule.slots:
            key = slot.key
            opens_at, replies_at = self._schedule.opens_at(key), self._schedule.replies_at(key)
            if (
                key.kind is ReleaseKind.MODEL_UPDATE
                and key not in self._given_up
                and self._receipt_from.get(key, replies_at + (replies_at - opens_at)) <= now
                and not self._receipt_path(key).exists()
            ):
                due.append(slot)
        if not due:
            return []
        states = {entry.key: entry.state for entry in self._ledger.entries()}
        return [slot for slot in due if states.get(slot.key) is ReleaseState.HANDED_OUT]

    def _receipt_path(self, key: SlotKey) -> Path:
        return receipt_path(self._home.receipts, self._ledger, key)

    def _fetch(self, now: datetime) -> None:
        """Fetch models, drift regimes and the correction that the coordinator published."""
        try:
            status = self._exchange.status()
        except NoMemberError:
            self.refused_at = now
            raise
        self.heard_at, self.refused_at = now, None
        self._models.keep_regime_starts(status.regime_starts, write_private)
        if status.model_version not in (0, self._models.shared_version):
            self._models.keep_shared(self._exchange.model(status.model_version).checkpoint)
            log.info("model fetched", version=status.model_version)
        if status.reference_version not in (0, self._models.reference().model_version):
            self._models.keep_reference(self._exchange.model(status.reference_version).checkpoint)
        newest = (status.correction_published, self._models.reference_version)
        if status.correction_published is None or newest == self._corrected:
            return
        correction = self._exchange.correction()
        if correction and correction.reference_version == self._models.reference().model_version:
            cells = CellCorrection(correction.mean, correction.covariance)
            self._models.keep_correction(cells, write_private)
        self._corrected = newest

    def _call(self, name: str, work: Callable[[], None], *, at_once: bool = False) -> None:
        """Do `work` and log how it ends; not if it failed just before, unless `at_once`."""
        if not at_once and self._failures.in_backoff(name):
            return
        try:
            work()
        except WithheldError as withheld:
            log.info(f"{name} withheld", reason=str(withheld))
        except (FedperfError, OSError) as error:
            self._failures.failed(name, error)
        else:
            self._failures.worked(name)
