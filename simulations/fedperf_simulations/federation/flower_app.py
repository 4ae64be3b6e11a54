"""A federation on Flower's simulation engine (Ray), started by `flwr run`: server app, client app.

The server app runs the product's coordinator, whose rounds use the strategy `LinearizedAvg`. A
client app is one member: a home with a ledger on disk, and a participant behind the release gate.
The node's `partition-id` identifies the member. Only the transport of messages and the noise
differ from production. Noise is seeded (`seeded_noise`), so the candidates equal those of the same
federation in memory (`linearized_training`), bit for bit. There are no reports.

    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run simulations/flower_app --stream \
        --federation-config "num-supernodes=100"

The key `out` of the run's configuration names the folder for coordinator and homes. By default it
is a new folder among the machine's temporary files; the log names it.

The engine's own `Grid` carries the messages. A node of the engine holds one partition, whose number
is that of a member in the roster. Every node is queried once for its partition (`query.partition`).
In a round, each member's node gets one message with the request and returns the release, or the
code of a refusal. A round has no clock: `replies` waits for all replies.

`engine_candidates` runs the federation by `flwr run`, as a Flower user does. It starts a SuperLink
and stops it afterwards, and reads the candidates from the coordinator's database.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

import httpx
import numpy as np
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig
from flwr.common.constant import NUM_PARTITIONS_KEY, PARTITION_ID_KEY
from flwr.serverapp import Grid, ServerApp
from threadpoolctl import threadpool_limits

from fedperf_client.contributions.local_sums import LabelledGraph, label_executions
from fedperf_client.node.enrollment import Membership
from fedperf_client.node.exchange import Exchange
from fedperf_client.node.flower_node import client_app
from fedperf_client.node.participant import Participant
from fedperf_client.node.updates import open_request
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_memory.histories import SharedContributions
from fedperf_memory.memory_federation import (
    Clock,
    CpuMeter,
    NewMember,
    admit_member,
    build_participant,
    create_ledger,
    member_home,
    memory_calls,
    open_federation,
    roster_id,
)
from fedperf_server.endpoints.gateway import TRAIN, body_content, body_in
from fedperf_server.endpoints.grpc_ports import ExchangeService
from fedperf_server.membership.authority import SIGNING, KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.open_round import Reply
from fedperf_server.state.database import Database
from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.model.architecture import Weights
from fedperf_shared.model.plan_gradients import one_thread
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.release import LinearizedParameters, SignedRelease
from fedperf_simulations.corpus.limited_start import load_limited_model
from fedperf_simulations.corpus.organizations import WorkloadPart, one_per_workload, split
from fedperf_simulations.data.datasets import measured_executions
from fedperf_simulations.federation.linearized_training import (
    START,
    LinearizedTraining,
    MeasuredHistory,
    versions_after,
)
from fedperf_simulations.model.ggfn import model_from_arrays

PARTITION = "partition"
"""The query for a node's partition, and the record of the reply."""

TIMEOUT_SECONDS = 3600.0


class EngineError(FedperfError):
    """Flower's engine did not carry a message."""


@dataclass(slots=True)
class EngineFleet:
    """The members on the engine's nodes (`rounds.fleet.Fleet`)."""

    grid: Grid
    nodes: Mapping[bytes, int]

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        """Accept all members (see `Fleet`)."""

    def round(self) -> "EngineRound":
        """Return a round of this fleet (see `Fleet`)."""
        return EngineRound(self)


@dataclass(slots=True)
class EngineRound:
    """The messages of one round (`rounds.fleet.FleetRound`)."""

    fleet: EngineFleet
    _content: tuple[bytes, RecordDict] | None = None
    _queries: dict[bytes, Message] = field(default_factory=dict)
    _sent: bool = False

    def send(self, organization_id: bytes, body: bytes) -> bool:
        """Queue a message (see `FleetRound`). All are sent together by `replies`."""
        node = self.fleet.nodes.get(organization_id)
        if node is None or organization_id in self._queries:
            return False
        if self._content is None or self._content[0] is not body:
            self._content = body, body_content(body)
        self._queries[organization_id] = Message(self._content[1], node, TRAIN)
        return True

    def replies(self) -> Sequence[Reply]:
        """Send all messages and wait for every reply (see `FleetRound`)."""
        if self._sent or not self._queries:
            return ()
        self._sent = True
        whose = {node: each for each, node in self.fleet.nodes.items()}
        replies = self.fleet.grid.send_and_receive(self._queries.values(), timeout=TIMEOUT_SECONDS)
        return [_reply(whose[each.metadata.src_node_id], each) for each in replies]

    def close(self) -> None:
        """Drop all messages (see `FleetRound`)."""
        self._queries.clear()


