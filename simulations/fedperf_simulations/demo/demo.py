"""The demo: why to join, in three parts, each with its verdict.

(a) what joining gives a new participant, and (b) how all predictions change when a cap is imposed:
a year of organizations in memory, in a process of its own (`year`). (c) what leaves, for how much:
three organizations and a coordinator as the programs that users have, started as a user would; only
their calendar is compressed, through the coordinator's configuration. Both go on side by side. A
failure ends the demo with one line and leaves no program running.
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from pydantic import TypeAdapter

from fedperf_client.sources.history_file import write_history
from fedperf_shared.execution import Execution
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.demo.local_federation import LocalFederation, join_all, live_through
from fedperf_simulations.demo.page import write_report
from fedperf_simulations.demo.participants import QUICK_YEAR, YearSize
from fedperf_simulations.demo.processes import ProgramCall, StepFailedError
from fedperf_simulations.demo.results import collected
from fedperf_simulations.demo.scenario import (
    POLL_SECONDS,
    Calendar,
    DemoMember,
    MachineTimings,
    fitted_calendar,
    participants,
)
from fedperf_simulations.demo.summary import (
    DemoSummary,
    OrganizationResult,
    RoundSummary,
    YearResult,
)
from fedperf_simulations.demo.workspace import DemoWorkspace
from fedperf_simulations.demo.year import FOUND, STEP, steps_of
from fedperf_simulations.harness.experiment import Settings, provenance, write_json
from fedperf_simulations.harness.terminal import ProgressStage, Stages

PACE_COMMAND = (sys.executable, "-m", "fedperf_simulations.demo.calibration")
YEAR_COMMAND = (sys.executable, "-m", "fedperf_simulations.demo.year")

Work = Callable[[], None]
Left = tuple[tuple[OrganizationResult, ...], tuple[RoundSummary, ...]]


def run_demo(world: DemoWorkspace, executions: list[Execution], stages: Stages) -> DemoSummary:
    """The whole demo on a directory that `world.fresh_directory` made. Writes summary and report.

    Raises:
        FedperfError: a step failed; the message names it and its log.
    """
    began = stages.timer()
    years: list[YearResult] = []
    left: list[Left] = []
    works: list[Work] = [
        lambda: years.append(_year(world, stages)),
        lambda: left.append(_left(world, executions, stages)),
    ]
    world.programs.together(works, at_once=len(works))
    organizations, rounds = left[0]
    summary = DemoSummary(
        seed=world.seed,
        year=years[0],
        organizations=organizations,
        rounds=rounds,
        total_seconds=round(stages.timer() - began, 1),
        seconds=dict(stages.seconds),
        provenance=provenance(Settings(seed=world.seed, out=world.out), ()),
    )
    write_report(world.out / "report.html", summary)
    write_json(world.out / "summary.json", summary.as_json())
    return summary


def _year(world: DemoWorkspace, stages: Stages) -> YearResult:
    """Lines (a) and (b)."""
    quick, size = ("quick", QUICK_YEAR) if world.is_quick else ("whole", YearSize())
    command = (*YEAR_COMMAND, str(world.seed), quick, str(world.out / "year"))
    call = ProgramCall("the year in memory", command, "year.log")
    result: YearResult | None = None
    with stages.stage("year", "(a), (b) a year in memory", total=steps_of(size)) as stage:
        for line in world.programs.lines(call):
            message = orjson.loads(line)
            if STEP in message:
                stage.announce(message[STEP])
                stage.advance()
            else:
                result = TypeAdapter(YearResult).validate_python(message[FOUND])
    if result is None:
        raise StepFailedError(call.step, "it found nothing")
    return result


def _left(world: DemoWorkspace, executions: list[Execution], stages: Stages) -> Left:
    """Line (c)."""
    with stages.stage("homes", "(c) homes, policies, histories", total=3) as stage:
        organizations = participants(executions, seed=world.seed, size=world.size)
        _write_histories(world, organizations)
        calendar, pace = _prepare_homes(world, organizations, stage)
    with stages.stage("joining", "(c) coordinator and daemons") as stage:
        names = [each.name for each in organizations]
        joined = join_all(world, names, calendar, pace, stage=stage)
    with stages.stage("window", "(c) one window", total=joined.seconds) as stage:
        rounds = live_through(world, joined, calendar, stage=stage)
    with stages.stage("results", "(c) what left", total=len(organizations)) as stage:
        works = [partial(_result, world, each, joined, stage=stage) for each in organizations]
        return tuple(world.programs.together(works, at_once=2)), rounds


def _write_histories(world: DemoWorkspace, organizations: tuple[DemoMember, ...]) -> None:
    for each in organizations:
        world.history(each.name).parent.mkdir(exist_ok=True)
        write_history(world.history(each.name), each.history)


def _prepare_homes(
    world: DemoWorkspace, organizations: tuple[DemoMember, ...], stage: ProgressStage
) -> tuple[Calendar, MachineTimings]:
    """Homes with histories in their stores, and a calendar that this machine can keep."""
    world.programs.together([partial(_init, world, each) for each in organizations], at_once=2)
    stage.advance()
    stage.announce("how fast this machine is")
    large = [each for each in organizations if each.size_class is SizeClass.LARGE]
    pace = _pace(world, large)
    calendar = fitted_calendar(pace, anchors=len(anchors_of(load_public_plans())), size=world.size)
    stage.advance()
    stage.announce("histories into the stores")
    ingests = [
        world.client("ingest", each.name, "ingest", str(world.history(each.name)), "--json")
        for each in organizations
    ]
    world.programs.together([partial(world.programs.facts, each) for each in ingests], at_once=2)
    stage.advance()
    return calendar, pace


def _init(world: DemoWorkspace, each: DemoMember) -> None:
    size, workloads = str(each.size_class), str(each.nominal_workloads)
    call = world.client("init", each.name, "init", "--size", size, "--workloads", workloads)
    world.programs.call(call)
    text = world.home(each.name).config.read_text(encoding="utf-8")
    faster = re.sub(r"(?m)^poll_seconds = .*$", f"poll_seconds = {POLL_SECONDS}", text)
    world.home(each.name).config.write_text(faster, encoding="utf-8")


def _pace(world: DemoWorkspace, large: list[DemoMember]) -> MachineTimings:
    """The pace is measured by as many programs at once as will reply at once."""
    calls = [
        ProgramCall(
            "measuring the pace", (*PACE_COMMAND, str(world.history(each.name))), "pace.log"
        )
        for each in large
    ]
    outputs = world.programs.together(
        [partial(world.programs.facts, call) for call in calls], at_once=len(calls)
    )
    return MachineTimings.slowest([MachineTimings(**figures) for figures in outputs])


def _result(
    world: DemoWorkspace, each: DemoMember, joined: LocalFederation, *, stage: ProgressStage
) -> OrganizationResult:
    """Return the results of an organization's own programs."""
    ask = partial(_ask, world, each.name)
    result = collected(
        each,
        world.home(each.name),
        joined.calendar,
        fingerprint=joined.fingerprints[each.name],
        status=ask("status"),
        budget=ask("budget"),
        releases=ask("release", "list"),
        log=world.programs.log_of(f"{each.name}.log"),
    )
    stage.advance()
    return result


def _ask(world: DemoWorkspace, name: str, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    step = " ".join(arguments)
    return world.programs.facts(world.client(step, name, *arguments, "--json"))
