"""A coordinator and daemons through one compressed period: up, joined, through, down.

The period begins only when everything is up, and nothing is asked of the machine
during the rounds but one look at the coordinator after each of them.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from fedperf_client.prediction.base_models import FetchedModels
from fedperf_server.config import load_config, write_config
from fedperf_shared.releases.period import Timetable
from fedperf_simulations.demo.processes import StepFailedError
from fedperf_simulations.demo.results import rounds_of, versions_of
from fedperf_simulations.demo.scenario import Calendar, Pace
from fedperf_simulations.demo.summary import RoundSummary, VersionSummary
from fedperf_simulations.demo.world import HOST, DemoWorld, free_ports
from fedperf_simulations.harness.terminal import ProgressStage

UP = "daemon is up"
"""What a daemon's log says when it has declared its schedule."""

HEAVY_STARTS = 10
"""Programs' starts between the calendar and the first slot, as many as run one after another.

The coordinator, three joins, three daemons and the five processes in which these compute, on two
cores; half of it again for a machine that is busier than when its pace was measured.
"""

READY_SECONDS = 60.0
FETCH_SECONDS = 10.0
VERDICT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LocalFederation:
    """A federation whose period is about to begin.

    Attributes:
        timetable: of the period.
        fingerprints: of the members' keys by name, the same on both sides.
    """

    timetable: Timetable
    fingerprints: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """How long the period takes."""
        return (self.timetable.period.end - self.timetable.period.start).total_seconds()


def join_all(
    world: DemoWorld, names: Sequence[str], calendar: Calendar, pace: Pace, *, stage: ProgressStage
) -> LocalFederation:
    """Coordinator and daemons up and joined before the period begins.

    Raises:
        StepFailedError: a program failed, or was not up in time.
    """
    timetable = _start_coordinator(world, calendar, pace)
    stage.say("organizations join, daemons start")
    joined = world.programs.together(
        [partial(_join_and_start, world, name) for name in names], at_once=2
    )
    fingerprints = dict(zip(names, joined, strict=True))
    _require_same_on_both_sides(world, fingerprints)
    _wait_for_daemons(world, names, timetable)
    return LocalFederation(timetable, fingerprints)


def learn(
    world: DemoWorld, joined: LocalFederation, calendar: Calendar, *, stage: ProgressStage
) -> tuple[tuple[RoundSummary, ...], tuple[VersionSummary, ...]]:
    """The whole period: its rounds and what they made; then coordinator and daemons have ended.

    Raises:
        StepFailedError: a program ended, or a round did not close.
    """
    _pass_time(world, joined.timetable.period.start, stage, counts=False)
    rounds = _wait_for_rounds(world, joined.timetable, calendar, stage)
    versions = _wait_for_verdicts(world, rounds, stage)
    _wait_for_models(world, joined, versions, stage)
    world.programs.pause()
    return rounds, versions


def _start_coordinator(world: DemoWorld, calendar: Calendar, pace: Pace) -> Timetable:
    world.programs.call(world.server("init", "init", "--host", HOST))
    exchange, enrollment, fleet = free_ports(3)
    lead = timedelta(seconds=8 + HEAVY_STARTS * pace.startup_seconds)
    timetable = calendar.timetable((world.clock() + lead).replace(microsecond=0))
    config = replace(
        load_config(world.coordinator),
        timetable=timetable,
        exchange_port=exchange,
        enrollment_port=enrollment,
        fleet_port=fleet,
        bind=HOST,
        grace=timedelta(seconds=calendar.grace_seconds),
    )
    write_config(config)
    world.programs.start(replace(world.server("run", "run"), log="coordinator.log"))
    _wait_for_ports(world, (exchange, enrollment, fleet))
    return timetable


def _invite(world: DemoWorld, name: str) -> str:
    return str(world.programs.facts(world.server("add-org", "add-org", name, "--json"))["join_url"])


def _join_and_start(world: DemoWorld, name: str) -> str:
    """One organization becomes a member and starts its daemon; the fingerprint that it sees."""
    join = world.client("join", name, "join", _invite(world, name), "--json")
    fingerprint = str(world.programs.facts(join)["fingerprint"])
    world.programs.start(world.client("daemon", name, "daemon"))
    return fingerprint


