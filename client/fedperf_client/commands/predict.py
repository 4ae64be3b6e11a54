"""The commands of `fedperf` that predict and explain predictions; they cause no traffic.

All of them read the home directory alone. What took long is kept there for the next command.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.home_option import Json, now
from fedperf_client.commands.home_option import home_of as _home
from fedperf_client.commands.views.campaign_answers import show_campaign
from fedperf_client.commands.views.gain_figures import show_curve, show_held_out, ways_told
from fedperf_client.text.progress import progress_bar
from fedperf_shared.programs.command_line import NO_ANSWER, show_rows

if TYPE_CHECKING:
    from fedperf_client.drift.streams import StreamDrift
    from fedperf_client.home.config import Home
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.answers.predictor_cache import KeptPredictor
    from fedperf_client.prediction.answers.time_scope import TimeScope
    from fedperf_client.prediction.answers.what_if import WhatIfAnswer
    from fedperf_shared.execution import ClusterConfig, Execution
    from fedperf_shared.workflow.graph import Plan


def predict(
    context: typer.Context,
    workflow: Annotated[
        Path | None, typer.Argument(help="Workflow as JSON; docs/data-engineer.md shows the form.")
    ] = None,
    execution: Annotated[
        str | None,
        typer.Option(help="Id of an own execution, or its beginning."),
    ] = None,
    cores: Annotated[str | None, typer.Option(help="Over all nodes, like 8,16,32.")] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Like 1,2,4; each with its memory, and its cores.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="Like 30ms, 90s, 20m or 1.5h.")] = None,
    platform: Annotated[
        str | None, typer.Option(help="For the whole workflow, like duckdb.")
    ] = None,
    campaign: Annotated[
        str | None,
        typer.Option(help="Campaign that was profiled: its file, or its name in this home."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--set", help="Columns of the campaign, like rows=3200000,workers=1,2,4."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a .png or .html file.")] = None,
    json: Json = False,
) -> None:
    """Predict how long a workflow takes, how sure that is, and whether a deadline will hold.

    With --campaign it is a job that was profiled, at any values of its columns. P50 is the
    median, P90 what nine of ten executions stay below. A question outside of what was seen is
    marked as extrapolating, and its interval is wider. Exit code 7: nothing that was asked
    about keeps the deadline.
    """
    from fedperf_client.drift.streams import recent_drift
    from fedperf_client.home.config import write_private
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.pictures.charts import draw_prediction, require_chart_file
    from fedperf_client.prediction.answers.time_scope import time_scope
    from fedperf_client.prediction.answers.what_if import answers, parse_cores, parse_duration

    if [workflow, execution, campaign].count(None) != 2:  # noqa: PLR2004 (of three)
        raise typer.BadParameter("name a workflow file, --execution or --campaign, one of them")
    home = _home(context)
    if campaign is not None:
        if (cores, nodes, platform, plot) != (None, None, None, None):
            raise typer.BadParameter("--campaign goes with --set, --deadline and --json alone")
        show_campaign(home, campaign, columns or [], deadline, json=json)
        return
    if columns:
        raise typer.BadParameter("--set names columns of a --campaign")
    numbers = None if cores is None else parse_cores(cores)
    node_numbers = None if nodes is None else parse_cores(nodes, "--nodes")
    seconds = None if deadline is None else parse_duration(deadline)
    if plot is not None:
        require_chart_file(plot)
    with ExecutionStore.open_to_read(home.store) as store:
        _require_no_campaign(home, workflow)
        plan, cluster_or, own = _asked(store, workflow, execution, platform)
        with opened_kept(home, store, json=json) as kept:
            cluster = cluster_or(kept.usual_for(plan))
            is_as_it_ran = own is not None and platform is None
            sizes = _sizes(plan, cluster, numbers, node_numbers, kept, is_as_it_ran=is_as_it_ran)
            found = answers(
                kept.predictor,
                plan,
                cluster,
                sizes,
                deadline_seconds=seconds,
            )
            kept.keep(write_private)
        say_if_nothing_is_known(kept)
        if plot is not None:
            draw_prediction(plot, found, _points(store, plan, own), deadline_seconds=seconds)
    drift = recent_drift(kept.predictor.candidates.drifts, plan, now=now())
    of_nodes = node_numbers is not None and (numbers is None or len(numbers) == 1)
    scope = time_scope(plan, own)
    _show_answers(
        found,
        seconds,
        drift,
        scope=scope,
        has_estimates=plan.workflow.rows_are_estimates,
        of_nodes=of_nodes,
        json=json,
    )
    if plot is not None and not json:
        typer.echo(f"picture: {plot}")
    if seconds is not None and not any(each.holds for each in found):
        raise typer.Exit(NO_ANSWER)


def models(context: typer.Context, json: Json = False) -> None:
    """Show who was mixed for each kind of question, with weights, errors, and why.

    The error is the factor by which a member was typically off, either way, on own executions
    in folds that mimic the question: 1.10x stands for ten percent. Weights follow from errors.
    """
    from fedperf_client.home.config import write_private
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.answers.explanation import (
        in_short,
        lines_of,
        rows_of,
        rules_of,
    )

    home = _home(context)
    with (
        ExecutionStore.open_to_read(home.store) as store,
        opened_kept(home, store, json=json) as kept,
    ):
        kept.predictor.outcome()  # for questions inside, asked or not
        kept.keep(write_private)
    say_if_nothing_is_known(kept)
    outcomes = kept.predictor.outcomes.values()
    show_rows(rows_of(outcomes) if json else lines_of(outcomes), json=json, empty="")
    if json:
        return
    for each in (*rules_of(outcomes), in_short(outcomes)):
        if each is not None:
            typer.echo(each)


def gain(
    context: typer.Context,
    held_out: Annotated[
        Path | None, typer.Option(help="History file of executions that are in no store.")
    ] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw a .png or .html file.")] = None,
    json: Json = False,
) -> None:
    """Compare predictions with and without joining: median q-errors, 1.10 is ten percent off.

    By default on own workloads, each asked about as if it had never run, over the number of
    own executions that are known. With --held-out on the executions of a history file, whose
    workloads must never have run here: what own executions and models say of jobs of others.
    """
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.pictures.charts import draw_gain, require_chart_file
    from fedperf_client.prediction.answers.home_columns import columns_at_home, history_at_home
    from fedperf_client.prediction.base_models import FetchedModels
    from fedperf_client.prediction.evaluation.gain import gain_on
    from fedperf_client.prediction.evaluation.gain_curve import gain_curve
    from fedperf_client.prediction.learnt_part import learnt_part
    from fedperf_client.sources.history_file import executions_of

    if chart is not None and held_out is not None:
        raise typer.BadParameter("--chart is about own workloads, without --held-out")
    home = _home(context)
    if chart is not None:
        require_chart_file(chart)
    models = FetchedModels(home.models)
    has_joined = models.newest is not None
    asked = None if held_out is None else list(executions_of(held_out))
    with ExecutionStore.open_to_read(home.store) as store:
        own = columns_at_home(store)
        own = own.take(own.is_ok)
        if asked is not None:
            learnt = history_at_home(store, own.take(learnt_part(own)))
            known = store.workloads()
            found = gain_on(learnt, known, asked, models)
            show_held_out(found, has_joined=has_joined, json=json)
            return
        with progress_bar("judging on own workloads", json=json) as advance:
            points = gain_curve(
                own.workload_index(),
                lambda rows: history_at_home(store, own.take(rows)),
                models,
                on_progress=advance,
            )
    if chart is not None:
        lines = {
            name.replace("_", " "): [each.errors[name] for each in points]
            for name in ways_told(points[0], has_joined=has_joined)
        }
        draw_gain(chart, [each.executions for each in points], lines)
    show_curve(points, has_joined=has_joined, json=json)
    if chart is not None and not json:
        typer.echo(f"drawn into {chart}")


def _require_no_campaign(home: "Home", workflow: Path | None) -> None:
    """Raise where the name of a campaign of this home stands in a workflow's place."""
    from fedperf_client.profiling.campaign.files import journals_of
    from fedperf_shared.errors import InvalidInputError

    name = str(workflow)
    if workflow is not None and not workflow.exists() and journals_of(home.directory, name):
        raise InvalidInputError(
            f"{name} is no workflow file but a campaign of this home; ask about it with: "
            f"fedperf predict --campaign {name} --set COLUMN=VALUE,..."
        )


