"""Jobs of a log: figures are those of its events, and what is missing is said."""

from pathlib import Path

import pytest

from fedperf_client.sources.spark import reader
from tests.fakes.measured_logs import FakeTask, log_of, started
from tests.fakes.spark_logs import APP_START


def test_a_query_has_its_stages_and_their_sums(tmp_path: Path) -> None:
    tasks = [FakeTask(2000, 5000, cpu=700, read=10, rows=3), FakeTask(2000, 9000, fetched=5)]
    (job,), missing = log_of(tasks).jobs(tmp_path)
    assert missing == []
    assert (str(job.query), job.description, job.seconds) == ("query 0", "the nightly sum", 10.0)
    assert (job.cores, job.query.was_alone, job.query.has_failed) == (8, True, False)
    (stage,) = job.stages
    assert (stage.span, stage.task_time, stage.slots) == (7000, 10_000, 8)
    assert (stage.totals.cpu, stage.totals.input_bytes, stage.totals.shuffle_read) == (700, 10, 5)
    assert job.quiet == ((job.query.started_at, stage.began), (stage.ended, job.query.end))


def test_a_job_without_a_query_is_a_job_of_its_own(tmp_path: Path) -> None:
    log = started().opened(query=None).stage([FakeTask(1000, 4000)]).closed(query=None, end=5000)
    (job,), _ = log.jobs(tmp_path)
    assert (str(job.query), job.seconds) == ("job 0", 4.0)


def test_tasks_that_failed_are_no_quiet_time(tmp_path: Path) -> None:
    log = started().opened().stage([FakeTask(1000, 11_000, reason="FetchFailed")]).closed()
    (job,), _ = log.jobs(tmp_path)
    assert job.stages == ()
    assert job.quiet == ()


def test_tasks_that_are_told_after_the_end_of_their_job_belong_to_it(tmp_path: Path) -> None:
    log = started().opened().stage([FakeTask(1000, 9000)]).closed()
    ended = [each for each in log.events if each["Event"] == "SparkListenerTaskEnd"]
    log.events = [each for each in log.events if each not in ended] + ended
    log.opened(query=1, at=20_000).closed(query=1, end=21_000)
    (job, _), _ = log.jobs(tmp_path)
    assert len(job.stages[0].tasks) == 1
    assert job.query.was_alone


def test_a_log_that_stops_and_lines_that_are_no_events_are_told(tmp_path: Path) -> None:
    log = started().opened().stage([FakeTask(1000, 4000)])
    log.add("SparkListenerJobStart", Job_ID="many")
    found, missing = log.jobs(tmp_path)
    assert found == []
    assert [each.split(" ", 3)[:3] for each in missing] == [
        ["no", "end", "of"],
        ["a", "line", "that"],
    ]


def test_a_job_with_too_many_tasks_is_given_up_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_TASKS", 1500)
    many = [FakeTask(1000, 1001)] * 4000
    found, missing = log_of(many).jobs(tmp_path)
    assert found == []
    assert missing == ["a job given up: too much ran at the same time (1)"]


def test_of_a_job_that_was_given_up_nothing_comes_later(
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


def test_slots_are_fewer_where_a_task_takes_several_cores(tmp_path: Path) -> None:
    (job,), _ = log_of([FakeTask(1000, 4000)], task_cpus="2").jobs(tmp_path)
    assert (job.slots, job.stages[0].slots) == (4, 4)


def test_executors_that_came_after_a_stage_are_no_slots_of_it(tmp_path: Path) -> None:
    log = started().opened(stages=2).stage([FakeTask(1000, 4000)])
    log.executor("late", APP_START + 6000, host="host-9", cores=80)
    log.stage([FakeTask(6000, 11_000)], number=1).closed()
    log.executor("later", APP_START + 12_000, host="host-9", cores=800)
    (job,), _ = log.jobs(tmp_path)
    assert [each.slots for each in job.stages] == [8, 88]
    assert job.cores == 8 + 40


def test_executors_by_another_clock_count_in_full_and_tell_no_idle_cores(tmp_path: Path) -> None:
    log = started()
    log.executor("other", APP_START + 10**9, host="host-9")
    (job,), _ = log.opened().stage([FakeTask(1000, 4000)]).closed().jobs(tmp_path)
    assert job.cores == 12  # as for those who keep executions
    assert job.stages[0].slots == 0
    assert not job.idle_is_known


def test_a_log_that_does_not_tell_all_executors_tells_no_idle_cores(tmp_path: Path) -> None:
    (job,), _ = log_of([FakeTask(1000, 11_000)] * 20).jobs(tmp_path)
    assert not job.idle_is_known
    assert job.unused(job.stages[0]) == 0
