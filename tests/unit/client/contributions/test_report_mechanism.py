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
def test_adding_any_workload_moves_the_sum_by_at_most_one(
    others: list[WorkloadResiduals], added: WorkloadResiduals, clip: float
) -> None:
    difference = sum_residuals([*others, added], clip) - sum_residuals(others, clip)
    assert sum(int(value) ** 2 for value in difference) <= BOUND**2


@given(workloads=st.lists(any_workload(), max_size=5), clip=CLIPS)
def test_the_order_of_workloads_leaves_no_trace(
    workloads: list[WorkloadResiduals], clip: float
) -> None:
    assert np.array_equal(sum_residuals(workloads, clip), sum_residuals(workloads[::-1], clip))


def test_the_bound_holds_even_if_the_basis_gives_too_long_a_vector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_long(*_: object) -> NDArray[np.float64]:
        vector = np.zeros(REPORT_VALUES)
        vector[:2] = 0.9
        return vector

    monkeypatch.setattr(mechanisms, "contribution", too_long)
    assert not sum_residuals([workload([0], [0.0])], 1.0).any()


def test_a_workload_counts_once_whatever_its_number_of_executions() -> None:
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
def test_a_workload_that_fails_counts_zero_and_the_report_still_goes(
    broken: WorkloadResiduals,
) -> None:
    good = workload([3], [0.5])
    assert np.array_equal(make_report([good, broken]).values, make_report([good]).values)


@pytest.mark.parametrize("hostile", [math.nan, math.inf, -math.inf, 1e300])
def test_hostile_residuals_stay_inside_the_bound(hostile: float) -> None:
    vector = sum_residuals([workload([3, 4], [hostile, 0.2])], 1.5)
    assert sum(int(value) ** 2 for value in vector) <= BOUND**2


def test_an_empty_window_sends_noise_of_the_same_shape_and_size() -> None:
    full, empty = make_report([workload([3], [0.5])] * 50), make_report([])
    assert empty.values.shape == full.values.shape == (REPORT_VALUES,)
    assert empty.values.dtype == np.int64
    assert np.std(empty.values / BOUND) > 3.0


def test_a_report_is_its_sum_plus_its_noise_and_says_what_it_is() -> None:
    workloads = [workload([3], [0.5]), workload([4, 4], [-9.0, 1.0])]
    report = make_report(workloads, seed=3)
    noise = SeededNoise(3).discrete_gaussian(REPORT_VALUES, 4.0 * BOUND)
    assert np.array_equal(report.values, sum_residuals(workloads, 1.5) + noise)
    assert (report.slot, report.reference_version, report.grid_exponent) == (SLOT, 7, -20)


@pytest.mark.parametrize("noise_multiplier", [1e-9, 1e12])
def test_noise_that_does_not_fit_the_grid_is_refused(noise_multiplier: float) -> None:
    with pytest.raises(ConfigurationError, match="does not fit the report's grid"):
        residual_report(
            [],
            NoNoise(),
            slot=SLOT,
            parameters=ReportParameters(noise_multiplier, 1.0),
            reference_version=0,
        )


def test_counts_leave_exactly_only_where_they_were_declared_public() -> None:
    """The same noise, but for the half that is no secret; by default all of it is one."""
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