_ClusterOr = Callable[["ClusterConfig"], "ClusterConfig"]


def _asked(
    store: "ExecutionStore", workflow: Path | None, execution: str | None, platform: str | None
) -> "tuple[Plan, _ClusterOr, Execution | None]":
    """The plan, how its resources follow from the usual ones, and the own execution named."""
    from fedperf_client.text.workflow_file import read_workflow_file
    from fedperf_shared.workflow.graph import Plan
    from fedperf_shared.workflow.vocabulary import platform_of

    if workflow is not None:
        written = read_workflow_file(workflow, platform=platform)
        return written.plan, written.cluster_or, None
    own = store.find(str(execution))
    if platform is None:
        return own.plan, lambda _: own.cluster, own
    moved = Plan.on_one_platform(own.plan.workflow, platform_of(platform))
    return moved, lambda _: own.cluster, own


def _sizes(
    plan: "Plan",
    cluster: "ClusterConfig",
    cores: Sequence[int] | None,
    nodes: Sequence[int] | None,
    kept: "KeptPredictor",
    *,
    is_as_it_ran: bool,
) -> "list[ClusterConfig]":
    """The sizes asked about; of what runs on one node, one node, unless it ran as it is asked."""
    from fedperf_client.prediction.answers.resources import (
        OneNodeError,
        node_of,
        sizes_of,
        uses_one_node,
    )

    seen: Iterable[ClusterConfig] = kept.clusters_of(plan)
    if uses_one_node(plan) and not is_as_it_ran:
        if nodes is not None and max(nodes) > 1:
            raise OneNodeError(plan)
        cluster, seen = node_of(cluster), ()
    return [cluster] if cores is None and nodes is None else sizes_of(cluster, cores, nodes, seen)


