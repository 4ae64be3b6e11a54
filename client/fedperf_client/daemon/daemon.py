"""The daemon of an organization: follows its history, keeps its slots, fetches what is shared.

This is the client's composition root: the only place that puts store, ledger, gate,
noise, node and exchange together. When a slot is due it makes that slot's release
through the gate and hands it out at the slot's fixed time, whatever the data took.
What looks at the executions is computed in a process of its own: a sum that is not there
in time leaves as noise alone, any other release that is not ready does not leave. One that
policy or operator withhold is just not sent: no error, no other message, and the daemon
looks around at the same moments as if it had left. What goes wrong on the way to the
coordinator is tried again at the next look; what the coordinator refuses for good, and what
goes wrong inside the gate, is not.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.daemon.drift_watch import DriftWatching
from fedperf_client.daemon.model_slot import Updating
from fedperf_client.daemon.report_slot import Reporting
from fedperf_client.daemon.source_watch import NEEDED_FOR_FOLLOWING, Watching
from fedperf_client.federation.enrollment import Membership, load_or_create_key
from fedperf_client.federation.exchange import (
    ExchangeClient,
    RefusedByCoordinatorError,
    read_receipt,
)
from fedperf_client.federation.node import Node, Rhythm
from fedperf_client.federation.request import RequestRefusedError
from fedperf_client.home.config import Home, write_private
from fedperf_client.learning.tasks import (
    NEEDED_FOR_REPORTS,
    NEEDED_FOR_TANGENTS,
    NEEDED_FOR_TRAINING,
)
from fedperf_client.prediction.base_models import FetchedModels
from fedperf_client.prediction.learners.residual_learners import CellCorrection
from fedperf_client.privacy.accountant import PrivacyBudget
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.release.gate import Mechanism, ReleaseGate, WithheldError
from fedperf_client.release.history import receipt_path
from fedperf_client.release.ledger.entries import ReleaseState
from fedperf_client.release.ledger.errors import LedgerDisagreesError, SlotSpentError
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.noise import SystemNoise
from fedperf_client.release.policy import Policy, ReleaseMode, load_policy
from fedperf_client.release.preview import Preview, preview
from fedperf_client.release.receipts import store_receipt
from fedperf_client.release.schedule import plan_schedule
from fedperf_client.release.slot_names import slot_name
from fedperf_client.workers.background import Start, in_thread
from fedperf_client.workers.computing_process import Compute, ComputingProcess
from fedperf_shared.errors import FedperfError, PrivacyRefusedError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.programs.process_lock import process_lock
from fedperf_shared.programs.troubles import Troubles
from fedperf_shared.releases.period import ModelMethod, Period, Timetable
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

log = structlog.get_logger()


class TooLateError(PrivacyRefusedError):
    """A release was not ready at its slot's time; it stays here."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(
            f"{key.kind.name.lower()} of window {key.window} was not ready at its fixed time and "
            "stays here; give the daemon more cores, or its schedule fewer steps"
        )
        self.key = key


class PeriodOverError(FedperfError):
    """The period is over and the coordinator's calendar has no other."""

    def __init__(self, period: Period) -> None:
        super().__init__(
            f"the period ended on {period.end:%Y-%m-%d %H:%M} UTC and the coordinator's calendar "
            "has no next one; its operator begins it there, and this daemon follows"
        )


class NodeEndedError(FedperfError):
    """The thread that answers the coordinator ended by itself, which is a bug."""

    def __init__(self) -> None:
        super().__init__("the node ended by itself; the log says why; start the daemon again")


