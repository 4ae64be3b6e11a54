"""The commands of `fedperf` that predict and explain predictions; they cause no traffic.

All of them read the home directory alone. What took long is kept there for the next command.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.annexes import CAMPAIGNS, function_of
from fedperf_client.commands.home_option import Json, LocalPath, now
from fedperf_client.commands.home_option import home_of as _home
from fedperf_client.formatting.facts import Fact, show_table, values_of
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.runtime.command_line import NO_ANSWER, show, visible

if TYPE_CHECKING:
    from fedperf_client.drift.streams import StreamDrift
    from fedperf_client.formatting.workflow_file import WrittenWorkflow
    from fedperf_client.home.config import Home
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving.explanation import (
        Disturbance,
        JobChange,
        TimingBreakdown,
    )
    from fedperf_client.prediction.serving.predictor_cache import CachedPredictor
    from fedperf_client.prediction.serving.what_if import ClusterPrediction
    from fedperf_shared.execution import ClusterConfig, Execution, KnownJob
    from fedperf_shared.workflow.graph import Plan


MOST_RUNS = 200
"""Own runs of a job that are looked at for what is known beside their times, the newest ones."""


def predict(
    context: typer.Context,
    workflow: Annotated[
        Path | None,
        typer.Argument(
            click_type=LocalPath(),
            help="Workflow as JSON, in the format of `fedperf runs show ID --json`; - for standard "
            "input. The id of a stored run is accepted too.",
        ),
    ] = None,
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
        typer.Option(help="Profiled campaign: its file, or its name in the data directory."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            help="Input size, such as rows=2x, rows=5e6 or bytes=10GB; with --campaign column "
            "values, such as rows=3.2M,workers=1,2,4."
        ),
    ] = None,
    columns: Annotated[list[str] | None, typer.Option("--set", hidden=True)] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a .png or .html file.")] = None,
    json: Json = False,
) -> None:
    """Predict the run time of a workflow with an interval, and the probability of a deadline.

    With --at the same work has more or less data. With --campaign a profiled job has other values
    of its columns. P50 is the median; nine of ten executions stay below P90. A query outside the
    training support is marked as extrapolating and gets a wider interval. Exit code 7: no size
    meets the deadline, or too little is known to promise one.
    """
    from fedperf_client.charts.charts import draw_prediction, require_chart_file
    from fedperf_client.drift.streams import recent_drift
    from fedperf_client.home.config import write_private
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving import what_if
    from fedperf_client.prediction.serving.explanation import (
        Disturbance,
        JobChange,
        same_work,
        time_scope,
    )
    from fedperf_client.prediction.serving.reconfiguration import sizes_asked
    from fedperf_shared.execution import KnownJob, PlanOnCluster

    if [workflow, execution, campaign].count(None) != 2:  # noqa: PLR2004 (of three)
        raise typer.BadParameter("name a workflow file, --execution or --campaign, one of them")
    home, asked_at = _home(context), [*(at or ()), *(columns or ())]
    if campaign is not None:
        if (cores, nodes, platform, plot) != (None, None, None, None):
            raise typer.BadParameter("--campaign goes with --at, --deadline and --json alone")
        answer = function_of(CAMPAIGNS, "answer")
        answer(home, campaign, asked_at, deadline, json=json)
        return
    inputs = sizes_asked(asked_at)
    numbers = None if cores is None else what_if.parse_cores(cores)
    node_numbers = None if nodes is None else what_if.parse_cores(nodes, "--nodes")
    seconds = None if deadline is None else what_if.parse_duration(deadline)
    if plot is not None:
        require_chart_file(plot)
        if len(inputs) > 1:
            raise typer.BadParameter("--plot draws one size of the input")
    with ExecutionStore.open_to_read(home.store) as store:
        _require_no_campaign(home, workflow)
        plan, cluster_or, own, job = _asked(store, workflow, execution, platform)
        runs = _runs_like(store, own, plan)
        load = Disturbance.of([each for each in runs if same_work(each.plan, plan)])
        with opened_kept(home, store, json=json) as kept:
            cluster = cluster_or(kept.typical_cluster(plan))
            is_as_it_ran = own is not None and platform is None
            job = job if job is None or platform is None else job.elsewhere()
            sizes = _sizes(plan, cluster, numbers, node_numbers, kept, is_as_it_ran=is_as_it_ran)
            found = (
                what_if.grown_answers(
                    kept.predictor,
                    plan,
                    cluster,
                    sizes,
                    inputs,
                    job=job,
                    ran=[
                        PlanOnCluster(each.plan, each.cluster, KnownJob.of(each)) for each in runs
                    ],
                    load=load.half_width,
                    deadline_seconds=seconds,
                )
                if inputs
                else what_if.answers(
                    kept.predictor,
                    plan,
                    cluster,
                    sizes,
                    job=job,
                    load=load.half_width,
                    deadline_seconds=seconds,
                )
            )
            kept.keep(write_private)
        say_if_nothing_is_known(kept)
        if plot is not None:
            draw_prediction(plot, found, _points(runs, plan), deadline_seconds=seconds)
        change = None if own is None else kept.change_of(own.workload)
        since = [] if change is None else store.numbered([change.first])
    show_plan_answers(
        found,
        AnswerNotes(
            scope=time_scope(plan, own),
            drift=recent_drift(kept.predictor.pool.summary.drifts, plan, now=now()),
            change=None if change is None else JobChange(change, since[0].origin.source),
            load=load,
            has_estimates=plan.workflow.rows_are_estimates,
        ),
        seconds,
        of_nodes=node_numbers is not None and (numbers is None or len(numbers) == 1),
        json=json,
    )
    if plot is not None and not json:
        typer.echo(f"picture: {plot}")
    if seconds is not None and not any(each.holds for each in found):
        raise typer.Exit(NO_ANSWER)


def weights(context: typer.Context, json: Json = False) -> None:
    """Show the ensemble of each query regime: its members, their weights and errors.

    The error is the factor by which a member was typically off, either way, in query-matched
    cross-validation on stored runs: 1.10x is ten percent. Weights follow from errors.
    """
    from fedperf_client.home.config import write_private
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving.explanation import (
        in_short,
        member_facts,
        names_of,
        rules_of,
    )

    home = _home(context)
    with (
        ExecutionStore.open_to_read(home.store) as store,
        opened_kept(home, store, json=json) as kept,
    ):
        mixes = kept.predictor.by_engines()
        for mix in mixes.values():
            mix.weights_for()  # for questions inside, asked or not
        kept.keep(write_private)
    say_if_nothing_is_known(kept)
    outcomes = [each for mix in mixes.values() for each in mix.weights_by_split.values()]
    rows = [
        [Fact("engines", names_of(kin), "engines"), *facts]
        for kin, mix in mixes.items()
        for facts in member_facts(mix.weights_by_split.values())
    ]
    show_table(rows, json=json)
    if json:
        return
    for each in (*rules_of(outcomes), in_short(outcomes)):
        if each is not None:
            typer.echo(each)


def _require_no_campaign(home: "Home", workflow: Path | None) -> None:
    """Raise where the name of a campaign of this home stands in a workflow's place."""
    from fedperf_shared.errors import InvalidInputError

    if workflow is None or workflow.exists() or not (home.directory / "campaigns").is_dir():
        return
    name = str(workflow)
    if function_of(CAMPAIGNS, "is_profiled")(home, name):
        raise InvalidInputError(
            f"{name} is no workflow file but a campaign of this home; ask about it with: "
            f"fedperf predict --campaign {name} --at COLUMN=VALUE,..."
        )


