"""The experiment on prediction intervals, on few executions."""

from pathlib import Path

import pytest

from fedperf_client.prediction.mixture.intervals import source_rows
from fedperf_simulations.experiments import intervals
from fedperf_simulations.experiments.intervals import EXPERIMENT, IN_RANGE, LARGER, MORE_CORES
from fedperf_simulations.harness.experiment import Settings
from fedperf_simulations.measured_set.organizations import WorkloadPart


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "QUICK_EXECUTIONS", 15)
    monkeypatch.setattr(intervals, "ORGANIZATIONS", (WorkloadPart.CEDAR, WorkloadPart.ALDER))
    chosen = {name: intervals.WAYS[name] for name in (IN_RANGE, MORE_CORES)}
    monkeypatch.setattr(intervals, "WAYS", chosen)


@pytest.mark.usefixtures("few")
def test_other_workloads_are_in_range_and_more_cores_than_known_are_flagged(tmp_path: Path) -> None:
    outcome = EXPERIMENT.run(Settings(seed=0, out=tmp_path, quick=True))
    rows = {(row["asks about"], row["organization"]): row for row in outcome.rows}
    assert len(rows) == len(outcome.rows) == 6
    inside, beyond = rows[IN_RANGE, "all"], rows[MORE_CORES, "all"]
    assert inside["asked"] == 30
    assert beyond["flagged"] == beyond["asked"]
    assert beyond["covered"] == 0
    counted = [rows[IN_RANGE, part]["covered"] for part in ("cedar", "alder")]
    assert inside["covered"] == sum(int(each or 0) for each in counted)
    assert int(inside["flagged"] or 0) <= 6
    assert [(each.limit, each.at_most) for each in outcome.targets] == [
        (0.88, False),
        (0.95, True),
        (0.85, False),
    ]
    assert outcome.targets[-1].value == 1.0


def test_what_is_known_and_what_is_asked_about_never_meet() -> None:
    for way in intervals.WAYS.values():
        known, asked = way(WorkloadPart.CEDAR, 0)
        ids = {each.execution_id for each in known}
        assert ids
        assert asked
        assert ids.isdisjoint(each.execution_id for each in asked)
    known, asked = intervals.WAYS[IN_RANGE](WorkloadPart.CEDAR, 0)
    assert {each.workload for each in known}.isdisjoint(each.workload for each in asked)
    known, asked = intervals.WAYS[LARGER](WorkloadPart.CEDAR, 0)
    sizes = [[source_rows(each.plan) for each in executions] for executions in (known, asked)]
    assert max(sizes[0]) < min(sizes[1])
