"""Traffic of organizations with neighbouring histories is indistinguishable.

The observer is the coordinator, or anybody on the network. Four organizations live through the
same compressed period with the same policy:

- one with a full history;
- one with one workload less;
- one without executions;
- one whose jobs recently began to take half as long again.

A drift regime begins with the first window, which therefore has an extra round. Reports in the
second window refer to the new regime and its new reference. The workload that the neighbour lacks
also runs in the first window, so it is missing in the reports of both regimes. Daemons,
coordinator and sockets are real. Every call is recorded just before TLS encrypts it.

Two more organizations are mutants that the comparison must detect. One replies as soon as it is
ready. The size of the other's reply depends on the number of workloads.
"""

import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import pytest
from flwr.supernode.fleet_http_client import FleetHttpClient

from fedperf_client.contributions.local_sums import (
    NEEDED_FOR_LINEARIZED,
    NEEDED_FOR_REPORTS,
    LinearizedTask,
)
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node import daemon
from fedperf_client.node.daemon import run_daemon
from fedperf_client.node.local_checks import NEEDED_FOR_FOLLOWING
from fedperf_client.node.participant import Participant
from fedperf_client.release.policy import parse_policy, policy_template
from fedperf_client.release.schedule import plan_schedule
from fedperf_client.workers.worker_process import TaskRunner, WorkerProcess
from fedperf_server.app.composition import store_first_version
from fedperf_server.app.process import run, serving
from fedperf_server.rounds.open_round import RoundRules
from fedperf_server.state import registry
from fedperf_server.state.database import Database, RegimeTrigger
from fedperf_server.state.drift_regimes import declare
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.model import pretrained
from fedperf_shared.model.architecture import Weights
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import SignedRelease, SizeClass, SlotKey
from tests.fakes.linearized_queries import make_linearized_query
from tests.fakes.rounds import Keeping, tangent_avg, task_of
from tests.integration.organizations.deployments import (
    join,
    make_executions,
    make_public_files,
    new_coordinator,
    new_home,
    now,
    operator,
    sleep_until,
    whole_second,
)
from tests.integration.organizations.programs import PLANS, START
from tests.unit.client.prediction.drifting_jobs import executions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

T = TypeVar("T")

LEAD, OPENS, REPORTS, MODEL_OPENS, UPDATES, END = 28.0, 1.0, 6.0, 2.0, 12.0, 24.0
ASKED, ANSWERS, EXTRA_OPENS, EXTRA_UPDATES = 7.0, 13.5, 14.0, 22.0
"""Seconds on a machine that warms up in `USUAL_WARM_UP`. Slower machines stretch them."""
USUAL_WARM_UP = 8.0
LEAST_PACE = 2.5
"""Minimum stretch. The six reports take 3.4 s of one idle core, and other tests run too."""
WINDOWS = 2
POLL = 0.5
LATE = 3.0
"""Maximum delay of a release in seconds: some polls on a busy machine."""

RANDOM_BYTES = 16
"""Maximum size difference of two calls: DER signatures and random varints differ in length."""

WORKLOADS = 60
POLICY = policy_template(SizeClass.LARGE, 20_000)
WHOLE, NEIGHBOUR, EMPTY, DRIFTING = "whole", "neighbour", "empty", "drifting"
EAGER, TELLING = "eager", "telling"
HONEST = (WHOLE, NEIGHBOUR, EMPTY, DRIFTING)

POLLS = {"PullMessages", "SendNodeHeartbeat", "GetStatus", "GetCorrection", "GetQuestion"}

UPDATE_TIMES = (UPDATES, EXTRA_UPDATES, END + UPDATES)
"""Seconds at which updates are sent. No regime begins in the second window."""

RECEIPTS = (
    2 * UPDATES - MODEL_OPENS,
    2 * EXTRA_UPDATES - EXTRA_OPENS,
    END + 2 * UPDATES - MODEL_OPENS,
)
"""Seconds at which organizations request the receipts of their updates."""

SECOND_RECEIPTS = (
    3 * UPDATES - 2 * MODEL_OPENS,
    3 * EXTRA_UPDATES - 2 * EXTRA_OPENS,
)
"""Seconds of the second request, for rounds that were not over at the first."""

DUE = {
    "SubmitRelease": (REPORTS, ANSWERS, END + REPORTS, END + ANSWERS, *RECEIPTS),
    "PushMessages": UPDATE_TIMES,
}
"""Seconds at which releases are sent."""


@dataclass(frozen=True)
class Call:
    """One call as it is sent. All fields are visible to the coordinator."""

    at: datetime
    method: str
    size: int
    flower: tuple[Any, ...] = ()
    refusal: str = ""
    asked_before: bool = False
    """True if an equal request was sent before and no receipt existed yet."""