_ClusterOr = Callable[["ClusterConfig"], "ClusterConfig"]


def _asked(
    store: "ExecutionStore", workflow: Path | None, execution: str | None, platform: str | None
) -> "tuple[Plan, _ClusterOr, Execution | None, KnownJob | None]":
    """The plan, how its resources follow from the usual ones, the own execution, and its job."""
    from fedperf_client.formatting.workflow_file import (
        STANDARD_INPUT,
        InvalidWorkflowFileError,
        read_workflow_file,
    )
    from fedperf_client.home.selection import UnknownExecutionError
    from fedperf_shared.execution import KnownJob
    from fedperf_shared.workflow.graph import Plan
    from fedperf_shared.workflow.vocabulary import platform_of

    if workflow is not None and (workflow == STANDARD_INPUT or workflow.exists()):
        written = read_workflow_file(workflow, platform=platform)
        found = _stored(store, written, platform)
        job = written.job if found is None else KnownJob.of(found)
        return written.plan, written.cluster_or, found, job
    try:
        own = store.find(str(workflow if execution is None else execution))
    except UnknownExecutionError as error:
        if workflow is None:
            raise
        raise InvalidWorkflowFileError(
            f"{workflow} does not exist: it is neither a file nor how the id of an own execution "
            "begins; fedperf runs lists those"
        ) from error
    plan = own.plan
    if platform is not None:
        plan = Plan.on_one_platform(plan.workflow, platform_of(platform))
    return plan, lambda _: own.cluster, own, KnownJob.of(own)


def _stored(
    store: "ExecutionStore", written: "WrittenWorkflow", platform: str | None
) -> "Execution | None":
    """The execution that a file shows; None where it is not stored, or its plan is another now."""
    from fedperf_client.home.selection import UnknownExecutionError

    if not written.execution_id:
        return None
    try:
        own = store.find(written.execution_id)
    except UnknownExecutionError:
        return None
    is_same = own.plan == written.plan if platform is None else True
    return own if is_same and own.plan.workflow == written.plan.workflow else None


def _runs_like(store: "ExecutionStore", own: "Execution | None", plan: "Plan") -> "list[Execution]":
    """The newest own runs of that job that ended well, of the plan's shape, at any size."""
    from fedperf_client.home.selection import Selection
    from fedperf_client.prediction.serving.explanation import same_shape
    from fedperf_shared.execution import ExecutionStatus

    if own is None:
        return []
    chosen = Selection(workload=own.workload, status=ExecutionStatus.OK)
    return [each for each in store.newest(MOST_RUNS, chosen) if same_shape(each.plan, plan)]


