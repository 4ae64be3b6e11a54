"""Tests of the TOKIO runs: points, organizations and kernel."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.data import tokio
from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.federation.tokio_federation import sender
from tests.public_data import public_data


def points() -> tokio.Points:
    platforms = np.array([*tokio.PEAKS, "mira"])
    count = len(platforms)
    return tokio.Points(
        platforms,
        np.array(["ior"] * count),
        np.arange(count) % 2 == 0,
        np.arange(count) % 3 == 0,
        np.linspace(2.0, 9.0, count),
    )


def test_tokio_kernel_is_a_covariance_with_largest_values_on_the_diagonal() -> None:
    covariance = points().covariance()
    np.testing.assert_array_equal(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance)[0] > 0
    assert np.all(np.argmax(covariance, axis=1) == np.arange(len(covariance)))


def test_tokio_physics_orders_slow_and_fast_platforms() -> None:
    some = points()
    slow, fast = (list(some.platforms).index(each) for each in ("edison-scratch1", "cori-knl"))
    moved = tokio.Points(
        some.platforms, some.applications, some.writes, some.many_files, np.full(len(some), 8.0)
    )
    assert moved.physics(tokio.WALL)[slow] > moved.physics(tokio.WALL)[fast]
    assert moved.physics(tokio.BANDWIDTH)[slow] < moved.physics(tokio.BANDWIDTH)[fast]


def test_tokio_loader_with_missing_data_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="FEDPERF_DATA"):
        tokio.load(None)
    with pytest.raises(MissingDataError, match="csv"):
        tokio.load(tmp_path)


@pytest.mark.slow
def test_tokio_probes_have_expected_run_counts_and_two_privacy_units() -> None:
    runs = tokio.load(public_data(tokio.FOLDER))
    sizes = {each: len(runs.of(each)) for each in tokio.PEAKS}
    assert sum(sizes.values()) == len(runs.point)
    assert min(sizes.values()) == sizes["edison-scratch1"] == 2310
    assert max(sizes.values()) == sizes["cori-knl"] == 5748
    by_run = sender(runs, "mira", tokio.WALL, by_run=True)
    by_point = sender(runs, "mira", tokio.WALL, by_run=False)
    assert len(by_run.positions) == sizes["mira"]
    assert len(np.unique(by_point.positions)) == len(by_point.positions) < 30
    first = by_point.positions[0]
    mean = by_run.log_seconds[by_run.positions == first].mean()
    assert by_point.log_seconds[0] == pytest.approx(mean)
