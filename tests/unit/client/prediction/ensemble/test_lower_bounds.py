"""Runs that were cut say that it takes at least so long, as often as they were."""

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


def test_without_cut_runs_or_for_another_configuration_nothing_changes() -> None:
    assert heeded() is BASE
    assert heeded(3.0, of=2) is BASE


def test_a_run_cut_below_the_predicted_median_says_nothing_new() -> None:
    assert heeded(-1.0) is BASE
    assert heeded(2.0, median=2.5) is BASE


def test_of_runs_cut_below_and_above_the_median_those_above_count() -> None:
    assert heeded(-1.0, 2.0).cdf(2.0) == heeded(2.0).cdf(2.0) == pytest.approx(1 / 3)


def test_where_nothing_ever_ended_the_median_is_above_the_bound() -> None:
    medians = [heeded(*[2.0] * times).quantile(0.5) for times in (1, 2, 5)]
    assert medians == sorted(medians)
    assert medians[0] > 2.0
    assert heeded(2.0).cdf(2.0) == pytest.approx(1 / 3)
    assert heeded(2.0, 2.0, 2.0).cdf(2.0) == pytest.approx(1 / 5)
    assert heeded(2.0).quantile(0.05) == BASE.quantile(0.05)


def test_where_most_runs_ended_the_median_stays_and_the_chance_counts_those_that_did_not() -> None:
    found = heeded(2.0, ended=np.full(10, 0.1))
    assert found.quantile(0.5) == BASE.quantile(0.5)
    assert found.cdf(2.0) == pytest.approx(11 / 13)
    assert found.quantile(0.95) > 2.0
    assert found.cdf(10.0) > 0.99


def test_the_median_counts_from_where_it_is() -> None:
    assert heeded(5.0, median=3.0).quantile(0.5) == pytest.approx(heeded(2.0).quantile(0.5))


def test_an_answer_that_allows_for_it_already_stays_as_it_is() -> None:
    assert heeded(0.05) is not BASE
    assert heeded(0.2, ended=np.full(8, 0.1)) is BASE
