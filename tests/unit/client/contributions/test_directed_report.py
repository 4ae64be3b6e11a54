import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import (
    GRID_EXPONENT,
    PointResiduals,
    WorkloadResiduals,
    sum_cell_query,
    sum_points,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.linear_queries import Design, public_design
from fedperf_shared.releases.release import DirectedParameters, DirectedReport, ReleaseKind, SlotKey
from fedperf_simulations.federation.channel import directed_report
from fedperf_simulations.federation.latent_points import feature_design
from tests.fakes.cell_queries import DIRECTED, make_cell_query
from tests.fakes.cell_reports import cell_report
from tests.unit.client.contributions.seeded_noise import NoNoise, SeededNoise

SLOT = SlotKey(ReleaseKind.RESIDUAL_REPORT, 2, 0)
BOUND = 2**-GRID_EXPONENT
POINTS = 5


def workload(points: list[int], residuals: list[float]) -> PointResiduals:
    return PointResiduals(np.array(points, dtype=np.int64), np.array(residuals, dtype=float))


def a_design(seed: int, directions: int = 7) -> Design:
    """Return random directions, with every column as long as the norm bound allows."""
    rng = np.random.default_rng(seed)
    clips = rng.uniform(0.01, 5.0, POINTS)
    free = rng.standard_normal((directions, POINTS))
    return public_design(free / np.linalg.norm(free, axis=0) / clips, clips)


def a_hidden_design(seed: int) -> Design:
    features = np.random.default_rng(seed).uniform(-1, 1, (POINTS, 3))
    return feature_design(features, 0.8, offset_share=0.3)


DESIGNS = st.builds(a_design, st.integers(0, 50)) | st.builds(a_hidden_design, st.integers(0, 50))


@st.composite
def any_workload(draw: st.DrawFn) -> PointResiduals:
    count = draw(st.integers(0, 6))
    points = draw(st.lists(st.integers(-2, POINTS + 2), min_size=count, max_size=count))
    residuals = draw(st.lists(st.floats(width=64), min_size=count, max_size=count))
    return workload(points, residuals)


def squared(steps: NDArray[np.int64]) -> int:
    return sum(int(value) ** 2 for value in steps)


@settings(max_examples=200)
@given(others=st.lists(any_workload(), max_size=3), added=any_workload(), design=DESIGNS)
def test_directed_sum_with_one_workload_added_moves_by_at_most_one(
    others: list[PointResiduals], added: PointResiduals, design: Design
) -> None:
    moved = sum_points([*others, added], design) - sum_points(others, design)
    assert squared(moved) <= BOUND**2


@settings(max_examples=200)
@given(
    others=st.lists(any_workload(), max_size=2),
    old=any_workload(),
    new=any_workload(),
    design=DESIGNS,
)
def test_directed_sum_with_one_workload_replaced_moves_by_at_most_two(
    others: list[PointResiduals], old: PointResiduals, new: PointResiduals, design: Design
) -> None:
    moved = sum_points([*others, new], design) - sum_points([*others, old], design)
    assert squared(moved) <= (2 * BOUND) ** 2


def test_directed_sum_sensitivity_bounds_are_tight() -> None:
    design = public_design(np.array([[0.5]]), np.array([2.0]))
    high, low = workload([0], [9.0]), workload([0], [-9.0])
    assert squared(sum_points([high], design)) == BOUND**2
    moved = sum_points([high], design) - sum_points([low], design)
    assert squared(moved) == (2 * BOUND) ** 2


def test_point_vector_with_design_changed_after_validation_is_zero() -> None:
    design = a_design(1)
    design.directions[:] *= 1.01
    assert not sum_points([workload([0], [1e9])], design).any()


@given(workloads=st.lists(any_workload(), max_size=5), design=DESIGNS)
def test_directed_sum_is_independent_of_workload_order(
    workloads: list[PointResiduals], design: Design
) -> None:
    forth, back = sum_points(workloads, design), sum_points(workloads[::-1], design)
    assert np.array_equal(forth, back)


def test_workload_contribution_is_independent_of_execution_count() -> None:
    design = a_design(3)
    one = sum_points([workload([2], [0.4])], design)
    many = sum_points([workload([2] * 500, [0.4] * 500)], design)
    assert np.allclose(one, many, atol=2)


def test_workload_at_several_points_contributes_their_mean() -> None:
    design = a_design(4)
    both = sum_points([workload([0, 3], [0.01, 0.02])], design)
    apart = sum_points([workload([0], [0.01]), workload([3], [0.02])], design)
    assert np.allclose(both, apart / 2, atol=2)


def make_report(
    workloads: list[PointResiduals], *, noise_multiplier: float = 4.0, seed: int = 0
) -> DirectedReport:
    return directed_report(
        workloads,
        a_design(5),
        SeededNoise(seed),
        slot=SLOT,
        noise_multiplier=noise_multiplier,
        design_version=9,
    )


def test_directed_report_without_noise_is_directions_times_clipped_residuals() -> None:
    design = a_design(5)
    residuals = np.array([0.001, -0.002, 0.003, 1e9, -1e9])
    workloads = [workload([point], [each]) for point, each in enumerate(residuals)]
    expected = design.directions @ np.clip(residuals, -design.clips, design.clips)
    quiet = directed_report(
        workloads, design, NoNoise(), slot=SLOT, noise_multiplier=1.0, design_version=9
    )
    np.testing.assert_allclose(quiet.natural(), expected, atol=POINTS / BOUND)
    assert (quiet.slot, quiet.design_version, quiet.grid_exponent) == (SLOT, 9, GRID_EXPONENT)


def test_directed_report_is_its_sum_plus_noise_of_declared_scale() -> None:
    workloads = [workload([3], [0.5]), workload([4, 4], [-9.0, 1.0])]
    noise = SeededNoise(3).discrete_gaussian(7, 4.0 * BOUND)
    expected = sum_points(workloads, a_design(5)) + noise
    assert np.array_equal(make_report(workloads, seed=3).values, expected)


@pytest.mark.parametrize(
    "broken",
    [
        workload([], []),
        workload([POINTS], [0.0]),
        workload([-1], [0.0]),
        workload([0, 1], [0.0]),
        PointResiduals(np.zeros((2, 2), dtype=np.int64), np.zeros(4)),
    ],
)
def test_directed_report_with_invalid_points_counts_that_workload_as_zero(
    broken: PointResiduals,
) -> None:
    good = workload([3], [0.5])
    assert np.array_equal(make_report([good, broken]).values, make_report([good]).values)


@pytest.mark.parametrize("shares", [[0.8, 0.3], [1.5, -0.5], [0.5, math.nan], [1.0]])
def test_point_vector_with_shares_that_are_no_mean_is_zero(
    shares: list[float],
) -> None:
    mean = replace(workload([2, 2], [0.001, 0.001]), shares=np.array([0.75, 0.25]))
    assert sum_points([mean], a_design(3)).any()
    assert not sum_points([replace(mean, shares=np.array(shares))], a_design(3)).any()


@pytest.mark.parametrize("hostile", [math.nan, math.inf, -math.inf, 1e300])
def test_point_vector_with_hostile_residual_stays_within_bound(hostile: float) -> None:
    assert squared(sum_points([workload([3, 4], [hostile, 0.2])], a_design(6))) <= BOUND**2


def test_directed_report_of_empty_window_is_noise_of_same_shape() -> None:
    full, empty = make_report([workload([3], [0.5])] * 50), make_report([])
    assert empty.values.shape == full.values.shape == (7,)
    assert empty.values.dtype == np.int64
    assert np.std(empty.values / BOUND) > 1.0


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, 1e-9, 1e12, math.nan, math.inf])
def test_directed_report_with_noise_outside_the_grid_is_refused(noise_multiplier: float) -> None:
    with pytest.raises(ConfigurationError, match="does not fit the report's grid"):
        make_report([], noise_multiplier=noise_multiplier)