@dataclass
class Traffic:
    """The calls of every organization, by its name and channel."""

    calls: dict[tuple[str, str], list[Call]] = field(default_factory=lambda: defaultdict(list))
    without_receipt: set[tuple[str, bytes]] = field(default_factory=set)

    def note(
        self, channel: str, method: str, request: Any, *, at: datetime, refusal: str = ""
    ) -> None:
        name = threading.current_thread().name.partition("/")[0]
        flower: tuple[Any, ...] = ()
        if method == "PushMessages":
            flower = tuple(
                (each.metadata.message_type, each.metadata.group_id, each.HasField("error"))
                for each in request.messages_list
            ) + tuple(request.clientapp_runtime_list)
        content = request.SerializeToString(deterministic=True)
        asked_before = (name, content) in self.without_receipt
        if refusal == "no_receipt_yet":
            self.without_receipt.add((name, content))
        call = Call(at, method, len(content), flower, refusal, asked_before)
        self.calls[name, channel].append(call)

    def events(self, name: str, channel: str) -> list[Call]:
        """Return the calls that are not periodic polls or repeated requests."""
        return [
            each
            for each in self.calls[name, channel]
            if each.method not in POLLS and not each.asked_before
        ]

    def asked_again(self, name: str) -> list[Call]:
        """Return repeated requests for receipts, sent when the round was not over before."""
        return [each for each in self.calls[name, "exchange"] if each.asked_before]

    def polls(self, name: str, method: str, *, since: datetime, until: datetime) -> list[datetime]:
        calls = self.calls[name, "fleet"] + self.calls[name, "exchange"]
        return [c.at for c in calls if c.method == method and since <= c.at <= until]


@dataclass
class Season:
    """Recorded traffic and the calendar behind it."""

    traffic: Traffic
    start: datetime
    pace: float

    def due(self, seconds: float) -> datetime:
        return self.start + timedelta(seconds=seconds * self.pace)

    def late(self, call: Call, due: float) -> float:
        return (call.at - self.due(due)).total_seconds() / self.pace

    def differences(self, name: str) -> list[str]:
        """List the differences between this organization's traffic and the full history's.

        Calls after the period are left out: polls of the calendar have no fixed times.
        """
        found = []
        for channel in ("fleet", "exchange"):
            ours, theirs = (
                [c for c in self.traffic.events(each, channel) if c.at < self.due(WINDOWS * END)]
                for each in (WHOLE, name)
            )
            if [each.method for each in ours] != [each.method for each in theirs]:
                heard = [
                    [f"{each.method} {self.late(each, 0.0):.1f} {each.refusal}" for each in calls]
                    for calls in (ours, theirs)
                ]
                found.append(f"{channel}: other calls, or in another order: {heard}")
                continue
            pairs = list(zip(ours, theirs, strict=True))
            found += [
                f"{a.method}: {a.size} and {b.size} bytes"
                for a, b in pairs
                if abs(a.size - b.size) > RANDOM_BYTES
            ]
            found += [
                f"{a.method}: {a.flower}, {b.flower}" for a, b in pairs if a.flower != b.flower
            ]
            found += [
                f"{b.method}: {self.late(b, times[0]):.1f} s after its time"
                for _, b in pairs
                for method, times in DUE.items()
                if b.method == method and not any(0 <= self.late(b, due) <= LATE for due in times)
            ]
        found += [
            f"{b.method}: asked again at {self.late(b, 0.0):.1f} s"
            for b in self.traffic.asked_again(name)
            if b.at < self.due(WINDOWS * END)
            and not any(0 <= self.late(b, due) <= 2 * LATE for due in SECOND_RECEIPTS)
        ]
        return found


@pytest.fixture(scope="module")
def season(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Season]:
    directory = tmp_path_factory.mktemp("traffic")
    with (
        pytest.MonkeyPatch.context() as patch,
        WorkerProcess(NEEDED_FOR_REPORTS) as reporting,
        WorkerProcess(NEEDED_FOR_LINEARIZED) as training,
        WorkerProcess(NEEDED_FOR_FOLLOWING) as following,
    ):
        public = make_public_files(directory / "public")
        patch.setattr(pretrained, "PRETRAINED_PATH", public / START)
        patch.setattr(load_public_plans, "__defaults__", (public / PLANS,))
        traffic = recorded(patch)
        children = {
            NEEDED_FOR_REPORTS: reporting,
            NEEDED_FOR_LINEARIZED: training,
            NEEDED_FOR_FOLLOWING: following,
        }
        one_child_of_a_kind(patch, children)
        make_mutants(patch)
        reporting.warm()
        following.warm()
        pace = seconds_to_warm_up(training, directory) / USUAL_WARM_UP
        pace = round(max(LEAST_PACE, pace), 1)
        yield Season(traffic, play(directory, pace), pace)


