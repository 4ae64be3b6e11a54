"""`fedperf advise LOGS`: how many executors applications should have, as `--conf` lines.

The logs are taken into the store first, which is harmless twice: answers rest on what ran here.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import typer

from fedperf_client.advice import executor_texts
from fedperf_client.advice.executor_sizes import CouldRun, ExecutorAdvice, executor_advice
from fedperf_client.advice.spark_application import (
    ApplicationRecord,
    SparkApplication,
    newest_of_each,
)
from fedperf_client.commands.predict import opened_kept
from fedperf_client.diagnosis.job_facts import JobFacts, event_logs_in, jobs_of
from fedperf_client.formatting.facts import show_table
from fedperf_client.formatting.progress import progress_bar
from fedperf_client.home.config import Home, write_private
from fedperf_client.home.node_prices import PriceList, load_prices
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.spark.event_log import EventLog, open_event_log
from fedperf_client.workers.machine import cluster_config, usable_cores
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, Execution
from fedperf_shared.runtime.command_line import NO_ANSWER, show

_BATCH = 100


def is_spark_log(source: Path) -> bool:
    """Whether a file is an event log; a directory may hold some."""
    return source.is_dir() or (source.is_file() and open_event_log(source) is not None)


def refuse_for_logs(options: Mapping[str, object]) -> None:
    """Say which of the options that were given, by name, have no meaning for logs.

    Raises:
        BadParameter: any was given.
    """
    given = [name for name, value in options.items() if value]
    if given:
        raise typer.BadParameter(f"{', '.join(given)}: not for Spark logs, which get executors")


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
    """Show the right number of executors of the costliest applications; see the module.

    Raises:
        Exit: with 7 where no application keeps the deadline.
    """
    priced = None if prices is None else load_prices(prices)
    with ExecutionStore.open(home.store) as store:
        every = newest_of_each(_applications(source, store, json=json))
        applications = every[:top]
        with opened_kept(home, store, json=json) as kept:
            found = [
                executor_advice(
                    each,
                    kept.predictor.predict_across_platforms,
                    partial(_cost, each, priced),
                    deadline_seconds=deadline_seconds,
                    memory_bytes=memory_bytes,
                    is_cost_first=priced is not None,
                    home=_this_machine(),
                    could_run=could_run,
                )
                for each in applications
            ]
            kept.keep(write_private)
    if json:
        from fedperf_client.advice.executor_texts import facts_of

        show({"applications": [facts_of(each, priced) for each in found]}, json=True)
    else:
        if len(every) > 1:
            typer.echo(
                f"{len(found)} of {len(every)} applications, in the order of the core-hours in "
                "which their queries ran, over all runs that were read"
            )
        for each in found:
            _show(each, priced)
    if deadline_seconds is not None and not any(each.keeps_deadline for each in found):
        raise typer.Exit(NO_ANSWER)


def _applications(source: Path, store: ExecutionStore, *, json: bool) -> list[SparkApplication]:
    logs, problems, _ = event_logs_in([source])
    found = []
    with progress_bar("reading logs", json=json) as advance:
        for done, (_, log) in enumerate(logs):
            advance(done, len(logs))
            application = _application(log, store)
            if application is not None:
                found.append(application)
    if not found:
        told = "; ".join(problems) or "no Spark log with a query that ended well"
        raise InvalidInputError(f"{source}: {told}")
    return found


def _application(log: EventLog, store: ExecutionStore) -> SparkApplication | None:
    """That of a log, whose executions are stored."""
    record, batch = ApplicationRecord(), list[Execution]()
    for job in jobs_of(log):
        if isinstance(job, JobFacts):
            record.add_job(job)
    for found in log.read():
        if isinstance(found, SkippedRecord):
            continue
        record.add_query(found)
        batch.append(found)
        if len(batch) >= _BATCH:
            store.add(batch)
            batch.clear()
    store.add(batch)
    return record.finished()


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


def _this_machine() -> ClusterConfig:
    return cluster_config(usable_cores())


def _show(found: ExecutorAdvice, prices: PriceList | None) -> None:
    for line in executor_texts.lines_of(found, prices):
        typer.echo(line)
    show_table(executor_texts.size_rows(found, prices), json=False)
