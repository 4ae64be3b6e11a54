"""Logs of Spark applications with one fault each: the fault is found, and none that is not there.

The logs are those of `tests/integration/sources/spark_faults.py`, run on a busy machine by Spark
3.5 and 4.0 in `local-cluster` mode. What Spark itself does beside tasks took long there, so
findings about that (`BESIDE`) may come in addition.
"""

import gzip
from pathlib import Path

import pytest

from fedperf_client.diagnosis.diagnosis import LEAST_SHARE, WHOLE, Diagnosis, Ranking
from fedperf_client.diagnosis.job_facts import Symptom, jobs_of
from fedperf_client.sources.spark.event_log import EventLog
from tests.integration.sources.spark_faults import FAULT, FAULTS
from tests.pages import ROOT

LOGS = sorted((ROOT / "tests" / "cases" / "spark_faults").glob("*.gz"))

# By fault: what is to be found, and the share of the job (or application) that it takes at least
# and at most, by how the job was made.
TRUTH: dict[str, tuple[Symptom | None, float, float]] = {
    "no_fault": (None, 0, 0),
    "skew": (Symptom.SKEW, 0.3, 0.75),
    "spill": (Symptom.SPILL, 0.1, 1),
    "garbage": (Symptom.GARBAGE, 0.05, 1),
    "straggler": (Symptom.STRAGGLER, 0.3, 0.6),
    "slow_executor": (Symptom.SLOW_EXECUTOR, 0.25, 0.7),
    "cold_start": (Symptom.EXECUTOR_WAIT, 0.05, 1),
    "churn": (Symptom.EXECUTOR_CHURN, 0.05, 0.8),
    "recomputed": (Symptom.REPEATED_WORK, 0.05, 0.7),
    "duplicate": (Symptom.REPEATED_WORK, 0.3, 0.7),
    "small_files_read": (Symptom.SMALL_FILES, 0.3, 1),
    "small_files_written": (Symptom.SMALL_FILES, 0.3, 1),
    "sort_merge_join": (Symptom.SORTED_JOIN, 0.2, 0.95),
    "broadcast": (Symptom.BROADCAST, 0.05, 1),
    "few_tasks": (Symptom.FEW_TASKS, 0.5, 0.8),
    "last_wave": (Symptom.LAST_WAVE, 0.2, 0.5),
    "tiny_tasks": (Symptom.TINY_TASKS, 0.3, 1),
    "retries": (Symptom.FAILURES, 0.2, 0.7),
    "aborted_stage": (Symptom.FAILURES, 1, 1),
    "lost_executor": (Symptom.FAILURES, 0.1, 1),
    "outside_jobs": (Symptom.OUTSIDE_JOBS, 0.2, 0.9),
    "dropped_events": (Symptom.DROPPED_EVENTS, 0, 0),
    "cores_per_task": (Symptom.SETTINGS, 0.3, 0.55),
    "python_workers": (Symptom.SETTINGS, 0.2, 1),
    "killed_driver": (Symptom.NO_END, 0, 0.9),
}
OF_APPLICATION = {"churn", "recomputed", "outside_jobs", "killed_driver"}

# The driver's planning, the arrival of executors, the time before and after all jobs, and the last
# task of an aggregation.
BESIDE = {Symptom.DRIVER, Symptom.EXECUTOR_WAIT, Symptom.OUTSIDE_JOBS, Symptom.FEW_TASKS}

# What follows from the fault, or is the same by another measure.
FOLLOWS: dict[str, set[Symptom]] = {
    "churn": {Symptom.STRAGGLER},  # executors that have just come
    "recomputed": {Symptom.LAST_WAVE},
    "lost_executor": {Symptom.STRAGGLER, Symptom.LAST_WAVE},
    "retries": {Symptom.STRAGGLER, Symptom.LAST_WAVE},
    "broadcast": {Symptom.GARBAGE},
    "cold_start": {Symptom.STRAGGLER},
    "python_workers": {Symptom.LAST_WAVE, Symptom.STRAGGLER},
    "sort_merge_join": {Symptom.SHUFFLE_WAIT},
    "spill": {Symptom.GARBAGE, Symptom.SHUFFLE_WAIT},
    "tiny_tasks": {Symptom.LAST_WAVE, Symptom.SHUFFLE_WAIT},
}


def diagnosed(log: Path, directory: Path) -> list[Diagnosis]:
    """Return all diagnoses of the job with the fault, and of the application."""
    plain = directory / "log"
    plain.write_bytes(gzip.decompress(log.read_bytes()))
    ranking = Ranking(1000)
    for each in jobs_of(EventLog((plain,))):
        if not isinstance(each, str):
            ranking.add(each, log.name, None)
    return [e for e in ranking.first if e.label == WHOLE or e.description.startswith(FAULT)]


def check(log: Path, directory: Path) -> None:
    name = log.name.rpartition("-")[0]
    symptom, least, most = TRUTH[name]
    diagnoses = diagnosed(log, directory)
    shares = {
        (finding.symptom, each.label == WHOLE): finding.seconds
        / (each.seconds + each.waited_seconds)
        for each in diagnoses
        for finding in each.findings
    }
    found = {of for of, share in shares.items() if share >= LEAST_SHARE}
    if symptom is not None:
        is_whole = name in OF_APPLICATION
        assert (symptom, is_whole) in shares, shares
        assert least * 0.999 <= shares[symptom, is_whole] <= most, shares
        found.discard((symptom, is_whole))
    assert {of for of, _ in found} <= BESIDE | FOLLOWS.get(name, set()), found


@pytest.mark.parametrize("log", LOGS, ids=lambda each: each.stem)
def test_diagnosis_of_a_log_with_one_fault_finds_it_and_no_other(log: Path, tmp_path: Path) -> None:
    check(log, tmp_path)


def test_every_fault_has_a_truth_and_most_have_a_log() -> None:
    assert TRUTH.keys() == FAULTS.keys()
    assert len(LOGS) >= 20
