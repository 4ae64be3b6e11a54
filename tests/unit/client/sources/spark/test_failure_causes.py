"""Tests of failure causes: failures of one job are grouped with their common facts."""

from collections.abc import Mapping

from fedperf_client.sources.spark.failures import (
    EndReason,
    FailureCause,
    FailureText,
    LostAttempt,
    Removal,
    causes_of,
    last_text,
)
from fedperf_client.sources.spark.query import MAX_FAILURES, SparkQuery
from tests.fakes.failing_logs import killed, lost, missed, raised

PHYSICAL = "Container killed by YARN for exceeding physical memory limits. 4.4 GB of 4.4 GB"


def failure(
    end: Mapping[str, object], *, executor: str = "2", stage: int = 0, at: int = 15_000
) -> LostAttempt:
    place = executor, f"host{executor}"
    return LostAttempt(stage, place, at - 14_000, at, EndReason.of(end))


def removal(said: str, *, executor: str = "2", at: int = 15_060) -> Removal:
    return Removal.of(executor, f"host{executor}", at, said)


def common(cause: FailureCause) -> tuple[str | None, str | None, int | None, int | None]:
    return cause.executor, cause.host, cause.stage, cause.moment


def test_failure_cause_of_one_executor_has_its_host_stage_and_timestamp() -> None:
    (cause,) = causes_of([failure(lost(PHYSICAL)) for _ in range(4)], [])
    assert (cause.kind, len(cause.failures)) == ("container memory", 4)
    assert common(cause) == ("2", "host2", 0, 15_000)
    assert cause.line == PHYSICAL
    assert not cause.ends_job


def test_failure_cause_of_differing_tasks_has_no_common_place() -> None:
    (cause,) = causes_of(
        [
            failure(raised("java.io.IOException", "No space left on device")),
            failure(
                raised("java.io.IOException", "No space left on device"),
                executor="3",
                stage=1,
                at=40_000,
            ),
        ],
        [],
    )
    assert cause.kind == "disk full"
    assert common(cause) == (None, None, None, None)


def test_missing_shuffle_files_are_attributed_to_removal_of_their_executor() -> None:
    gone = removal("Executor decommission: Executor 2 is decommissioned.")
    (cause,) = causes_of([failure(missed("Connection refused"), executor="1")], [gone])
    assert (cause.kind, cause.missing) == ("decommissioned", 1)
    assert cause.line == "Executor decommission: Executor 2 is decommissioned."
    others = [
        removal("Executor decommission: gone", executor="3"),
        removal("Executor decommission: gone", at=9_000_000),
        removal("Executor Process Lost"),
    ]
    (cause,) = causes_of([failure(missed("Connection refused"), executor="1")], others)
    assert (cause.kind, cause.line) == ("shuffle files lost", "Connection refused")


def test_missing_shuffle_files_without_source_are_attributed_to_last_removal() -> None:
    end = {"Reason": "FetchFailed", "Message": "Missing an output location for shuffle 0"}
    gone = [removal(PHYSICAL, executor="3", at=9000), removal("Executor Process Lost")]
    (cause,) = causes_of([failure(end, executor="1")], gone)
    assert (cause.kind, cause.executor, cause.host) == ("container memory", "3", "host3")
    (cause,) = causes_of([failure(end, executor="1")], [])
    assert (cause.kind, cause.executor, cause.host) == ("shuffle files lost", None, None)


def test_failed_job_without_message_takes_most_frequent_task_cause() -> None:
    tasks = [failure(lost(PHYSICAL))] * 3 + [failure(raised("my.Error", "x"))]
    first, second = causes_of(tasks, [], FailureText("", None))
    assert (first.kind, first.ends_job, second.ends_job) == ("container memory", True, False)


def test_lost_executor_without_message_is_attributed_to_its_removal() -> None:
    gone = failure(lost("Remote RPC client disassociated. Likely due to containers"))
    (cause,) = causes_of([gone], [removal(PHYSICAL)])
    assert (cause.kind, cause.line) == ("container memory", PHYSICAL)
    (cause,) = causes_of([gone], [])
    assert cause.kind == "disassociated"


def test_task_end_reason_takes_precedence_over_executor_removal() -> None:
    gone = removal("Executor decommission: Executor 2 is decommissioned.")
    (cause,) = causes_of([failure(lost(PHYSICAL))], [gone])
    assert cause.kind == "container memory"


def test_unknown_errors_are_grouped_by_name() -> None:
    own = [failure(raised("my.First", "x"))] * 2 + [failure(raised("my.Second", "x"))]
    assert [each.name for each in causes_of(own, [])] == ["First", "Second"]


