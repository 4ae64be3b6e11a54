"""Small federations for tests: real servers, real sockets and a model of three numbers."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedperf_client.node.enrollment import Membership, join, load_or_create_key
from fedperf_client.node.exchange import ExchangeClient
from fedperf_client.node.flower_node import Node, PollingPolicy
from fedperf_client.node.updates import Handler
from fedperf_client.workers.worker_process import in_thread
from fedperf_server.app.composition import Coordinator, store_first_version
from fedperf_server.app.process import run, serving, system_clock
from fedperf_server.config import ServerConfig, write_config
from fedperf_server.membership.authority import KeyRing, init
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.open_round import RoundRules
from fedperf_server.state.database import Database, ModelRound
from fedperf_server.state.registry import ModelFormat
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.identity import sign
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.period import (
    Period,
    ReleaseCalendar,
    SlotTimes,
    from_unix_ms,
    to_unix_ms,
)
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire import codec
from tests.fakes.rounds import SumsOfWeights, mean_of, sum_of_weights, task_of

HOST = "127.0.0.1"
SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (3,))
FAST = PollingPolicy(
    poll=timedelta(seconds=0.05),
    first_pause=timedelta(seconds=0.1),
    longest_pause=timedelta(seconds=0.5),
)
REPORT = ReportParameters(noise_multiplier=5.0, residual_clip=1.0)
TANGENT = LinearizedParameters(noise_multiplier=40.0, nominal_workloads=2000.0)


@dataclass(frozen=True, slots=True)
class SmallFormat:
    """A model of a few small arrays."""

    architecture: int = 7
    shapes: Sequence[tuple[int, ...]] = SHAPES

    def encode(self, arrays: Sequence[NDArray[np.float32]], version: int) -> bytes:
        del version
        return save({str(place): array for place, array in enumerate(arrays)})

    def decode(self, checkpoint: bytes) -> Weights:
        named = load(checkpoint)
        return [named[str(place)] for place in range(len(self.shapes))]


def mean_square(arrays: Weights) -> float:
    return float(sum(np.square(array).sum() for array in arrays))


def calendar(
    *,
    start: datetime | None = None,
    window: float = 3600.0,
    windows: int = 2,
    opens: float = 0.0,
    replies: float = 1.0,
) -> ReleaseCalendar:
    """Return a calendar with one report slot and one model slot per window.

    By default the first slots are open now.
    """
    began = start or from_unix_ms(to_unix_ms(system_clock()))
    times = SlotTimes(timedelta(seconds=opens), timedelta(seconds=replies))
    period = Period(began, timedelta(seconds=window), windows)
    return ReleaseCalendar(period, (times,), (times,))


def full_schedule(table: ReleaseCalendar) -> Schedule:
    """Return a schedule with a report and an update in every window of the calendar."""
    slots = [
        Slot(SlotKey(kind, window, 0), parameters)
        for window in range(table.period.windows)
        for kind, parameters in (
            (ReleaseKind.RESIDUAL_REPORT, REPORT),
            (ReleaseKind.MODEL_UPDATE, TANGENT),
        )
    ]
    return Schedule(table, tuple(slots))


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def new_server(
    directory: Path,
    table: ReleaseCalendar,
    *,
    grace: float = 5.0,
    model_format: ModelFormat | None = None,
) -> ServerConfig:
    """Create keys, configuration file and first model version of a coordinator."""
    exchange, enrollment, fleet = free_ports(3)
    config = ServerConfig(
        directory=directory,
        host=HOST,
        calendar=table,
        exchange_port=exchange,
        enrollment_port=enrollment,
        fleet_port=fleet,
        grace=timedelta(seconds=grace),
        bind=HOST,
    )
    init(directory, HOST, now=system_clock())
    write_config(config)
    database = Database(config.database_url)
    form = model_format or SmallFormat()
    start = [np.ones(shape, dtype=np.float32) for shape in form.shapes]
    store_first_version(database, form, start, at=system_clock())
    database.close()
    return config


@dataclass
class World:
    """A running coordinator and its operator's tools."""

    config: ServerConfig
    coordinator: Coordinator
    database: Database
    operator: Enrollment
    stop: threading.Event = field(default_factory=threading.Event)

    def invite(self, name: str) -> str:
        return self.operator.add_organization(name).url

    def tick(self) -> list[ModelRound]:
        """Run one tick and return the rounds that closed."""
        news = self.coordinator.tick(system_clock())
        return [each for each in news if isinstance(each, ModelRound)]

    def run(self, on_round: Callable[[ModelRound], None] = lambda result: None) -> None:
        """Tick until `stop` is set."""

        def tell(news: object) -> None:
            if isinstance(news, ModelRound):
                on_round(news)

        run(self.coordinator, self.stop, clock=system_clock, on_event=tell)


@contextmanager
def world(
    config: ServerConfig, *, quorum: int = 2, model_format: ModelFormat | None = None
) -> Iterator[World]:
    rules = RoundRules(quorum, config.grace)
    form = model_format or SmallFormat()
    method = SumsOfWeights(form.shapes, mean_of)
    task = task_of(method, model_format=form, evaluate=mean_square)
    with serving(config, task, rules=rules) as coordinator:
        database = Database(config.database_url)
        operator = Enrollment(database, KeyRing(config.directory), config, clock=system_clock)
        yield World(config, coordinator, database, operator)
        database.close()


@dataclass(frozen=True)
class Organization:
    """A joined organization."""

    name: str
    membership: Membership
    key: ec.EllipticCurvePrivateKey

    def exchange(self) -> ExchangeClient:
        return ExchangeClient(self.membership, self.key)

    def sign(self, payload: bytes) -> SignedRelease:
        return SignedRelease(payload, sign(self.key, payload))

    def update(self, request: TrainRequest, arrays: Sequence[NDArray[np.float32]]) -> SignedRelease:
        content = sum_of_weights(request.slot, request.base_version, arrays)
        return self.sign(codec.encode_release(content))


def admit(directory: Path, url: str, name: str, schedule: Schedule | None) -> Organization:
    """Join the federation and declare the schedule."""
    home = directory / name
    key = load_or_create_key(home)
    membership = join(url, key)
    membership.save(home)
    organization = Organization(name, membership, key)
    if schedule is not None:
        with organization.exchange() as exchange:
            exchange.declare_schedule(schedule)
    return organization


Answer = Callable[[Organization, TrainRequest], SignedRelease]


def answering(work: Callable[[TrainRequest], SignedRelease]) -> Handler:
    """Return a node's handler that does its work in a separate thread."""
    return lambda request: in_thread(lambda: work(request))


@contextmanager
def node(organization: Organization, answer: Answer) -> Iterator[Node]:
    """Yield a node that runs in a thread of this process."""
    stop = threading.Event()
    running = Node(
        organization.membership,
        organization.key,
        answering(lambda request: answer(organization, request)),
        polling=FAST,
    )
    thread = threading.Thread(target=running.run, args=(stop,))
    thread.start()
    try:
        yield running
    finally:
        stop.set()
        thread.join(10)


def constant(value: float) -> Answer:
    """Return a handler whose updates hold one value in every position."""

    def answer(organization: Organization, request: TrainRequest) -> SignedRelease:
        return organization.update(request, [np.full_like(each, value) for each in request.arrays])

    return answer
