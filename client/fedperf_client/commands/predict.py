"""The commands of `fedperf` that predict and explain predictions, without network traffic.

They read the data directory alone and cache fitted predictors there for the next command.
"""

import math
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import CAMPAIGNS, Json, LocalPath, load_function, now
from fedperf_client.commands.program import home_of as _home
from fedperf_client.commands.queries import (
    DatabaseOption,
    is_several,
    problems_of,
    read_queries,
    read_query,
    require_sql_options,
)
from fedperf_client.formatting.facts import Fact, show_table, values_of
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE, show, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedperf_client.home.config import Home
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving.explanation import Disturbance
    from fedperf_client.prediction.serving.predictor_cache import CachedPredictor
    from fedperf_client.prediction.serving.reconfiguration import InputSize
    from fedperf_client.prediction.serving.sql_query import SqlQuery
    from fedperf_client.prediction.serving.what_if import ClusterPrediction, PlanQuery


def predict(
    context: typer.Context,
    workflow: Annotated[
        Path | None,
        typer.Argument(
            click_type=LocalPath(),
            help="Workflow as JSON, in the format of `fedperf runs show ID --json`; - for standard "
            "input. The id of a stored run and the name of a job are accepted too, and with "
            "--database SQL: a file, a directory, or a dbt project.",
        ),
    ] = None,
    database: DatabaseOption = None,
    execution: Annotated[
        str | None,
        typer.Option(help="Id of a stored run, or its beginning."),
    ] = None,
    cores: Annotated[
        str | None, typer.Option(help="Total cores to evaluate, such as 8,16,32.")
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            help="Node counts to evaluate, such as 1,2,4; each node adds its memory and cores."
        ),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="Deadline, such as 30ms, 90s, 20m or 1.5h.")
    ] = None,
    platform: Annotated[
        str | None, typer.Option(help="Platform for the whole workflow, such as duckdb.")
    ] = None,
    campaign: Annotated[
        str | None,
        typer.Option(help="Profiled campaign, by its file or its name, as JOB."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            help="Input size, such as rows=2x, rows=5e6 or bytes=10GB; of a job column values, "
            "such as rows=3.2M,workers=1,2,4."
        ),
    ] = None,
    columns: Annotated[list[str] | None, typer.Option("--set", hidden=True)] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a .png or .html file.")] = None,
    cheapest: Annotated[
        bool, typer.Option("--cheapest", help="Of a job: name the cheapest values of the query.")
    ] = False,
    prices: Annotated[
        Path | None,
        typer.Option(
            click_type=LocalPath(), help="Prices of machines, for --cheapest; as for advise."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Predict the run time of a workflow or a job with an interval, and if it meets a deadline.

    With --at the same work has more or less data. A job of a table or a campaign is predicted
    at values of its columns, as in fedperf predict JOB --at rows=5e6,workers=16; fedperf jobs lists
    them. With --database queries are explained by DuckDB and never run; their rows are those of
    earlier runs of the same text on the same tables, where there are any. P50 is the median; nine
    of ten executions stay below P90. A query outside the training support is marked as
    extrapolating and gets a wider interval. Exit code 7: no size meets the deadline, or too little
    is known to promise one.
    """
    from fedperf_client.charts.charts import draw_prediction
    from fedperf_client.charts.kit import require_chart_file
    from fedperf_client.home.config import write_private
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving.explanation import PredictionNotes
    from fedperf_client.prediction.serving.reconfiguration import parse_input_sizes
    from fedperf_client.prediction.serving.what_if import PlanQuery, parse_cores, parse_duration

    if [workflow, execution, campaign].count(None) != 2:  # noqa: PLR2004 (of three)
        raise typer.BadParameter("name a workflow file, a job, --execution or --campaign: one")
    home, settings = _home(context), [*(at or ()), *(columns or ())]
    job = campaign if campaign is not None else _job_named(home, workflow)
    if job is not None:
        _require_none(
            cores, nodes, platform, database, "a job is predicted at --at cores=8, ... alone"
        )
        load_function(CAMPAIGNS, "answer")(
            home,
            job,
            settings,
            columns or (),
            deadline=deadline,
            plot=plot,
            cheapest=cheapest,
            prices=prices,
            json=json,
        )
        return
    _require_none(cheapest or None, prices, "--cheapest and --prices go with the name of a job")
    inputs = parse_input_sizes(settings)
    of_one = {"--cores": cores, "--nodes": nodes, "--plot": plot}
    require_sql_options(workflow, database, of_workflow={"--platform": platform}, of_one=of_one)
    core_counts = None if cores is None else parse_cores(cores)
    node_counts = None if nodes is None else parse_cores(nodes, "--nodes")
    seconds = None if deadline is None else parse_duration(deadline)
    if plot is not None:
        require_chart_file(plot)
        if len(inputs) > 1:
            raise typer.BadParameter("--plot draws one size of the input")
    if workflow is not None and is_several(workflow):
        _predict_queries(home, workflow, database, inputs, seconds, json=json)
        return
    with ExecutionStore.open_to_read(home.store) as store:
        sql = read_query(store, workflow, database)
        query = sql.query if sql else PlanQuery.read(store, workflow, execution, platform)
        with open_predictor(home, store, json=json) as cached:
            predictions, load = _predictions(
                cached, query, sql, core_counts, node_counts, inputs=inputs, seconds=seconds
            )
            cached.save(write_private)
        note_without_executions(cached)
        if plot is not None:
            points = [
                (each.cluster.cores, each.measurement.runtime_seconds)
                for each in query.same_size_runs
                if each.measurement is not None
            ]
            draw_prediction(
                plot,
                [(each.cores, each.estimate) for each in predictions],
                points,
                deadline_seconds=seconds,
            )
        notes = PredictionNotes.of(query, cached, store, load=load, now=now())
    if json:
        facts = values_of(sql.facts) if sql else {}
        show({**notes.values(predictions, seconds), **facts}, json=True)
    else:
        of_nodes = node_counts is not None and (core_counts is None or len(core_counts) == 1)
        show_table([each.facts for each in predictions], json=False)
        lines = notes.lines(predictions, seconds, of_nodes=of_nodes)
        lines += [sql.sentence] if sql else []
        for line in lines + ([f"picture: {plot}"] if plot else []):
            typer.echo(visible(line))
    if seconds is not None and not any(each.meets_deadline for each in predictions):
        raise typer.Exit(NO_FEASIBLE_SIZE)


def _predictions(
    cached: "CachedPredictor",
    query: "PlanQuery",
    sql: "SqlQuery | None",
    cores: "Sequence[int] | None" = None,
    nodes: "Sequence[int] | None" = None,
    *,
    inputs: "Sequence[InputSize]",
    seconds: float | None,
) -> "tuple[list[ClusterPrediction], Disturbance]":
    """Predict a query at all sizes; return the interference during its runs as well."""
    from fedperf_client.prediction.serving.explanation import Disturbance
    from fedperf_client.prediction.serving.what_if import predict_plan
    from fedperf_shared.execution import KnownJob, PlanOnCluster

    load = Disturbance.of(query.same_size_runs)
    cluster = query.cluster_or(cached.typical_cluster(query.plan))
    predictions = predict_plan(
        cached.predictor,
        query.plan,
        cluster,
        query.sizes(cluster, cores, nodes, cached.clusters_of(query.plan)),
        inputs=sql.sizes(inputs) if sql else inputs,
        job=query.job,
        runs=[PlanOnCluster(each.plan, each.cluster, KnownJob.of(each)) for each in query.runs],
        load=math.hypot(load.half_width, sql.half_width if sql else 0.0),
        deadline_seconds=seconds,
    )
    return predictions, load


def _predict_queries(
    home: "Home",
    path: Path,
    database: Path | None,
    inputs: "Sequence[InputSize]",
    deadline_seconds: float | None,
    *,
    json: bool,
) -> None:
    """Predict every query of a directory or a dbt project, where it ran or would run.

    Raises:
        InvalidInputError: some cannot be predicted; the others are shown before.
    """
    from fedperf_client.home.config import write_private
    from fedperf_client.home.store import ExecutionStore

    rows: list[list[Fact]] = []
    failed: list[tuple[str, str]] = []
    is_late = False
    with (
        ExecutionStore.open_to_read(home.store) as store,
        read_queries(store, path, database) as queries,
        open_predictor(home, store, json=json) as cached,
    ):
        for name, sql in queries:
            if isinstance(sql, str):
                failed.append((name, sql))
                continue
            predictions, _ = _predictions(
                cached, sql.query, sql, inputs=inputs, seconds=deadline_seconds
            )
            rows += [[Fact("query", name, "query"), *p.facts, *sql.facts] for p in predictions]
            is_late |= any(p.meets_deadline is False for p in predictions)
        cached.save(write_private)
    note_without_executions(cached)
    if rows or not failed:
        show_table(rows, json=json)
    if failed:
        raise problems_of(failed)
    if is_late:
        raise typer.Exit(NO_FEASIBLE_SIZE)


def weights(context: typer.Context, json: Json = False) -> None:
    """Show the ensemble of each query regime: its members, their weights and errors.

    The error is the factor by which a member was typically off, either way, in query-matched
    cross-validation on stored runs: 1.10x is ten percent. Weights follow from errors.
    """
    from fedperf_client.home.config import write_private
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving.explanation import (
        accuracy_sentence,
        engine_names,
        member_facts,
        weighting_rules,
    )

    home = _home(context)
    with (
        ExecutionStore.open_to_read(home.store) as store,
        open_predictor(home, store, json=json) as cached,
    ):
        mixes = cached.predictor.by_engines()
        for mix in mixes.values():
            mix.weights_for()  # for the regime inside of the training support
        cached.save(write_private)
    note_without_executions(cached)
    outcomes = [each for mix in mixes.values() for each in mix.weights_by_split.values()]
    rows = [
        [Fact("engines", engine_names(kin), "engines"), *facts]
        for kin, mix in mixes.items()
        for facts in member_facts(mix.weights_by_split.values())
    ]
    show_table(rows, json=json)
    if json:
        return
    for each in (*weighting_rules(outcomes), accuracy_sentence(outcomes)):
        if each is not None:
            typer.echo(each)


def _require_none(*values: object) -> None:
    """Refuse options, of which any was given, in the words of the last argument."""
    *options, words = values
    if any(each is not None for each in options):
        raise typer.BadParameter(str(words))


def _job_named(home: "Home", workflow: Path | None) -> str | None:
    """Return the name of the job that stands in the place of a workflow file; None if none does."""
    if workflow is None or workflow.exists():
        return None
    name = str(workflow)
    return name if load_function(CAMPAIGNS, "can_answer")(home, name) else None


@contextmanager
def open_predictor(
    home: "Home", store: "ExecutionStore", *, json: bool = False
) -> "Iterator[CachedPredictor]":
    """Open the predictor of this home. A progress bar shows while it is fitted."""
    with progress_bar("weighing predictors", json=json) as advance:
        from fedperf_client.prediction.fetched_models import FetchedModels
        from fedperf_client.prediction.serving.predictor_cache import load_or_fit

        yield load_or_fit(home.predictor, store, FetchedModels(home.models), on_progress=advance)


def note_without_executions(cached: "CachedPredictor") -> None:
    """Note on standard error that no own executions are stored."""
    pool = cached.predictor.pool
    if len(pool.training) == len(pool.summary.isolated.job) == 0:
        print(
            "note: no own executions yet, so predictions are those of models of others; take "
            "executions in with: fedperf ingest FILE, or run some with: fedperf calibrate",
            file=sys.stderr,
        )
