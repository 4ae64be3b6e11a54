"""`fedperf runs`: list, show, delete and export the stored runs.

Exported runs are complete, names included; nothing in them is private in any way. Names of
workloads, applications and sources come from logs of others, so they are escaped before they are
printed, and cut if long.
"""

import inspect
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from enum import IntEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedperf_client.commands.program import Json, home_of
from fedperf_client.formatting.facts import (
    Fact,
    show_facts,
    show_table,
    texts_of,
    values_of,
    without_empty,
)
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
    from fedperf_shared.execution import Execution, JobColumn

StatusName = Literal["ok", "failed", "timeout", "out_of_memory"]
PlatformName = Literal["duckdb", "polars", "pandas", "sklearn", "spark", "flink", "other"]

# Facts in the list of runs, with their headings there.
COLUMNS = {
    "id": "id",
    "workload": "workload",
    "record": "record",
    "description": "description",
    "finished_at": "finished",
    "status": "status",
    "runtime_seconds": "time",
    "cores": "cores",
    "operators": "ops",
    "rows_known": "rows known",
    "source": "source",
    "failure": "failure",
    "remarks": "remarks",
}

SPARE = ("ops", "rows known", "source", "remarks")  # columns that a narrow terminal omits
LONGEST_NAME = 40
LONGEST_NAME_ALONE = 400  # characters of a name in the list, and of one on a line of its own
_WIDEST = 10_000  # width at which no tree of operators is folded, in characters
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

Select = Callable[[], "Selection"]  # returns the runs that the filter options of a command select
app = typer.Typer(cls=ProgramCommands, add_completion=False)


def selection_of(
    workload: Annotated[
        str | None,
        typer.Option(
            help="Filter by workload name. If none has exactly this name, by a part of the name."
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Filter by text in id, workload, application, its id, record, description, file, "
            "failure or source.",
        ),
    ] = None,
    *,
    status: Annotated[StatusName | None, typer.Option(help="Filter by final status.")] = None,
    platform: Annotated[
        PlatformName | None, typer.Option(help="Filter by the engine of any operator.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            click_type=TimestampParameter(),
            metavar="TIME",
            help="Only runs that finished at this time (UTC) or later, such as 2026-03-01T06:00.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            click_type=TimestampParameter(),
            metavar="TIME",
            help="Only runs that finished before this time (UTC).",
        ),
    ] = None,
) -> "Selection":
    """Return the selection of the filter options.

    Raises:
        InvalidInputError: no time lies between `since` and `until`.
    """
    from fedperf_client.home.store import Selection
    from fedperf_shared.execution import ExecutionStatus
    from fedperf_shared.workflow.vocabulary import Platform

    if since is not None and until is not None and since >= until:
        raise InvalidInputError(
            f"--since must come before --until: {since:%Y-%m-%dT%H:%M} is not before "
            f"{until:%Y-%m-%dT%H:%M}"
        )
    return Selection(
        workload=workload,
        text=search,
        status=None if status is None else ExecutionStatus[status.upper()],
        platform=None if platform is None else Platform[platform.upper()],
        since=since,
        until=until,
    )


def _with_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `select` of a command by the options of `selection_of`.

    The command receives a function that returns the selection of their values.
    """
    filters = inspect.signature(selection_of).parameters.values()

    @wraps(command)
    def filtered(**options: object) -> None:
        values = {each.name: options.pop(each.name) for each in filters}
        command(select=partial(selection_of, **values), **options)  # type: ignore[arg-type]

    parameters = [
        option.replace(kind=option.KEYWORD_ONLY)
        for each in inspect.signature(command).parameters.values()
        for option in (filters if each.name == "select" else [each])
    ]
    filtered.__annotations__ = {each.name: each.annotation for each in parameters}
    filtered.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return filtered


@app.callback(invoke_without_command=True)
@_with_filters
def runs(
    context: typer.Context,
    select: Select,
    last: Annotated[int, typer.Option(min=1, help="Number of runs to list.")] = 20,
    json: Json = False,
) -> None:
    """List the stored runs, newest first. `runs show ID` shows one of them."""
    from fedperf_client.home.store import ExecutionStore

    if context.invoked_subcommand is not None:
        return
    selection = select()
    with ExecutionStore.open_to_read(home_of(context).store) as store:
        executions, count = store.newest(last, selection), store.count(selection)
        if json:
            show_table([facts_of(each) for each in executions], json=True)
            return
        rows = [_list_row(each, store.short_id(each.execution_id)) for each in executions]
    workload, text = selection.workload, selection.text
    in_workload = "" if workload is None else f" of a workload named {visible(repr(workload))}"
    with_text = "" if text is None else f" with {visible(repr(text))}"
    show_rows(
        [texts_of(row) for row in without_empty(rows)],
        json=False,
        empty=f"no such run{in_workload}{with_text}; store some with: fedperf ingest FILE",
        spare=SPARE,
    )
    if rows:
        more = f"; --last {count} shows all" if len(rows) < count else ""
        typer.echo(f"{len(rows)} of {count} shown, newest first{more}")


def _list_row(execution: "Execution", short_id: str) -> list[Fact]:
    return [
        Fact(
            each.name,
            each.value,
            COLUMNS[each.name],
            shortened(each.entry, LONGEST_NAME) if isinstance(each.entry, str) else each.entry,
        )
        for each in [Fact("id", short_id, "id"), *facts_of(execution)[1:]]
        if each.name in COLUMNS
    ]


@app.command("show")
def show_one(
    context: typer.Context,
    execution: Annotated[
        str, typer.Argument(help="Id of the run, or the beginning of it.", metavar="ID")
    ],
    json: Json = False,
) -> None:
    """Show one run with its tree of operators, the result first."""
    from rich.console import Console

    from fedperf_client.formatting.operator_tree import operator_tree
    from fedperf_client.home.store import ExecutionStore

    with ExecutionStore.open_to_read(home_of(context).store) as store:
        run = store.find(execution)
    if json:
        show({**values_of(facts_of(run)), **plan_of(run)}, json=True)
        return
    show_facts(facts_of(run), json=False)
    if run.origin.operator_seconds:
        typer.echo("Times of operators are sums over tasks or threads, with waiting for inputs.")
    tree, depth = operator_tree(run.plan, seconds=run.origin.operator_seconds)
    width = Console(width=output_width()).width
    if Console(width=_WIDEST).measure(tree).maximum > width:
        times = run.origin.operator_seconds
        tree, depth = operator_tree(run.plan, seconds=times, is_flat=True)
        typer.echo("An operator reads from the one below it, or from those that branch off below.")
    Console(width=max(width, 4 * depth + LONGEST_NAME)).print(tree)


@app.command("delete")
@_with_filters
def delete(
    context: typer.Context,
    select: Select,
    executions: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of runs, or their beginnings.", metavar="[ID]..."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete the filtered runs instead of counting them.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete runs by their ids, or all that the filters select.

    Earlier releases stay released and charged. Ingesting a log again restores its runs.
    """
    from fedperf_client.home.store import EVERYTHING, ExecutionStore

    selection = select()
    if bool(executions) == (selection != EVERYTHING):
        raise InvalidInputError("select the runs either by ids or by filters such as --workload")
    home = home_of(context)
    with ExecutionStore.open(home.store) as store:
        ids = [store.find(each).execution_id for each in executions or ()] or store.ids(selection)
        is_confirmed = yes or bool(executions)
        deleted = store.delete(ids) if is_confirmed else 0
    if deleted:
        home.predictor.unlink(missing_ok=True)
    show({"chosen": len(set(ids)), "deleted": deleted}, json=json)
    if ids and not is_confirmed and not json:
        typer.echo("Nothing was deleted. Add --yes to delete these runs.")


