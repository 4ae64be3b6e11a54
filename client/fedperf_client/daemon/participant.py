"""One organization's part in a period of its coordinator's calendar, tick by tick.

When a slot is due, its release is made through the gate. It is handed out at the slot's fixed time,
however long the data took. A sum that is not there in time leaves as noise alone; any other release
that is not ready does not leave. A release that policy or operator withhold is just not sent. There
is no error and no other message, and everything else happens at the same moments as if it had left.
A failure on the way to the coordinator is tried again, after growing pauses. What the coordinator
refuses for good, and what goes wrong inside the gate, is not.

A tick reads no clock and waits for no release: what takes long is drawn beside it
(`BackgroundRunner`).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.daemon.model_slot import MethodRemovedError, UpdateMaker
from fedperf_client.daemon.pending_updates import PendingUpdates, TooLateError
from fedperf_client.daemon.report_slot import ReportMaker
from fedperf_client.federation.exchange import (
    Exchange,
    NoMemberError,
    RefusedByCoordinatorError,
)
from fedperf_client.federation.request import RequestRefusedError
from fedperf_client.home.config import Home, write_private
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.learners.base_learners import CellCorrection
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.release.decisions import WithholdReason
from fedperf_client.release.gate import Mechanism, NoiseOf, ReleaseGate, WithheldError
from fedperf_client.release.history import receipt_path
from fedperf_client.release.ledger.entries import ReleaseState
from fedperf_client.release.ledger.errors import SlotSpentError
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_client.release.receipts import store_receipt
from fedperf_client.release.slot_names import slot_name
from fedperf_client.workers.background import BackgroundRunner
from fedperf_client.workers.worker_process import TaskRunner
from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.release import (
    NoisySum,
    ReleaseKind,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.runtime.failure_tracker import FailureTracker

_PASSING_REFUSALS = frozenset({"internal", "not_open", "no_receipt_yet"})
"""Codes of the coordinator that may be gone at a later tick."""

_COMPUTED_BY = 0.9
"""Share of a slot's time in which its sum is to be there; the rest is for the noise."""

_CONFIRMED = {
    ReleaseKind.RESIDUAL_REPORT: "report handed in",
    ReleaseKind.MODEL_UPDATE: "update confirmed",
}

_FETCHING = "fetching"
"""The name of this call in the log of failures."""

