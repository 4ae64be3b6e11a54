"""`fedperf gain`: predictions with and without joining; what only joining brings is null before."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.home_option import Json, home_of
from fedperf_client.text.facts import Fact, show_table
from fedperf_client.text.progress import progress_bar
from fedperf_shared.programs.command_line import show, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedperf_client.prediction.evaluation.gain import Gain, GainPoint

_ERRORS = "median q-errors, 1.10 is ten percent off"
_HEADINGS = {"own": "own executions known", "asked": "executions asked about"}
_NOT_JOINED = (
    "not joined: no model of a coordinator is here; fedperf rehearse shows what joining may bring"
)


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
    from fedperf_client.prediction.evaluation.gain import gain_curve, gain_on
    from fedperf_client.prediction.execution_table import training_sample
    from fedperf_client.sources.history_file import executions_of

    if chart is not None and held_out is not None:
        raise typer.BadParameter("--chart is about own workloads, without --held-out")
    home = home_of(context)
    if chart is not None:
        require_chart_file(chart)
    models = FetchedModels(home.models)
    has_joined = models.newest is not None
    asked = None if held_out is None else list(executions_of(held_out))
    with ExecutionStore.open_to_read(home.store) as store:
        own = columns_at_home(store)
        own = own.take(own.is_ok & own.teaches)
        if asked is not None:
            learnt = history_at_home(store, own.take(training_sample(own)))
            known = store.workloads()
            found = gain_on(learnt, known, asked, models)
            _show_held_out(found, has_joined=has_joined, json=json)
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
            for name in points[0].errors
            if has_joined or name not in _joined()
        }
        draw_gain(chart, [each.executions for each in points], lines)
    _show_curve(points, has_joined=has_joined, json=json)
    if chart is not None and not json:
        typer.echo(f"drawn into {chart}")


def _show_curve(points: "Sequence[GainPoint]", *, has_joined: bool, json: bool) -> None:
    """A row for every number of own executions; the columns of joining are null without it."""
    unknown = () if has_joined else _joined()
    rows = [
        [
            Fact(name) if name in unknown else Fact(name, value, _HEADINGS.get(name, name))
            for name, value in each.as_row().items()
        ]
        for each in points
    ]
    show_table(rows, json=json)
    if json:
        return
    typer.echo(f"{_ERRORS}, on executions of own workloads that were kept away")
    if not has_joined:
        typer.echo(_NOT_JOINED)


def _show_held_out(found: "Gain", *, has_joined: bool, json: bool) -> None:
    """The errors on executions of others; that of the shared model is null before joining."""
    row = found.as_row()
    if not has_joined:
        row["shared"] = None
    if json:
        show(row, json=True)
        return
    ways = {
        "own executions alone": "local",
        "the start that ships, as it is": "base",
        "the shared model, as it is": "shared",
        "all of these, as fedperf predict": "personalized",
    }
    lines = [
        {"predicts from": way, "median q-error": row[name]}
        for way, name in ways.items()
        if row[name] is not None
    ]
    show_rows(lines, json=False, empty="")
    typer.echo(
        f"{_ERRORS}, on {found.held_out} executions of workloads that never ran here, knowing "
        f"{found.executions} own ones; {found.coverage:.0%} of them lay in the 90% intervals of "
        "fedperf predict"
    )
    if not has_joined:
        typer.echo(_NOT_JOINED)


def _joined() -> tuple[str, ...]:
    """Ways to predict that there are after joining alone."""
    from fedperf_client.prediction.evaluation.gain import AS_IS, PERSONALIZED

    return AS_IS, PERSONALIZED
