"""Three organizations on one machine that learn together, with the programs that users have.

`fedperf` and `fedperf-server` are started as a user would start them, each in processes
of their own; only the calendar is compressed, through the coordinator's configuration.
The demo itself only draws who has which history, waits, and collects what the programs
print. Whatever fails ends it with one line and leaves no program running.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.base_models import FetchedModels
from fedperf_client.prediction.evaluation.gain import personalized_predictor
from fedperf_client.prediction.evidence import History
from fedperf_client.prediction.mixture.personal import Personalized
from fedperf_client.sources.history_file import write_history
from fedperf_shared.errors import FedperfError
from fedperf_shared.execution import Execution
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.model.public_start import load_public_start
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.demo.choice import chosen_and_measured, new_program
from fedperf_simulations.demo.local_federation import LocalFederation, join_all, learn
from fedperf_simulations.demo.page import write_report
from fedperf_simulations.demo.processes import ProgramCall, StepFailedError
from fedperf_simulations.demo.results import collected, error_on_plans
from fedperf_simulations.demo.scenario import (
    POLL_SECONDS,
    Calendar,
    DemoMember,
    Pace,
    fitted_calendar,
    participants,
)
from fedperf_simulations.demo.summary import ChoiceResult, DemoSummary, OrganizationResult
from fedperf_simulations.demo.world import DemoWorld
from fedperf_simulations.harness.experiment import Settings, provenance, write_json
from fedperf_simulations.harness.terminal import ProgressStage, Stages
from fedperf_simulations.measured_set.limited_start import limited_start_in_use
from fedperf_simulations.measured_set.organizations import WorkloadPart

CHOOSER = WorkloadPart.BIRCH
"""Who chooses platforms: it knows workflows like the new one."""

PACE_COMMAND = (sys.executable, "-m", "fedperf_simulations.demo.calibration")


@limited_start_in_use()
def run_demo(world: DemoWorld, executions: list[Execution], stages: Stages) -> DemoSummary:
    """The whole demo on a directory that `world.fresh_directory` made; writes summary and report.

    Raises:
        FedperfError: a step failed; the message names it and its log.
    """
    with stages.stage("histories", "drawing what each organization knows"):
        organizations = participants(executions, seed=world.seed, size=world.size)
        _write_histories(world, organizations)
    with stages.stage("homes", "homes, policies, histories", total=3) as stage:
        calendar, pace = _prepare_homes(world, organizations, stage)
    live: dict[str, int] = {}
    with stages.stage("profiling", "profiling real jobs", total=len(organizations)) as stage:
        for each in organizations:
            stage.say(f"{each.name} runs {world.size.live_executions} jobs")
            live[each.name] = _profiled(world, each)
            stage.advance()
    with stages.stage("joining", "coordinator and daemons") as stage:
        names = [each.name for each in organizations]
        joined = join_all(world, names, calendar, pace, stage=stage)
    with stages.stage("rounds", "learning together", total=joined.seconds) as stage:
        rounds, versions = learn(world, joined, calendar, stage=stage)
    with stages.stage("results", "what joining brought", total=len(organizations) + 1) as stage:
        results, predictor = _results(world, organizations, joined, live, stage=stage)
    with stages.stage("choice", "choosing platforms for a new workflow"):
        choice = _choice(world, predictor)
    with stages.stage("report", "writing the report"):
        summary = DemoSummary(
            seed=world.seed,
            organizations=tuple(results),
            start_error=error_on_plans(load_public_start(), load_public_plans()),
            rounds=rounds,
            versions=versions,
            windows=calendar.windows,
            window_seconds=calendar.window_seconds,
            choice=choice,
            seconds=dict(stages.seconds),
            provenance=provenance(Settings(seed=world.seed, out=world.out), ()),
        )
        write_report(world.out / "report.html", summary)
    finished = replace(summary, seconds=dict(stages.seconds))
    write_json(world.out / "summary.json", finished.as_json())
    return finished


def _write_histories(world: DemoWorld, organizations: tuple[DemoMember, ...]) -> None:
    for each in organizations:
        for path, executions in (
            (world.history(each.name), each.history),
            (world.held_out(each.name), each.held_out),
        ):
            path.parent.mkdir(exist_ok=True)
            write_history(path, executions)


def _prepare_homes(
    world: DemoWorld, organizations: tuple[DemoMember, ...], stage: ProgressStage
) -> tuple[Calendar, Pace]:
    """Homes with histories in their stores, and a calendar that this machine can keep."""
    world.programs.together([partial(_init, world, each) for each in organizations], at_once=2)
    stage.advance()
    stage.say("how fast this machine is")
    large = [each for each in organizations if each.size_class is SizeClass.LARGE]
    pace = _pace(world, large)
    calendar = fitted_calendar(pace, anchors=len(anchors_of(load_public_plans())), size=world.size)
    stage.advance()
    stage.say("histories into the stores")
    ingests = [
        world.client("ingest", each.name, "ingest", str(world.history(each.name)), "--json")
        for each in organizations
    ]
    world.programs.together([partial(world.programs.facts, each) for each in ingests], at_once=2)
    stage.advance()
    return calendar, pace


def _init(world: DemoWorld, each: DemoMember) -> None:
    size, workloads = str(each.size_class), str(each.nominal_workloads)
    call = world.client("init", each.name, "init", "--size", size, "--workloads", workloads)
    world.programs.call(call)
    text = world.home(each.name).config.read_text(encoding="utf-8")
    faster = re.sub(r"(?m)^poll_seconds = .*$", f"poll_seconds = {POLL_SECONDS}", text)
    world.home(each.name).config.write_text(faster, encoding="utf-8")


def _pace(world: DemoWorld, large: list[DemoMember]) -> Pace:
    """Measured by as many programs at once as will answer at once."""
    calls = [
        ProgramCall(
            "measuring the pace", (*PACE_COMMAND, str(world.history(each.name))), "pace.log"
        )
        for each in large
    ]
    found = world.programs.together(
        [partial(world.programs.facts, call) for call in calls], at_once=len(calls)
    )
    return Pace.slowest([Pace(**figures) for figures in found])


def _profiled(world: DemoWorld, each: DemoMember) -> int:
    """How many executions were measured and stored, failed ones included."""
    statuses = world.programs.facts(_profile_call(world, each))["status"]
    return sum(count for status, count in statuses.items() if status != "uncountable")


def _profile_call(world: DemoWorld, each: DemoMember) -> ProgramCall:
    families = [word for family in each.character.families for word in ("--family", str(family))]
    return world.client(
        "profile",
        each.name,
        "calibrate",
        *("--executions", str(world.size.live_executions)),
        *("--max-rows", str(each.character.max_rows)),
        *("--threads", str(each.character.threads)),
        *("--seed", str(each.live_seed)),
        *families,
        "--json",
        seconds=300.0,
    )


def _results(
    world: DemoWorld,
    organizations: tuple[DemoMember, ...],
    joined: LocalFederation,
    live: Mapping[str, int],
    *,
    stage: ProgressStage,
) -> tuple[list[OrganizationResult], Personalized]:
    """What each organization's own programs say; and the predictor of the one that chooses."""

    def of(each: DemoMember) -> OrganizationResult:
        ask = partial(_ask, world, each.name)
        result = collected(
            each,
            world.home(each.name),
            joined.timetable,
            fingerprint=joined.fingerprints[each.name],
            live=live[each.name],
            status=ask("status"),
            budget=ask("budget"),
            gain=ask("gain", "--held-out", str(world.held_out(each.name))),
            releases=ask("release", "list"),
            log=world.programs.log_of(f"{each.name}.log"),
        )
        stage.advance()
        return result

    results: dict[str, OrganizationResult] = {}
    predictors: list[Personalized] = []
    works: list[Callable[[], None]]
    works = [partial(_keep, results, each.name, partial(of, each)) for each in organizations]
    # The longest works first: two cores have four of them.
    works.insert(2, lambda: predictors.append(_predictor(world, stage)))
    world.programs.together(works, at_once=2)
    return [results[each.name] for each in organizations], predictors[0]


