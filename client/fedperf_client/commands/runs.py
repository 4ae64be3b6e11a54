"""`fedperf runs`: what is in the local store, as a list, one by one, and as a file; and forgotten.

What is exported is as it was measured, names included: nothing of it is private in any way. Names
of workloads, applications and sources come from logs of others: they are data, printed so that they
command neither terminal nor markup, and cut where they are long.
"""

from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.home_option import Json, home_of
from fedperf_client.formatting.facts import Fact, show_table, texts_of, values_of
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.runtime.command_line import (
    ProgramCommands,
    TimestampParameter,
    output_width,
    shortened,
    show,
    show_rows,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedperf_client.home.store import Selection
    from fedperf_shared.execution import Execution


class ExecutionStatusName(StrEnum):
    """How an execution ended, in the words of the command line."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"


class PlatformName(StrEnum):
    """Where an operator ran, in the words of the command line."""

    DUCKDB = "duckdb"
    POLARS = "polars"
    PANDAS = "pandas"
    SKLEARN = "sklearn"
    SPARK = "spark"
    FLINK = "flink"
    OTHER = "other"


Workload = Annotated[
    str | None,
    typer.Option(
        help="Only those of this workload, or of all with it in their names, such as a beginning.",
    ),
]
Search = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Only those that have it in id, workload, application, its id, record, description, "
        "file, failure or source.",
    ),
]
Status = Annotated[ExecutionStatusName | None, typer.Option(help="Only those that ended so.")]
OnPlatform = Annotated[
    PlatformName | None, typer.Option("--platform", help="Only those with an operator there.")
]
Since = Annotated[
    datetime | None,
    typer.Option(
        click_type=TimestampParameter(),
        metavar="TIME",
        help="Only those that finished at that time or later (UTC): 2026-03-01, 2026-03-01T06:00.",
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option(
        click_type=TimestampParameter(),
        metavar="TIME",
        help="Only those that finished before that time (UTC).",
    ),
]


def selection_of(
    workload: str | None,
    search: str | None,
    *,
    status: ExecutionStatusName | None,
    platform: PlatformName | None,
    since: datetime | None,
    until: datetime | None,
) -> "Selection":
    """What the options choose.

    Raises:
        InvalidInputError: nothing can finish in the time that they name.
    """
    from fedperf_client.home.store import Selection
    from fedperf_shared.execution import ExecutionStatus
    from fedperf_shared.workflow.vocabulary import Platform

    if since is not None and until is not None and since >= until:
        raise InvalidInputError(
            f"nothing finishes at {since:%Y-%m-%dT%H:%M} or later and before "
            f"{until:%Y-%m-%dT%H:%M}: --since must come before --until"
        )
    return Selection(
        workload=workload,
        text=search,
        status=None if status is None else ExecutionStatus[status.name],
        platform=None if platform is None else Platform[platform.name],
        since=since,
        until=until,
    )


ONLY_WHERE_TOLD = ("record", "description", "failure", "remarks")
"""Columns of the list that are shown where any execution has something there."""

SPARE = ("ops", "rows known", "source", "remarks")
"""Columns that a narrow terminal leaves out; `runs show` has them."""

_WIDEST = 10_000
"""Characters, at which no tree of operators is folded."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

app = typer.Typer(cls=ProgramCommands, add_completion=False)


@app.callback(invoke_without_command=True)
def runs(
    context: typer.Context,
    workload: Workload = None,
    search: Search = None,
    status: Status = None,
    platform: OnPlatform = None,
    since: Since = None,
    until: Until = None,
    last: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = 20,
    json: Json = False,
) -> None:
    """List the executions that are stored here; `runs show ID` shows one of them."""
    from fedperf_client.home.store import ExecutionStore

    if context.invoked_subcommand is not None:
        return
    chosen = selection_of(
        workload, search, status=status, platform=platform, since=since, until=until
    )
    with ExecutionStore.open_to_read(home_of(context).store) as store:
        found, count = store.newest(last, chosen), store.count(chosen)
        if json:
            show_table([facts_of(each) for each in found], json=True)
            return
        lines = [line_of(each, store.short_id(each.execution_id)) for each in found]
    told = {name for line in lines for name in line if line[name] or name not in ONLY_WHERE_TOLD}
    named = "" if workload is None else f" of a workload with {visible(repr(workload))} in its name"
    with_text = "" if search is None else f" with {visible(repr(search))}"
    show_rows(
        [{name: line[name] for name in line if name in told} for line in lines],
        json=False,
        empty=f"no such execution{named}{with_text}; take some in with: fedperf ingest FILE",
        spare=SPARE,
    )
    if lines:
        more = f"; --last {count} shows all" if len(lines) < count else ""
        typer.echo(f"{len(lines)} of {count} shown, what finished last first{more}")


@app.command("show")
def show_one(
    context: typer.Context,
    execution: Annotated[str, typer.Argument(help="Its id, or how that begins.", metavar="ID")],
    json: Json = False,
) -> None:
    """Show one execution: what is known of it, and its operators from the result down."""
    from rich.console import Console

    from fedperf_client.formatting.operator_tree import operator_tree
    from fedperf_client.home.store import ExecutionStore

    with ExecutionStore.open_to_read(home_of(context).store) as store:
        found = store.find(execution)
    if json:
        show({**values_of(facts_of(found)), **plan_of(found)}, json=True)
        return
    known = [each for each in facts_of(found) if each.value not in (None, "", [])]
    show(texts_of(known), json=False)
    if found.origin.operator_seconds:
        typer.echo("times of operators: summed over tasks or threads, waiting for inputs included")
    tree, depth = operator_tree(found.plan, seconds=found.origin.operator_seconds)
    width = Console(width=output_width()).width
    if Console(width=_WIDEST).measure(tree).maximum > width:
        times = found.origin.operator_seconds
        tree, depth = operator_tree(found.plan, seconds=times, is_flat=True)
        typer.echo("an operator reads the one below it, or those that branch off below it")
    Console(width=max(width, 4 * depth + LONGEST_NAME)).print(tree)


@app.command("delete")
def delete(
    context: typer.Context,
    executions: Annotated[
        list[str] | None, typer.Argument(help="Ids, or how they begin.", metavar="[ID]...")
    ] = None,
    workload: Workload = None,
    search: Search = None,
    status: Status = None,
    platform: OnPlatform = None,
    since: Since = None,
    until: Until = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete what the options choose; else it is counted.")
    ] = False,
    json: Json = False,
) -> None:
    """Forget executions, by their ids or by what they have in common.

    What was released before stays released and charged. A log that is taken in again brings
    its executions back.
    """
    from fedperf_client.home.store import EVERYTHING, ExecutionStore

    chosen = selection_of(
        workload, search, status=status, platform=platform, since=since, until=until
    )
    if bool(executions) == (chosen != EVERYTHING):
        raise InvalidInputError(
            "name the executions by their ids, or choose them with an option such as --workload"
        )
    home = home_of(context)
    with ExecutionStore.open(home.store) as store:
        ids = [store.find(each).execution_id for each in executions or ()] or store.ids(chosen)
        is_meant = yes or bool(executions)
        deleted = store.delete(ids) if is_meant else 0
    if deleted:  # what predictions were made from is made anew without them
        home.predictor.unlink(missing_ok=True)
    show({"chosen": len(set(ids)), "deleted": deleted}, json=json)
    if ids and not is_meant and not json:
        typer.echo("nothing was deleted; the same with --yes deletes them")