def test_query_keeps_latest_failure_texts_up_to_maximum() -> None:
    query = SparkQuery(0, 0, root=0)
    for number in range(MAX_FAILURES + 5):
        query.failed(f"x {number}")
    assert len(query.failures) == MAX_FAILURES
    assert query.failures[-1].message == f"x {MAX_FAILURES + 4}"


def test_executor_removal_does_not_explain_an_error_of_user_code() -> None:
    own = failure(raised("java.lang.IllegalStateException", "x"))
    (cause,) = causes_of([own], [removal(PHYSICAL)])
    assert (cause.kind, cause.name) == (None, "IllegalStateException")


def test_cancelled_attempts_are_not_failures() -> None:
    off = [
        failure(killed(said))
        for said in ("another attempt succeeded", "Stage cancelled: Job 1 cancelled", "", "x")
    ]
    assert causes_of([*off, failure({"Reason": "TaskCommitDenied"})], []) == []
    above = failure(killed("Tasks result size has exceeded maxResultSize"))
    assert [each.kind for each in causes_of([*off, above], [])] == ["result size"]


def test_cause_that_failed_the_job_comes_first_with_job_message() -> None:
    tasks = [failure(lost(PHYSICAL)) for _ in range(9)]
    above = failure(killed("Tasks result size has exceeded maxResultSize"))
    said = "Job aborted due to stage failure: Total size (9 MiB) above spark.driver.maxResultSize"
    first, second = causes_of([*tasks, above], [], FailureText.of(said))
    assert (first.kind, first.line, first.ends_job) == ("result size", said, True)
    assert (second.kind, second.ends_job) == ("container memory", False)


def test_job_failed_by_last_task_takes_the_task_message() -> None:
    task = failure(raised("my.OwnError", "the price is negative"))
    said = (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent "
        "failure: Lost task 0.3 in stage 0.0 (TID 7) (h executor 2): my.OwnError: the price"
    )
    (cause,) = causes_of([task] * 4, [], FailureText.of(said))
    assert (cause.line, cause.ends_job, len(cause.failures)) == ("the price is negative", True, 4)


def test_job_failure_matching_a_task_message_is_one_cause() -> None:
    tasks = [failure(raised("my.CastError", "[CAST] 'x' is no number\nSQLSTATE: 22018"))] * 2
    other = [failure(raised("my.Other", "y"))] * 3
    found = causes_of([*other, *tasks], [], FailureText.of("[CAST] 'x' is no number"))
    assert [(each.name, each.ends_job) for each in found] == [("CastError", True), ("Other", False)]


def test_job_failed_before_any_task_has_its_own_cause() -> None:
    (cause,) = causes_of([], [], FailureText.of("no such column\nSELECT 1"))
    assert (cause.kind, cause.line, cause.ends_job) == (None, "no such column", True)
    assert common(cause) == (None, None, None, None)
    other = failure(lost(PHYSICAL))
    first, second = causes_of([other], [], FailureText.of("no such column"))
    assert (first.failures, first.ends_job) == ([], True)
    assert second.failures == [other]


def test_stage_failed_too_often_is_attributed_to_underlying_cause() -> None:
    gone = removal("Executor decommission: Executor 2 is decommissioned.")
    said = "ResultStage 1 has failed the maximum allowable number of times: 4."
    (cause,) = causes_of(
        [failure(missed("Connection refused"), executor="1")], [gone], FailureText.of(said)
    )
    assert (cause.kind, cause.summary) == ("decommissioned", "stage attempts")
    (alone,) = causes_of([], [], FailureText.of(said))
    assert (alone.kind, alone.summary) == ("stage attempts", None)


def test_last_text_prefers_messages_that_are_not_cancellations() -> None:
    said = ("no such file", "Job 1 cancelled because", "")
    texts = [FailureText.of(text) for text in said]
    found = last_text(texts)
    assert found is not None
    assert found.message == "no such file"
    off = last_text(texts[1:])
    assert off is not None
    assert off.kind == "cancelled"
    assert last_text([]) is None


def test_end_reason_without_usable_fields_is_unknown() -> None:
    found = EndReason.of({"Reason": 7, "Class Name": None, "Block Manager Address": "x"})
    assert found == EndReason("unknown")
    assert EndReason.of({"Block Manager Address": {"Executor ID": 7}}).missed == ("", "")
    assert Removal.of("1", "h", 0, None).kind is None
    assert len(EndReason.of(raised("x" * 999, "y" * 99_999)).message) == 1000


def test_end_reason_of_traceback_keeps_the_raised_error() -> None:
    said = "Traceback (most recent call last):\n" + "  File 'a.py'\n" * 500 + "ValueError: seven\n"
    found = EndReason.of(raised("org.apache.spark.api.python.PythonException", said))
    assert (found.message, found.kind) == ("ValueError: seven", "python code")
