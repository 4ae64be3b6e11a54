"""Tests of the part on local prediction: coverage of intervals with few executions."""

from pathlib import Path

import pytest

from fedperf_simulations.corpus.cardinality_mode import ACTUAL, ESTIMATED
from fedperf_simulations.corpus.organizations import WorkloadPart
from fedperf_simulations.experiments.intervals import at_home
from fedperf_simulations.experiments.intervals.at_home import IN_RANGE, LARGER, MORE_CORES, PART
from fedperf_simulations.experiments.intervals.figures import where
from fedperf_simulations.harness.experiment import Settings


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_home, "QUICK_EXECUTIONS", 15)
    monkeypatch.setattr(at_home, "ORGANIZATIONS", (WorkloadPart.CEDAR, WorkloadPart.ALDER))
    chosen = {name: at_home.WAYS[name] for name in (IN_RANGE, MORE_CORES)}
    monkeypatch.setattr(at_home, "WAYS", chosen)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_local_interval_evaluation_flags_queries_with_more_cores(tmp_path: Path) -> None:
    cases = PART.cases(Settings(seed=0, out=tmp_path, quick=True))
    table = PART.rows(cases)
    rows = {
        (row["situation"], row["organization"]): row for row in where(table, information=ACTUAL)
    }
    assert len(rows) == 6
    assert len(table) == 12
    [before] = where(
        table, situation=f"at home: {IN_RANGE}", organization="all", information=ESTIMATED
    )
    assert before["asked"] == 30
    assert before["q50"] != rows[f"at home: {IN_RANGE}", "all"]["q50"]
    inside, beyond = rows[f"at home: {IN_RANGE}", "all"], rows[f"at home: {MORE_CORES}", "all"]
    assert inside["asked"] == 30
    assert beyond["flagged"] == beyond["asked"]
    assert beyond["within"] == 0
    counted = [rows[f"at home: {IN_RANGE}", part]["within"] for part in ("cedar", "alder")]
    assert inside["within"] == sum(int(str(each)) for each in counted)
    assert int(str(inside["flagged"])) <= 6
    targets = PART.targets(cases, table)
    assert [(each.limit, each.at_most) for each in targets] == [
        (0.88, False),
        (0.95, True),
        (0.85, False),
    ]
    assert targets[-1].value == 1.0


@pytest.mark.slow
def test_local_training_and_query_executions_are_disjoint() -> None:
    for way in at_home.WAYS.values():
        known, asked = way(WorkloadPart.CEDAR, 0)
        ids = {each.execution_id for each in known}
        assert ids
        assert asked
        assert ids.isdisjoint(each.execution_id for each in asked)
    known, asked = at_home.WAYS[IN_RANGE](WorkloadPart.CEDAR, 0)
    assert {each.workload for each in known}.isdisjoint(each.workload for each in asked)
    known, asked = at_home.WAYS[LARGER](WorkloadPart.CEDAR, 0)
    sizes = [
        [each.plan.workflow.source_rows for each in executions] for executions in (known, asked)
    ]
    assert max(sizes[0]) < min(sizes[1])
