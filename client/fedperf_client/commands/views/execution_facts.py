"""Stored executions for people and programs: as rows, as facts, and with their operators.

Names of workloads, applications and sources come from logs of others: they are data, printed
so that they command neither terminal nor markup, and cut where they are long.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from fedperf_shared.programs.command_line import shortened

if TYPE_CHECKING:
    from fedperf_shared.execution import Execution

LONGEST_NAME = 40

LONGEST_NAME_ALONE = 400


def facts_of(execution: "Execution") -> dict[str, object]:
    """Everything about an execution but its operators, for programs; None where unknown."""
    measured, cluster, origin = execution.measurement, execution.cluster, execution.origin
    return {
        "id": execution.execution_id,
        "workload": execution.workload,
        "application": origin.application,
        "application_id": origin.application_id,
        "record": origin.record,
        "description": origin.description,
        "file": origin.file,
        "finished_at": execution.finished_at.isoformat(timespec="seconds"),
        "status": execution.status.name.lower(),
        "failure": origin.failure,
        "runtime_seconds": None if measured is None else measured.runtime_seconds,
        "startup_seconds": None if measured is None else measured.startup_seconds or None,
        "cpu_seconds": None if measured is None else measured.cpu_seconds,
        "peak_memory_bytes": None if measured is None else measured.peak_memory_bytes or None,
        "read_bytes": None if measured is None else measured.read_bytes,
        "written_bytes": None if measured is None else measured.written_bytes,
        "nodes": cluster.nodes,
        "cores": cluster.cores,
        "memory_bytes": cluster.memory_bytes,
        "queries_before": cluster.queries_before,
        "operators": len(execution.plan.workflow.operators),
        "rows_known": origin.rows_known,
        "source": origin.source,
        "node_type": origin.node_type,
        "architecture": origin.architecture,
        "remarks": list(origin.remarks),
    }


def readable_facts_of(execution: "Execution") -> dict[str, object]:
    """The same for people, with units; what nobody knows is left out."""
    from fedperf_client.text.durations import duration_text
    from fedperf_client.text.operator_tree import size_text

    shown: dict[str, object] = {}
    for name, value in facts_of(execution).items():
        if value in (None, "", []):
            continue
        if name.endswith("_seconds") and isinstance(value, float):
            shown[name.removesuffix("_seconds")] = duration_text(value)
        elif name.endswith("_bytes") and isinstance(value, int):
            shown[name.removesuffix("_bytes")] = size_text(value)
        else:
            shown[name] = _cut(value, LONGEST_NAME_ALONE) if isinstance(value, str) else value
    shown["id"] = execution.execution_id
    shown["rows_known"] = f"{execution.origin.rows_known:.0%}"
    if execution.origin.remarks:
        shown["remarks"] = _words(execution.origin.remarks)
    return shown


def line_of(execution: "Execution", short_id: str) -> dict[str, object]:
    """A row of a table for people."""
    from fedperf_client.text.durations import duration_text

    measured, origin = execution.measurement, execution.origin
    return {
        "id": short_id,
        "workload": _cut(execution.workload),
        "record": _cut(origin.record),
        "description": _cut(origin.description),
        "finished": f"{execution.finished_at:%Y-%m-%d %H:%M}",
        "status": execution.status.name.lower(),
        "time": None if measured is None else duration_text(measured.runtime_seconds),
        "cores": execution.cluster.cores,
        "ops": len(execution.plan.workflow.operators),
        "rows known": f"{origin.rows_known:.0%}",
        "source": _cut(origin.source),
        "failure": _cut(origin.failure),
        "remarks": _words(origin.remarks),
    }


def plan_of(execution: "Execution") -> dict[str, object]:
    """The plan, for programs; `fedperf predict` reads it with the facts as a workflow."""
    return {
        "machine_speed": execution.cluster.machine_speed,
        "sources": asdict(execution.plan.workflow.sources),
        "plan": _operators_of(execution),
    }


def _operators_of(execution: "Execution") -> list[dict[str, object]]:
    """Every operator; `seconds` are sums over its tasks or threads."""
    plan = execution.plan
    operators = plan.workflow.operators
    seconds = execution.origin.operator_seconds or (None,) * len(operators)
    return [
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
    ]


def _words(remarks: Sequence[str]) -> str:
    return ", ".join(each.replace("_", " ") for each in remarks)


def _cut(name: str, longest: int = LONGEST_NAME) -> str:
    return shortened(name, longest)
