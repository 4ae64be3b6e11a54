"""`fedperf advise`: where a job should run, why, and, if wished, whether that was right.

Without --execute it causes no traffic and runs nothing but the count of a program's rows.
"""

import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.home_option import Json, home_of, now
from fedperf_client.prediction_cli import opened_kept, progress_bar, say_if_nothing_is_known
from fedperf_shared.command_line import NO_ANSWER, show, show_rows

if TYPE_CHECKING:
    from fedperf_client.advice.advice import Advice
    from fedperf_client.advice.job import Job
    from fedperf_client.advice.turns import Measured
    from fedperf_client.advice.wishes import Wishes
    from fedperf_client.config import Home
    from fedperf_client.optimizer.head import Head
    from fedperf_client.platforms.program import Program
    from fedperf_client.prediction.kept import Kept
    from fedperf_client.profiling.profiler import Profiler
    from fedperf_client.profiling.trial import Trial
    from fedperf_client.store import ExecutionStore
    from fedperf_shared.execution import ClusterConfig
    from fedperf_shared.workflow.vocabulary import Platform


class Method(StrEnum):
    """How plans are searched for; see `fedperf_client.optimizer`."""

    FRONTIER = "frontier"
    BEAM = "beam"
    DELAYED_GREEDY = "delayed_greedy"
    GREEDY = "greedy"
    EXHAUSTIVE = "exhaustive"


@dataclass(frozen=True, slots=True)
class _Words:
    """Options as they were written."""

    platforms: str | None
    pins: Sequence[str]
    memory: Sequence[str]
    warm: str | None
    method: Method


def advise(
    context: typer.Context,
    source: Annotated[
        Path | None,
        typer.Argument(help="Workflow as for predict (platforms may be left out), or a program."),
    ] = None,
    execution: Annotated[
        str | None, typer.Option(help="Id of an own execution, or its beginning.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Directory of the data sets that a program reads.")
    ] = None,
    cores: Annotated[
        str | None,
        typer.Option(help="Over all nodes, like 1,2,4; powers of two up to the cluster."),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Like 1,2,4; each brings its memory, and cores.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="To keep at the fewest core-seconds; like 30ms, 90s, 20m.")
    ] = None,
    platforms: Annotated[
        str | None, typer.Option(help="To choose from, like duckdb,polars; all that are here.")
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(help="Operator that stays, by number or kind, like 3=spark or join=spark."),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(help="Cap for an operator, like 8GB or pandas=4GB; a node's memory."),
    ] = None,
    warm: Annotated[
        str | None, typer.Option(help="Platforms that are running already, like spark,duckdb.")
    ] = None,
    method: Annotated[Method, typer.Option(help="How plans are searched for.")] = Method.FRONTIER,
    execute: Annotated[
        bool, typer.Option("--execute", help="Run a program's choice and its rivals, store them.")
    ] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each, with --execute.")] = 3,
    plot: Annotated[Path | None, typer.Option(help="Draw a .png or .html file.")] = None,
    json: Json = False,
) -> None:
    """Advise where a job should run: a platform for every operator, and the size of the cluster.

    With --deadline the size is the one that keeps it with a chance of 90 % at the fewest
    core-seconds (cores x time); ends with 7 where none does, and shows the fastest. Without,
    it is the fastest, or of those at most 10 % slower the one with the fewest core-seconds.
    Times include starting platforms that are not --warm.
    """
    from fedperf_client.advice.sizes import sizes_of
    from fedperf_client.charts import require_chart_file
    from fedperf_client.config import write_private
    from fedperf_client.prediction.asking import parse_cores, parse_duration
    from fedperf_client.store import ExecutionStore

    if (source is None) == (execution is None):
        raise typer.BadParameter("name a file or --execution, one of them")
    home = home_of(context)
    numbers = None if cores is None else parse_cores(cores)
    counts = None if nodes is None else parse_cores(nodes, option="--nodes")
    seconds = None if deadline is None else parse_duration(deadline)
    words = _Words(platforms, pin or (), memory or (), warm, method)
    if plot is not None:
        require_chart_file(plot)
    with ExitStack() as stack:
        store = stack.enter_context(ExecutionStore.open(home.store))
        kept = stack.enter_context(opened_kept(home, store))
        job, profiler = _job(stack, store, kept, source, execution=execution, data=data)
        if execute:
            _require_runnable(job, numbers, counts)
        sizes = sizes_of(job.cluster, numbers, counts)
        wishes = _wishes(job, kept, words)
        head = _head(home, store)
        found, milliseconds = _searched(job, sizes, wishes, kept, head=head, deadline=seconds)
        kept.keep(write_private)
        say_if_nothing_is_known(kept)
        if plot is not None:
            from fedperf_client.advice.picture import draw_advice

            draw_advice(plot, found)
        measured: list[Measured] = []
        if execute and profiler is not None and job.program is not None:
            measured = _measured(
                found, profiler, job.program, store, repeats=repeats, named=platforms is not None
            )
    _show(found, measured, milliseconds, all_platforms=platforms is None, json=json)
    if found.keeps_deadline is False:
        raise typer.Exit(NO_ANSWER)


