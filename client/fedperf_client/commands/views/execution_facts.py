"""Stored executions for people and programs: as rows, as facts, and with their operators.

Names of workloads, applications and sources come from logs of others: they are data, printed
so that they command neither terminal nor markup, and cut where they are long.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING

from fedperf_shared.programs.command_line import shortened

if TYPE_CHECKING:
    from fedperf_client.text.facts import Fact
    from fedperf_shared.execution import Execution

LONGEST_NAME = 40

LONGEST_NAME_ALONE = 400


def facts_of(execution: "Execution") -> "list[Fact]":
    """Everything about an execution but its operators; None where unknown."""
    from fedperf_client.text.facts import Fact

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
    from fedperf_client.text.durations import duration_text

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
