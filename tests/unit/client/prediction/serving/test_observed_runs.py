"""Predictions from stored runs of the same job, also with unknown cardinalities."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedperf_client.formatting.facts import values_of
from fedperf_client.home.config import write_private
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.prediction import EvidenceSource
from fedperf_client.prediction.serving.predictor_cache import CachedPredictor, load_or_fit
from fedperf_client.prediction.serving.what_if import (
    ON_TIME,
    ClusterPrediction,
    predict_plan,
)
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    KnownJob,
    Measurement,
)
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.unit.client.executions import chain_plan, make_execution
from tests.unit.client.prediction.synthetic_executions import executions_of_world

EIGHT = ClusterConfig(1, 8, 2**30)
UNKNOWN = ExecutionMetadata(rows_known=0.0, description="reduce at job.py:7", tasks=16)
Home = Callable[[Sequence[Execution]], CachedPredictor]


def spark_plan(*rows: float) -> Plan:
    """Return a union of sources with these rows, where 0 stands for unknown."""
    sources = tuple(
        Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), each, 8.0)
        for each in rows
    )
    union = Operator(OperatorKind.UNION, OperatorClass.RELATIONAL, tuple(range(len(rows))))
    return Plan.on_one_platform(Workflow((*sources, union), SourceStatistics()), Platform.SPARK)


def run(number: int, seconds: float, *, read: int = 0, **changes: object) -> Execution:
    """Return a run of a Spark job without known rows, such as one over JDBC or Kafka."""
    values: dict[str, object] = {
        "workload": "nightly/reduce",
        "plan": spark_plan(0.0),
        "cluster": EIGHT,
        "origin": UNKNOWN,
        "measurement": Measurement(seconds, read_bytes=read),
    }
    return make_execution(number, **{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a function that stores executions and loads the cached predictor."""

    def opened(executions: Sequence[Execution]) -> CachedPredictor:
        with ExecutionStore.open(tmp_path / "store") as store:
            store.add(executions)
            kept = load_or_fit(tmp_path / "kept", store, FetchedModels(tmp_path / "models"))
            kept.save(write_private)
            return load_or_fit(tmp_path / "kept", store, FetchedModels(tmp_path / "models"))

    return opened


def about(kept: CachedPredictor, execution: Execution, *cores: int) -> ClusterPrediction:
    """Return the prediction for an execution on its own cluster or on the first of `cores`."""
    sizes = [replace(execution.cluster, cores=each) for each in cores] or [execution.cluster]
    known = execution.plan, execution.cluster
    return predict_plan(
        kept.predictor, *known, sizes, job=KnownJob.of(execution), deadline_seconds=1e6
    )[0]


ALONE = {
    "JDBC, no rows": run(0, 60.0),
    "bytes alone": run(1, 60.0, read=10**9, origin=replace(UNKNOWN, tasks=0)),
    "nothing but its place in the code": run(2, 60.0, origin=ExecutionMetadata(rows_known=0.0)),
    "one source known, one not": run(
        3, 60.0, plan=spark_plan(1e6, 0.0), origin=replace(UNKNOWN, rows_known=2 / 3)
    ),
    "accelerated": run(
        4,
        60.0,
        plan=spark_plan(1e6),
        origin=ExecutionMetadata(remarks=(ExecutionWarning.ACCELERATED,)),
    ),
    "rows within a factor": run(
        5, 60.0, plan=spark_plan(1e6), origin=ExecutionMetadata(rows_within=8.0)
    ),
    "all rows known": run(6, 60.0, plan=spark_plan(1e6), origin=ExecutionMetadata()),
}


@pytest.mark.parametrize("execution", ALONE.values(), ids=ALONE)
def test_predict_with_one_own_execution_returns_its_time(execution: Execution, home: Home) -> None:
    found = about(home([execution]), execution)
    prediction = found.estimate
    assert prediction.median_seconds == pytest.approx(60.0, rel=0.1)
    assert prediction.covers(60.0)
    assert prediction.upper_seconds / prediction.lower_seconds < 10
    assert found.estimate.probability_within(5.0) < 0.02
    assert values_of(found.facts)["evidence"] == EvidenceSource.OWN_RUNS.value
    assert not prediction.extrapolating


def test_predict_with_other_core_counts_uses_same_runs_as_evidence(home: Home) -> None:
    execution = run(0, 60.0)
    kept = home([execution])
    fewer, more = about(kept, execution, 2), about(kept, execution, 32)
    for each, ratio in ((fewer, 4.0), (more, 0.25)):
        assert each.estimate.evidence.source is EvidenceSource.OTHER_RESOURCES
        assert each.estimate.covers(60.0)
        assert each.estimate.covers(60.0 * ratio)


def test_predict_with_fewer_cores_is_at_least_cpu_seconds(home: Home) -> None:
    execution = run(0, 60.0, measurement=Measurement(60.0, cpu_seconds=440.0))
    found = about(home([execution]), execution, 1)
    assert found.estimate.median_seconds >= 440 - 1e-9


@pytest.mark.parametrize(("tasks", "changes"), [(8, False), (12, True), (0, True)])
def test_predict_with_more_cores_than_tasks_brings_no_speedup(
    tasks: int, changes: bool, home: Home
) -> None:
    execution = run(0, 60.0, origin=replace(UNKNOWN, tasks=tasks))
    kept = home([execution])
    at_tasks, beyond = about(kept, execution, 12), about(kept, execution, 12 * 16)
    medians = [each.estimate.median_seconds for each in (at_tasks, beyond)]
    assert (medians[0] < 59.0) is changes
    assert (medians[1] == pytest.approx(medians[0])) is (tasks > 0)
    assert beyond.estimate.covers(60.0)