def _job(
    stack: ExitStack,
    store: "ExecutionStore",
    kept: "Kept",
    source: Path | None,
    *,
    execution: str | None,
    data: Path | None,
) -> "tuple[Job, Profiler | None]":
    """What is asked about, and for a program who runs it."""
    from fedperf_client.advice.job import Job, NoDataError, program_in
    from fedperf_client.workflow_file import read_workflow_file

    program = None if source is None else program_in(source)
    if program is not None:
        if data is None:
            raise NoDataError(f"{source} is a program: name its data sets' directory with --data")
        return _program_job(stack, program, data)
    if data is not None:
        raise NoDataError("--data is for programs, which can be run; this is none")
    if source is None:
        own = store.find(str(execution))
        return Job(own.plan, own.cluster), None
    written = read_workflow_file(source, otherwise="unassigned")
    return Job(written.plan, written.cluster_or(kept.usual)), None


def _program_job(stack: ExitStack, program: "Program", data: Path) -> "tuple[Job, Profiler]":
    from fedperf_client.advice.job import Job, profiler_here, require_data
    from fedperf_client.profiling.machine import cluster_config, usable_cores
    from fedperf_shared.workflow.graph import Plan
    from fedperf_shared.workflow.vocabulary import Platform

    require_data(program, data)
    profiler = stack.enter_context(profiler_here(data, clock=now, new_id=lambda: uuid.uuid4().hex))
    workflow = profiler.workflow(program)
    today = Plan.on_one_platform(workflow, Platform.UNASSIGNED)
    return Job(today, cluster_config(usable_cores()), program), profiler


def _require_runnable(job: "Job", cores: Sequence[int] | None, nodes: Sequence[int] | None) -> None:
    """Refuse to execute what cannot be, before anything is searched."""
    from fedperf_client.advice.job import NotRunnableError

    if job.program is None:
        raise NotRunnableError("--execute needs a program and --data; this is only a workflow")
    if nodes is not None and max(nodes) > 1:
        raise NotRunnableError("--execute runs on this machine alone, leave out --nodes")
    if cores is not None and max(cores) > job.cluster.cores:
        raise NotRunnableError(
            f"--execute runs on this machine, which has {job.cluster.cores} cores, not {max(cores)}"
        )


def _wishes(job: "Job", kept: "Kept", words: _Words) -> "Wishes":
    from fedperf_client.advice import wishes
    from fedperf_client.optimizer.enumeration import Method as Search

    pins = wishes.parse_pins(words.pins, job.workflow)
    named = None if words.platforms is None else wishes.parse_platforms(words.platforms)
    elsewhere = job.program is None
    known = {*job.today.platforms, *kept.predictor.candidates.hull.platforms}
    caps, others = wishes.parse_memory(words.memory)
    return wishes.Wishes(
        wishes.candidates(named, pins.values(), known if elsewhere else ()),
        pins,
        caps,
        others,
        frozenset(wishes.parse_platforms(words.warm) if words.warm else ()),
        Search(words.method.value),
    )