def engine_fleet(grid: Grid) -> EngineFleet:
    """Return the members on the nodes of `grid`. Each node reports its partition.

    Raises:
        EngineError: a node does not report it.
    """
    queries = [
        Message(RecordDict(), node, f"query.{PARTITION}") for node in sorted(grid.get_node_ids())
    ]
    numbers: dict[bytes, int] = {}
    for each in grid.send_and_receive(queries, timeout=TIMEOUT_SECONDS):
        if each.has_error():
            raise EngineError(f"a node does not report its partition: {each.error.reason}")
        number = each.content.config_records[PARTITION][PARTITION]
        numbers[roster_id(int(str(number)))] = each.metadata.src_node_id
    if len(numbers) != len(queries):
        raise EngineError(f"{len(numbers)} of {len(queries)} nodes reported their partition")
    return EngineFleet(grid, numbers)


def partition_reply(query: Message, partition: int) -> Message:
    """Return the message with the partition of a node."""
    content = RecordDict({PARTITION: ConfigRecord({PARTITION: partition})})
    return Message(content, reply_to=query)


def _reply(organization_id: bytes, message: Message) -> Reply:
    if not message.has_error():
        return Reply(organization_id, body_in(message.content))
    return Reply(organization_id, None, Refusal.from_code(message.error.code))


NOISE = 40.0
"""Noise multiplier of a step of few workloads: what is learned is not judged here."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EngineTraining:
    """The training of a run, by its configuration.

    Attributes:
        steps: model rounds.
        workloads: that each organization executed, drawn from the measured set.
        plans: public plans that the rounds are about, the first so many; 0 for all.
        seed: of draws and noise.
    """

    steps: int = 3
    workloads: int = 200
    plans: int = 0
    seed: int = 0

    @classmethod
    def of(cls, config: UserConfig) -> "EngineTraining":
        """Return the training that a run's configuration names."""
        return cls(**{each.name: int(config[each.name]) for each in fields(cls)})

    def as_configuration(self) -> str:
        """Return the configuration for `flwr run --run-config`."""
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())

    def training(self) -> LinearizedTraining:
        """Return the steps, which begin with the limited pretrained model."""
        model = model_from_arrays(load_limited_model().arrays)
        parameters = LinearizedParameters(NOISE, float(self.workloads))
        anchors = anchors_of(load_public_plans())[: self.plans or None]
        return LinearizedTraining(model, anchors, parameters, self.steps, [self.seed, 1])

    def history(self, number: int) -> MeasuredHistory:
        """Return the executions of the organization with that number."""
        pool = _pool()
        order = np.random.default_rng([self.seed, 0, number]).permutation(len(pool))
        return MeasuredHistory(tuple(pool[place] for place in order[: self.workloads].tolist()))


@cache
def _training(what: EngineTraining) -> LinearizedTraining:
    """Return what `what` trains. Models and plans are read once in a process."""
    return what.training()


@cache
def _pool() -> list[LabelledGraph]:
    parts = split(measured_executions())
    parts_of_organizations = (WorkloadPart.ALDER, WorkloadPart.BIRCH, WorkloadPart.CEDAR)
    executed = [each for part in parts_of_organizations for each in parts[part] if each.is_ok]
    return label_executions(one_per_workload(executed))


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of Flower's, as server and members find it."""

    what: EngineTraining
    place: Path

    @classmethod
    def of(cls, context: Context) -> "_Run":
        config, default = context.run_config, f"fedperf-flower-{context.run_id}"
        place = Path(str(config["out"]) or Path(tempfile.gettempdir(), default))
        return cls(EngineTraining.of(config), place)


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Live the rounds of one coordinator whose members are the engine's nodes."""
    run, fleet = _Run.of(context), engine_fleet(grid)
    run.place.mkdir(mode=0o700, parents=True, exist_ok=True)
    training, clock = _training(run.what), Clock(START)
    config = training.config(run.place, organizations=len(fleet.nodes))
    with open_federation(config, training.task, fleet, clock=clock) as (federation, service):
        for number in range(len(fleet.nodes)):
            new = _new_participant(training, number, MeasuredHistory(()))
            member, home = admit_member(federation, new)
            calls = memory_calls(service, member, federation.meter)
            create_ledger(federation, new, home, Exchange(calls, Membership.load(home.identity)))
        federation.live(config.calendar.period.end)
    _log.info("the rounds are over", coordinator=str(config.directory))


def _new_participant(
    training: LinearizedTraining, number: int, history: MeasuredHistory
) -> NewMember:
    return training.new_participant(number, history, _shared(), Clock(START))


@cache
def _shared() -> SharedContributions:
    """Return the shared replies of all members in this process."""
    return SharedContributions()


