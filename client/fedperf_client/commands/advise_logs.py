"""`fedperf advise LOGS`: how many executors applications should have, as `--conf` lines.

The logs are stored first, because predictions use the runs in the store. Storing them twice has no
effect.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import typer

from fedperf_client.advice.executor_sizes import (
    ApplicationRuntime,
    CouldRun,
    ExecutorAdvice,
    better_engine,
    executor_advice,
    is_better,
)
from fedperf_client.advice.spark_application import (
    ApplicationRecord,
    SparkApplication,
    newest_of_each,
)
from fedperf_client.commands.predict import open_predictor
from fedperf_client.diagnosis.job_facts import JobFacts, event_logs_in, jobs_of
from fedperf_client.formatting.facts import Fact, for_people, show_table, values_of
from fedperf_client.formatting.progress import progress_bar
from fedperf_client.home.config import Home, write_private
from fedperf_client.home.node_prices import PriceList, cost_text, load_prices
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.serving.what_if import format_probability
from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.spark.event_log import EventLog, open_event_log
from fedperf_client.workers.machine import cluster_config, usable_cores
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, Execution
from fedperf_shared.runtime.command_line import NO_ANSWER, shortened, show
from fedperf_shared.runtime.quantities import counted, duration_text, size_text

LONGEST_NAME = 80
_BATCH = 100


def is_spark_log(source: Path) -> bool:
    """Return whether a file is an event log. Any directory may contain some."""
    return source.is_dir() or (source.is_file() and open_event_log(source) is not None)


def refuse_for_logs(options: Mapping[str, object]) -> None:
    """Refuse options, by name, that do not apply to logs.

    Raises:
        BadParameter: any of them is set.
    """
    names = [name for name, value in options.items() if value]
    if names:
        raise typer.BadParameter(
            f"{', '.join(names)}: not for Spark logs, for which advice is a number of executors"
        )


def advise_on_logs(
    home: Home,
    source: Path,
    *,
    deadline_seconds: float | None,
    memory_bytes: int | None,
    could_run: CouldRun,
    prices: Path | None,
    top: int,
    json: bool,
) -> None:
    """Print the recommended number of executors of the most expensive applications.

    Raises:
        Exit: with code 7 if no application meets the deadline.
    """
    price_list = None if prices is None else load_prices(prices)
    with ExecutionStore.open(home.store) as store:
        applications = newest_of_each(_read_applications(source, store, json=json))
        with open_predictor(home, store, json=json) as predictor:
            advice = [
                executor_advice(
                    each,
                    predictor.predictor.predict_across_platforms,
                    partial(_cost, each, price_list),
                    deadline_seconds=deadline_seconds,
                    memory_bytes=memory_bytes,
                    is_cost_first=price_list is not None,
                    local_cluster=_local_cluster(),
                    could_run=could_run,
                )
                for each in applications[:top]
            ]
            predictor.save(write_private)
    if json:
        rows = [values_of(advice_facts(each, price_list)) for each in advice]
        show({"applications": rows}, json=True)
    else:
        if len(applications) > 1:
            typer.echo(
                f"{len(advice)} of {len(applications)} applications, most core-hours in queries "
                "first, over all runs in the logs"
            )
        for each in advice:
            for line in advice_lines(each, price_list):
                typer.echo(line)
            show_table(size_rows(each, price_list), json=False)
    if deadline_seconds is not None and not any(each.meets_deadline for each in advice):
        raise typer.Exit(NO_ANSWER)


def _read_applications(
    source: Path, store: ExecutionStore, *, json: bool
) -> list[SparkApplication]:
    logs, problems, _ = event_logs_in([source])
    applications = []
    with progress_bar("reading logs", json=json) as advance:
        for done, (_, log) in enumerate(logs):
            advance(done, len(logs))
            application = _read_application(log, store)
            if application is not None:
                applications.append(application)
    if not applications:
        reason = "; ".join(problems) or "no Spark log with a successful query"
        raise InvalidInputError(f"{source}: {reason}")
    return applications


def _read_application(log: EventLog, store: ExecutionStore) -> SparkApplication | None:
    """Store the executions of a log and return its application."""
    record, batch = ApplicationRecord(), list[Execution]()
    for job in jobs_of(log):
        if isinstance(job, JobFacts):
            record.add_job(job)
    for execution in log.read():
        if isinstance(execution, SkippedRecord):
            continue
        record.add_query(execution)
        batch.append(execution)
        if len(batch) >= _BATCH:
            store.add(batch)
            batch.clear()
    store.add(batch)
    return record.finish()


def _cost(
    application: SparkApplication,
    prices: PriceList | None,
    cluster: ClusterConfig,
    seconds: float,
) -> float:
    if prices is None:
        return cluster.cores * seconds
    node_type = application.queries[0].origin.node_type
    return prices.cost(cluster, seconds, node_type=node_type)


def _local_cluster() -> ClusterConfig:
    return cluster_config(usable_cores())


def advice_facts(advice: ExecutorAdvice, prices: PriceList | None) -> list[Fact]:
    """Return the advice for JSON."""
    application, other = advice.application, better_engine(advice)

    def row(runtime: ApplicationRuntime) -> dict[str, object]:
        return values_of(_size_facts(advice, runtime, prices))

    engine = None
    if other is not None:
        engine = {
            "engine": other[0].name.lower(),
            "p50_seconds": other[1].median_seconds,
            "p90_seconds": other[1].p90_seconds,
            "chance_faster": other[2],
            "extrapolating": other[1].extrapolating,
        }
    return [
        Fact("application", application.name),
        Fact("runs", application.runs),
        Fact("core_seconds_of_runs", application.used_core_seconds),
        Fact("queries", len(application.queries)),
        Fact("wall_seconds", application.wall_seconds),
        Fact("non_query_seconds", application.non_query_seconds),
        Fact("spilled_bytes", application.spilled_bytes),
        Fact("low_parallelism_seconds", application.low_parallelism_seconds),
        Fact("executor_cores", application.executor_cores),
        Fact("executor_memory_bytes", advice.memory_bytes),
        Fact("deadline_seconds", advice.deadline_seconds),
        Fact("probability", advice.probability),
        Fact("meets_deadline", advice.meets_deadline),
        Fact("conf", list(advice.conf)),
        Fact("choice", row(advice.best)),
        Fact("current", row(advice.current)),
        Fact("no_difference_to", None if advice.rival is None else row(advice.rival)),
        Fact("sizes", [row(each) for each in advice.runtimes]),
        Fact("local_engine", engine),
    ]


def advice_lines(advice: ExecutorAdvice, prices: PriceList | None) -> Iterator[str]:
    """Yield the advice and its reasons for people."""
    application, best, current = advice.application, advice.best, advice.current
    queries = len(application.queries)
    yield (
        f"{shortened(application.name, LONGEST_NAME)}: {queries} "
        f"{'query' if queries == 1 else 'queries'}, {duration_text(application.wall_seconds)} on "
        f"{_size_text(advice, current)}"
        + (f"; the last of {application.runs} runs" if application.runs > 1 else "")
    )
    keep, instead = "keep ", ""
    if best is not current:
        keep, instead = "", f" instead of {_cost_text(advice, current, prices)}"
    yield (
        f"  recommended: {keep}{_size_text(advice, best)}, {_time_text(best)}, "
        f"{_cost_text(advice, best, prices)}{instead}"
    )
    if advice.rival is not None:
        yield f"  {_rival_text(advice, advice.rival, prices)}"
    if advice.deadline_seconds is not None:
        yield f"  deadline {duration_text(advice.deadline_seconds)}: {_deadline_text(advice)}"
    yield from (f"  {each}" for each in advice.conf)
    if application.settings.is_databricks:
        yield "  On Databricks, an executor is a worker: set its number of workers."
    if application.spilled_bytes:
        yield f"  {size_text(application.spilled_bytes)} spilled to disk; see fedperf diagnose"
    if best.cluster.cores > current.cluster.cores and application.low_parallelism_seconds:
        yield (
            f"  {duration_text(application.low_parallelism_seconds)} were stages with no more "
            "tasks than cores; more cores speed them up only with more partitions"
        )
    if application.settings.has_dynamic_executors:
        yield "  Costs assume executors from beginning to end; dynamic allocation may need fewer."
    if application.non_query_seconds:
        yield f"  {duration_text(application.non_query_seconds)} outside of queries, unchanged"
    if (engine := _engine_text(advice)) is not None:
        yield f"  {engine}"


def size_rows(advice: ExecutorAdvice, prices: PriceList | None) -> list[list[Fact]]:
    """Return the facts of every number of executors."""
    return [_size_facts(advice, each, prices) for each in advice.runtimes]


def _size_facts(
    advice: ExecutorAdvice, runtime: ApplicationRuntime, prices: PriceList | None
) -> list[Fact]:
    is_local, deadline = advice.application.settings.is_local, advice.deadline_seconds
    remarks = ["current"] if runtime is advice.current else []
    remarks += ["extrapolating"] * runtime.extrapolating
    cost = None if prices is None else runtime.cost
    facts = [
        for_people("", "->" if runtime is advice.best else " "),
        Fact("executors", runtime.executors, None if is_local else "executors"),
        Fact("cores", runtime.cluster.cores, "cores"),
        Fact("nodes", runtime.cluster.nodes),
        Fact("p50_seconds", runtime.median_seconds, "P50"),
        Fact("p90_seconds", runtime.p90_seconds, "P90"),
        Fact("cost", cost, "cost", _cost_text(advice, runtime, prices)),
        Fact("core_seconds", runtime.cluster.cores * runtime.median_seconds),
        Fact("extrapolating", runtime.extrapolating, "remarks", ", ".join(remarks)),
    ]
    if deadline is not None:
        probability = format_probability(runtime.probability_within(deadline))
        facts.append(for_people("probability", probability))
    return facts


def _rival_text(advice: ExecutorAdvice, rival: ApplicationRuntime, prices: PriceList | None) -> str:
    """Explain why the current size is kept although the median of another one is better."""
    is_cheaper = rival.cost < advice.current.cost
    better = "cheaper" if is_cheaper else "faster"
    compare = rival.probability_cheaper if is_cheaper else rival.probability_faster
    return (
        f"{_size_text(advice, rival)} would be {better} by the median ({_time_text(rival)}, "
        f"{_cost_text(advice, rival, prices)}), but with a probability of only "
        f"{format_probability(compare(advice.current))}: the difference is not distinguishable"
    )


def _deadline_text(advice: ExecutorAdvice) -> str:
    probability = format_probability(advice.probability or 0.0)
    if advice.meets_deadline:
        return f"met with a probability of {probability}"
    if advice.application.non_query_seconds >= (advice.deadline_seconds or 0.0):
        return "no size meets it, as the time outside of queries alone is longer; keep the size"
    if not advice.probability:
        return "no compared size meets it; keep the size"
    return f"no compared size meets it with a probability of 90%; this one has {probability}"


def _engine_text(advice: ExecutorAdvice) -> str | None:
    """Compare the queries with an engine on this machine."""
    other = better_engine(advice)
    if other is None:
        return None
    engine, runtime, probability = other
    if runtime.extrapolating:
        conclusion = (
            "extrapolated, because no similar query ran here on it; measure before you move, and "
            "expect to rewrite your own functions"
        )
    elif is_better(probability):
        conclusion = f"faster with a probability of {format_probability(probability)}"
    elif is_better(1 - probability):
        conclusion = f"slower with a probability of {format_probability(1 - probability)}"
    else:
        conclusion = "not distinguishable, so stay on Spark"
    return (
        f"queries alone: {_time_text(advice.current_queries)}; on {engine.name.lower()} on this "
        f"machine ({counted(runtime.cluster.cores, 'core')}): {_time_text(runtime)}, {conclusion}"
    )


def _cost_text(
    advice: ExecutorAdvice, runtime: ApplicationRuntime, prices: PriceList | None
) -> str:
    return cost_text(runtime.cost, prices, largest=max(each.cost for each in advice.runtimes))


def _size_text(advice: ExecutorAdvice, runtime: ApplicationRuntime) -> str:
    if advice.application.settings.is_local:
        return f"{counted(runtime.cluster.cores, 'core')} of one process"
    executors = counted(runtime.executors, "executor")
    return f"{executors} of {counted(advice.application.executor_cores, 'core')}"


def _time_text(runtime: ApplicationRuntime) -> str:
    return f"{duration_text(runtime.median_seconds)} (P90 {duration_text(runtime.p90_seconds)})"
