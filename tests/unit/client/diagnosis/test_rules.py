"""Diagnosis rules: findings with figures from the log, and cases without a finding."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fedperf_client.diagnosis.diagnosis import Ranking, diagnose_job
from fedperf_client.diagnosis.job_facts import JobFinding, Symptom
from fedperf_client.home.node_prices import PriceList
from tests.fakes.measured_logs import FakeTask, MeasuredLog, log_of, started
from tests.fakes.spark_logs import SQL, node

MIB = 2**20
SLOTS = 8


def found_in(log: MeasuredLog, path: Path) -> dict[Symptom, JobFinding]:
    (job,), missing = log.jobs(path)
    assert missing == []
    found = diagnose_job(job, "log", None)
    return {} if found is None else {each.symptom: each for each in found.findings}


def even(
    count: int = SLOTS, begin: int = 1000, end: int = 11_000, **figures: int
) -> list[FakeTask]:
    return [FakeTask(begin, end, **figures) for _ in range(count)]  # type: ignore[arg-type]


def test_job_using_all_cores_to_its_end_has_no_findings(tmp_path: Path) -> None:
    assert found_in(log_of(even(cpu=9000, fetched=10 * MIB)), tmp_path) == {}


def test_spill_rule_reports_bytes_and_sufficient_executor_memory(tmp_path: Path) -> None:
    tasks = even(6) + even(2, spilled_memory=90 * MIB, spilled_disk=30 * MIB, held=60 * MIB)
    found = found_in(log_of(tasks), tmp_path)[Symptom.SPILL]
    assert found.place == "stage 0"
    assert found.seconds == pytest.approx(10 * 2 / 8)  # share of the tasks that spilled
    assert found.figures["spilled_disk_bytes"] == 60 * MIB
    assert "2 of 8 tasks wrote 62.9 MB to disk" in found.evidence
    assert found.conf == ("spark.executor.memory=3g",)  # the tasks need 300 MiB and held 120


def test_spill_rule_after_a_shuffle_suggests_more_partitions(tmp_path: Path) -> None:
    tasks = even(spilled_memory=90 * MIB, spilled_disk=30 * MIB, held=45 * MIB, fetched=50 * MIB)
    settings = {"sql_adaptive_enabled": "false", "sql_shuffle_partitions": "8"}
    found = found_in(log_of(tasks, **settings), tmp_path)[Symptom.SPILL]
    assert found.conf == ("spark.sql.shuffle.partitions=24",)  # the tasks need 135 MiB and held 45


def one_long(**figures: int) -> list[FakeTask]:
    return [*even(7, end=3000, fetched=10 * MIB), FakeTask(1000, 11_000, **figures)]  # type: ignore[arg-type]


def test_skew_rule_reports_longest_task_and_its_bytes(tmp_path: Path) -> None:
    found = found_in(log_of(one_long(fetched=50 * MIB)), tmp_path)
    skew = found[Symptom.SKEW]
    assert Symptom.STRAGGLER not in found
    # 24 task seconds take at least 3 seconds on 8 slots. The stage took 10.
    assert skew.seconds == pytest.approx(7.0)
    assert skew.figures["longest_bytes"] == 50 * MIB
    assert "the longest of 8 tasks took 10 s, the median 2 s" in skew.evidence
    assert "spark.sql.adaptive.skewJoin.enabled=true" in skew.conf


def test_skew_conf_contains_only_settings_of_the_spark_version(tmp_path: Path) -> None:
    def conf_on(version: str) -> tuple[str, ...]:
        log = log_of(one_long(fetched=50 * MIB))
        log.events[0]["Spark Version"] = version
        return found_in(log, tmp_path)[Symptom.SKEW].conf

    assert conf_on("2.4.8") == ()
    assert conf_on("3.1.1")[0] == "spark.sql.adaptive.enabled=true"
    assert conf_on("3.2.0")[0] == "spark.sql.adaptive.skewJoin.enabled=true"


def test_long_task_with_average_bytes_is_a_straggler_and_no_skew(tmp_path: Path) -> None:
    found = found_in(log_of(one_long(fetched=10 * MIB)), tmp_path)
    assert Symptom.SKEW not in found
    assert found[Symptom.STRAGGLER].conf == ("spark.speculation=true",)


def test_skew_rule_ignores_small_bytes(tmp_path: Path) -> None:
    tasks = [*even(7, end=3000, fetched=10), FakeTask(1000, 11_000, fetched=1000)]
    assert Symptom.SKEW not in found_in(log_of(tasks), tmp_path)


def test_skew_rule_for_unsplittable_files_suggests_no_setting(tmp_path: Path) -> None:
    tasks = [*even(7, end=3000, read=5000), FakeTask(1000, 11_000, read=60 * MIB)]
    found = found_in(log_of(tasks), tmp_path)[Symptom.SKEW]
    assert found.conf == ()
    assert "cannot be split further" in found.advice


def test_two_groups_of_tasks_are_neither_skew_nor_straggler(tmp_path: Path) -> None:
    tasks = [*even(5, end=3000), *even(3, end=11_000)]
    found = found_in(log_of(tasks), tmp_path)
    assert found.keys().isdisjoint({Symptom.SKEW, Symptom.STRAGGLER, Symptom.LAST_WAVE})


def test_skew_rule_ignores_cores_used_by_another_stage(tmp_path: Path) -> None:
    busy = even(7, begin=3000, end=11_000)
    found = found_in(log_of(one_long(fetched=50 * MIB), busy), tmp_path)
    assert Symptom.SKEW not in found


def test_diagnose_job_ignores_cores_used_by_another_job(tmp_path: Path) -> None:
    log = started().opened().opened(query=None, at=2000)
    log.events[-1] |= {"Job ID": 7, "Stage IDs": [7]}
    log.stage(one_long(fetched=50 * MIB)).closed()
    (job,), _ = log.jobs(tmp_path)
    assert not job.query.was_alone
    assert diagnose_job(job, "log", None) is None


def test_last_wave_rule_reports_seconds_and_number_of_waves(tmp_path: Path) -> None:
    tasks = [*even(8, end=6000), FakeTask(6000, 11_000)]
    found = found_in(log_of(tasks), tmp_path)[Symptom.LAST_WAVE]
    assert found.seconds == pytest.approx(10 - 45 / 8)
    assert "9 tasks on 8 slots are 1.12 waves" in found.evidence


def test_few_tasks_rule_suggests_splitting_only_large_input(tmp_path: Path) -> None:
    found = found_in(log_of(even(2, read=256 * MIB)), tmp_path)[Symptom.FEW_TASKS]
    assert found.seconds == pytest.approx(10 * (1 - 2 / 8))
    assert found.conf == (f"spark.sql.files.maxPartitionBytes={64 * MIB}",)
    small = found_in(log_of(even(2, read=1000)), tmp_path)[Symptom.FEW_TASKS]
    assert small.conf == ()


def test_executor_without_tasks_while_others_queue_adds_no_slots(tmp_path: Path) -> None:
    waves = [FakeTask(1000 + at, 2000 + at, executor="0") for at in (0, 3000, 6000, 9000)] * 4
    assert found_in(log_of(waves), tmp_path).get(Symptom.FEW_TASKS) is None
    (job,), _ = log_of(waves).jobs(tmp_path)
    assert [each.slots for each in job.stages] == [4]
    once = [FakeTask(1000, 9000, executor="0")] * 3
    (job,), _ = log_of(once).jobs(tmp_path)
    assert [each.slots for each in job.stages] == [8]  # no task waited, the other executor was free


def test_executors_of_another_resource_profile_add_no_slots(tmp_path: Path) -> None:
    log = started().opened().stage(even(), profile=1).closed()
    (job,), _ = log.jobs(tmp_path)
    assert [(each.slots, each.had_executors) for each in job.stages] == [(0, False)]


def test_few_tasks_rule_for_schema_inference_suggests_a_schema(tmp_path: Path) -> None:
    one = [FakeTask(1000, 11_000)]
    log = started().opened().stage(one, name="parquet at Load.scala:3").closed()
    assert "give a schema" in found_in(log, tmp_path)[Symptom.FEW_TASKS].advice
    own = found_in(log_of(one), tmp_path)[Symptom.FEW_TASKS].advice
    assert own.startswith("use more partitions if your code sets their number")


def test_cpu_time_of_many_short_tasks_is_not_rounded_away(tmp_path: Path) -> None:
    log = log_of([FakeTask(1000, 1001)] * 1000)
    for each in log.events:
        if each["Event"] == "SparkListenerTaskEnd":
            each["Task Metrics"]["Executor CPU Time"] = 900_000  # type: ignore[index]
    (job,), _ = log.jobs(tmp_path)
    assert job.stages[0].totals.cpu == 900


def test_tiny_tasks_rule_reports_overhead_and_fewer_partitions(tmp_path: Path) -> None:
    begins = range(1000, 11_000, 50)
    tasks = [FakeTask(at, at + 50, cpu=5, fetched=200) for at in begins for _ in range(SLOTS)]
    settings = {"sql_adaptive_enabled": "false", "sql_shuffle_partitions": str(len(tasks))}
    found = found_in(log_of(tasks, **settings), tmp_path)[Symptom.TINY_TASKS]
    assert found.seconds == pytest.approx(10 * 0.9 * (1 - 8 / len(tasks)))
    assert found.conf == ("spark.sql.adaptive.enabled=true", "spark.sql.shuffle.partitions=8")


def test_executor_wait_is_separated_from_driver_time(tmp_path: Path) -> None:
    log = started().opened()
    log.stage(even(begin=5000, end=10_000), at=2000).closed()
    found = found_in(log, tmp_path)
    assert found[Symptom.EXECUTOR_WAIT].seconds == pytest.approx(3.0)
    assert "executors were there" in found[Symptom.EXECUTOR_WAIT].evidence
    assert found[Symptom.DRIVER].seconds == pytest.approx(1.0 + 1.0)
    assert found[Symptom.DRIVER].conf == ()


def test_executor_wait_rule_names_the_stage_with_the_longest_wait(tmp_path: Path) -> None:
    log = started().opened(stages=2)
    log.stage(even(begin=2000, end=4000), at=1000)
    log.stage(even(begin=8000), number=1, at=4000).closed()
    found = found_in(log, tmp_path)[Symptom.EXECUTOR_WAIT]
    assert found.place == "stage 1"
    assert found.seconds == pytest.approx(5.0)


def test_executor_wait_rule_suggests_min_executors_only_after_scale_down(tmp_path: Path) -> None:
    log = MeasuredLog()
    log.begin(executors=0)
    log.set(executor_cores="4").opened()
    info = {"Stage ID": 0, "Stage Attempt ID": 0, "Stage Name": "sum"}
    submitted = {**info, "Submission Time": 1_750_000_001_000}
    log.add("SparkListenerStageSubmitted", Stage_Info=submitted)
    log.executor("1", 1_750_000_006_000, host="host-1")
    tasks = log_of(even(4, begin=6000)).events
    log.events += [each for each in tasks if each["Event"] == "SparkListenerTaskEnd"]
    first = found_in(log.closed(), tmp_path)[Symptom.EXECUTOR_WAIT]
    assert "no executor was there" in first.evidence
    assert "was starting" in first.advice
    assert first.conf == ()
    came = {"Event": "SparkListenerExecutorAdded", "Timestamp": 1_750_000_000_000}
    gone = {"Event": "SparkListenerExecutorRemoved", "Timestamp": 1_750_000_000_500}
    info = {"Host": "host-0", "Total Cores": 4}
    log.events[3:3] = [
        {**came, "Executor ID": "0", "Executor Info": info},
        {**gone, "Executor ID": "0"},
    ]
    later = found_in(log, tmp_path)[Symptom.EXECUTOR_WAIT]
    assert "no executor was there" in later.evidence
    assert later.conf == ("spark.dynamicAllocation.minExecutors=1",)


def test_gc_rule_suggests_memory_of_executor_or_driver(tmp_path: Path) -> None:
    tasks = even(garbage=2000, held=500 * MIB)
    found = found_in(log_of(tasks, executor_memory="8g"), tmp_path)[Symptom.GARBAGE]
    assert found.seconds == pytest.approx(2.0)
    assert found.conf == ("spark.executor.memory=16g",)
    local = found_in(log_of(tasks, master="local[8]"), tmp_path)[Symptom.GARBAGE]
    assert local.conf == ("spark.driver.memory=2g",)


def test_gc_rule_with_mostly_free_memory_suggests_no_setting(tmp_path: Path) -> None:
    tasks = even(garbage=2000, held=10 * MIB)  # eight tasks at a time
    roomy = found_in(log_of(tasks, executor_memory="8g"), tmp_path)[Symptom.GARBAGE]
    assert roomy.conf == ()
    assert "held at most 83.9 MB of 8.6 GB at once" in roomy.evidence


def test_shuffle_wait_and_shuffle_growth_are_reported(tmp_path: Path) -> None:
    tasks = even(
        fetch_wait=1000, shuffle_write=1000, rows=10, rows_written=90, written=50 * MIB, cpu=5000
    )
    found = found_in(log_of(tasks), tmp_path)
    assert found[Symptom.SHUFFLE_WAIT].seconds == pytest.approx(2.0)
    assert "read 80 rows and wrote 720" in found[Symptom.SHUFFLE_GROWTH].evidence


def test_shuffle_growth_requires_more_rows(tmp_path: Path) -> None:
    tasks = even(read=MIB, rows=90, rows_written=120, written=50 * MIB)
    assert Symptom.SHUFFLE_GROWTH not in found_in(log_of(tasks), tmp_path)


def with_a_broadcast(size: int, sent: int) -> MeasuredLog:
    names = ("data size", "time to build", "time to broadcast (ms)")
    metrics = [{"name": name, "accumulatorId": n} for n, name in enumerate(names)]
    exchange = {"nodeName": "BroadcastExchange", "children": [], "metrics": metrics}
    log = started().opened()
    for event in log.events:
        if str(event["Event"]).endswith("SQLExecutionStart"):
            event["sparkPlanInfo"] = {**node("Project"), "children": [exchange]}
    values = [[0, size], [1, 500], [2, sent], [77, 1]]
    log.add(SQL + "SparkListenerDriverAccumUpdates", executionId=0, accumUpdates=values)
    return log.stage(even()).closed()


def test_broadcast_rule_reports_table_far_above_the_threshold(tmp_path: Path) -> None:
    found = found_in(with_a_broadcast(900 * MIB, 2500), tmp_path)[Symptom.BROADCAST]
    assert found.seconds == pytest.approx(3.0)
    assert "a table of 943.7 MB was sent to all executors, 1 such in all" in found.evidence
    assert found.conf == ()  # the log has no estimate by Spark
    assert Symptom.BROADCAST not in found_in(with_a_broadcast(90 * MIB, 2500), tmp_path)


def failing(reason: Mapping[str, object] | str) -> Sequence[FakeTask]:
    return [*even(), FakeTask(1000, 5000, reason=reason)]


def test_failures_rule_reports_lost_task_seconds_and_cause(tmp_path: Path) -> None:
    killed = {"Reason": "ExecutorLostFailure", "Loss Reason": "exit code 137"}
    found = found_in(log_of(failing(killed), executor_memory="8g"), tmp_path)[Symptom.FAILURES]
    assert found.seconds == pytest.approx(4.0)
    assert found.figures["reason"] == "container memory"
    assert found.conf == ("spark.executor.memoryOverhead=2g",)


def test_killed_task_is_no_failure(tmp_path: Path) -> None:
    assert Symptom.FAILURES not in found_in(log_of(failing("TaskKilled")), tmp_path)


def test_failed_job_loses_its_whole_runtime(tmp_path: Path) -> None:
    log = started().opened().stage(even()).closed(error="no such column")
    assert found_in(log, tmp_path)[Symptom.FAILURES].seconds == pytest.approx(10.0)


def test_potential_saving_of_a_finding_is_at_most_the_job_runtime(tmp_path: Path) -> None:
    long = even(begin=0, end=30_000, garbage=29_000)
    again = started().opened().stage(even()).stage(long, attempt=1).closed()
    assert all(each.seconds <= 10 for each in found_in(again, tmp_path).values())


def test_ranking_keeps_jobs_with_largest_potential_saving(tmp_path: Path) -> None:
    ranking, prices = Ranking(2), PriceList(core=3600.0)
    for garbage in (1500, 4000, 2500, 0):
        ((job,), _) = log_of(even(garbage=garbage)).jobs(tmp_path)
        ranking.add(job, str(garbage), prices)
    assert [each.log for each in ranking.first] == ["4000", "2500"]
    assert (ranking.jobs, ranking.with_findings) == (4, 3)
    first = ranking.first[0]
    assert first.cost == pytest.approx(80 * 1.0 * 1)
    assert first.at_stake(first.findings[0]) == pytest.approx(32.0)


def test_slow_executor_rule_compares_executors_with_enough_tasks(tmp_path: Path) -> None:
    fast = [FakeTask(1000 + at, 2000 + at, executor="0") for at in range(0, 8000, 1000)] * 4
    slow = [FakeTask(1000 + at, 5000 + at, executor="1") for at in (0, 4000)] * 4
    found = found_in(log_of([*fast, *slow]), tmp_path)[Symptom.SLOW_EXECUTOR]
    assert found.seconds == pytest.approx(8 * 3 / 8)  # eight tasks of four seconds instead of one
    assert (found.figures["executor"], found.figures["host"]) == ("1", "host-1")
    assert found.conf == ("spark.speculation=true",)
    few = found_in(log_of([*fast, *slow[:4]]), tmp_path)
    assert Symptom.SLOW_EXECUTOR not in few


def test_setting_that_shuffles_without_compression_is_bounded_by_its_waits(tmp_path: Path) -> None:
    tasks = even(fetch_wait=1000, shuffle_write=500, cpu=5000)
    found = found_in(log_of(tasks, shuffle_compress="false"), tmp_path)[Symptom.SETTINGS]
    assert found.seconds == pytest.approx(1.5)
    assert found.conf == ("spark.shuffle.compress=true",)
    assert Symptom.SETTINGS not in found_in(log_of(tasks), tmp_path)


def test_reserved_cores_that_tasks_use_are_no_finding(tmp_path: Path) -> None:
    def settings_of(cpu: int) -> dict[Symptom, JobFinding]:
        waves = [FakeTask(1000 + at, 6000 + at, cpu=cpu) for at in (0, 5000)] * 4
        return found_in(log_of(waves, task_cpus="2"), tmp_path)

    assert settings_of(2500)[Symptom.SETTINGS].seconds == pytest.approx(5.0)
    assert Symptom.SETTINGS not in settings_of(9500)