def test_predict_from_runs_at_one_code_location_covers_their_range(home: Home) -> None:
    times = [0.1 * 1.2**step for step in range(17)]
    executions = [
        run(n, each, cluster=replace(EIGHT, queries_before=n)) for n, each in enumerate(times)
    ]
    prediction = about(home(executions), executions[8]).estimate
    assert prediction.lower_seconds < times[1]
    assert prediction.upper_seconds > times[-2]


@pytest.mark.parametrize(("factor", "is_same"), [(1.08, True), (0.93, True), (1.2, False)])
def test_predict_treats_read_bytes_within_a_tenth_as_same_input_size(
    factor: float, is_same: bool, home: Home
) -> None:
    kept = home([run(0, 60.0, read=10**9)])
    asked = run(1, 1.0, read=int(factor * 10**9), origin=replace(UNKNOWN, description="other"))
    found = about(kept, asked)
    rests_on = EvidenceSource.OWN_RUNS if is_same else EvidenceSource.OTHER_SIZE
    assert found.estimate.evidence.source is rests_on
    assert found.meets_deadline is is_same


@pytest.mark.parametrize("other", [{"tasks": 17}, {"description": "reduce at job.py:8"}])
def test_predict_without_read_bytes_identifies_job_by_tasks_and_description(
    other: dict[str, object], home: Home
) -> None:
    kept = home([run(0, 60.0)])
    same = about(kept, run(1, 1.0))
    unlike = about(kept, run(2, 1.0, origin=replace(UNKNOWN, **other)))  # type: ignore[arg-type]
    assert same.estimate.evidence.source is EvidenceSource.OWN_RUNS
    assert unlike.estimate.evidence.source is EvidenceSource.OTHER_SIZE
    assert unlike.estimate.upper_seconds > same.estimate.upper_seconds
    assert unlike.meets_deadline is False


@pytest.mark.parametrize("others", [0, 20])
def test_predict_with_unknown_rows_and_no_own_run_misses_deadline(others: int, home: Home) -> None:
    kept = home([*executions_of_world(1, others, "own"), run(90, 2.0, workload="another")])
    partly = replace(UNKNOWN, rows_known=2 / 3)
    for asked in (run(0, 60.0), run(1, 60.0, plan=spark_plan(1e6, 0.0), origin=partly)):
        found = about(kept, asked)
        assert found.estimate.evidence.source is EvidenceSource.UNKNOWN_ROWS
        prediction = found.estimate
        assert prediction.upper_seconds / prediction.lower_seconds > 1e5
        assert found.meets_deadline is False
        assert found.probability is not None
        assert found.probability < ON_TIME


def test_training_set_excludes_runs_with_unknown_rows_and_accelerated_runs(
    tmp_path: Path, home: Home
) -> None:
    own = executions_of_world(2, 24, "own")
    accelerated = ExecutionMetadata(remarks=(ExecutionWarning.ACCELERATED,))
    apart = [
        *(run(n, 60.0 * n, cluster=replace(EIGHT, cores=n)) for n in range(1, 9)),
        make_execution(50, plan=chain_plan(), origin=accelerated),
    ]
    told = []
    for executions in (own, apart):
        candidates = home(executions).predictor.pool  # 2nd pass: executions of both
        told.append(
            (
                len(candidates.training),
                candidates.summary.support,
                len(candidates.summary.repeats.first),
            )
        )
    assert told[0] == told[1]


def test_predict_never_uses_plain_runs_as_evidence_for_accelerated_ones(home: Home) -> None:
    plain = run(0, 60.0, plan=spark_plan(1e6), origin=ExecutionMetadata())
    fast = replace(
        plain,
        execution_id="fast",
        origin=ExecutionMetadata(remarks=(ExecutionWarning.ACCELERATED,)),
    )
    of_plain = about(home([plain]), fast)
    assert of_plain.estimate.evidence.source is not EvidenceSource.OWN_RUNS
    usual = about(home([plain]), replace(plain, plan=spark_plan(2e6)))
    ratios = [
        each.estimate.upper_seconds / each.estimate.lower_seconds for each in (of_plain, usual)
    ]
    assert ratios[0] > 90 * ratios[1]


def test_predict_with_inexact_rows_widens_interval(home: Home) -> None:
    kept = home(executions_of_world(3, 12, "own"))
    counted = make_execution(50)
    within = replace(counted, origin=ExecutionMetadata(rows_within=100.0))
    ends = [
        (each.upper_seconds, each.lower_seconds)
        for each in (about(kept, asked).estimate for asked in (counted, within))
    ]
    assert ends[1][0] > 2 * ends[0][0]
    assert ends[1][1] < ends[0][1] / 2


def test_failed_runs_with_unknown_rows_are_lower_bounds_for_their_job_only(home: Home) -> None:
    cut = [run(n, 500.0, status=ExecutionStatus.TIMEOUT, origin=UNKNOWN) for n in range(3)]
    kept = home([run(9, 60.0), *cut])
    asked = run(9, 60.0)
    of_job = about(kept, asked).estimate
    assert of_job.upper_seconds > 500
    other = replace(asked, origin=replace(UNKNOWN, description="elsewhere"))
    without = about(home([replace(other, execution_id="other")]), other).estimate
    assert without.upper_seconds < 500
