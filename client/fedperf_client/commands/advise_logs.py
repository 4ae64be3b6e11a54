"""`fedperf advise LOGS`: how many executors applications should have, as `--conf` lines.

The logs are stored first, because predictions use the runs in the store. Storing them twice has no
effect.
"""

from collections.abc import Mapping
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
from fedperf_client.formatting.facts import Fact, for_people, show_facts, show_table, values_of
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
from fedperf_shared.runtime.addresses import Address
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE, shortened, show
from fedperf_shared.runtime.quantities import counted, duration_text

LONGEST_NAME = 80
_BATCH = 100


def is_spark_log(source: Path | Address) -> bool:
    """Return whether a file is an event log. Any directory or address may contain some."""
    if isinstance(source, Address):
        return True
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
    source: Path | Address,
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
                    local_cluster=cluster_config(usable_cores()),
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
        for position, each in enumerate(advice):
            typer.echo("\n" if position else "", nl=False)
            _show(each, price_list)
    if deadline_seconds is not None and not any(each.meets_deadline for each in advice):
        raise typer.Exit(NO_FEASIBLE_SIZE)


def _read_applications(
    source: Path | Address, store: ExecutionStore, *, json: bool
) -> list[SparkApplication]:
    applications, problems = [], list[str]()
    with progress_bar("reading logs", json=json) as advance:
        for _, log in event_logs_in([source], problems, [], advance):
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


def _show(advice: ExecutorAdvice, prices: PriceList | None) -> None:
    settings = advice.application.settings
    show_facts(advice_facts(advice, prices), json=False)
    for option in advice.conf:
        typer.echo(f"  {option}")
    if settings.is_databricks:
        typer.echo("On Databricks, an executor is a worker: set its number of workers.")
    if settings.has_dynamic_executors:
        typer.echo("Costs assume executors from beginning to end; dynamic ones may cost less.")
    show_table(size_rows(advice, prices), json=False)


def advice_facts(advice: ExecutorAdvice, prices: PriceList | None) -> list[Fact]:
    """Return the advice with its reasons."""
    application, rival = advice.application, advice.rival
    best, current = advice.best, advice.current

    def row(runtime: ApplicationRuntime) -> dict[str, object]:
        return values_of(_size_facts(advice, runtime, prices))

    def text(runtime: ApplicationRuntime) -> str:
        cost = _cost_text(advice, runtime, prices)
        return f"{_size_text(advice, runtime)}: {_time_text(runtime)}, {cost}"

    parallelism = duration_text(application.low_parallelism_seconds)
    if best.cluster.cores > current.cluster.cores:
        parallelism += ", which more cores shorten only with more partitions"
    engine, engine_text = _engine(advice)
    keep = "keep " if best is current else ""
    return [
        Fact(
            "application",
            application.name,
            "application",
            shortened(application.name, LONGEST_NAME),
        ),
        Fact("runs", application.runs, "runs in the logs"),
        Fact("core_seconds_of_runs", application.used_core_seconds),
        Fact("queries", len(application.queries), "queries"),
        Fact("wall_seconds", application.wall_seconds, "run time"),
        Fact(
            "non_query_seconds",
            application.non_query_seconds,
            "outside of queries" if application.non_query_seconds else None,
        ),
        Fact(
            "spilled_bytes",
            application.spilled_bytes,
            "spilled to disk (see fedperf diagnose)" if application.spilled_bytes else None,
        ),
        Fact(
            "low_parallelism_seconds",
            application.low_parallelism_seconds,
            "stages with idle cores" if application.low_parallelism_seconds else None,
            parallelism,
        ),
        Fact("executor_cores", application.executor_cores),
        Fact("executor_memory_bytes", advice.memory_bytes),
        Fact("current", row(current), "current", text(current)),
        Fact("choice", row(best), "recommended", f"{keep}{text(best)}"),
        Fact(
            "no_difference_to",
            None if rival is None else row(rival),
            "not distinguishable",
            "" if rival is None else f"{text(rival)}, {_rival_text(rival, current)}",
        ),
        Fact("deadline_seconds", advice.deadline_seconds, "deadline"),
        Fact("meets_deadline", advice.meets_deadline, "meets the deadline", _deadline_text(advice)),
        Fact("probability", advice.probability),
        Fact("conf", list(advice.conf)),
        Fact("sizes", [row(each) for each in advice.runtimes]),
        Fact("local_engine", engine, "queries on this machine", engine_text),
    ]


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


def _rival_text(rival: ApplicationRuntime, current: ApplicationRuntime) -> str:
    is_cheaper = rival.cost < current.cost
    compare = rival.probability_cheaper if is_cheaper else rival.probability_faster
    better = "cheaper" if is_cheaper else "faster"
    return f"{better} with a probability of only {format_probability(compare(current))}"


def _deadline_text(advice: ExecutorAdvice) -> str:
    if advice.deadline_seconds is None or advice.probability is None:
        return ""
    probability = f"with a probability of {format_probability(advice.probability)}"
    if advice.meets_deadline:
        return f"yes, {probability}"
    if advice.application.non_query_seconds >= advice.deadline_seconds:
        return "no, the time outside of queries alone is longer"
    if not advice.probability:
        return "no compared size does"
    return f"no compared size does with a probability of 90%; the recommended one {probability}"


def _engine(advice: ExecutorAdvice) -> tuple[dict[str, object] | None, str]:
    """Return the comparison of the queries with an engine on this machine, and its text."""
    other = better_engine(advice)
    if other is None:
        return None, ""
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
    values = {
        "engine": engine.name.lower(),
        "p50_seconds": runtime.median_seconds,
        "p90_seconds": runtime.p90_seconds,
        "chance_faster": probability,
        "extrapolating": runtime.extrapolating,
    }
    return values, (
        f"{engine.name.lower()} on {counted(runtime.cluster.cores, 'core')}: "
        f"{_time_text(runtime)} instead of {_time_text(advice.current_queries)}, {conclusion}"
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
