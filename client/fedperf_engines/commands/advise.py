"""`fedperf advise`: where a job should run, why, and on request a verification by running it.

Without --execute it causes no traffic and runs nothing but the count of a program's rows.
"""

import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from click import UsageError

from fedperf_client.commands.predict import note_without_executions, open_predictor
from fedperf_client.commands.program import Json, NamedPlace, SourceParameter, home_of, now
from fedperf_client.commands.queries import DatabaseOption, read_query, require_sql_options
from fedperf_client.formatting.facts import show_table, values_of, without_empty
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE, show

if TYPE_CHECKING:
    from fedperf_client.home.config import Home
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving.predictor_cache import CachedPredictor
    from fedperf_client.prediction.serving.sql_query import SqlQuery
    from fedperf_engines.advice.advice import Advice, MeasuredChoice
    from fedperf_engines.advice.constraints import PlanConstraints
    from fedperf_engines.advice.job import Job
    from fedperf_engines.optimizer.additive_surrogate import AdditiveSurrogate
    from fedperf_engines.platforms.program import Program
    from fedperf_engines.trials.profiler import Profiler, Trial
    from fedperf_shared.workflow.vocabulary import Platform


_TRIAL_SECONDS = 600.0
_MEMORY_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class _AdviceOptions:
    """The parsed options."""

    cores: Sequence[int] | None
    nodes: Sequence[int] | None
    deadline_seconds: float | None
    platforms: str | None
    pins: Sequence[str]
    memory: Sequence[str]
    warm: str | None


def _refuse_method(method: str | None) -> None:
    """Refuse the removed option --method."""
    if method is not None:
        raise UsageError("--method was removed: leave it out, plans are always searched exactly")


def advise(
    context: typer.Context,
    source: Annotated[
        NamedPlace | None,
        typer.Argument(
            click_type=SourceParameter(),
            help="Workflow as for predict (platforms may be left out), a program, Spark logs, or "
            "with --database a SELECT in a file that ends with .sql.",
        ),
    ] = None,
    database: DatabaseOption = None,
    execution: Annotated[
        str | None, typer.Option(help="Id of a stored execution, or its beginning.")
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
    by: Annotated[
        str | None, typer.Option(help="The same as a time of day, begun now; like 06:00.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="For Spark logs: TOML with your prices of an hour.")
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="For Spark logs: applications, costliest first.")
    ] = 5,
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
    method: Annotated[str | None, typer.Option(hidden=True, callback=_refuse_method)] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Run a program's choice and its rivals, store them.")
    ] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each, with --execute.")] = 3,
    plot: Annotated[Path | None, typer.Option(help="Draw a .png or .html file.")] = None,
    json: Json = False,
) -> None:
    """Advise where a job should run: a platform for every operator, and the size of the cluster.

    With --deadline the size meets it with a probability of 90 % at the fewest
    core-seconds (cores x time). Exit 7: no size does, and the most probable is shown. Without,
    it is the fastest, or of those at most 10 % slower the one with the fewest core-seconds.
    Times include starting platforms that are not --warm.

    For Spark logs (a file or a directory, which are ingested) it advises how many executors the
    costliest applications should have, each alone, as --conf lines: those that keep the deadline
    at the lowest cost by --prices or in core-seconds, and whether an engine on this machine
    would do. --memory is then that of an executor, refused where what was measured does not fit.
    """
    from fedperf_client.charts.kit import require_chart_file
    from fedperf_client.commands.advise_logs import advise_on_logs, is_spark_log, refuse_for_logs
    from fedperf_client.home.config import write_private
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving.what_if import parse_cores
    from fedperf_engines.advice.presentation import draw_advice, explain

    if (source is None) == (execution is None):
        raise typer.BadParameter("name a file or --execution, one of them")
    seconds, home = _deadline_seconds(deadline, by), home_of(context)
    if source is not None and is_spark_log(source):
        from fedperf_engines.platforms.engine import could_run

        refuse_for_logs(
            {
                "--database": database,
                "--data": data,
                "--cores": cores,
                "--nodes": nodes,
                "--platforms": platforms,
                "--pin": pin,
                "--warm": warm,
                "--execute": execute,
                "--plot": plot,
            }
        )
        advise_on_logs(
            home,
            source,
            deadline_seconds=seconds,
            memory_bytes=_executor_memory(memory or ()),
            could_run=could_run,
            prices=prices,
            top=top,
            json=json,
        )
        return
    if prices is not None:
        raise typer.BadParameter("--prices is for Spark logs")
    file = source if isinstance(source, Path) else None
    require_sql_options(file, database, of_workflow={"--data": data, "--execute": execute})
    options = _AdviceOptions(
        None if cores is None else parse_cores(cores),
        None if nodes is None else parse_cores(nodes, option="--nodes"),
        seconds,
        platforms,
        pin or (),
        memory or (),
        warm,
    )
    if plot is not None:
        require_chart_file(plot)
    with ExitStack() as stack:
        opened = ExecutionStore.open if execute else ExecutionStore.open_to_read
        store = stack.enter_context(opened(home.store))
        with open_predictor(home, store, json=json) as cache:
            sql = read_query(store, file, database)
            job, profiler = _job(
                stack, store, cache, file if sql is None else sql, execution=execution, data=data
            )
            if execute:
                _require_runnable(job, options)
            surrogate = _surrogate(home, store, json=json)
            advice, milliseconds = _search(job, options, cache, surrogate)
            support = cache.predictor.pool.summary.support
            reasons = explain(advice, support, all_platforms=platforms is None)
            cache.save(write_private)
        note_without_executions(cache)
        if not json:
            _show(advice, reasons, milliseconds, sql)
        if plot is not None:
            draw_advice(plot, advice)
            if not json:
                typer.echo(f"picture: {plot}")
        runs = _runs(advice, profiler, store, repeats, options) if execute else None
    _show_results(advice, reasons, milliseconds, runs, sql, json=json)
    if advice.keeps_deadline is False:
        raise typer.Exit(NO_FEASIBLE_SIZE)


