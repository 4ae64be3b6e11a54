"""A workload's contribution to reports is independent of other workloads, for any reference."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import LabelledGraph, workload_residuals
from fedperf_client.contributions.mechanisms import (
    GRID_EXPONENT,
    WorkloadResiduals,
    sum_cell_query,
    sum_residuals,
)
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS, cell_of
from fedperf_shared.releases.linear_queries import (
    INSIDE,
    QUERY_DIRECTIONS,
    CellQuery,
    public_design,
)
from fedperf_shared.releases.release import ReleaseKind, SlotKey
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.model.ggfn import GGFN, state_to_arrays
from tests.fakes.crafted_models import MODELS, amplifying

CLIP = 1.5
FEW, MANY, MOST = (5, 100), (300, 383, 511), (767, 1025)
"""Numbers of workloads. Some are just above the batch size of predictions."""

STORES = [
    *(
        (name, count)
        for name in ("public start", *(f"amplifying {seed}" for seed in range(4)), "wild 1.5")
        for count in FEW
    ),
    *(
        pytest.param(name, count, marks=pytest.mark.slow)
        for names, counts in (
            (("public start", "amplifying 0", "amplifying 1", "wild 1.5"), MANY),
            (("amplifying 2", "amplifying 3"), MOST),
        )
        for name in names
        for count in counts
    ),
]
KERNELS = ("Haswell", "SkylakeX", "Sandybridge")


@cache
def ran() -> list[LabelledGraph]:
    """Return the public plans with their measured times."""
    return [
        LabelledGraph(
            "",
            featurize(each.plan, each.cluster),
            cell_of(each.plan).index,
            each.log_seconds,
        )
        for each in load_public_plans()
    ]


def store(seed: int, count: int) -> list[LabelledGraph]:
    chosen = np.random.default_rng(seed).choice(len(ran()), count)
    return [
        replace(ran()[place], workload=f"workload {number}") for number, place in enumerate(chosen)
    ]


@cache
def question() -> CellQuery:
    directions = np.random.default_rng(0).standard_normal((QUERY_DIRECTIONS, CELLS))
    directions *= INSIDE / 0.5 / np.linalg.norm(directions, axis=0)
    slot = SlotKey(ReleaseKind.RESIDUAL_REPORT, 3, 1)
    design = public_design(directions, np.full(CELLS, 0.5))
    return CellQuery(slot, 1, BASIS_VERSION, 7, np.zeros(CELLS), design)


def arrays_of(model: GGFN) -> GgfnArrays:
    return GgfnArrays.of(Checkpoint(state_to_arrays(model), 1))


def sums(model: GGFN, labelled: list[LabelledGraph]) -> NDArray[np.int64]:
    """Return the sums of the plain and the directed report, concatenated, in grid steps."""
    found: tuple[WorkloadResiduals, ...] = workload_residuals(arrays_of(model), labelled)
    plain = sum_residuals(found, CLIP)
    return np.concatenate([plain, sum_cell_query(found, question())])


def is_within_the_bound(moved: NDArray[np.int64]) -> bool:
    """Check each report's norm separately, in unbounded integers."""
    parts = moved[: 2 * CELLS].tolist(), moved[2 * CELLS :].tolist()
    return all(sum(each * each for each in part) <= 4**-GRID_EXPONENT for part in parts)


@pytest.mark.parametrize(("name", "count"), STORES)
def test_added_workload_moves_reports_by_exactly_its_own_vector(name: str, count: int) -> None:
    model = MODELS[name]()
    *others, new = store(count, count + 1)
    moved = sums(model, [*others[: count // 2], new, *others[count // 2 :]]) - sums(model, others)
    assert is_within_the_bound(moved)
    np.testing.assert_array_equal(moved, sums(model, [new]))


@pytest.mark.parametrize("name", MODELS)
def test_report_sum_equals_sum_of_single_workload_reports(name: str) -> None:
    model, labelled = MODELS[name](), store(1, 8)
    alone = [sums(model, [each]) for each in labelled]
    assert all(map(is_within_the_bound, alone))
    np.testing.assert_array_equal(sums(model, labelled), np.sum(alone, axis=0))


def test_report_without_noise_matches_float_residual_histogram() -> None:
    model, labelled = MODELS["public start"](), store(2, 50)
    found = np.ldexp(sums(model, labelled)[: 2 * CELLS].astype(float), GRID_EXPONENT)
    (cells, residuals) = (
        np.concatenate(
            [getattr(each, name) for each in workload_residuals(arrays_of(model), labelled)]
        )
        for name in ("cells", "residuals")
    )
    told = np.bincount(cells, np.clip(residuals / CLIP, -1, 1), CELLS)
    expected = np.concatenate([np.bincount(cells, minlength=CELLS), told]) * np.sqrt(0.5)
    assert np.linalg.norm(found) >= 0.999 * np.linalg.norm(expected)
    assert found @ expected >= 0.999 * np.linalg.norm(found) * np.linalg.norm(expected)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_report_sum_is_exactly_additive_under_other_blas_kernels(kernel: str) -> None:
    program = (
        "from tests.unit.client.contributions.test_residuals import *\n"
        "model, labelled = amplifying(0), store(3, 40)\n"
        "alone = [sums(model, [each]) for each in labelled]\n"
        "assert (sums(model, labelled) == sum(alone)).all()\n"
        "assert all(map(is_within_the_bound, alone))\n"
    )
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernel, "ATEN_CPU_CAPABILITY": "avx2"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_amplifying_model_predictions_depend_on_the_batch() -> None:
    """Otherwise the tests above would be trivial."""
    graphs = [each.graph for each in store(4, 100)]
    model = arrays_of(amplifying(0))
    alone = np.concatenate([model.log_seconds([each]) for each in graphs])
    assert np.abs(model.log_seconds(graphs) - alone).max() > 1