def _keep(
    results: dict[str, OrganizationResult], name: str, work: Callable[[], OrganizationResult]
) -> None:
    results[name] = work()


def _predictor(world: DemoWorld, stage: ProgressStage) -> Personalized:
    """What the organization that chooses predicts with."""
    home = world.home(CHOOSER)
    with ExecutionStore.open(home.store) as store:
        own = History.from_executions(store.executions())
    predictor = personalized_predictor(own, FetchedModels(home.models))
    stage.advance()
    return predictor


def _ask(world: DemoWorld, name: str, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    step = " ".join(word for word in arguments[:2] if not word.startswith("-"))
    return world.programs.facts(world.client(step, name, *arguments, "--json", seconds=300.0))


def _choice(world: DemoWorld, predictor: Personalized) -> ChoiceResult:
    home = world.home(CHOOSER)
    with ExecutionStore.open(home.store) as store:
        known = set(store.workloads())
    program = new_program(known, seed=world.seed, rows=world.size.choice_rows)
    try:
        return chosen_and_measured(
            program,
            predictor,
            organization=str(CHOOSER),
            rows=world.size.choice_rows,
            data_directory=home.data,
            repeats=world.size.repeats,
            clock=world.clock,
        )
    except FedperfError as error:
        raise StepFailedError("choosing platforms", str(error)) from error