def in_cells(cells: list[int], residuals: list[float]) -> WorkloadResiduals:
    return WorkloadResiduals(np.array(cells), np.array(residuals, dtype=np.float64))


@given(
    st.lists(st.tuples(st.integers(-3, CELLS + 3), st.floats()), max_size=6),
    st.floats(-20, 20),
    st.floats(0.01, 100),
)
def test_workload_adds_at_most_one_to_a_cell_query(
    executions: list[tuple[int, float]], center: float, clip: float
) -> None:
    question = make_cell_query(center=center, clip=clip)
    hostile = in_cells([cell for cell, _ in executions], [each for _, each in executions])
    moved = sum_cell_query([hostile], question)
    assert sum(int(each) ** 2 for each in moved) <= BOUND**2


def test_cell_query_sums_clipped_distance_of_residuals_from_center() -> None:
    question = make_cell_query(center=0.4, clip=1.5)
    directions = question.design.directions
    for residual, counted in ((0.4, 0.0), (1.0, 0.6), (9.0, 1.5), (-9.0, -1.5)):
        sent = sum_cell_query([in_cells([7], [residual])], question) / BOUND
        np.testing.assert_allclose(sent, directions[:, 7] * counted, atol=2 / BOUND)


@pytest.mark.parametrize(
    "broken", [in_cells([CELLS], [1.0]), in_cells([-1], [1.0]), in_cells([], []), in_cells([1], [])]
)
def test_cell_report_with_invalid_cells_counts_that_workload_as_zero(
    broken: WorkloadResiduals,
) -> None:
    question, parameters = make_cell_query(), DirectedParameters(5.0, 10.0)
    fine = in_cells([3, 4], [0.5, -0.5])
    with_broken, without = (
        cell_report(each, question, SeededNoise(), slot=DIRECTED, parameters=parameters)
        for each in ([fine, broken], [fine])
    )
    np.testing.assert_array_equal(with_broken.values, without.values)
    assert (without.slot, without.design_version) == (DIRECTED, question.version)
