"""The daemon of an organization follows its sources, keeps its slots and fetches what is shared.

This is the client's composition root: the only place that connects store, ledger, gate, noise, node
and exchange. Its loop ticks until it is stopped. The `participant` does what is due in a period.
Computations over executions run in processes of their own.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from importlib.util import find_spec

import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.contributions.local_sums import NEEDED_FOR_LINEARIZED, NEEDED_FOR_REPORTS
from fedperf_client.home.config import Contact, Home
from fedperf_client.node.enrollment import Membership, load_or_create_key
from fedperf_client.node.exchange import Exchange, ExchangeClient, NoMemberError
from fedperf_client.node.flower_node import Node, PollingPolicy
from fedperf_client.node.local_checks import NEEDED_FOR_FOLLOWING, DriftWatch, SourceWatch
from fedperf_client.node.participant import Participant, begin_next_period, begin_period
from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.decisions import Decisions, Outcome
from fedperf_client.release.ledger import PrivacyLedger, ReleaseState
from fedperf_client.release.noise import SystemNoise, system_noise
from fedperf_client.release.policy import Policy, ReleaseMode, load_policy, store_modes
from fedperf_client.release.preview import Preview, example_release, preview
from fedperf_client.release.schedule import slot_name
from fedperf_client.workers.worker_process import WorkerProcess, in_thread
from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.releases.kinds import RESIDUAL_REPORT, TANGENT_UPDATE, kind_of
from fedperf_shared.releases.release import ReleaseKind, Schedule, SignedRelease, SlotKey
from fedperf_shared.runtime.failure_tracker import FailureTracker
from fedperf_shared.runtime.process import process_lock

Clock = Callable[[], datetime]

log = structlog.get_logger()


class NodeEndedError(FedperfError):
    """Raised when the thread that serves the coordinator ended by itself, which is a bug."""

    def __init__(self) -> None:
        super().__init__("the node ended by itself; see the log and start the daemon again")


class TrainingNotInstalledError(InvalidInputError):
    """Raised when the period has model rounds and the extra for them is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "model rounds need torch, which is not installed; run: pip install 'fedperf[train]', "
            'or let nothing leave for them: release.model_update = "never" in the policy'
        )


def run_daemon(home: Home, *, clock: Clock, stop: threading.Event) -> None:
    """Run until `stop` is set, through one period after the other.

    Raises:
        FedperfError: configuration, policy, identity, store or ledger cannot be used, another
            daemon runs on this home, or the coordinator does not respond when this one starts.
        TrainingNotInstalledError: updates would leave, and the extra `train` is missing.
    """
    config = home.load_config()
    policy = load_policy(home.policy)
    key = load_or_create_key(home.identity)
    membership = Membership.load(home.identity)
    failures = FailureTracker()
    poll = timedelta(seconds=config.poll_seconds)
    with ExitStack() as stack:
        stack.enter_context(process_lock(home.lock, f"the home {home.directory}"))
        exchange = stack.enter_context(ExchangeClient(membership, key))
        home.modes.unlink(missing_ok=True)  # the modes of an earlier daemon
        _check_coordinator(home, exchange, now=clock())
        ledger: PrivacyLedger | None = begin_period(home, policy, exchange, now=clock())
        checking = stack.enter_context(WorkerProcess(NEEDED_FOR_FOLLOWING))
        if config.watch_paths:
            checking.warm()
        sources = SourceWatch(home.store, compute=checking, start=in_thread, failures=failures)
        drift = DriftWatch(
            home.store, compute=checking, start=in_thread, clock=clock, failures=failures
        )
        log.info("daemon is up", coordinator=membership.exchange_address)
        while ledger is not None:
            log.info("period", **_facts(ledger))
            with _running(
                home, exchange, ledger, key, poll=poll, clock=clock, failures=failures
            ) as (participant, node_thread):
                past, ledger = ledger, None
                while ledger is None and not stop.is_set():
                    if not node_thread.is_alive():
                        raise NodeEndedError
                    sources.look(config.watch_paths)
                    drift.look()
                    participant.tick(clock())
                    Contact(participant.heard_at, participant.refused_at).note(home)
                    stop.wait(participant.pause(poll, now=clock()).total_seconds())
                    ledger = begin_next_period(past, home, exchange, now=clock(), failures=failures)
                if stop.is_set():
                    log.info("daemon stops", sealed=_sealed(past) or "nothing")


