"""What an organization owes its coordinator in one period, slot by slot.

When a slot is due its release is made through the gate and handed out at the slot's fixed
time, whatever the data took. A sum that is not there in time leaves as noise alone, any other
release that is not ready does not leave. One that policy or operator withhold is just not sent:
no error, no other message, and everything else happens at the same moments as if it had left.
What goes wrong on the way to the coordinator is tried again, after growing pauses; what the
coordinator refuses for good, and what goes wrong inside the gate, is not.
"""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.daemon.model_slot import Updating
from fedperf_client.daemon.report_slot import Reporting
from fedperf_client.federation.enrollment import Membership
from fedperf_client.federation.exchange import (
    ExchangeClient,
    RefusedByCoordinatorError,
    read_receipt,
)
from fedperf_client.federation.request import RequestRefusedError
from fedperf_client.home.config import Home, write_private
from fedperf_client.prediction.base_models import FetchedModels
from fedperf_client.prediction.learners.residual_learners import CellCorrection
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.release.gate import Mechanism, ReleaseGate, WithheldError
from fedperf_client.release.history import receipt_path
from fedperf_client.release.ledger.entries import ReleaseState
from fedperf_client.release.ledger.errors import SlotSpentError
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_client.release.receipts import store_receipt
from fedperf_client.release.slot_names import slot_name
from fedperf_client.workers.background import Start
from fedperf_client.workers.computing_process import Compute
from fedperf_shared.errors import FedperfError, PrivacyRefusedError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.programs.troubles import Troubles
from fedperf_shared.releases.release import Release, ReleaseKind, Schedule, Slot, SlotKey
from fedperf_shared.wire.codec import encode_signed_release

if TYPE_CHECKING:
    from concurrent.futures import Future

Clock = Callable[[], datetime]

_PASSING_REFUSALS = frozenset({"internal", "not_open", "no_receipt_yet"})
"""Codes of the coordinator that may be gone at a later look."""

_COMPUTED_BY = 0.9
"""Share of a slot's time in which its sum is to be there; the rest is for the noise."""

_CONFIRMED = {
    ReleaseKind.RESIDUAL_REPORT: "report handed in",
    ReleaseKind.MODEL_UPDATE: "update confirmed",
}

_FETCHING = "fetching"
"""What a trouble with it is called."""

log = structlog.get_logger()