def run_daemon(home: Home, *, clock: Clock, stop: threading.Event) -> None:
    """Run until `stop` is set, through one period after the other.

    Raises:
        FedperfError: configuration, policy, identity, store or ledger cannot be used, another
            daemon runs on this home, or the coordinator does not answer when this one starts.
    """
    config = home.load_config()
    policy = load_policy(home.policy)
    key = load_or_create_key(home.identity)
    membership = Membership.load(home.identity)
    troubles = Troubles()
    poll = timedelta(seconds=config.poll_seconds)
    with ExitStack() as stack:
        stack.enter_context(process_lock(home.lock, f"the home {home.directory}"))
        exchange = stack.enter_context(ExchangeClient(membership, key))
        exchange.check_clock(clock())
        ledger: PrivacyLedger | None = begin_period(home, policy, exchange, membership)
        following = stack.enter_context(ComputingProcess(NEEDED_FOR_FOLLOWING))
        if config.history:
            following.warm()
        watching = Watching(home.store, compute=following, start=in_thread, troubles=troubles)
        drifts = DriftWatching(home.store, compute=following, start=in_thread, clock=clock)
        log.info("daemon is up")
        while ledger is not None:
            next_period = partial(
                next_ledger, ledger, home, exchange, membership, clock=clock, troubles=troubles
            )
            log.info("period", **_facts(ledger))
            with ExitStack() as period:
                duties, talking = period.enter_context(
                    _kept(home, exchange, ledger, key, poll=poll, clock=clock, troubles=troubles)
                )
                ledger = None
                while ledger is None and not stop.is_set():
                    if not talking.is_alive():
                        raise NodeEndedError
                    watching.look(config.history)
                    drifts.look()
                    duties.look()
                    stop.wait(duties.pause(poll).total_seconds())
                    ledger = next_period()


@contextmanager
def _kept(
    home: Home,
    exchange: ExchangeClient,
    ledger: PrivacyLedger,
    key: ec.EllipticCurvePrivateKey,
    *,
    poll: timedelta,
    clock: Clock,
    troubles: Troubles,
) -> Iterator[tuple["Duties", threading.Thread]]:
    """What the ledger's period asks of this organization, and the thread of its node."""
    left = threading.Event()
    with _computing(ledger.schedule) as (reporting, training):
        duties = Duties(
            home,
            exchange,
            ledger,
            SystemNoise(),
            key,
            policy=load_policy(home.policy),
            reporting=reporting,
            training=training,
            start=in_thread,
            clock=clock,
            stop=left,
            troubles=troubles,
        )
        rhythm = Rhythm(poll=min(poll, _NODE_POLL))
        membership = Membership.load(home.identity)
        node = Node(membership, key, duties.model_update, rhythm=rhythm, troubles=troubles)
        talking = threading.Thread(target=node.run, args=(left,), name="node", daemon=True)
        talking.start()
        try:
            yield duties, talking
        finally:
            left.set()
            talking.join(timeout=5)


_NODE_POLL = timedelta(seconds=1)

_NEXT_PERIOD, _FETCHING = "the next period", "fetching"
"""What troubles with them are called."""


def _facts(ledger: PrivacyLedger) -> dict[str, object]:
    """What the log says of a period that is kept."""
    period = ledger.schedule.timetable.period
    return {
        "begins": period.start.isoformat(),
        "ends": period.end.isoformat(),
        "slots": len(ledger.schedule.slots),
        "budget": ledger.budget.epsilon,
    }


@contextmanager
def _computing(schedule: Schedule) -> Iterator[tuple[ComputingProcess, ComputingProcess]]:
    """What computes reports and what computes model updates, warming up if the schedule has any."""
    at_tangent = schedule.timetable.model_method is ModelMethod.TANGENT
    kinds = {slot.key.kind for slot in schedule.slots}
    with (
        ComputingProcess(NEEDED_FOR_REPORTS) as reporting,
        ComputingProcess(NEEDED_FOR_TANGENTS if at_tangent else NEEDED_FOR_TRAINING) as training,
    ):
        if ReleaseKind.RESIDUAL_REPORT in kinds:
            reporting.warm()
        if ReleaseKind.MODEL_UPDATE in kinds:
            training.warm()
        yield reporting, training


def open_ledger(home: Home, policy: Policy, timetable: Timetable) -> PrivacyLedger:
    """The ledger of the timetable's period, begun with the policy's schedule where there is none.

    A period's schedule is fixed: a policy that changed since applies from the next one.

    Raises:
        ConfigurationError: the policy has no schedule that meets its budget.
        PrivacyRefusedError: the organization's lifetime budget has no room for the period.
        StorageError: the ledger cannot be used.
    """
    path = home.ledger(timetable.period.start)
    if path.exists():
        return PrivacyLedger.open(path)
    planned = plan_schedule(policy, timetable)
    for left_out in planned.not_planned:
        log.info("slot not planned", what=str(left_out.what), reason=left_out.reason)
    return PrivacyLedger.create(path, planned.budget, planned.schedule, lifetime=policy.lifetime)