@lru_cache(maxsize=1)
def _opened(body: bytes) -> TrainRequest:
    """Return the opened request. All members get the same one, so a process opens it once."""
    return open_request(body)


def _release_for(message: Message, context: Context) -> Future[SignedRelease]:
    """The release of the node's member, which lives from the slot's opening to its reply time."""
    with _member(context) as (participant, ledger):
        request = _opened(body_in(message.content))
        schedule = ledger.schedule
        reply = participant.handle(request, now=schedule.opens_at(request.slot))
        participant.dispatch(schedule.replies_at(request.slot))
        return reply


@contextmanager
def _member(context: Context) -> Iterator[tuple[Participant, PrivacyLedger]]:
    """Yield the member of the node's partition as its home has it, computing in one thread."""
    run, number = _Run.of(context), int(context.node_config[PARTITION_ID_KEY])
    training, clock = _training(run.what), Clock(START)
    config = training.config(run.place, organizations=int(context.node_config[NUM_PARTITIONS_KEY]))
    new = _new_participant(training, number, run.what.history(number))
    home = member_home(config, new)
    membership = Membership.load(home.identity)
    with closing(Database(config.database_url)) as database, threadpool_limits(1), one_thread():
        ring = KeyRing(config.directory)
        enrollment = Enrollment(database, ring, config, clock=clock)
        service = ExchangeService(
            database, enrollment, config, signing_key=ring.key(SIGNING), clock=clock
        )
        (member,) = (
            each
            for each in enrollment.members()
            if each.organization_id == membership.organization_id
        )
        exchange = Exchange(memory_calls(service, member, CpuMeter()), membership)
        ledger = PrivacyLedger.open(home.ledger(config.calendar.period.start))
        yield build_participant(new, home, exchange, ledger), ledger


member_app = client_app(_release_for)


@member_app.query(PARTITION)
def partition(message: Message, context: Context) -> Message:
    """Return the partition of the node. The engine does not send it to the server."""
    return partition_reply(message, int(context.node_config[PARTITION_ID_KEY]))


APP = Path(__file__).parents[2] / "flower_app"
"""The directory that travels: `flwr run` is given it."""

START_SECONDS = 120.0
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
}


def engine_is_there() -> bool:
    """Return whether Ray, which the engine runs on, is installed (the extra `sim`)."""
    return find_spec("ray") is not None


def engine_candidates(what: EngineTraining, *, members: int, place: Path) -> list[Weights]:
    """Weights after every step of `what`, lived by so many members on the engine.

    Args:
        what: is trained.
        members: nodes of the engine, each with one member.
        place: an empty folder, for coordinator, homes and logs.

    Raises:
        EngineError: the engine is not installed, or did not run to its end.
    """
    if not engine_is_there():
        raise EngineError("Flower's simulation engine needs Ray: pip install 'fedperf[sim]'")
    with _superlink(place) as environment:
        configuration = f'{what.as_configuration()} out="{place / "federation"}"'
        nodes = f"num-supernodes={members} client-resources-num-cpus=1"
        command = [_program("flwr"), "run", str(APP), "own", "--stream"]
        command += ["--run-config", configuration, "--federation-config", nodes]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (place / "run.log").write_text(ran.stdout + ran.stderr)
    config = what.training().config(place / "federation", organizations=members)
    if not config.directory.is_dir():
        raise EngineError(f"`flwr run` came to nothing; see {place / 'run.log'}")
    with closing(Database(config.database_url)) as database:
        return versions_after(database)


@contextmanager
def _superlink(place: Path) -> Iterator[Mapping[str, str]]:
    """Yield a SuperLink for simulations. The environment in which programs find it as `own`."""
    home, port = place / "flwr", _free_port()
    home.mkdir(parents=True)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "own"\n\n[superlink.own]\naddress = "127.0.0.1:{port}"\n'
        "insecure = true\n"
    )
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | ENVIRONMENT | {"FLWR_HOME": str(home)}
    environment["PATH"] = f"{scripts}{os.pathsep}{environment.get('PATH', '')}"
    command = [_program("flower-superlink"), "--insecure", "--simulation", "--port", str(port)]
    with (place / "superlink.log").open("wb") as log:
        running = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _await(f"http://127.0.0.1:{port}/health", running)
        yield environment
    finally:
        running.terminate()
        running.wait()


def _await(url: str, running: "subprocess.Popen[bytes]") -> None:
    gives_up = time.monotonic() + START_SECONDS
    while time.monotonic() < gives_up and running.poll() is None:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise EngineError("the SuperLink did not start; see superlink.log")


def _program(name: str) -> str:
    """Return a program from the interpreter's directory."""
    return str(Path(sys.executable).with_name(name))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
