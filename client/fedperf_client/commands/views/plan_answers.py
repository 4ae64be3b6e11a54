"""Output of `fedperf predict` about a plan: table, notes and verdict."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from fedperf_shared.programs.command_line import show, show_rows, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedperf_client.drift.streams import StreamDrift
    from fedperf_client.prediction.answers.explanation import Disturbance, JobChange, TimeScope
    from fedperf_client.prediction.answers.what_if import WhatIfAnswer


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

    scope: "TimeScope"
    drift: "StreamDrift | None"
    change: "JobChange | None"
    load: "Disturbance"
    has_estimates: bool


def show_plan_answers(
    found: "Sequence[WhatIfAnswer]",
    notes: AnswerNotes,
    deadline: float | None,
    *,
    of_nodes: bool,
    json: bool,
) -> None:
    """Show at least one answer; `of_nodes` where nodes were asked about, and no cores."""
    from fedperf_client.prediction.answers.reconfiguration import ASSUMPTION
    from fedperf_client.prediction.answers.what_if import (
        by_input,
        measured_beside,
        no_difference,
        verdict,
    )

    if json:
        show(_facts(found, notes, deadline), json=True)
        return
    show_rows([each.as_line() for each in found], json=False, empty="")
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
    if beside := measured_beside(found):
        typer.echo(beside)
    parts = by_input(found)
    for part in parts:
        before = f"{part[0].grown.words}: " if len(parts) > 1 and part[0].grown else ""
        said = [no_difference(part)]
        if deadline is not None:
            said.append(verdict(part, deadline, of_nodes=of_nodes))
        for words in filter(None, said):
            typer.echo(before + words)
    for reason in dict.fromkeys(each.no_promise for each in found if each.no_promise):
        typer.echo(f"no promise: {reason}")


def _facts(
    found: "Sequence[WhatIfAnswer]", notes: AnswerNotes, deadline: float | None
) -> dict[str, object]:
    from fedperf_client.prediction.answers.reconfiguration import ASSUMPTION
    from fedperf_client.prediction.answers.what_if import by_input, enough, smallest_that_holds

    least = enough(by_input(found)[0])
    facts: dict[str, object] = {
        "answers": [each.as_row() for each in found],
        "enough_cores": None if least is None else least[0].cores,
        "drift": None if notes.drift is None else notes.drift.as_row(),
        "change": None if notes.change is None else notes.change.as_row(),
        "load": notes.load.as_row(),
        "times_of": notes.scope.times_of,
        "startup_seconds": notes.scope.startup_seconds,
        "rows_are_estimates": notes.has_estimates,
    }
    if any(each.grown is not None for each in found):
        facts["assumed"] = ASSUMPTION
    if deadline is not None:
        facts |= {"deadline_seconds": deadline, "smallest_cores": smallest_that_holds(found)}
    return facts