def _deadline_seconds(deadline: str | None, by: str | None) -> float | None:
    from fedperf_client.prediction.serving.what_if import parse_duration, seconds_until

    if deadline is not None and by is not None:
        raise typer.BadParameter("--deadline and --by are alternatives, name one of them")
    if by is not None:
        return seconds_until(by, now().astimezone())
    return None if deadline is None else parse_duration(deadline)


def _executor_memory(memory: Sequence[str]) -> int | None:
    from fedperf_engines.advice.constraints import parse_memory
    from fedperf_shared.errors import InvalidInputError

    by_platform, size = parse_memory(memory)
    if by_platform:
        raise InvalidInputError("--memory of an executor is like 8GB, without a platform")
    return None if size is None else round(size)


def _job(
    stack: ExitStack,
    store: "ExecutionStore",
    cache: "CachedPredictor",
    source: "Path | SqlQuery | None",
    *,
    execution: str | None,
    data: Path | None,
) -> "tuple[Job, Profiler | None]":
    """Return the job, and for a program its profiler."""
    from fedperf_client.formatting.workflow_file import read_workflow_file
    from fedperf_client.prediction.serving.sql_query import SqlQuery
    from fedperf_engines.advice.job import Job, NoDataError, read_program
    from fedperf_shared.execution import KnownJob

    if isinstance(source, SqlQuery):
        return _sql_job(source, cache), None
    program = None if source is None else read_program(source)
    if program is not None:
        if data is None:
            raise NoDataError(f"{source} is a program: name its data sets' directory with --data")
        return _program_job(stack, program, data)
    if data is not None:
        raise NoDataError("--data is for programs, which can be run; this is none")
    if source is None:
        own = store.find(str(execution))
        peak = 0 if own.measurement is None else own.measurement.peak_memory_bytes
        return Job(own.plan, own.cluster, peak_bytes=peak, local_job=KnownJob.of(own)), None
    parsed = read_workflow_file(source, otherwise="unassigned")
    return Job(parsed.plan, parsed.cluster_or(cache.typical_cluster(parsed.plan))), None


