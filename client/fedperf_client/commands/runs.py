"""`fedperf runs`: what is in the local store, and one execution as a tree of operators.

Names of workloads and sources come from logs of others: they are data, printed so that
they command neither terminal nor markup, and cut where they are long.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.home_option import Json, home_of
from fedperf_shared.execution import ExecutionStatus
from fedperf_shared.programs.command_line import show, show_rows, visible

if TYPE_CHECKING:
    from fedperf_shared.execution import Execution
    from fedperf_shared.workflow.graph import Operator, Plan

LONGEST_NAME = 40

LONGEST_NAME_ALONE = 400


class ExecutionStatusName(StrEnum):
    """How an execution ended, in the words of the command line."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"


app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def runs(
    context: typer.Context,
    workload: Annotated[
        str | None,
        typer.Option(help="Only those of this workload, or of all with it in their names."),
    ] = None,
    status: Annotated[
        ExecutionStatusName | None, typer.Option(help="Only those that ended so.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = 20,
    json: Json = False,
) -> None:
    """List the executions that are stored here; `runs show ID` shows one of them."""
    from fedperf_client.home.store import ExecutionStore

    if context.invoked_subcommand is not None:
        return
    wanted = None if status is None else ExecutionStatus[status.name]
    with ExecutionStore.open(home_of(context).store) as store:
        found = store.newest(last, workload=workload, status=wanted)
        if json:
            show_rows([_facts(each) for each in found], json=True, empty="")
            return
        lines = [_line(each, store.short_id(each.execution_id)) for each in found]
    if not any(line["remarks"] for line in lines):
        lines = [{name: line[name] for name in line if name != "remarks"} for line in lines]
    named = "" if workload is None else f" of a workload with {visible(repr(workload))} in its name"
    show_rows(
        lines,
        json=False,
        empty=f"no such execution{named}; take some in with: fedperf ingest FILE",
    )


@app.command("show")
def show_one(
    context: typer.Context,
    execution: Annotated[str, typer.Argument(help="Its id, or how that begins.", metavar="ID")],
    json: Json = False,
) -> None:
    """Show one execution: what is known of it, and its operators from the result down."""
    from rich.console import Console

    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.text.operator_tree import operator_tree

    with ExecutionStore.open(home_of(context).store) as store:
        found = store.find(execution)
    if json:
        show({**_facts(found), "plan": _operators(found.plan)}, json=True)
        return
    shown = {
        **_facts(found),
        "workload": _cut(found.workload, LONGEST_NAME_ALONE),
        "rows_known": f"{found.origin.rows_known:.0%}",
        "source": _cut(found.origin.source, LONGEST_NAME_ALONE),
        "remarks": _words(found.origin.remarks),
    }
    show(shown, json=False)
    tree, depth = operator_tree(found.plan)
    width = Console().width
    Console(width=max(width, 4 * depth + LONGEST_NAME * 2)).print(tree)


def _operators(plan: "Plan") -> list[dict[str, object]]:
    return [
        _operator(position, operator, plan.platforms[position].name.lower())
        for position, operator in enumerate(plan.workflow.operators)
    ]


def _operator(position: int, operator: "Operator", platform: str) -> dict[str, object]:
    return {
        "operator": position,
        "kind": operator.kind.name.lower(),
        "class": operator.operator_class.name.lower(),
        "platform": platform,
        "inputs": list(operator.inputs),
        "output_rows": operator.output_rows,
        "row_bytes": operator.row_bytes,
        "output_bytes": operator.output_bytes,
        "partitions": operator.partitions,
    }


def _facts(execution: "Execution") -> dict[str, object]:
    measured, cluster, origin = execution.measurement, execution.cluster, execution.origin
    return {
        "id": execution.execution_id,
        "workload": execution.workload,
        "finished_at": execution.finished_at.isoformat(timespec="seconds"),
        "status": execution.status.name.lower(),
        "runtime_seconds": None if measured is None else measured.runtime_seconds,
        "cpu_seconds": None if measured is None else measured.cpu_seconds,
        "peak_memory_bytes": None if measured is None else measured.peak_memory_bytes,
        "read_bytes": None if measured is None else measured.read_bytes,
        "written_bytes": None if measured is None else measured.written_bytes,
        "nodes": cluster.nodes,
        "cores": cluster.cores,
        "memory_bytes": cluster.memory_bytes,
        "operators": len(execution.plan.workflow.operators),
        "rows_known": origin.rows_known,
        "source": origin.source,
        "node_type": origin.node_type,
        "architecture": origin.architecture,
        "remarks": list(origin.remarks),
    }


def _line(execution: "Execution", short_id: str) -> dict[str, object]:
    from fedperf_client.text.durations import duration_text

    measured, origin = execution.measurement, execution.origin
    return {
        "id": short_id,
        "workload": _cut(execution.workload),
        "finished": f"{execution.finished_at:%Y-%m-%d %H:%M}",
        "status": execution.status.name.lower(),
        "time": None if measured is None else duration_text(measured.runtime_seconds),
        "cores": execution.cluster.cores,
        "ops": len(execution.plan.workflow.operators),
        "rows known": f"{origin.rows_known:.0%}",
        "source": _cut(origin.source),
        "remarks": _words(origin.remarks),
    }


def _words(remarks: Sequence[str]) -> str:
    return ", ".join(each.replace("_", " ") for each in remarks)


def _cut(name: str, longest: int = LONGEST_NAME) -> str:
    shown = visible(name)
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."