@app.command("export")
def export(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="A history (.parquet), which ingest reads, or a table (.csv).")
    ],
    workload: Workload = None,
    search: Search = None,
    status: Status = None,
    platform: OnPlatform = None,
    since: Since = None,
    until: Until = None,
    json: Json = False,
) -> None:
    """Write executions to a file as they are, names included; one that is there is replaced.

    A history holds everything and can be taken in elsewhere; a table holds no operators.
    """
    from fedperf_client.home.store import ExecutionStore

    chosen = selection_of(
        workload, search, status=status, platform=platform, since=since, until=until
    )
    if file.suffix not in (".parquet", ".csv"):
        raise InvalidInputError(f"{file}: name a file that ends in .parquet or .csv")
    with ExecutionStore.open_to_read(home_of(context).store) as store:
        ids = store.ids(chosen)
        _write(file, ids, (store.find(each) for each in ids))
    show({"written": len(ids), "file": file}, json=json)


def _write(file: Path, ids: "Sequence[str]", executions: "Iterator[Execution]") -> None:
    import csv

    if file.suffix == ".parquet":
        from fedperf_client.sources.history_file import write_history

        write_history(file, executions)
        return
    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            for position, each in enumerate(executions):
                facts = values_of(facts_of(each)) | {"remarks": " ".join(each.origin.remarks)}
                if position == 0:
                    writer.writerow(facts)
                writer.writerow(map(_cell, facts.values()))
    except OSError as error:
        raise StorageError(f"cannot write {file}: {error.strerror}") from error


