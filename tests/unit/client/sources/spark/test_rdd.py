"""Tests of RDD jobs: stages become operators for API calls, and exchanges with their rows."""

import pytest

from fedperf_client.sources.spark.fields import MalformedEventError
from fedperf_client.sources.spark.plan import CountedWorkflow, PlanTooLargeError, workflow_of
from fedperf_client.sources.spark.rdd import StageRun, job_plan, read_stage
from fedperf_shared.workflow.vocabulary import RUNS_PYTHON, OperatorKind

K = OperatorKind


def rdd(
    number: int, call: str, *parents: int, scope: str = "", name: str = "X"
) -> dict[str, object]:
    """Return an RDD of a call, or without a call if `call` is empty."""
    named = {"Scope": f'{{"id":"{scope or number}","name":"{call}"}}'} if call else {}
    return {"RDD ID": number, "Name": name, "Parent IDs": list(parents), **named}


def stage(number: int, *rdds: dict[str, object], tasks: int = 4, **counters: int) -> StageRun:
    """Return a completed stage with counters such as `read_rows=7`."""
    names = {
        "read_rows": "input.recordsRead",
        "read_bytes": "input.bytesRead",
        "fetched_rows": "shuffle.read.recordsRead",
        "fetched_bytes": "shuffle.read.remoteBytesRead",
        "moved_rows": "shuffle.write.recordsWritten",
        "moved_bytes": "shuffle.write.bytesWritten",
        "written_rows": "output.recordsWritten",
        "written_bytes": "output.bytesWritten",
        "run": "executorRunTime",
    }
    counted = [
        {"ID": at, "Name": f"internal.metrics.{names[each]}", "Value": value}
        for at, (each, value) in enumerate(counters.items())
    ]
    told = {"Stage ID": number, "Number of Tasks": tasks, "RDD Info": list(rdds)}
    return read_stage({**told, "Accumulables": counted})


def workflow(*stages: StageRun) -> CountedWorkflow:
    return workflow_of(*job_plan(stages))


def kinds(found: CountedWorkflow) -> list[OperatorKind]:
    return [each.kind for each in found.workflow.operators]


READ = (rdd(0, "textFile", scope="a"), rdd(1, "textFile", 0, scope="a"), rdd(2, "map", 1))
WRITER = stage(7, *READ, read_rows=900, read_bytes=9000, moved_rows=60, moved_bytes=480, run=3000)
READER = stage(8, rdd(3, "reduceByKey", 2), tasks=5, fetched_rows=60, fetched_bytes=480, run=500)


def test_rdd_stages_are_connected_by_exchange_with_rows_bytes_and_partitions() -> None:
    found = workflow(WRITER, READER)
    assert kinds(found) == [K.FILE_SOURCE, K.MAP, K.EXCHANGE, K.AGGREGATE]
    operators = found.workflow.operators
    assert [each.output_rows for each in operators] == [900, 900, 60, 60]
    assert [each.inputs for each in operators] == [(), (0,), (1,), (2,)]
    assert [each.partitions for each in operators] == [0, 0, 5, 0]
    assert (operators[0].row_bytes, operators[2].row_bytes) == (10, 8)
    assert found.seconds == (None, None, 3.0, 0.5)
    assert found.known_operators == 3


def test_rdd_exchange_of_earlier_job_is_a_table_source() -> None:
    found = workflow(READER)
    assert kinds(found) == [K.TABLE_SOURCE, K.AGGREGATE]
    assert found.workflow.operators[0].output_rows == 60
    assert found.workflow.operators[0].row_bytes == 8


def test_rdd_stage_attributes_remaining_fetched_rows_to_a_table_source() -> None:
    join = stage(9, rdd(5, "join", 2, 99), fetched_rows=100, fetched_bytes=1000)
    found = workflow(WRITER, join)
    rows = {each.kind: each.output_rows for each in found.workflow.operators}
    assert (rows[K.EXCHANGE], rows[K.TABLE_SOURCE]) == (60, 40)


def test_rdd_call_that_only_moves_rows_is_the_exchange() -> None:
    spread = rdd(3, "repartition", 2, scope="r")
    moved = (rdd(4, "repartition", 3, scope="r"), rdd(5, "repartition", 4, scope="r"))
    first = stage(7, *READ, spread, read_rows=900, moved_rows=900, moved_bytes=9000)
    found = workflow(first, stage(8, *moved, rdd(6, "map", 5), tasks=16))
    assert kinds(found) == [K.FILE_SOURCE, K.MAP, K.EXCHANGE, K.MAP]
    assert found.workflow.operators[2].partitions == 16
    assert kinds(workflow(stage(7, *READ, rdd(3, "coalesce", 2)))) == [
        K.FILE_SOURCE,
        K.MAP,
        K.EXCHANGE,
    ]


def test_rdd_stage_that_writes_ends_in_a_sink() -> None:
    found = workflow(stage(7, *READ, read_rows=9, written_rows=9, written_bytes=90, run=1000))
    assert kinds(found) == [K.FILE_SOURCE, K.MAP, K.SINK]
    assert found.workflow.operators[-1].row_bytes == 10
    assert found.seconds == (None, None, 1.0)


def test_rdd_operators_are_classified_by_sql_operator_or_class_name() -> None:
    found = workflow(
        stage(
            3,
            rdd(0, "Scan parquet secret", scope="spark_plan_1"),
            rdd(1, "Scan parquet secret", 0, scope="spark_plan_1"),
            rdd(2, "WholeStageCodegen (1)", 1, scope="spark_plan_2"),
            rdd(3, "DeserializeToObject", 2, scope="spark_plan_3"),
            rdd(4, "", 3, name="SQLExecutionRDD"),
            rdd(5, "", 4, name="PythonRDD"),
            rdd(6, "", 5, name="/home/alice/secret"),
        )
    )
    assert kinds(found) == [K.FILE_SOURCE, K.MAP, K.FLATMAP, K.OTHER]
    assert [each.code_steps for each in found.workflow.operators] == [0, 0, RUNS_PYTHON, 0]


def test_rdd_without_parents_is_a_source_whatever_its_name() -> None:
    compiled = (
        rdd(0, "WholeStageCodegen (1)", scope="w"),
        rdd(1, "WholeStageCodegen (1)", 0, scope="w"),
    )
    found = workflow(stage(3, *compiled, rdd(2, "map", 1), rdd(3, "", name="mine")))
    assert sorted(kinds(found)) == sorted([K.TABLE_SOURCE, K.TABLE_SOURCE, K.MAP])


def test_rdd_rows_shared_by_several_sources_are_unknown() -> None:
    found = workflow(
        stage(3, rdd(0, "textFile"), rdd(1, "textFile"), rdd(2, "union", 0, 1), read_rows=9)
    )
    assert found.known_operators == 0


def test_rdd_job_failed_in_first_stage_has_a_plan_of_that_stage() -> None:
    assert kinds(workflow(WRITER)) == [K.FILE_SOURCE, K.MAP]


def test_rdd_stages_with_cycles_or_too_many_operators_are_refused() -> None:
    with pytest.raises(MalformedEventError, match="Parent IDs"):
        job_plan([stage(1, rdd(0, "map", 1), rdd(1, "map", 0))])
    with pytest.raises(PlanTooLargeError):
        job_plan([stage(1, *(rdd(n, "map") for n in range(3000)))])
