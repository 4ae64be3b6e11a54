"""A coordinator and daemons through one compressed period: up, joined, through, down.

The period begins only when everything is up. Nothing else runs on the machine before its end.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from fedperf_server.config import load_config, write_config
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_simulations.demo.processes import StepFailedError
from fedperf_simulations.demo.results import rounds_of
from fedperf_simulations.demo.scenario import Calendar, MachineTimings
from fedperf_simulations.demo.summary import RoundSummary
from fedperf_simulations.demo.workspace import HOST, DemoWorkspace, free_ports
from fedperf_simulations.harness.terminal import ProgressStage

UP = "daemon is up"
"""Text in a daemon's log after it has declared its schedule."""

HEAVY_STARTS = 10
"""Program starts between the calendar and the first slot, as many as run one after another.

The coordinator, three joins, three daemons and the five processes in which these compute, on two
cores; half of it again for a machine that is busier than when its pace was measured.
"""

READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LocalFederation:
    """A federation whose period is about to begin.

    Attributes:
        calendar: of the period.
        fingerprints: of the members' keys by name, the same on both sides.
    """

    calendar: ReleaseCalendar
    fingerprints: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """The length of the period, seconds."""
        return (self.calendar.period.end - self.calendar.period.start).total_seconds()


def join_all(
    world: DemoWorkspace,
    names: Sequence[str],
    calendar: Calendar,
    pace: MachineTimings,
    *,
    stage: ProgressStage,
) -> LocalFederation:
    """Coordinator and daemons up and joined before the period begins.

    Raises:
        StepFailedError: a program failed, or was not up in time.
    """
    release_calendar = _start_coordinator(world, calendar, pace)
    stage.announce("organizations join, daemons start")
    joined = world.programs.together(
        [partial(_join_and_start, world, name) for name in names], at_once=2
    )
    fingerprints = dict(zip(names, joined, strict=True))
    _require_same_on_both_sides(world, fingerprints)
    _wait_for_daemons(world, names, release_calendar)
    return LocalFederation(release_calendar, fingerprints)


def live_through(
    world: DemoWorkspace, joined: LocalFederation, calendar: Calendar, *, stage: ProgressStage
) -> tuple[RoundSummary, ...]:
    """Return the whole period, and its round. Then coordinator and daemons have ended.

    Raises:
        StepFailedError: a program ended, or the round did not close.
    """
    period = joined.calendar.period
    _pass_time(world, period.start, stage, counts=False)
    _pass_time(world, period.end, stage)
    latest = period.end + timedelta(seconds=calendar.window_seconds)
    while not (rounds := _closed(world)):
        if world.clock() > latest:
            raise StepFailedError("learning together", "the round did not close")
        world.sleep(1.0)
    world.programs.pause()
    return rounds


def _closed(world: DemoWorkspace) -> tuple[RoundSummary, ...]:
    return rounds_of(world.programs.facts(world.server("rounds", "rounds", "--json")))


def _start_coordinator(
    world: DemoWorkspace, calendar: Calendar, pace: MachineTimings
) -> ReleaseCalendar:
    world.programs.call(world.server("init", "init", "--host", HOST))
    exchange, enrollment, fleet = free_ports(3)
    lead = timedelta(seconds=8 + HEAVY_STARTS * pace.startup_seconds)
    release_calendar = calendar.to_release_calendar((world.clock() + lead).replace(microsecond=0))
    config = replace(
        load_config(world.coordinator),
        calendar=release_calendar,
        exchange_port=exchange,
        enrollment_port=enrollment,
        fleet_port=fleet,
        bind=HOST,
        grace=timedelta(seconds=calendar.grace_seconds),
    )
    write_config(config)
    world.programs.start(replace(world.server("run", "run"), log="coordinator.log"))
    _wait_for_ports(world, (exchange, enrollment, fleet))
    return release_calendar


def _join_and_start(world: DemoWorkspace, name: str) -> str:
    """One organization becomes a member and starts its daemon. The fingerprint that it sees."""
    invite = world.server("org add", "org", "add", name, "--json")
    url = str(world.programs.facts(invite)["join_url"])
    join = world.client("join", name, "join", url, "--json")
    fingerprint = str(world.programs.facts(join)["fingerprint"])
    world.programs.start(world.client("daemon", name, "daemon"))
    return fingerprint


def _require_same_on_both_sides(world: DemoWorkspace, own: Mapping[str, str]) -> None:
    members = world.programs.facts(world.server("org list", "org", "list", "--json"))
    fingerprints = {member["name"]: member["fingerprint"] for member in members}
    if fingerprints != own:
        raise StepFailedError("joining", f"fingerprints differ: {own} here, {fingerprints} there")


def _wait_for_ports(world: DemoWorkspace, ports: tuple[int, ...]) -> None:
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


def _wait_for_daemons(
    world: DemoWorkspace, names: Sequence[str], release_calendar: ReleaseCalendar
) -> None:
    def all_up() -> bool:
        return all(UP in world.programs.log_of(f"{name}.log") for name in names)

    if not _wait(world, all_up, until=release_calendar.period.start):
        raise StepFailedError(
            "starting the daemons",
            "not all were up when the period began; the machine is busy with something else",
        )


def _wait(world: DemoWorkspace, is_so: Callable[[], bool], *, until: datetime) -> bool:
    """Return whether it came true in time. Programs that end meanwhile are an error."""
    while not is_so():
        world.programs.check()
        if world.clock() >= until:
            return False
        world.sleep(0.2)
    return True


def _pass_time(
    world: DemoWorkspace, until: datetime, stage: ProgressStage, *, counts: bool = True
) -> None:
    while (now := world.clock()) < until:
        world.programs.check()
        world.sleep(min(0.5, (until - now).total_seconds()))
        if counts:
            stage.advance((world.clock() - now).total_seconds())
