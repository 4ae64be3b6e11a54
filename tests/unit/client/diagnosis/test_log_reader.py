"""Job facts read from event logs, and reports about missing parts of a log."""

from pathlib import Path

import pytest

from fedperf_client.sources.spark import reader
from tests.fakes.measured_logs import FakeTask, log_of, started
from tests.fakes.spark_logs import APP_START


def test_query_facts_contain_its_stages_totals_and_quiet_time(tmp_path: Path) -> None:
    tasks = [FakeTask(2000, 5000, cpu=700, read=10, rows=3), FakeTask(2000, 9000, fetched=5)]
    (job,), missing = log_of(tasks).jobs(tmp_path)
    assert missing == []
    assert (str(job.query), job.description, job.seconds) == ("query 0", "the nightly sum", 10.0)
    assert (job.cores, job.query.was_alone, job.query.has_failed) == (8, True, False)
    (stage,) = job.stages
    assert (stage.span, stage.task_time, stage.slots) == (7000, 10_000, 8)
    assert (stage.totals.cpu, stage.totals.input_bytes, stage.totals.shuffle_read) == (700, 10, 5)
    assert job.quiet == ((job.query.started_at, stage.began), (stage.ended, job.query.end))


def test_spark_job_without_query_is_a_job_of_its_own(tmp_path: Path) -> None:
    log = started().opened(query=None).stage([FakeTask(1000, 4000)]).closed(query=None, end=5000)
    (job,), _ = log.jobs(tmp_path)
    assert (str(job.query), job.seconds) == ("job 0", 4.0)


def test_time_of_failed_tasks_is_not_quiet_time(tmp_path: Path) -> None:
    log = started().opened().stage([FakeTask(1000, 11_000, reason="FetchFailed")]).closed()
    (job,), _ = log.jobs(tmp_path)
    assert job.stages == ()
    assert job.quiet == ()


def test_task_end_events_after_the_job_end_are_assigned_to_the_job(tmp_path: Path) -> None:
    log = started().opened().stage([FakeTask(1000, 9000)]).closed()
    ended = [each for each in log.events if each["Event"] == "SparkListenerTaskEnd"]
    log.events = [each for each in log.events if each not in ended] + ended
    log.opened(query=1, at=20_000).closed(query=1, end=21_000)
    (job, _), _ = log.jobs(tmp_path)
    assert len(job.stages[0].tasks) == 1
    assert job.query.was_alone


def test_truncated_log_and_invalid_lines_are_reported_as_missing(tmp_path: Path) -> None:
    log = started().opened().stage([FakeTask(1000, 4000)])
    log.add("SparkListenerJobStart", Job_ID="many")
    found, missing = log.jobs(tmp_path)
    assert found == []
    assert [each.split(" ", 3)[:3] for each in missing] == [
        ["no", "end", "of"],
        ["a", "line", "that"],
    ]


def test_job_with_too_many_tasks_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_TASKS", 1500)
    many = [FakeTask(1000, 1001)] * 4000
    found, missing = log_of(many).jobs(tmp_path)
    assert found == []
    assert missing == ["a job given up: too much ran at the same time (1)"]


def test_dropped_job_stays_dropped_after_further_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_TASKS", 1500)
    log = started().opened().stage([FakeTask(1000, 1001)] * 2000)
    again = {"Job ID": 9, "Submission Time": APP_START + 5000, "Stage IDs": [9]}
    properties = {"spark.sql.execution.id": "0"}
    log.events.append({"Event": "SparkListenerJobStart", **again, "Properties": properties})
    log.stage([FakeTask(5000, 9000)], number=9)
    log.add("SparkListenerJobEnd", Job_ID=9, Job_Result={"Result": "JobSucceeded"})
    found, missing = log.closed().jobs(tmp_path)
    assert (found, len(missing)) == ([], 1)


def test_slots_are_divided_by_cores_per_task(tmp_path: Path) -> None:
    (job,), _ = log_of([FakeTask(1000, 4000)], task_cpus="2").jobs(tmp_path)
    assert (job.slots, job.stages[0].slots) == (4, 4)


def test_executors_added_after_a_stage_add_no_slots_to_it(tmp_path: Path) -> None:
    log = started().opened(stages=2).stage([FakeTask(1000, 4000)])
    log.executor("late", APP_START + 6000, host="host-9", cores=80)
    log.stage([FakeTask(6000, 11_000)], number=1).closed()
    log.executor("later", APP_START + 12_000, host="host-9", cores=800)
    (job,), _ = log.jobs(tmp_path)
    assert [each.slots for each in job.stages] == [8, 88]
    assert job.cores == 8 + 40


def test_executors_with_another_clock_count_as_cores_but_not_as_idle(tmp_path: Path) -> None:
    log = started()
    log.executor("other", APP_START + 10**9, host="host-9")
    (job,), _ = log.opened().stage([FakeTask(1000, 4000)]).closed().jobs(tmp_path)
    assert job.cores == 12  # equal to the cores of the stored execution
    assert job.stages[0].slots == 0
    assert not job.idle_is_known


def test_log_without_all_executors_reports_no_idle_cores(tmp_path: Path) -> None:
    (job,), _ = log_of([FakeTask(1000, 11_000)] * 20).jobs(tmp_path)
    assert not job.idle_is_known
    assert job.unused(job.stages[0]) == 0