def begin_period(
    home: Home, policy: Policy, exchange: ExchangeClient, membership: Membership
) -> PrivacyLedger:
    """The ledger of the coordinator's period, declared there, with what was confirmed before.

    Raises:
        FedperfError: as `open_ledger` and `recall`, or the coordinator does not take the schedule.
    """
    ledger = open_ledger(home, policy, exchange.timetable())
    exchange.declare_schedule(ledger.schedule)
    recall(ledger, exchange, membership)
    return ledger


def next_ledger(
    ledger: PrivacyLedger,
    home: Home,
    exchange: ExchangeClient,
    membership: Membership,
    *,
    clock: Clock,
    troubles: Troubles,
) -> PrivacyLedger | None:
    """The ledger of the next period, begun once `ledger`'s is over and the calendar goes on.

    Until then None: a calendar that nobody continues, or a policy that has no schedule for
    it, is said in the log and looked at again later.
    """
    period = ledger.schedule.timetable.period
    if clock() < period.end or troubles.rests(_NEXT_PERIOD):
        return None
    try:
        if exchange.timetable().period.start == period.start:
            raise PeriodOverError(period)
        found = begin_period(home, load_policy(home.policy), exchange, membership)
    except (FedperfError, OSError) as error:
        troubles.failed(_NEXT_PERIOD, error)
        return None
    troubles.worked(_NEXT_PERIOD)
    return found


def recall(ledger: PrivacyLedger, exchange: ExchangeClient, membership: Membership) -> None:
    """Hold the ledger against what the coordinator confirmed, before anything is drawn.

    A home that was restored from a backup as a whole has forgotten releases and cannot know
    it by itself. Where the two disagree, here or from before, the daemon goes on without
    releases, which looks like being offline.

    Raises:
        ConnectionRefusedByPeerError: the coordinator does not say what it confirmed.
        InvalidInputError: what it sent is no receipt of this organization in this period.
    """
    try:
        for receipt in exchange.receipts():
            store_receipt(ledger, receipt.signed, read=partial(read_receipt, membership=membership))
    except LedgerDisagreesError:
        pass  # kept beside the ledger
    problem = ledger.disagreement()
    if problem is not None:
        log.error("nothing leaves", reason=str(LedgerDisagreesError(ledger.path, problem)))


def public_preview(
    schedule: Schedule, budget: PrivacyBudget, key: SlotKey, *, charged: Collection[SlotKey]
) -> Preview:
    """What the slot would let out, with a sample from invented jobs; errors as `preview`."""
    from fedperf_client.learning.example_history import example_release

    return preview(
        schedule, budget, key, charged=charged, make_public=example_release, noise=SystemNoise()
    )


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

    def look(self) -> None:
        """Fetch what is new, make and hand in reports that are due.

        In this order, so that a daemon that was away knows of an epoch before it reports.
        """
        is_needed = any(map(self._has_opened, self._open_reports()))
        if is_needed or not self._troubles.rests(_FETCHING):
            self._attempt(_FETCHING, self._fetch)
        for slot in filter(self._has_opened, self._coming_reports()):
            # Asked whether or not the slot's report will leave: that is nobody's business.
            self._attempt(
                f"question of {slot_name(slot.key)}", partial(self._reports.fetch_question, slot)
            )
        for slot in filter(self._has_opened, self._open_reports()):
            self._attempt(slot_name(slot.key), partial(self._report, slot))
        for slot in self._unconfirmed_updates():
            self._attempt(f"receipt of {slot_name(slot.key)}", partial(self._fetch_receipt, slot))

    def pause(self, poll: timedelta) -> timedelta:
        """How long until the next look: `poll`, or less where a report opens or leaves before.

        Reports that are withheld count too: what is heard of this node does not depend on it.
        """
        now = self._clock()
        moments = [
            moment - now
            for slot in self._coming_reports()
            for moment in (
                self._schedule.opens_at(slot.key),
                self._leaves_at.get(slot.key, self._schedule.replies_at(slot.key)),
            )
        ]
        return min([poll, *(each for each in moments if each > timedelta(0))])

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
        self._hand_in(key, encode_signed_release(release.payload, release.signature))

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

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except WithheldError as kept:
            log.info(f"{what} withheld", reason=str(kept))
        except (FedperfError, OSError) as error:
            self._troubles.failed(what, error)
        else:
            self._troubles.worked(what)