def _sizes(
    plan: "Plan",
    cluster: "ClusterConfig",
    cores: Sequence[int] | None,
    nodes: Sequence[int] | None,
    kept: "CachedPredictor",
    *,
    is_as_it_ran: bool,
) -> "list[ClusterConfig]":
    """The sizes asked about; of what runs on one node, one node, unless it ran as it is asked."""
    from fedperf_client.prediction.serving.reconfiguration import (
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
) -> "Iterator[CachedPredictor]":
    """What predictions are made from; a bar shows while they are made, if that takes long."""
    with progress_bar("weighing predictors", json=json) as advance:
        from fedperf_client.prediction.fetched_models import FetchedModels
        from fedperf_client.prediction.serving.predictor_cache import load_or_fit

        yield load_or_fit(home.predictor, store, FetchedModels(home.models), on_progress=advance)


def say_if_nothing_is_known(kept: "CachedPredictor") -> None:
    """Tell who has no own executions where they come from."""
    pool = kept.predictor.pool
    if len(pool.training) == len(pool.summary.isolated) == 0:
        print(
            "note: no own executions yet, so this is what models of others say; take executions "
            "in with: fedperf ingest FILE, or run some with: fedperf calibrate",
            file=sys.stderr,
        )


def _points(runs: "Sequence[Execution]", plan: "Plan") -> list[tuple[int, float]]:
    """Cores and seconds of own executions, at about that size."""
    from fedperf_client.prediction.serving.explanation import same_work

    return [
        (each.cluster.cores, each.measurement.runtime_seconds)
        for each in runs
        if each.measurement is not None and same_work(each.plan, plan)
    ]


@dataclass(frozen=True, slots=True)
class AnswerNotes:
    """What is to be known beside the times.

    Attributes:
        scope: what they hold.
        drift: a recent one of such work.
        change: of the job's own times.
        load: of others, while its runs were made.
        has_estimates: whether rows between operators are estimates.
    """

    scope: "TimingBreakdown"
    drift: "StreamDrift | None"
    change: "JobChange | None"
    load: "Disturbance"
    has_estimates: bool


def show_plan_answers(
    found: "Sequence[ClusterPrediction]",
    notes: AnswerNotes,
    deadline: float | None,
    *,
    of_nodes: bool,
    json: bool,
) -> None:
    """Show at least one answer; `of_nodes` where nodes were asked about, and no cores."""
    from fedperf_client.prediction.serving import what_if
    from fedperf_client.prediction.serving.reconfiguration import ASSUMPTION

    if json:
        show(_facts(found, notes, deadline), json=True)
        return
    show_table([each.facts for each in found], json=False)
    typer.echo(notes.scope.sentence)
    if notes.has_estimates:
        typer.echo("rows between operators are estimates, which intervals count in")
    if any(each.grown is not None and each.grown.factor != 1 for each in found):
        typer.echo(f"assumed: {ASSUMPTION}")
    if notes.drift is not None:
        drift = notes.drift
        typer.echo(f"note: {drift.stream_name} is {drift.sentence}, which is counted in")
    if notes.change is not None:
        typer.echo(f"note: {visible(notes.change.sentence)}")
    if notes.load.sentence:
        typer.echo(f"note: {notes.load.sentence}")
    if beside := what_if.p90_discontinuity_note(found):
        typer.echo(beside)
    parts = what_if.by_input(found)
    for part in parts:
        before = f"{part[0].grown.words}: " if len(parts) > 1 and part[0].grown else ""
        said = [what_if.no_difference(part)]
        if deadline is not None:
            said.append(what_if.verdict(part, deadline, of_nodes=of_nodes))
        for words in filter(None, said):
            typer.echo(before + words)
    for reason in dict.fromkeys(each.no_promise for each in found if each.no_promise):
        typer.echo(f"no promise: {reason}")


def _facts(
    found: "Sequence[ClusterPrediction]", notes: AnswerNotes, deadline: float | None
) -> dict[str, object]:
    from fedperf_client.prediction.serving.reconfiguration import ASSUMPTION
    from fedperf_client.prediction.serving.what_if import (
        by_input,
        enough,
        smallest_meeting_deadline,
    )

    least = enough(by_input(found)[0])
    facts: dict[str, object] = {
        "predictions": [values_of(each.facts) for each in found],
        "smallest_equivalent_cores": None if least is None else least[0].cores,
        "drift": None if notes.drift is None else notes.drift.as_row(),
        "change": None if notes.change is None else notes.change.as_row(),
        "load": notes.load.as_row(),
        "timing_scope": notes.scope.times_of,
        "startup_seconds": notes.scope.startup_seconds,
        "rows_are_estimates": notes.has_estimates,
    }
    if any(each.grown is not None for each in found):
        facts["assumed"] = ASSUMPTION
    if deadline is not None:
        facts |= {"deadline_seconds": deadline, "smallest_cores": smallest_meeting_deadline(found)}
    return facts