def _cell(value: object) -> object:
    """A value of a table: a text of others must not be a formula to who opens the table."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


LONGEST_NAME = 40

LONGEST_NAME_ALONE = 400


def facts_of(execution: "Execution") -> list[Fact]:
    """Everything about an execution but its operators; None where unknown."""
    measured, cluster, origin = execution.measurement, execution.cluster, execution.origin

    def name(key: str, value: str) -> Fact:
        return Fact(key, value, key, shortened(value, LONGEST_NAME_ALONE))

    return [
        Fact("id", execution.execution_id, "id"),
        name("workload", execution.workload),
        name("application", origin.application),
        name("application_id", origin.application_id),
        name("record", origin.record),
        name("description", origin.description),
        name("file", origin.file),
        name("finished_at", execution.finished_at.isoformat(timespec="seconds")),
        name("status", execution.status.name.lower()),
        name("failure", origin.failure),
        Fact("runtime_seconds", measured and measured.runtime_seconds, "runtime"),
        Fact("startup_seconds", measured and (measured.startup_seconds or None), "startup"),
        Fact("cpu_seconds", measured and measured.cpu_seconds, "cpu"),
        Fact("peak_memory_bytes", measured and (measured.peak_memory_bytes or None), "peak memory"),
        Fact("read_bytes", measured and measured.read_bytes, "read"),
        Fact("written_bytes", measured and measured.written_bytes, "written"),
        Fact("nodes", cluster.nodes, "nodes"),
        Fact("cores", cluster.cores, "cores"),
        Fact("memory_bytes", cluster.memory_bytes, "memory"),
        Fact("queries_before", cluster.queries_before, "queries before"),
        Fact("operators", len(execution.plan.workflow.operators), "operators"),
        Fact("rows_known", origin.rows_known, "rows known", f"{origin.rows_known:.0%}"),
        name("source", origin.source),
        name("node_type", origin.node_type),
        name("architecture", origin.architecture),
        Fact("remarks", list(origin.remarks), "remarks", _remarks(execution)),
    ]


def line_of(execution: "Execution", short_id: str) -> dict[str, object]:
    """A row of a table for people."""
    from fedperf_client.formatting.durations import duration_text

    measured, origin = execution.measurement, execution.origin
    return {
        "id": short_id,
        "workload": shortened(execution.workload, LONGEST_NAME),
        "record": shortened(origin.record, LONGEST_NAME),
        "description": shortened(origin.description, LONGEST_NAME),
        "finished": f"{execution.finished_at:%Y-%m-%d %H:%M}",
        "status": execution.status.name.lower(),
        "time": None if measured is None else duration_text(measured.runtime_seconds),
        "cores": execution.cluster.cores,
        "ops": len(execution.plan.workflow.operators),
        "rows known": f"{origin.rows_known:.0%}",
        "source": shortened(origin.source, LONGEST_NAME),
        "failure": shortened(origin.failure, LONGEST_NAME),
        "remarks": _remarks(execution),
    }


def plan_of(execution: "Execution") -> dict[str, object]:
    """The plan, for programs; `fedperf predict` reads it with the facts as a workflow.

    `seconds` of an operator are sums over its tasks or threads.
    """
    plan = execution.plan
    operators = plan.workflow.operators
    seconds = execution.origin.operator_seconds or (None,) * len(operators)
    return {
        "machine_speed": execution.cluster.machine_speed,
        "sources": asdict(plan.workflow.sources),
        "plan": [
            {
                "operator": position,
                "kind": operator.kind.name.lower(),
                "class": operator.operator_class.name.lower(),
                "platform": plan.platforms[position].name.lower(),
                "inputs": list(operator.inputs),
                "output_rows": operator.output_rows,
                "row_bytes": operator.row_bytes,
                "output_bytes": operator.output_bytes,
                "partitions": operator.partitions,
                "complexity": operator.complexity.name.lower(),
                "code_steps": operator.code_steps,
                "iterations": operator.iterations,
                "key_distinct_ratio": operator.key_distinct_ratio,
                "seconds": seconds[position],
            }
            for position, operator in enumerate(operators)
        ],
    }


def _remarks(execution: "Execution") -> str:
    return ", ".join(each.replace("_", " ") for each in execution.origin.remarks)