class TooLateError(PrivacyRefusedError):
    """A release was not ready at its slot's time; it stays here."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(
            f"{key.kind.name.lower()} of window {key.window} was not ready at its fixed time and "
            "stays here; give the daemon more cores, or its schedule fewer steps"
        )
        self.key = key


class Duties:
    """What the daemon does, each when it is time; reports and updates go through one gate."""

    def __init__(
        self,
        home: Home,
        exchange: ExchangeClient,
        ledger: PrivacyLedger,
        noise: NoiseSource,
        key: ec.EllipticCurvePrivateKey,
        *,
        policy: Policy,
        reporting: Compute,
        training: Compute,
        start: Start,
        clock: Clock,
        stop: threading.Event,
        troubles: Troubles | None = None,
    ) -> None:
        self._troubles = troubles or Troubles()
        self._home = home
        self._exchange = exchange
        self._ledger = ledger
        self._policy = policy
        self._gate = ReleaseGate(ledger, noise, key)
        self._membership = Membership.load(home.identity)
        self._models = FetchedModels(home.models)
        self._reports = Reporting(
            home, ledger.schedule, ask=exchange.question, compute=reporting, clock=clock
        )
        self._updates = Updating(home.store, self._models, compute=training, clock=clock)
        self._start = start
        self._clock = clock
        self._stop = stop
        self._given_up: set[SlotKey] = set()
        self._leaves_at: dict[SlotKey, datetime] = {}
        self._drawing: dict[SlotKey, Future[None]] = {}
        self._receipt_from: dict[SlotKey, datetime] = {}
        self._corrected: tuple[datetime | None, int] = (None, 0)
        self._looked_at: datetime | None = None

    def look(self) -> None:
        """Fetch what is new, make and hand in reports that are due.

        In this order, so that a daemon that was away knows of an epoch before it reports.
        What failed is asked again after growing pauses, and in any case at the first look
        after a report opens or leaves.
        """
        since, self._looked_at = self._looked_at, self._clock()
        if self._moment_since(since) or not self._troubles.rests(_FETCHING):
            self._attempt(_FETCHING, self._fetch)
        for slot in filter(self._has_opened, self._coming_reports()):
            # Asked whether or not the slot's report will leave: that is nobody's business.
            self._ask(
                f"question of {slot_name(slot.key)}", partial(self._reports.fetch_question, slot)
            )
        for slot in filter(self._has_opened, self._open_reports()):
            self._attempt(slot_name(slot.key), partial(self._report, slot))
        for slot in self._unconfirmed_updates():
            self._ask(f"receipt of {slot_name(slot.key)}", partial(self._fetch_receipt, slot))

    def pause(self, poll: timedelta) -> timedelta:
        """How long until the next look: `poll`, or less where a report opens or leaves before.

        Reports that are withheld count too: what is heard of this node does not depend on it.
        """
        now = self._clock()
        return min([poll, *(each - now for each in self._moments() if each > now)])

    def model_update(self, request: TrainRequest) -> bytes:
        """The signed update of the slot that was asked for, at the slot's fixed time.

        Raises:
            RequestRefusedError: no such slot is due here.
            FedperfError: nothing can leave for this slot.
        """
        slot = self._schedule.slot(request.slot)
        now = self._clock()
        if slot is None or not self._may_begin(slot.key, now):
            raise RequestRefusedError("no such slot is due", Refusal.NOT_DUE)
        self._updates.require_answerable(slot, request)
        mode = self._policy.mode(slot.key.kind)
        self._seal(slot, lambda due, noise: self._update(due, noise, request), at=now)
        self._wait_for(slot.key, began_at=now)
        release = self._gate.hand_out(slot.key, at=self._clock(), mode=mode)
        return encode_signed_release(release.payload, release.signature)

    @property
    def _schedule(self) -> Schedule:
        return self._ledger.schedule

    def _moments(self) -> Iterator[datetime]:
        """When reports of this and later windows open and leave, withheld ones too."""
        for slot in self._coming_reports():
            yield self._schedule.opens_at(slot.key)
            yield self._leaves_at.get(slot.key, self._schedule.replies_at(slot.key))

    def _moment_since(self, since: datetime | None) -> bool:
        """Whether a report opened or left between the look before and this one."""
        now = self._clock()
        return any((since is None or since < each) and each <= now for each in self._moments())

    def _may_begin(self, key: SlotKey, now: datetime) -> bool:
        """Whether an update that is asked for now can leave at its time, or did so before."""
        if not self._schedule.opens_at(key) <= now < self._schedule.timetable.period.end:
            return False
        if now < self._schedule.replies_at(key):
            return True
        # What stayed here is refused like a slot that this node missed.
        mode = self._policy.mode(key.kind)
        return self._ledger.stored(key) is not None and self._gate.lets_out(key, at=now, mode=mode)

    def _seal(self, slot: Slot, make: Mechanism, *, at: datetime) -> None:
        """Draw and keep the slot's release; the first time, tell an operator who wants to be asked.

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

    def _update(self, slot: Slot, noise: NoiseSource, request: TrainRequest) -> Release:
        ready_by = self._ready_by(slot.key, leaves_at=self._schedule.replies_at(slot.key))
        return self._updates.release(slot, noise, request, ready_by=ready_by)

    def _report(self, slot: Slot) -> None:
        """Draw the report when its slot opens, hand it in at its fixed time.

        A daemon that was away at that time draws the report when it is back and hands it in
        as much later as the slot gives, so that no moment depends on how long drawing took.
        The daemon's looks do not either: it is drawn beside them.
        """
        key, began_at = slot.key, self._clock()
        is_drawn = self._ledger.stored(key) is not None
        if not is_drawn and not self._reports.is_asked(slot):
            return
        opens_at, replies_at = self._schedule.opens_at(key), self._schedule.replies_at(key)
        if key not in self._leaves_at:
            is_missed = not is_drawn and began_at >= replies_at
            self._leaves_at[key] = began_at + (replies_at - opens_at) if is_missed else replies_at
        try:
            if not is_drawn:
                self._draw_beside(slot, at=began_at)
            if self._clock() < self._leaves_at[key]:
                return
            if self._ledger.stored(key) is None:
                self._stays(key)
            mode = self._policy.mode(key.kind)
            release = self._gate.hand_out(key, at=self._clock(), mode=mode)
        except (TooLateError, WithheldError, SlotSpentError):
            self._given_up.add(key)
            raise
        signed = encode_signed_release(release.payload, release.signature)
        self._ask(f"handing in {slot_name(key)}", partial(self._hand_in, key, signed))

    def _draw_beside(self, slot: Slot, *, at: datetime) -> None:
        """Begin drawing, or look at how it went; raises what went wrong."""
        if slot.key not in self._drawing:
            self._drawing[slot.key] = self._start(partial(self._draw, slot, at))
        if self._drawing[slot.key].done():
            self._drawing.pop(slot.key).result()

    def _draw(self, slot: Slot, at: datetime) -> None:
        self._seal(slot, self._make_report, at=at)
        if self._clock() > self._leaves_at[slot.key]:
            self._stays(slot.key)

    def _stays(self, key: SlotKey) -> None:
        """Too late now is too late for good: not even after a restart does it leave."""
        self._gate.keep_back(key, at=self._clock())
        raise TooLateError(key)

    def _hand_in(self, key: SlotKey, signed_release: bytes) -> None:
        try:
            receipt = self._exchange.submit(signed_release)
        except RefusedByCoordinatorError as error:
            if error.code not in _PASSING_REFUSALS:
                self._given_up.add(key)
            raise
        read = partial(read_receipt, membership=self._membership)
        store_receipt(self._ledger, receipt.signed, read=read, key=key)
        write_private(self._receipt_path(key), receipt.signed)
        log.info(_CONFIRMED[key.kind], window=key.window, receipt=receipt.sequence)

    def _fetch_receipt(self, slot: Slot) -> None:
        """Ask for the receipt of an update that left: once the round is over, its bytes give it.

        Asked at the slot's span after its time, then after twice the time, and so on.
        """
        key, now = slot.key, self._clock()
        replies_at = self._schedule.replies_at(key)
        self._receipt_from[key] = replies_at + 2 * (now - replies_at)
        stored = self._ledger.stored(key)
        if stored is not None:
            self._hand_in(key, encode_signed_release(stored.payload, stored.signature))

    def _make_report(self, slot: Slot, noise: NoiseSource) -> Release:
        ready_by = self._ready_by(slot.key, leaves_at=self._leaves_at[slot.key])
        return self._reports.release(slot, noise, ready_by=ready_by)

    def _ready_by(self, key: SlotKey, *, leaves_at: datetime) -> datetime:
        """When a sum has to be there."""
        span = self._schedule.replies_at(key) - self._schedule.opens_at(key)
        return leaves_at - (1 - _COMPUTED_BY) * span

    def _has_opened(self, slot: Slot) -> bool:
        return self._schedule.opens_at(slot.key) <= self._clock()

    def _open_reports(self) -> list[Slot]:
        """Report slots of this and later windows that may still leave and have no receipt yet."""
        return [
            slot
            for slot in self._coming_reports()
            if slot.key not in self._given_up and not self._receipt_path(slot.key).exists()
        ]

    def _coming_reports(self) -> list[Slot]:
        """Report slots of this and later windows."""
        window = self._schedule.timetable.period.window_at(self._clock())
        return [
            slot
            for slot in self._schedule.slots
            if slot.key.kind is ReleaseKind.RESIDUAL_REPORT
            and window is not None
            and slot.key.window >= window
        ]

    def _unconfirmed_updates(self) -> list[Slot]:
        """Slots of updates that left, whose receipt may be there by now."""
        now = self._clock()
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

    def _wait_for(self, key: SlotKey, *, began_at: datetime) -> None:
        """Wait until the slot's reply time; a release that is ready only after it stays here."""
        replies_at = self._schedule.replies_at(key)
        if began_at < replies_at < self._clock():
            self._stays(key)
        while (now := self._clock()) < replies_at:
            if self._stop.wait((replies_at - now).total_seconds()):
                raise RequestRefusedError("this node is going offline", Refusal.GOING_OFFLINE)

    def _fetch(self) -> None:
        status = self._exchange.status()
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
        """A call to the coordinator, unless the same failed a moment ago."""
        if not self._troubles.rests(what):
            self._attempt(what, work)

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except WithheldError as kept:
            log.info(f"{what} withheld", reason=str(kept))
        except (FedperfError, OSError) as error:
            self._troubles.failed(what, error)
        else:
            self._troubles.worked(what)