log = structlog.get_logger()


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
        """Run the ledger's schedule within the ledger's budget.

        Args:
            home: of the organization; executions, models, questions and receipts lie there.
            exchange: of its coordinator.
            ledger: of the period.
            noise: of each slot.
            key: signs releases.
            policy: what leaves, and what is asked about before.
            reporting: computes the sums of reports.
            training: computes model updates.
            start: begins what takes long.
            anchors: public plans that model rounds are about; by default those that ship.
            failures: of the process.
        """
        self._failures = failures or FailureTracker()
        self._home = home
        self._exchange = exchange
        self._ledger = ledger
        self._policy = policy
        self._gate = ReleaseGate(ledger, noise, key)
        self._models = FetchedModels(home.models)
        self._reports = ReportMaker(home, ledger.schedule, ask=exchange.question, compute=reporting)
        self._updates = UpdateMaker(home.store, self._models, compute=training, anchors=anchors)
        self._start = start
        self._given_up: set[SlotKey] = set()
        self._leaves_at: dict[SlotKey, datetime] = {}
        self._drawing: dict[SlotKey, Future[None]] = {}
        self._asked = PendingUpdates(ledger.schedule, let_out=self._let_out, withhold=self._stays)
        self._receipt_from: dict[SlotKey, datetime] = {}
        self._corrected: tuple[datetime | None, int] = (None, 0)
        self._ticked_at: datetime | None = None
        self.heard_at: datetime | None = None
        """The time of the coordinator's last reply."""
        self.refused_at: datetime | None = None
        """The time when it last refused this organization as no member; None once it replies."""

    def tick(self, now: datetime) -> None:
        """Hand out updates that are due, fetch what is new, make and hand in reports.

        In this order: an update leaves at its time, whatever the coordinator's Exchange takes,
        and a daemon that was away knows of an epoch before it reports. What failed is asked
        again after growing pauses, and in any case at the first tick after a report opens or
        leaves.
        """
        since, self._ticked_at = self._ticked_at, now
        self.dispatch(now)
        if self._moment_since(since, now) or not self._failures.in_backoff(_FETCHING):
            self._attempt(_FETCHING, partial(self._fetch, now))
        opened = [each for each in self._coming_reports(now) if self._opens_at(each) <= now]
        for slot in opened:
            # Asked whether or not the slot's report will leave: that is nobody's business.
            self._ask(
                f"question of {slot_name(slot.key)}", partial(self._reports.fetch_question, slot)
            )
        for slot in filter(self._may_leave, opened):
            self._attempt(slot_name(slot.key), partial(self._report, slot, now))
        for slot in self._unconfirmed_updates(now):
            self._ask(f"receipt of {slot_name(slot.key)}", partial(self._fetch_receipt, slot, now))

    def pause(self, poll: timedelta, *, now: datetime) -> timedelta:
        """Return the time until the next tick: `poll`, or less if a slot opens or is due before.

        Reports that are withheld count too, and updates whether or not they were asked for: what
        is heard of this node does not depend on it.
        """
        updates = (each for each in self._schedule.slots if not kind_of(each.parameters).is_report)
        moments = [*self._moments(now), *(self._schedule.replies_at(e.key) for e in updates)]
        return min([poll, *(each - now for each in moments if each > now)])

    def answer(self, request: TrainRequest, *, now: datetime) -> Future[SignedRelease]:
        """Begin the requested update; a tick sends it at its slot's fixed time.

        May be called by another thread, and again for a slot, which gives the same future. It
        raises RequestRefusedError where no such slot is due here, and another FedperfError
        where nothing can leave for it.
        """
        return self._asked.answer(
            request.slot, lambda: self._start(partial(self._draw_update, request, now)), now=now
        )

    def dispatch(self, now: datetime) -> None:
        """Send the requested updates that are due and ready."""
        self._asked.dispatch(now)

    def leave(self) -> None:
        """Say that nothing more is handed out."""
        self._asked.leave()

    def _draw_update(self, request: TrainRequest, now: datetime) -> None:
        """Sample and store the requested update.

        Raises:
            RequestRefusedError: no such slot is due here.
            FedperfError: nothing can leave for this slot.
        """
        slot = self._schedule.slot(request.slot)
        if slot is None or not self._may_begin(slot.key, now):
            raise RequestRefusedError("no such slot is due", Refusal.NOT_DUE)
        self._updates.require_answerable(slot, request)
        replies_at = self._schedule.replies_at(slot.key)
        seconds = self._seconds_to_compute(slot.key, leaves_at=replies_at, now=now)

        def make(due: Slot, noise: NoiseSource) -> NoisySum:
            return self._updates.release(due, noise, request, seconds=seconds)

        try:
            self._seal(slot, make, at=now)
        except MethodRemovedError:  # charged, as the schedule says
            self._gate.withhold(slot.key, at=now, because=WithholdReason.METHOD_REMOVED)
            raise WithheldError(slot.key, WithholdReason.METHOD_REMOVED) from None

    def _let_out(self, key: SlotKey, now: datetime) -> SignedRelease:
        """Handle a sampled release at its time."""
        return self._gate.dispatch(key, at=now, mode=self._policy.mode(key.kind))

    @property
    def _schedule(self) -> Schedule:
        return self._ledger.schedule

    def _opens_at(self, slot: Slot) -> datetime:
        return self._schedule.opens_at(slot.key)

    def _moments(self, now: datetime) -> Iterator[datetime]:
        """Return the opening and sending times of present and later reports, withheld ones too."""
        for slot in self._coming_reports(now):
            yield self._opens_at(slot)
            yield self._leaves_at.get(slot.key, self._schedule.replies_at(slot.key))

    def _moment_since(self, since: datetime | None, now: datetime) -> bool:
        """Return whether a report opened or was due between the previous tick and this one."""
        return any((since is None or since < each) and each <= now for each in self._moments(now))

    def _may_begin(self, key: SlotKey, now: datetime) -> bool:
        """Return whether an update requested now can be sent at its time, or was sent before."""
        if not self._schedule.opens_at(key) <= now < self._schedule.calendar.period.end:
            return False
        if now < self._schedule.replies_at(key):
            return True
        # What stayed here is refused like a slot that this node missed.
        mode = self._policy.mode(key.kind)
        return self._ledger.stored(key) is not None and self._gate.lets_out(key, at=now, mode=mode)

    def _seal(self, slot: Slot, make: Mechanism, *, at: datetime) -> None:
        """Sample and store the slot's release; notify an operator whose approval it needs, once.

        Raises:
            WithheldError: it was decided in advance that it stays here; nothing was charged.
        """
        is_drawn = self._ledger.stored(slot.key) is not None
        mode = self._policy.mode(slot.key.kind)
        self._gate.seal(slot.key, make, at=at, mode=mode)
        if not is_drawn and mode is ReleaseMode.ASK:
            log.info(
                "release sealed; it leaves if approved",
                look=f"fedperf release show {slot_name(slot.key)}",
                until=self._schedule.replies_at(slot.key).isoformat(),
            )

    def _report(self, slot: Slot, now: datetime) -> None:
        """Draw the report when its slot opens, hand it in at its fixed time.

        A daemon that was away at that time draws the report when it is back. It hands it in as
        much later as the slot gives, so that no moment depends on how long drawing took. Ticks do
        not either: it is drawn beside them.
        """
        key = slot.key
        is_drawn = self._ledger.stored(key) is not None
        if not is_drawn and not self._reports.has_query(slot):
            return
        opens_at, replies_at = self._opens_at(slot), self._schedule.replies_at(key)
        if key not in self._leaves_at:
            is_missed = not is_drawn and now >= replies_at
            self._leaves_at[key] = now + (replies_at - opens_at) if is_missed else replies_at
        try:
            if not is_drawn:
                self._draw_beside(slot, now)
            if now < self._leaves_at[key]:
                return
            if self._ledger.stored(key) is None:
                self._stays(key, now)
            release = self._let_out(key, now)
        except (TooLateError, WithheldError, SlotSpentError):
            self._given_up.add(key)
            raise
        self._ask(f"handing in {slot_name(key)}", partial(self._hand_in, key, release))

    def _draw_beside(self, slot: Slot, now: datetime) -> None:
        """Begin drawing, or look at how it went; raises what went wrong."""
        if slot.key not in self._drawing:
            leaves_at = self._leaves_at[slot.key]
            seconds = self._seconds_to_compute(slot.key, leaves_at=leaves_at, now=now)
            make = partial(self._reports.release, seconds=seconds)
            self._drawing[slot.key] = self._start(partial(self._seal, slot, make, at=now))
        if self._drawing[slot.key].done():
            self._drawing.pop(slot.key).result()

    def _stays(self, key: SlotKey, now: datetime) -> None:
        """Too late now is too late for good: not even after a restart does it leave."""
        self._gate.withhold(key, at=now)
        raise TooLateError(key)

    def _hand_in(self, key: SlotKey, release: SignedRelease) -> None:
        try:
            receipt = self._exchange.submit(release)
        except RefusedByCoordinatorError as error:
            if error.code not in _PASSING_REFUSALS:
                self._given_up.add(key)
            raise
        store_receipt(self._ledger, receipt, key=key)
        write_private(self._receipt_path(key), receipt.signed)
        log.info(_CONFIRMED[key.kind], window=key.window, receipt=receipt.sequence)

    def _fetch_receipt(self, slot: Slot, now: datetime) -> None:
        """Request the receipt of a sent update: once the round is over, its bytes give it.

        Asked at the slot's span after its time, then after twice the time, and so on.
        """
        key = slot.key
        replies_at = self._schedule.replies_at(key)
        self._receipt_from[key] = replies_at + 2 * (now - replies_at)
        stored = self._ledger.stored(key)
        if stored is not None:
            self._hand_in(key, stored)

    def _seconds_to_compute(self, key: SlotKey, *, leaves_at: datetime, now: datetime) -> float:
        """From `now` until a sum has to be there."""
        span = self._schedule.replies_at(key) - self._schedule.opens_at(key)
        return (leaves_at - (1 - _COMPUTED_BY) * span - now).total_seconds()

    def _may_leave(self, slot: Slot) -> bool:
        """Whether the report may still leave and has no receipt yet."""
        return slot.key not in self._given_up and not self._receipt_path(slot.key).exists()

    def _coming_reports(self, now: datetime) -> list[Slot]:
        """Report slots of this and later windows."""
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
        due = [
            slot
            for slot in self._schedule.slots
            if slot.key.kind is ReleaseKind.MODEL_UPDATE
            and slot.key not in self._given_up
            and self._receipt_due(slot.key) <= now
            and not self._receipt_path(slot.key).exists()
        ]
        if not due:
            return []
        states = {entry.key: entry.state for entry in self._ledger.entries()}
        return [slot for slot in due if states.get(slot.key) is ReleaseState.HANDED_OUT]

    def _receipt_due(self, key: SlotKey) -> datetime:
        opens_at, replies_at = self._schedule.opens_at(key), self._schedule.replies_at(key)
        return self._receipt_from.get(key, replies_at + (replies_at - opens_at))

    def _receipt_path(self, key: SlotKey) -> Path:
        return receipt_path(self._home.receipts, self._ledger, key)

    def _fetch(self, now: datetime) -> None:
        try:
            status = self._exchange.status()
        except NoMemberError:
            self.refused_at = now
            raise
        self.heard_at, self.refused_at = now, None
        self._models.keep_epoch_starts(status.epoch_starts, write_private)
        if status.model_version not in (0, self._models.shared_version):
            self._models.keep_shared(self._exchange.model(status.model_version).checkpoint)
            log.info("model fetched", version=status.model_version)
        if status.reference_version not in (0, self._models.reference().model_version):
            self._models.keep_reference(self._exchange.model(status.reference_version).checkpoint)
        reference = self._models.reference_version
        newest = (status.correction_published, reference)
        if status.correction_published is None or newest == self._corrected:
            return
        correction = self._exchange.correction()
        if correction and correction.reference_version == self._models.reference().model_version:
            kept = CellCorrection(correction.mean, correction.covariance)
            self._models.keep_correction(kept, write_private)
        self._corrected = newest

    def _ask(self, what: str, work: Callable[[], None]) -> None:
        """Call the coordinator, unless the same call failed just before."""
        if not self._failures.in_backoff(what):
            self._attempt(what, work)

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except WithheldError as kept:
            log.info(f"{what} withheld", reason=str(kept))
        except (FedperfError, OSError) as error:
            self._failures.failed(what, error)
        else:
            self._failures.worked(what)
