"""`fedperf evaluate`: errors of predictions with and without joining, on held-out runs."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import Json, home_of
from fedperf_client.formatting.facts import Fact, show_table, texts_of, values_of
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.runtime.command_line import show

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedperf_client.prediction.joining_gain import GainPoint

_ERRORS = "median q-errors, 1.10 is ten percent off"


def evaluate(
    context: typer.Context,
    held_out: Annotated[
        Path | None, typer.Option(help="History file of executions that are in no store.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a chart into a .svg, .png or .html file.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare predictions with and without joining by median q-error; 1.10 is ten percent off.

    By default on own workloads, each predicted as if it had never run, over the number of own
    executions in the training data. With --held-out on the executions of a history file, whose
    workloads must never have run here.
    """
    from fedperf_client.charts.charts import draw_gain
    from fedperf_client.charts.kit import require_chart_file
    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.encoding import History, load_encoded_executions, numbered
    from fedperf_client.prediction.ensemble.training_data import training_sample
    from fedperf_client.prediction.fetched_models import FetchedModels
    from fedperf_client.prediction.joining_gain import gain_curve, gain_on
    from fedperf_client.sources.history_file import executions_of

    if plot is not None and held_out is not None:
        raise typer.BadParameter("--plot is about own workloads, without --held-out")
    home = home_of(context)
    if plot is not None:
        require_chart_file(plot)
    models = FetchedModels(home.models)
    others = None if held_out is None else list(executions_of(held_out))
    with ExecutionStore.open_to_read(home.store) as store:
        own = load_encoded_executions(store)
        own = own.take(own.is_ok & own.is_example)

        def history_of(rows: "NDArray[np.int64]") -> History:
            return History.from_executions(store.numbered(own.number[rows].tolist()))

        if others is not None:
            points = [gain_on(history_of(training_sample(own)), store.workloads(), others, models)]
        else:
            with progress_bar("evaluating on own workloads", json=json) as advance:
                points = gain_curve(
                    numbered(own.workload),
                    history_of,
                    models,
                    on_progress=advance,
                )
    rows = [_facts(each, has_joined=models.newest is not None) for each in points]
    if plot is not None:
        visible_names = texts_of(rows[0])
        lines = {
            way.replace("_", " "): [each.errors[way] for each in points]
            for way in points[0].errors
            if way in visible_names
        }
        draw_gain(plot, [each.executions for each in points], lines)
    if json and others is not None:
        show(values_of(rows[0]), json=True)
        return
    show_table(rows, json=json)
    if json:
        return
    whose = "held-out own workloads" if others is None else "workloads of others"
    typer.echo(f"{_ERRORS}, on executions of {whose}")
    if models.newest is None:
        typer.echo(
            "not joined: no model was fetched from a coordinator; fedperf simulate estimates the "
            "gain from joining"
        )
    if plot is not None:
        typer.echo(f"drawn into {plot}")


def _facts(point: "GainPoint", *, has_joined: bool) -> list[Fact]:
    """Return a row of the table; values that need a joined organization are null before."""
    from fedperf_client.prediction.joining_gain import AS_IS, PERSONALIZED

    unknown = [] if has_joined else [AS_IS]
    if not has_joined and point.coverage is None:
        unknown.append(PERSONALIZED)
    facts = [
        Fact("own", point.executions, "own executions known"),
        Fact("asked", point.predictions, "executions predicted"),
    ]
    for name, error in point.errors.items():
        value = None if math.isnan(error) else round(error, 4)
        facts.append(Fact(name) if name in unknown else Fact(name, value, name))
    if point.coverage is not None:
        share = f"{point.coverage:.0%}"
        facts.append(Fact("coverage", round(point.coverage, 4), "in the 90% interval", share))
    return facts
