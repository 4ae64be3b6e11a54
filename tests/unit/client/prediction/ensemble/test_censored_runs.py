"""Right-censored runs raise predictions in proportion to their number."""

import numpy as np
import pytest

from fedperf_client.prediction.ensemble.repeats import Repeats
from fedperf_client.prediction.prediction import Distribution, Prediction, StudentT

BASE = StudentT(0.3, 5.0)
NOTHING = np.zeros(0)


def heeded(
    *cut: float, ended: np.ndarray = NOTHING, median: float = 0.0, of: int = 1
) -> Distribution:
    ones = np.ones(len(cut), np.int64)
    bounds = Repeats.from_runs(ones, np.zeros_like(ones), np.array(cut, np.float64))
    found = Prediction(median, BASE).with_censored_runs(bounds.runs_of(of), ended)
    return found.distribution


def test_distribution_without_censored_runs_of_it_is_unchanged() -> None:
    assert heeded() is BASE
    assert heeded(3.0, of=2) is BASE


def test_runs_censored_below_the_median_leave_distribution_unchanged() -> None:
    assert heeded(-1.0) is BASE
    assert heeded(2.0, median=2.5) is BASE


def test_only_runs_censored_above_the_median_count() -> None:
    assert heeded(-1.0, 2.0).cdf(2.0) == heeded(2.0).cdf(2.0) == pytest.approx(1 / 3)


def test_median_without_finished_runs_is_above_the_censoring_bound() -> None:
    medians = [heeded(*[2.0] * times).quantile(0.5) for times in (1, 2, 5)]
    assert medians == sorted(medians)
    assert medians[0] > 2.0
    assert heeded(2.0).cdf(2.0) == pytest.approx(1 / 3)
    assert heeded(2.0, 2.0, 2.0).cdf(2.0) == pytest.approx(1 / 5)
    assert heeded(2.0).quantile(0.05) == BASE.quantile(0.05)


def test_few_censored_among_finished_runs_move_only_the_upper_tail() -> None:
    found = heeded(2.0, ended=np.full(10, 0.1))
    assert found.quantile(0.5) == BASE.quantile(0.5)
    assert found.cdf(2.0) == pytest.approx(11 / 13)
    assert found.quantile(0.95) > 2.0
    assert found.cdf(10.0) > 0.99


def test_censoring_bound_is_relative_to_the_predicted_median() -> None:
    assert heeded(5.0, median=3.0).quantile(0.5) == pytest.approx(heeded(2.0).quantile(0.5))


def test_distribution_already_consistent_with_censored_runs_is_unchanged() -> None:
    assert heeded(0.05) is not BASE
    assert heeded(0.2, ended=np.full(8, 0.1)) is BASE