@contextmanager
def _running(
    home: Home,
    exchange: ExchangeClient,
    ledger: PrivacyLedger,
    key: ec.EllipticCurvePrivateKey,
    *,
    poll: timedelta,
    clock: Clock,
    failures: FailureTracker,
) -> Iterator[tuple[Participant, threading.Thread]]:
    """Run the participant of the ledger's period and the thread of its node."""
    stop = threading.Event()
    policy = load_policy(home.policy)
    store_modes(home, policy)
    with _worker_processes(ledger.schedule, policy) as (reporting, training):
        participant = Participant(
            home,
            exchange,
            ledger,
            system_noise,
            key,
            policy=policy,
            reporting=reporting,
            training=training,
            start=in_thread,
            failures=failures,
        )
        polling = PollingPolicy(poll=min(poll, _NODE_POLL))
        membership = Membership.load(home.identity)

        def handle(request: TrainRequest) -> Future[SignedRelease]:
            return participant.handle(request, now=clock())

        node = Node(membership, key, handle, polling=polling, failures=failures)
        thread = threading.Thread(target=node.run, args=(stop,), name="node", daemon=True)
        thread.start()
        try:
            yield participant, thread
        finally:
            participant.close()
            stop.set()
            thread.join(timeout=5)


_NODE_POLL = timedelta(seconds=1)


def _check_coordinator(home: Home, exchange: Exchange, *, now: datetime) -> None:
    """Raise where it does not respond or clocks differ; note a refusal for `status`."""
    try:
        exchange.check_clock(now)
    except NoMemberError:
        Contact(refused_at=now).note(home)
        raise


def _sealed(ledger: PrivacyLedger) -> str:
    """Return the names of unsent releases, which stay in the ledger until a daemon runs again."""
    unsent = (each for each in ledger.entries() if each.state is ReleaseState.DRAWN)
    decisions = Decisions(ledger).latest()
    return ", ".join(
        slot_name(each.key)
        for each in unsent
        if (last := decisions.get(each.key)) is None or last.outcome is Outcome.APPROVED
    )


def _facts(ledger: PrivacyLedger) -> dict[str, object]:
    """Return the log fields of the active period."""
    schedule = ledger.schedule
    period = schedule.calendar.period
    first = min((schedule.replies_at(slot.key) for slot in schedule.slots), default=None)
    return {
        "begins": period.start.isoformat(),
        "ends": period.end.isoformat(),
        "slots": len(schedule.slots),
        "first_release": first and first.isoformat(),
        "budget": ledger.budget.epsilon,
    }


@contextmanager
def _worker_processes(
    schedule: Schedule, policy: Policy
) -> Iterator[tuple[WorkerProcess, WorkerProcess]]:
    """Return the workers for reports and model updates, warmed up if any slot releases.

    Raises:
        TrainingNotInstalledError: updates would leave, and there is no torch to compute them.
    """
    kinds = {kind_of(slot.parameters).name for slot in schedule.slots}
    trains = (
        TANGENT_UPDATE.name in kinds
        and policy.mode(ReleaseKind.MODEL_UPDATE) is not ReleaseMode.NEVER
    )
    if trains and find_spec("torch") is None:
        raise TrainingNotInstalledError
    with (
        WorkerProcess(NEEDED_FOR_REPORTS) as reporting,
        WorkerProcess(NEEDED_FOR_LINEARIZED) as training,
    ):
        if RESIDUAL_REPORT.name in kinds:
            reporting.warm()
        if trains:
            training.warm()
        yield reporting, training


def public_preview(
    schedule: Schedule, budget: PrivacyBudget, key: SlotKey, *, charged: Collection[SlotKey]
) -> Preview:
    """Preview the slot's release, with a sample of synthetic jobs; errors as `preview`."""
    return preview(
        schedule, budget, key, charged=charged, make_public=example_release, noise=SystemNoise()
    )