def seconds_to_warm_up(training: TaskRunner, directory: Path) -> float:
    """Return the seconds until the child has run one task and the noise is calibrated."""
    began = time.monotonic()
    arrays = tuple(pretrained.load_pretrained_model().arrays.values())
    anchors = anchors_of(load_public_plans())
    question = make_linearized_query(len(anchors))
    training(LinearizedTask(directory / "nothing", arrays, question, anchors))
    plan_schedule(parse_policy(tomllib.loads(POLICY), "test"), calendar(whole_second(now()), 1.0))
    return time.monotonic() - began


def calendar(start: datetime, pace: float) -> ReleaseCalendar:
    seconds = timedelta(seconds=pace)
    return ReleaseCalendar(
        Period(start, END * seconds, WINDOWS),
        (
            SlotTimes(OPENS * seconds, REPORTS * seconds),
            SlotTimes(ASKED * seconds, ANSWERS * seconds),
        ),
        (SlotTimes(MODEL_OPENS * seconds, UPDATES * seconds),),
        extra_slots=(SlotTimes(EXTRA_OPENS * seconds, EXTRA_UPDATES * seconds),),
        extra_windows=1,
    )


def recorded(patch: pytest.MonkeyPatch) -> Traffic:
    """Record what every thread sends by HTTP and by gRPC."""
    traffic = Traffic()
    unary_unary, secure_channel = FleetHttpClient._unary_unary, grpc.secure_channel

    def noted(self: FleetHttpClient, *, rpc_method: str, request: Any, **options: Any) -> Any:
        traffic.note("fleet", rpc_method.rpartition("/")[2], request, at=now())
        return unary_unary(self, rpc_method=rpc_method, request=request, **options)

    class Noted(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            at, answer = now(), continuation(details, request)
            refusal = "" if answer.code() is grpc.StatusCode.OK else answer.details()
            method = details.method.rpartition("/")[2]
            traffic.note("exchange", method, request, at=at, refusal=refusal)
            return answer

    def noted_channel(*arguments: Any, **options: Any) -> grpc.Channel:
        return grpc.intercept_channel(secure_channel(*arguments, **options), Noted())

    patch.setattr(FleetHttpClient, "_unary_unary", noted)
    patch.setattr(grpc, "secure_channel", noted_channel)
    return traffic


def one_child_of_a_kind(
    patch: pytest.MonkeyPatch, children: Mapping[tuple[str, ...], TaskRunner]
) -> None:
    """Let all daemons of this process share the children instead of starting their own."""

    class Shared(WorkerProcess):
        def warm(self) -> None:
            pass

        def __call__(self, task: Callable[[], T], /, *, seconds: float | None = None) -> T:
            return children[self._needs](task, seconds=seconds)

    class NamedThread(threading.Thread):
        """A thread named after its organization."""

        def __init__(self, **options: Any) -> None:
            parent = threading.current_thread().name
            super().__init__(**{**options, "name": f"{parent}/{options['name']}"})

    class Threading:
        Thread, Event = NamedThread, threading.Event

    patch.setattr(daemon, "WorkerProcess", Shared)
    patch.setattr(daemon, "threading", Threading)


def make_mutants(patch: pytest.MonkeyPatch) -> None:
    """Patch two organizations so that each violates promise 5 in its own way."""
    dispatch, send = Participant.dispatch, Participant._send

    def hand_out_early(self: Participant, at: datetime) -> None:
        is_eager = self._home.directory.name == EAGER
        is_drawn = all(each.sampling.done() for each in self._pending._pending.values())
        dispatch(self, at + timedelta(days=1) if is_eager and is_drawn else at)

    def let_out_telling(self: Participant, key: SlotKey, at: datetime) -> SignedRelease:
        release = send(self, key, at)
        if self._home.directory.name != TELLING:
            return release
        with ExecutionStore.open(self._home.store) as store:
            told = release.payload + bytes(len(list(store.executions())))
        return SignedRelease(told, release.signature)

    patch.setattr(Participant, "dispatch", hand_out_early)
    patch.setattr(Participant, "_send", let_out_telling)


def play(directory: Path, pace: float) -> datetime:
    """Run the period from its first to its last second and return its start."""
    start = whole_second(now() + timedelta(seconds=LEAD * pace))
    table = calendar(start, pace)
    config = new_coordinator(directory / "server", table, quorum=1)
    history = make_executions(WORKLOADS, seed=1)
    # The last executions finish in the first window. The first report covers the others.
    in_window = start + timedelta(seconds=pace)
    history[-10:] = [replace(each, finished_at=in_window) for each in history[-10:]]
    drifting = executions(now() - timedelta(days=25))
    histories = {NEIGHBOUR: history[:-1], EMPTY: [], DRIFTING: drifting}
    homes = [
        new_home(directory / name, POLICY, histories.get(name, history))
        for name in (*HONEST, EAGER, TELLING)
    ]
    database = Database(config.database_url)
    start_model = [*pretrained.load_pretrained_model().arrays.values()]
    store_first_version(database, GgfnFormat(), start_model, at=now())
    with database.transaction() as session:
        registry.add_version(session, GgfnFormat(), start_model, at=now(), promoted=True)
        epoch = declare(session, table.period, RegimeTrigger.DECLARED, at=now())
        assert (epoch.begins_at, epoch.reference_version) == (start, 2)
    database.close()
    rules, method = RoundRules(1, config.grace), Keeping(tangent_avg())
    with (
        serving(config, task_of(method, evaluate=nought), rules=rules) as coordinator,
        operator(config) as tools,
    ):
        # The other controllers are left out: they are slow and cause no traffic here.
        queries = "designing linear queries"
        coordinator._controllers = {queries: coordinator._controllers[queries]}
        for home in homes:
            join(home, tools.add_organization(home.directory.name).url)
        until = table.period.end + timedelta(seconds=2)
        live((partial(run, coordinator, clock=now),), homes, until=until)
    return start


def live(servers: Sequence[Any], homes: Sequence[Home], *, until: datetime) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=each, args=(stop,)) for each in servers] + [
        threading.Thread(
            target=run_daemon, args=(home,), kwargs={"clock": now, "stop": stop},
            name=home.directory.name,
        )
        for home in homes
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    try:
        sleep_until(until)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def nought(arrays: Weights) -> float:
    del arrays
    return 1.0


def test_organizations_with_any_history_submit_reports_and_updates(season: Season) -> None:
    for name in HONEST:
        methods = [call.method for call in season.traffic.events(name, "exchange")]
        assert methods.count("SubmitRelease") >= 2 * WINDOWS
        pushed = [c for c in season.traffic.events(name, "fleet") if c.method == "PushMessages"]
        assert [each.flower for each in pushed] == [(("train", "", False), 0.0)] * len(UPDATE_TIMES)


@pytest.mark.parametrize("name", HONEST)
def test_organizations_fetch_new_reference_when_second_window_of_regime_begins(
    season: Season, name: str
) -> None:
    fetched = [c for c in season.traffic.events(name, "exchange") if c.method == "GetModel"]
    assert 0 <= season.late(fetched[-1], END) <= LATE
    assert all(season.late(each, 0.0) < 0 for each in fetched[:-1])


@pytest.mark.parametrize("name", HONEST)
def test_neighbouring_histories_produce_the_same_traffic(season: Season, name: str) -> None:
    found = season.differences(name)
    assert found == [], "\n".join(found)  # in full, which pytest would truncate


@pytest.mark.parametrize("window", range(WINDOWS))
@pytest.mark.parametrize("name", HONEST)
def test_daemon_polls_for_linear_query_from_slot_opening_until_available(
    season: Season, name: str, window: int
) -> None:
    begins = window * END
    span = {"since": season.due(begins if window else -LEAD), "until": season.due(begins + END)}
    asked = season.traffic.polls(name, "GetQuestion", **span)
    late = [(each - season.due(begins + ASKED)).total_seconds() / season.pace for each in asked]
    assert 0 <= late[0] <= LATE
    assert 1 <= len(late) <= 2 * LATE / POLL
    assert late[-1] <= 2 * LATE


@pytest.mark.parametrize("method", ["PullMessages", "GetStatus"])
@pytest.mark.parametrize("name", HONEST)
def test_polling_interval_does_not_change_while_releases_are_computed(
    season: Season, name: str, method: str
) -> None:
    """Pauses between polls are compared before any slot and while releases are made."""
    before, during = (
        season.traffic.polls(name, method, since=season.due(since), until=season.due(until))
        for since, until in ((-LEAD, 0.0), (OPENS, UPDATES))
    )
    pauses = [np.diff([each.timestamp() for each in some]) for some in (before, during)]
    assert len(pauses[1]) > season.pace * (UPDATES - OPENS) / (3 * POLL)
    assert abs(np.median(pauses[1]) - np.median(pauses[0])) < POLL / 2
    assert max(pauses[1]) < LATE * season.pace


def test_traffic_comparison_detects_reply_sent_as_soon_as_ready(season: Season) -> None:
    """Only some replies are early: a busy machine may finish others at their time."""
    differences = season.differences(EAGER)
    assert 1 <= len(differences) <= len(UPDATE_TIMES)
    assert all(each.startswith("PushMessages:") for each in differences)


def test_traffic_comparison_detects_reply_size_depending_on_workload_count(season: Season) -> None:
    assert any("bytes" in each for each in season.differences(TELLING))
