"""Two-sided: cell counts and histograms carry the noise of their shares of epsilon."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedperf_simulations.data.public_table import Columns, PublicTable
from fedperf_simulations.experiments.drift.rehearsal_methods import BINS, release

pytestmark = pytest.mark.statistical

LEVEL = 1e-6
EPSILON = 0.8
COLUMNS = Columns((5,), 2)
SCALES = [2 / 3, 1.0, 3 / 2]
HIGH = 200
"""Rows in every bin. The number is so large that no noise makes a count negative."""


def even() -> PublicTable:
    """Return a table with the same number of rows in every bin of every cell."""
    places = np.arange(COLUMNS.cells * BINS).repeat(HIGH)
    numbers = (places % BINS + 0.5) * 2 / BINS - 1
    return COLUMNS.of_cells(places // BINS, np.stack([numbers, numbers], axis=1))


def noises(epsilon: float) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the noise of cells and of bins in 400 releases."""
    table, rng = even(), np.random.default_rng(21)
    for _ in range(400):
        released = release(table, COLUMNS, epsilon=epsilon, rng=rng)
        yield released.cells - BINS * HIGH, released.bins - HIGH


def is_two_sided_geometric(noise: NDArray[np.int64], epsilon: float) -> bool:
    """Test the noise against the two-sided geometric distribution of epsilon by chi-square."""
    expected = stats.dlaplace(epsilon)
    edges = np.unique(expected.ppf(np.linspace(0.05, 0.95, 10)))
    places = np.searchsorted(edges, noise.ravel(), side="left")
    shares = np.diff(np.concatenate([[0.0], expected.cdf(edges), [1.0]]))
    counts = np.bincount(places, minlength=len(shares))
    return bool(stats.chisquare(counts, shares * noise.size).pvalue > LEVEL)


@pytest.mark.parametrize("factor", SCALES)
def test_cell_counts_carry_noise_of_half_of_epsilon(factor: float) -> None:
    cells = np.stack([cells for cells, _ in noises(factor * EPSILON)])
    assert is_two_sided_geometric(cells, EPSILON / 2) == (factor == 1.0)


@pytest.mark.parametrize("factor", SCALES)
def test_bins_of_each_numeric_column_carry_noise_of_their_share_of_epsilon(
    factor: float,
) -> None:
    bins = np.stack([bins for _, bins in noises(factor * EPSILON)])
    for column in range(2):
        assert is_two_sided_geometric(bins[:, column], EPSILON / 4) == (factor == 1.0)


def test_noise_of_cells_and_bins_is_pairwise_uncorrelated() -> None:
    bins = np.stack([bins.ravel() for _, bins in noises(EPSILON)])
    cells = np.stack([cells for cells, _ in noises(EPSILON)])
    correlations = np.corrcoef(np.concatenate([bins, cells], axis=1).T)
    off = correlations[~np.eye(len(correlations), dtype=bool)]
    assert np.abs(off).max() < 0.4


def test_one_more_record_changes_log_probability_by_the_epsilon_of_cells() -> None:
    nobody = PublicTable(np.zeros((0, 1), dtype=np.int64), np.zeros((0, 2)))
    somebody = PublicTable(np.zeros((1, 1), dtype=np.int64), np.zeros((1, 2)))
    seen = [
        np.mean(
            [
                release(
                    table, COLUMNS, epsilon=2 * EPSILON, rng=np.random.default_rng([3, i])
                ).cells[0]
                >= 1
                for i in range(10_000)
            ]
        )
        for table in (nobody, somebody)
    ]
    assert float(np.log(seen[1] / seen[0])) == pytest.approx(EPSILON, abs=0.08)