@app.command("export")
@_with_filters
def export(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(help="A .parquet history, or a .csv table; ingest reads both."),
    ],
    select: Select,
    json: Json = False,
) -> None:
    """Write runs to a file, names included. An existing file is replaced.

    A history is complete and can be ingested elsewhere. A table has no operators.
    """
    from fedperf_client.home.store import ExecutionStore

    selection = select()
    if file.suffix not in (".parquet", ".csv"):
        raise InvalidInputError(f"{file}: unsupported file name. It must end in .parquet or .csv")
    with ExecutionStore.open_to_read(home_of(context).store) as store:
        ids = store.ids(selection)
        _write(file, ids, (store.find(each) for each in ids))
    show({"written": len(ids), "file": file}, json=json)


def _write(file: Path, ids: "Sequence[str]", executions: "Iterator[Execution]") -> None:
    import csv

    from fedperf_client.home.execution_record import columns_to_text

    if file.suffix == ".parquet":
        from fedperf_client.sources.history_file import write_history

        write_history(file, executions)
        return
    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            for position, each in enumerate(executions):
                facts = values_of(facts_of(each)) | {
                    "remarks": " ".join(each.origin.remarks),
                    "columns": columns_to_text(each.origin.columns),
                }
                if position == 0:
                    writer.writerow(facts)
                writer.writerow(map(_without_formula, facts.values()))
    except OSError as error:
        raise StorageError(f"cannot write {file}: {error.strerror}") from error


def _without_formula(value: object) -> object:
    """Quote a text that a spreadsheet would execute as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def facts_of(execution: "Execution") -> list[Fact]:
    """Return all facts of a run except its operators, None for unknown ones."""
    measured, cluster, origin = execution.measurement, execution.cluster, execution.origin
    remarks = ", ".join(each.replace("_", " ") for each in origin.remarks)

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
        Fact(
            "finished_at",
            execution.finished_at.isoformat(timespec="seconds"),
            "finished at (UTC)",
            execution.finished_at,
        ),
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
        Fact("remarks", list(origin.remarks), "remarks", remarks),
        name_columns(origin.columns),
    ]


def name_columns(columns: "Sequence[JobColumn]") -> Fact:
    """Return the columns of the row of a table that a run was read from."""
    words = ", ".join(
        f"{each.name}={each.value if isinstance(each.value, str) else f'{each.value:.6g}'}"
        for each in columns
    )
    values = {each.name: each.value for each in columns}
    return Fact("columns", values, "columns", shortened(words, LONGEST_NAME_ALONE))


def plan_of(execution: "Execution") -> dict[str, object]:
    """Return the plan for JSON, which `fedperf predict` reads as a workflow.

    `seconds` of an operator are sums over its tasks or threads.
    """
    plan = execution.plan
    seconds = execution.origin.operator_seconds or (None,) * len(plan.platforms)
    rows = []
    for position, operator in enumerate(plan.workflow.operators):
        values = {
            name: value.name.lower() if isinstance(value, IntEnum) else value
            for name, value in asdict(operator).items()
        }
        values["class"] = values.pop("operator_class")
        values["platform"] = plan.platforms[position].name.lower()
        values["output_bytes"] = operator.output_bytes
        rows.append({"operator": position, **values, "seconds": seconds[position]})
    return {
        "machine_speed": execution.cluster.machine_speed,
        "sources": asdict(plan.workflow.sources),
        "plan": rows,
    }
