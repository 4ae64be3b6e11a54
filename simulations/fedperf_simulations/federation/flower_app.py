r"""A federation on Flower's simulation engine (Ray), started by `flwr run`: server app, client app.

The server app runs the product's coordinator, whose rounds use the strategy `LinearizedAvg`. A
client app is one member: a home with a ledger on disk, and a participant behind the release gate.
The node's `partition-id` says which member it is. Only the transport of messages
(`flower_transport`) and the noise differ from production. Noise is seeded (`seeded_noise`), so the
candidates equal those of the same federation in memory (`tangent_training`), bit for bit. There are
no reports.

    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run simulations/flower_app --stream \
        --federation-config "num-supernodes=100"

The key `out` of the run's configuration names the folder for coordinator and homes. By default it
is a new folder among the machine's temporary files; the log names it.
"""

import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import structlog
from flwr.app import Context, Message, UserConfig
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
from fedperf_memory.histories import SharedAnswers
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
)
from fedperf_server.endpoints.gateway import body_in
from fedperf_server.endpoints.grpc_ports import ExchangeService
from fedperf_server.membership.authority import SIGNING, KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.state.database import Database
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.model.checkpoint import model_from_arrays
from fedperf_shared.model.plan_gradients import one_thread
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.release import LinearizedParameters, SignedRelease
from fedperf_simulations.corpus.limited_start import load_limited_start
from fedperf_simulations.corpus.organizations import WorkloadPart, split
from fedperf_simulations.corpus.starts.pretraining import one_per_workload
from fedperf_simulations.data.datasets import measured_executions
from fedperf_simulations.federation.flower_transport import (
    PARTITION,
    engine_fleet,
    partition_answer,
)
from fedperf_simulations.federation.linearized_training import (
    START,
    LinearizedTraining,
    MeasuredHistory,
)

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
        """The training that a run's configuration names."""
        return cls(**{each.name: int(config[each.name]) for each in fields(cls)})

    def as_configuration(self) -> str:
        """The configuration for `flwr run --run-config`."""
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())

    def training(self) -> LinearizedTraining:
        """The steps, which begin with the limited start."""
        model = model_from_arrays(load_limited_start().arrays)
        parameters = LinearizedParameters(NOISE, float(self.workloads))
        anchors = anchors_of(load_public_plans())[: self.plans or None]
        return LinearizedTraining(model, anchors, parameters, self.steps, [self.seed, 1])

    def history(self, number: int) -> MeasuredHistory:
        """The executions of the organization with that number."""
        pool = _pool()
        order = np.random.default_rng([self.seed, 0, number]).permutation(len(pool))
        return MeasuredHistory(tuple(pool[place] for place in order[: self.workloads].tolist()))


@cache
def _training(what: EngineTraining) -> LinearizedTraining:
    """What `what` trains; models and plans are read once in a process."""
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
            new = _newcomer(training, number, MeasuredHistory(()))
            member, home = admit_member(federation, new)
            calls = memory_calls(service, member, federation.meter)
            create_ledger(federation, new, home, Exchange(calls, Membership.load(home.identity)))
        federation.live(config.calendar.period.end)
    _log.info("the rounds are over", coordinator=str(config.directory))


def _newcomer(training: LinearizedTraining, number: int, history: MeasuredHistory) -> NewMember:
    return training.newcomer(number, history, _shared(), Clock(START))


@cache
def _shared() -> SharedAnswers:
    """Of all members who are called in this process."""
    return SharedAnswers()


@lru_cache(maxsize=1)
def _opened(body: bytes) -> TrainRequest:
    """All members get the same request, so that a process opens it once."""
    return open_request(body)


def _release_for(message: Message, context: Context) -> Future[SignedRelease]:
    """The release of the node's member, which lives from the slot's opening to its reply time."""
    with _member(context) as (participant, ledger):
        request = _opened(body_in(message.content))
        schedule = ledger.schedule
        answer = participant.answer(request, now=schedule.opens_at(request.slot))
        participant.dispatch(schedule.replies_at(request.slot))
        return answer


@contextmanager
def _member(context: Context) -> Iterator[tuple[Participant, PrivacyLedger]]:
    """The member of the node's partition as its home has it, computing in one thread."""
    run, number = _Run.of(context), int(context.node_config[PARTITION_ID_KEY])
    training, clock = _training(run.what), Clock(START)
    config = training.config(run.place, organizations=int(context.node_config[NUM_PARTITIONS_KEY]))
    new = _newcomer(training, number, run.what.history(number))
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
    """Which partition the node holds: the engine does not tell the server."""
    return partition_answer(message, int(context.node_config[PARTITION_ID_KEY]))