def _head(home: "Home", store: "ExecutionStore") -> "Head":
    from fedperf_client.optimizer.heads import OWN_WORKFLOWS, head_at_home
    from fedperf_client.prediction.starts import FetchedModels

    with progress_bar("distilling additive costs from the new model") as advance:
        newest = (each for _ in (0,) for each in store.newest(10 * OWN_WORKFLOWS))
        return head_at_home(FetchedModels(home.models), newest, on_progress=advance)


def _searched(
    job: "Job",
    sizes: "Sequence[ClusterConfig]",
    wishes: "Wishes",
    kept: "Kept",
    *,
    head: "Head",
    deadline: float | None,
) -> "tuple[Advice, float]":
    """The advice, and how many milliseconds the search took, predictors weighed before."""
    from fedperf_client.advice.advice import advise as advise_on
    from fedperf_client.prediction.prediction import Question

    kept.predictor.estimate([Question(job.today, each) for each in sizes])
    begun = time.perf_counter()
    found = advise_on(job, sizes, wishes, kept.predictor.estimate, head, deadline_seconds=deadline)
    return found, 1000 * (time.perf_counter() - begun)


def _measured(
    found: "Advice",
    profiler: "Profiler",
    program: "Program",
    store: "ExecutionStore",
    *,
    repeats: int,
    named: bool,
) -> "list[Measured]":
    """The choice and its rivals, run in turns and stored."""
    from fedperf_client.advice.turns import in_turns, runnable_rivals
    from fedperf_client.workloads.families import workload_name

    def run(platforms: "tuple[Platform, ...]") -> "Trial":
        trial = profiler.trial(program, platforms, threads=cluster.cores)
        ended = profiler.execution(found.job.workflow, trial, cluster, workload=workload)
        store.add([ended])
        return trial

    cluster, workload = found.best.cluster, workload_name(program)
    plans = [found.choice, *runnable_rivals(found, all_of_them=named)]
    with progress_bar("running plans in turns") as advance:
        return in_turns(run, plans, repeats=repeats, on_progress=advance)


def _show(
    found: "Advice",
    measured: "Sequence[Measured]",
    milliseconds: float,
    *,
    all_platforms: bool,
    json: bool,
) -> None:
    from fedperf_client.advice import telling
    from fedperf_client.advice.reasons import reasons_of

    reasons = reasons_of(found, all_platforms=all_platforms)
    if json:
        facts = telling.facts_of(found, reasons) | {"search_milliseconds": milliseconds}
        if measured:
            facts["measured"] = telling.measured_facts(measured, found)
        show(facts, json=True)
        return
    typer.echo(telling.headline(found))
    if verdict := telling.verdict(found):
        typer.echo(verdict)
    _print_tree(found)
    for reason in reasons:
        typer.echo(f"- {reason}")
    for lines in (telling.plan_lines(found), telling.size_lines(found)):
        show_rows(telling.without_empty(lines), json=False, empty="")
    if legend := telling.legend(found):
        typer.echo(legend)
    for cluster, why in found.too_small:
        typer.echo(f"{telling.size_text(cluster)} left out: {why}")
    typer.echo(telling.search_text(found, milliseconds))
    if measured:
        lines = telling.measured_lines(measured, found)
        show_rows(telling.without_empty(lines), json=False, empty="")
        typer.echo(telling.outcome(measured, found))


def _print_tree(found: "Advice") -> None:
    from rich.console import Console

    from fedperf_client.advice.telling import COLOURS
    from fedperf_client.operator_tree import operator_tree

    tree, depth = operator_tree(found.choice.plan, COLOURS)
    Console(width=max(Console().width, 4 * depth + 80)).print(tree)