@contextmanager
def opened_kept(
    home: "Home", store: "ExecutionStore", *, json: bool = False
) -> "Iterator[KeptPredictor]":
    """What predictions are made from; a bar shows while they are made, if that takes long."""
    with progress_bar("weighing predictors", json=json) as advance:
        from fedperf_client.prediction.answers.predictor_cache import open_kept
        from fedperf_client.prediction.base_models import FetchedModels

        yield open_kept(home.predictor, store, FetchedModels(home.models), on_progress=advance)


def say_if_nothing_is_known(kept: "KeptPredictor") -> None:
    """Tell who has no own executions where they come from."""
    if len(kept.predictor.candidates.known) == 0:
        print(
            "note: no own executions yet, so this is what models of others say; take executions "
            "in with: fedperf ingest FILE, or run some with: fedperf calibrate",
            file=sys.stderr,
        )


def _points(
    store: "ExecutionStore", plan: "Plan", own: "Execution | None"
) -> list[tuple[int, float]]:
    """Cores and seconds of own executions of that workload, at about that size."""
    from fedperf_client.prediction.answers.explanation import same_work

    candidates = store.executions(workload=None if own is None else own.workload)
    return [
        (each.cluster.cores, each.measurement.runtime_seconds)
        for each in candidates
        if each.is_ok and each.measurement is not None and same_work(each.plan, plan)
    ]


def _show_answers(
    found: "Sequence[WhatIfAnswer]",
    deadline: float | None,
    drift: "StreamDrift | None",
    *,
    scope: "TimeScope",
    has_estimates: bool,
    of_nodes: bool,
    json: bool,
) -> None:
    from fedperf_client.prediction.answers.what_if import (
        enough,
        measured_beside,
        no_difference,
        smallest_that_holds,
        verdict,
    )
    from fedperf_shared.programs.command_line import show

    if json:
        facts: dict[str, object] = {"answers": [each.as_row() for each in found]}
        least = enough(found)
        facts["enough_cores"] = None if least is None else least[0].cores
        facts["drift"] = None if drift is None else drift.as_row()
        facts |= {"times_of": scope.times_of, "startup_seconds": scope.startup_seconds}
        facts["rows_are_estimates"] = has_estimates
        if deadline is not None:
            facts |= {"deadline_seconds": deadline, "smallest_cores": smallest_that_holds(found)}
        show(facts, json=True)
        return
    show_rows([each.as_line() for each in found], json=False, empty="")
    typer.echo(scope.sentence)
    if has_estimates:
        typer.echo("rows between operators are estimates, which intervals count in")
    if drift is not None:
        typer.echo(f"note: {drift.stream_name} is {drift.sentence}, which is counted in")
    for words in (measured_beside(found), no_difference(found)):
        if words:
            typer.echo(words)
    if deadline is not None:
        typer.echo(verdict(found, deadline, of_nodes=of_nodes))