def _sql_job(sql: "SqlQuery", cache: "CachedPredictor") -> "Job":
    """Return the job of a query on the present tables."""
    from fedperf_client.prediction.serving.reconfiguration import scale_input
    from fedperf_engines.advice.job import Job

    query = sql.query
    peak = 0
    if query.own is not None and query.own.measurement is not None:
        peak = query.own.measurement.peak_memory_bytes
    plans = [scale_input(query.plan, each).plan for each in sql.sizes(())]
    cluster = query.cluster_or(cache.typical_cluster(query.plan))
    return Job(next(iter(plans), query.plan), cluster, peak_bytes=peak, local_job=query.job)


def _program_job(stack: ExitStack, program: "Program", data: Path) -> "tuple[Job, Profiler]":
    from fedperf_client.workers.machine import (
        available_memory_bytes,
        cluster_config,
        usable_cores,
    )
    from fedperf_engines.advice.job import Job, require_data
    from fedperf_engines.trials.profiler import Profiler, TrialLimits, WorkerPool
    from fedperf_shared.workflow.graph import Plan
    from fedperf_shared.workflow.vocabulary import Platform

    require_data(program, data)
    profiler = Profiler(
        stack.enter_context(WorkerPool()),
        data_directory=data,
        limits=TrialLimits(_TRIAL_SECONDS, int(available_memory_bytes() * _MEMORY_SHARE)),
        clock=now,
        new_id=lambda: uuid.uuid4().hex,
    )
    workflow = profiler.workflow(program)
    today = Plan.on_one_platform(workflow, Platform.UNASSIGNED)
    return Job(today, cluster_config(usable_cores()), program), profiler


def _require_runnable(job: "Job", options: _AdviceOptions) -> None:
    """Refuse to execute what cannot be, before anything is searched."""
    from fedperf_engines.advice.job import NotRunnableError

    if job.program is None:
        raise NotRunnableError("--execute needs a program and --data; this is only a workflow")
    if max(options.nodes or [1]) > 1:
        raise NotRunnableError("--execute runs on this machine alone, leave out --nodes")
    most, here = max(options.cores or [1]), job.cluster.cores
    if most > here:
        raise NotRunnableError(
            f"--execute runs on this machine, which has {here} cores, not {most}"
        )


def _constraints(
    job: "Job", cache: "CachedPredictor", options: _AdviceOptions
) -> "PlanConstraints":
    from fedperf_engines.advice import constraints

    pins = constraints.parse_pins(options.pins, job.workflow)
    named = None if options.platforms is None else constraints.parse_platforms(options.platforms)
    elsewhere = job.program is None
    platforms = {*job.today.platforms, *cache.predictor.pool.summary.support.platforms}
    named = named or constraints.platforms_without_rows(job.local_job, job.today, pins.values())
    caps, others = constraints.parse_memory(options.memory)
    constraints.require_measured(caps, others, job.today, job.peak_bytes)
    return constraints.PlanConstraints(
        constraints.candidate_platforms(named, pins.values(), platforms if elsewhere else ()),
        pins,
        caps,
        others,
        frozenset(constraints.parse_platforms(options.warm) if options.warm else ()),
    )


def _surrogate(home: "Home", store: "ExecutionStore", *, json: bool) -> "AdditiveSurrogate":
    from fedperf_client.prediction.fetched_models import FetchedModels
    from fedperf_engines.optimizer.surrogate_store import OWN_WORKFLOWS, load_or_distill_surrogate

    with progress_bar("distilling additive costs from the new model", json=json) as advance:
        newest = (each for _ in (0,) for each in store.newest(10 * OWN_WORKFLOWS))
        return load_or_distill_surrogate(FetchedModels(home.models), newest, on_progress=advance)


