import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedperf_client.contributions import mechanisms
from fedperf_client.contributions.mechanisms import (
    GRID_EXPONENT,
    REPORT_VALUES,
    WorkloadResiduals,
    sum_residuals,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.release import ReleaseKind, ReportParameters, ResidualReport, SlotKey
from tests.fakes.residual_reports import residual_report
from tests.unit.client.contributions.seeded_noise import NoNoise, SeededNoise

SLOT = SlotKey(ReleaseKind.RESIDUAL_REPORT, 2, 0)
BOUND = 2**-GRID_EXPONENT


def workload(cells: list[int], residuals: list[float]) -> WorkloadResiduals:
    return WorkloadResiduals(np.array(cells, dtype=np.int64), np.array(residuals, dtype=float))


def make_report(
    workloads: list[WorkloadResiduals], *, noise_multiplier: float = 4.0, seed: int = 0
) -> ResidualReport:
    return residual_report(
        workloads,
        SeededNoise(seed),
        slot=SLOT,
        parameters=ReportParameters(noise_multiplier, 1.5),
        reference_version=7,
    )


@st.composite
def any_workload(draw: st.DrawFn) -> WorkloadResiduals:
    count = draw(st.integers(0, 6))
    cells = draw(st.lists(st.integers(-3, CELLS + 3), min_size=count, max_size=count))
    residuals = draw(st.lists(st.floats(width=64), min_size=count, max_size=count))
    return workload(cells, residuals)


CLIPS = st.floats(1e-3, 1e3)


@settings(max_examples=200)
@given(others=st.lists(any_workload(), max_size=3), added=any_workload(), clip=CLIPS)
def test_residual_sum_with_one_workload_added_moves_by_at_most_one(
    others: list[WorkloadResiduals], added: WorkloadResiduals, clip: float
) -> None:
    difference = sum_residuals([*others, added], clip) - sum_residuals(others, clip)
    assert sum(int(value) ** 2 for value in difference) <= BOUND**2


@given(workloads=st.lists(any_workload(), max_size=5), clip=CLIPS)
def test_residual_sum_is_independent_of_workload_order(
    workloads: list[WorkloadResiduals], clip: float
) -> None:
    assert np.array_equal(sum_residuals(workloads, clip), sum_residuals(workloads[::-1], clip))


def test_residual_vector_with_too_long_contribution_is_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_long(*_: object) -> NDArray[np.float64]:
        vector = np.zeros(REPORT_VALUES)
        vector[:2] = 0.9
        return vector

    monkeypatch.setattr(mechanisms, "contribution", too_long)
    assert not sum_residuals([workload([0], [0.0])], 1.0).any()


def test_workload_contribution_is_independent_of_execution_count() -> None:
    one = sum_residuals([workload([5], [1.5])], 1.5)
    many = sum_residuals([workload([5] * 1000, [1.5] * 1000)], 1.5)
    assert np.allclose(one, many, atol=2)
    assert math.isclose(one[5] / BOUND, math.sqrt(0.5), rel_tol=1e-5)
    assert math.isclose(one[CELLS + 5] / BOUND, math.sqrt(0.5), rel_tol=1e-5)


@pytest.mark.parametrize(
    "broken",
    [
        workload([], []),
        workload([CELLS], [0.0]),
        workload([-1], [0.0]),
        workload([0, 1], [0.0]),
        WorkloadResiduals(np.zeros((2, 2), dtype=np.int64), np.zeros(4)),
    ],
)
def test_residual_report_with_invalid_cells_counts_that_workload_as_zero(
    broken: WorkloadResiduals,
) -> None:
    good = workload([3], [0.5])
    assert np.array_equal(make_report([good, broken]).values, make_report([good]).values)


@pytest.mark.parametrize("hostile", [math.nan, math.inf, -math.inf, 1e300])
def test_residual_vector_with_hostile_residual_stays_within_bound(hostile: float) -> None:
    vector = sum_residuals([workload([3, 4], [hostile, 0.2])], 1.5)
    assert sum(int(value) ** 2 for value in vector) <= BOUND**2


def test_residual_report_of_empty_window_is_noise_of_same_shape() -> None:
    full, empty = make_report([workload([3], [0.5])] * 50), make_report([])
    assert empty.values.shape == full.values.shape == (REPORT_VALUES,)
    assert empty.values.dtype == np.int64
    assert np.std(empty.values / BOUND) > 3.0


def test_residual_report_is_its_sum_plus_noise_with_slot_and_version() -> None:
    workloads = [workload([3], [0.5]), workload([4, 4], [-9.0, 1.0])]
    report = make_report(workloads, seed=3)
    noise = SeededNoise(3).discrete_gaussian(REPORT_VALUES, 4.0 * BOUND)
    assert np.array_equal(report.values, sum_residuals(workloads, 1.5) + noise)
    assert (report.slot, report.reference_version, report.grid_exponent) == (SLOT, 7, -20)


@pytest.mark.parametrize("noise_multiplier", [1e-9, 1e12])
def test_residual_report_with_noise_outside_the_grid_is_refused(noise_multiplier: float) -> None:
    with pytest.raises(ConfigurationError, match="does not fit the report's grid"):
        residual_report(
            [],
            NoNoise(),
            slot=SLOT,
            parameters=ReportParameters(noise_multiplier, 1.0),
            reference_version=0,
        )


def test_residual_report_counts_are_exact_only_if_declared_public() -> None:
    """Public counts carry no noise, the other half keeps it. By default both halves carry noise."""
    workloads = [workload([3], [0.5])] * 4 + [workload([7, 8], [0.1, 0.2])]
    exact = sum_residuals(workloads, 1.5)

    def noise_of(parameters: ReportParameters) -> NDArray[np.int64]:
        report = residual_report(
            workloads, SeededNoise(5), slot=SLOT, parameters=parameters, reference_version=7
        )
        return report.values - exact

    private = noise_of(ReportParameters(4.0, 1.5))
    public = noise_of(ReportParameters(4.0, 1.5, public_counts=True))
    assert np.abs(private[:CELLS]).min() > 0
    assert not public[:CELLS].any()
    np.testing.assert_array_equal(public[CELLS:], private[CELLS:])
    assert exact[3] / BOUND * math.sqrt(2) == pytest.approx(4.0, abs=1e-4)