def _require_same_on_both_sides(world: DemoWorld, own: Mapping[str, str]) -> None:
    members = world.programs.facts(world.server("list", "list", "--json"))
    seen = {member["name"]: member["fingerprint"] for member in members}
    if seen != own:
        raise StepFailedError("joining", f"fingerprints differ: {own} here, {seen} there")


def _wait_for_ports(world: DemoWorld, ports: tuple[int, ...]) -> None:
    def is_open(port: int) -> bool:
        with closing(socket.socket()) as attempt:
            attempt.settimeout(1.0)
            return attempt.connect_ex((HOST, port)) == 0

    def all_open() -> bool:
        return all(is_open(port) for port in ports)

    if not _wait(world, all_open, until=world.clock() + timedelta(seconds=READY_SECONDS)):
        raise StepFailedError(
            "starting the coordinator", f"its ports are not open after {READY_SECONDS:g} s"
        )


def _wait_for_daemons(world: DemoWorld, names: Sequence[str], timetable: Timetable) -> None:
    def all_up() -> bool:
        return all(UP in world.programs.log_of(f"{name}.log") for name in names)

    if not _wait(world, all_up, until=timetable.period.start):
        raise StepFailedError(
            "starting the daemons",
            "not all were up when the period began; the machine is busy with something else",
        )


def _wait(world: DemoWorld, is_so: Callable[[], bool], *, until: datetime) -> bool:
    """Whether it came true in time; programs that end meanwhile are an error."""
    while not is_so():
        world.programs.check()
        if world.clock() >= until:
            return False
        world.sleep(0.2)
    return True


def _wait_for_rounds(
    world: DemoWorld, timetable: Timetable, calendar: Calendar, stage: ProgressStage
) -> tuple[RoundSummary, ...]:
    """One look at the coordinator after each round: looking costs time on a small machine."""
    rounds: tuple[RoundSummary, ...] = ()
    period = timetable.period
    for window in range(period.windows):
        closes = period.window_start(window) + timedelta(seconds=calendar.model_seconds + 1)
        latest = closes + timedelta(seconds=calendar.window_seconds)
        _pass_time(world, closes, stage)
        while len(rounds) <= window:
            if world.clock() > latest:
                raise StepFailedError("learning together", f"round {window + 1} did not close")
            rounds = rounds_of(world.programs.facts(world.server("rounds", "rounds", "--json")))
        stage.say(_said(rounds[-1], period.windows))
    _pass_time(world, period.end, stage)
    return rounds


def _said(found: RoundSummary, windows: int) -> str:
    error = "no new version" if found.public_error is None else f"error {found.public_error:.3f}"
    return f"round {found.round} of {windows}, {found.replies} of {found.asked} replies, {error}"


def _pass_time(
    world: DemoWorld, until: datetime, stage: ProgressStage, *, counts: bool = True
) -> None:
    while (now := world.clock()) < until:
        world.programs.check()
        world.sleep(min(0.5, (until - now).total_seconds()))
        if counts:
            stage.advance((world.clock() - now).total_seconds())


def _wait_for_verdicts(
    world: DemoWorld, rounds: Sequence[RoundSummary], stage: ProgressStage
) -> tuple[VersionSummary, ...]:
    """All versions, when every one but that of the last round was judged, or some time passed."""
    stage.say("the coordinator judges what the rounds made")
    latest = world.clock() + timedelta(seconds=VERDICT_SECONDS)
    made = [each.new_version for each in rounds[:-1] if each.new_version is not None]
    while True:
        facts = world.programs.facts(world.server("models", "models", "--json"))
        versions = versions_of(facts)
        waiting = [e for e in versions if e.version in made and e.standing == "candidate"]
        if not waiting or world.clock() > latest:
            return versions
        world.sleep(1.0)


def _wait_for_models(
    world: DemoWorld,
    joined: LocalFederation,
    versions: Sequence[VersionSummary],
    stage: ProgressStage,
) -> None:
    """Until every daemon has fetched the newest promoted version, or some seconds passed."""
    stage.say("daemons fetch the last version")
    newest = max(each.version for each in versions if each.standing == "promoted")

    def all_have_it() -> bool:
        models = [FetchedModels(world.home(name).models) for name in joined.fingerprints]
        return all(each.shared_version >= newest for each in models)

    _wait(world, all_have_it, until=world.clock() + timedelta(seconds=FETCH_SECONDS))