def _search(
    job: "Job", options: _AdviceOptions, cache: "CachedPredictor", surrogate: "AdditiveSurrogate"
) -> "tuple[Advice, float]":
    """Return the advice and the milliseconds of the search, for which predictors are weighed."""
    from fedperf_client.prediction.serving.reconfiguration import sizes_of
    from fedperf_engines.advice.advice import advise as advise_on
    from fedperf_shared.execution import PlanOnCluster

    clusters = () if job.program is not None else cache.clusters_of(job.today)
    sizes = sizes_of(job.cluster, options.cores, options.nodes, clusters)
    constraints = _constraints(job, cache, options)
    cache.predictor.predict([job.query(PlanOnCluster(job.on(each).today, each)) for each in sizes])
    estimates = cache.predictor.predict_across_platforms
    begun = time.perf_counter()
    advice = advise_on(
        job, sizes, constraints, estimates, surrogate, deadline_seconds=options.deadline_seconds
    )
    return advice, 1000 * (time.perf_counter() - begun)


def _runs(
    advice: "Advice",
    profiler: "Profiler | None",
    store: "ExecutionStore",
    repeats: int,
    options: _AdviceOptions,
) -> "list[MeasuredChoice]":
    """Run the choice and its alternatives, interleaved, and store the executions."""
    from fedperf_engines.advice.advice import measure_plans, runnable_alternatives
    from fedperf_engines.workloads.families import workload_name

    program = advice.job.program
    if profiler is None or program is None:
        return []
    cluster, workload = advice.best.cluster, workload_name(program)

    def run(platforms: "tuple[Platform, ...]") -> "Trial":
        trial = profiler.trial(program, platforms, threads=cluster.cores)
        ended = profiler.execution(advice.job.workflow, trial, cluster, workload=workload)
        store.add([ended])
        return trial

    rivals = runnable_alternatives(advice, all_of_them=options.platforms is not None)
    with progress_bar("running plans interleaved") as advance:
        return measure_plans(run, [advice.choice, *rivals], repeats=repeats, on_progress=advance)


def _show(
    advice: "Advice", reasons: Sequence[str], milliseconds: float, sql: "SqlQuery | None"
) -> None:
    from rich.console import Console

    from fedperf_client.formatting.operator_tree import operator_tree
    from fedperf_engines.advice import presentation

    typer.echo(presentation.headline(advice))
    typer.echo(presentation.evidence_sentence(advice))
    sentences = (
        presentation.deadline_sentence,
        presentation.no_difference,
        presentation.no_better_size,
    )
    for sentence in (sentence_of(advice) for sentence_of in sentences):
        if sentence is not None:
            typer.echo(sentence)
    tree, depth = operator_tree(advice.choice.plan, presentation.TERMINAL_COLOURS)
    Console(width=max(Console().width, 4 * depth + 80)).print(tree)
    for reason in reasons:
        typer.echo(f"- {reason}")
    for rows in (presentation.plan_rows(advice), presentation.size_rows(advice)):
        show_table(without_empty(rows), json=False)
    if legend := presentation.legend(advice):
        typer.echo(legend)
    for cluster, why in advice.too_small:
        typer.echo(f"{presentation.size_label(cluster)} left out: {why}")
    typer.echo(presentation.search_text(advice, milliseconds))
    if sql is not None:
        typer.echo(sql.sentence)


def _show_results(
    advice: "Advice",
    reasons: Sequence[str],
    milliseconds: float,
    runs: "Sequence[MeasuredChoice] | None",
    sql: "SqlQuery | None",
    *,
    json: bool,
) -> None:
    from fedperf_engines.advice import presentation

    rows = [] if runs is None else presentation.measured_rows(runs, advice)
    if json:
        facts = presentation.advice_facts(advice, reasons)
        facts |= {} if sql is None else values_of(sql.facts)
        facts["search_milliseconds"] = milliseconds
        if runs is not None:
            facts["measured"] = [values_of(each) for each in rows]
        show(facts, json=True)
    elif runs is not None:
        show_table(without_empty(rows), json=False)
        typer.echo(presentation.outcome(runs, advice))
