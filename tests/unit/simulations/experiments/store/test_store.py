"""Tests of the store benchmark: its generated executions, and its targets by store size."""

from collections import Counter
from itertools import pairwise

import numpy as np

from fedperf_simulations.experiments.store.experiment import _targets
from fedperf_simulations.experiments.store.measurement import PER_WORKLOAD, made_up


def test_generated_store_has_ten_executions_per_workload_of_about_14_operators() -> None:
    found = list(made_up(0, 0, 1000))
    assert set(Counter(each.workload for each in found).values()) == {PER_WORKLOAD}
    assert 13 < np.mean([len(each.plan.workflow.operators) for each in found]) < 15
    assert len({each.plan.workflow.source_rows for each in found}) == 1000
    assert len({each.execution_id for each in found}) == 1000
    assert all(one.finished_at < other.finished_at for one, other in pairwise(found))


def test_generated_store_slice_equals_the_same_part_of_the_whole() -> None:
    found = list(made_up(3, 0, 60))
    assert list(made_up(3, 25, 47)) == found[25:47]
    assert list(made_up(4, 0, 1)) != found[:1]


def test_store_targets_depend_on_the_store_size() -> None:
    names = ("ingest_ms", "warm_ms", "warm_known_ms", "warm_again_ms")
    asked = ("first_predict", "predict", "drift", "gain")
    figures = dict.fromkeys(names, 1.0)
    figures |= {f"{each}_{of}": 1.0 for each in asked for of in ("cpu_seconds", "megabytes")}
    small, large = ({"executions": size, "new": 1, **figures} for size in (1000, 100_000))
    assert [each.limit for each in _targets(small)] == [0.7, 1.0, 1.0, 1.0]
    of_commands = [5, 500, 15, 10, 500, 60, 500]
    assert [each.limit for each in _targets(large)] == [0.7, 1.0, 1.0, 1.0, *of_commands]
    assert [each.holds for each in _targets(small)] == [False, True, True, True]
