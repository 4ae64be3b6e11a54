"""The benchmark's home is as it says, and its targets are those of its size."""

from collections import Counter
from itertools import pairwise

import numpy as np

from fedperf_simulations.experiments.store.experiment import _targets
from fedperf_simulations.experiments.store.measurement import PER_WORKLOAD, made_up


def test_executions_are_ten_of_a_workload_of_14_operators_all_of_other_sizes() -> None:
    found = list(made_up(0, 0, 1000))
    assert set(Counter(each.workload for each in found).values()) == {PER_WORKLOAD}
    assert 13 < np.mean([len(each.plan.workflow.operators) for each in found]) < 15
    assert len({each.plan.workflow.source_rows for each in found}) == 1000
    assert len({each.execution_id for each in found}) == 1000
    assert all(one.finished_at < other.finished_at for one, other in pairwise(found))


def test_any_slice_is_the_same_executions() -> None:
    found = list(made_up(3, 0, 60))
    assert list(made_up(3, 25, 47)) == found[25:47]
    assert list(made_up(4, 0, 1)) != found[:1]


def test_only_the_sizes_that_were_promised_for_have_promises() -> None:
    names = ("ingest_ms", "warm_ms", "warm_known_ms", "warm_again_ms")
    asked = ("first_predict", "predict", "drift", "gain")
    figures = dict.fromkeys(names, 1.0)
    figures |= {f"{each}_{of}": 1.0 for each in asked for of in ("cpu_seconds", "megabytes")}
    small, large = ({"executions": size, "new": 1, **figures} for size in (1000, 100_000))
    assert [each.limit for each in _targets(small)] == [0.7, 1.0, 1.0, 1.0]
    of_commands = [5, 500, 15, 10, 500, 60, 500]
    assert [each.limit for each in _targets(large)] == [0.7, 1.0, 1.0, 1.0, *of_commands]
    assert [each.holds for each in _targets(small)] == [False, True, True, True]
