"""Tests of evaluation metrics: errors, coverage, widths and scores, with bootstrap intervals."""

import math

import numpy as np
import pytest

from fedperf_client.prediction.prediction import Prediction, StudentT
from fedperf_simulations.experiments.intervals.figures import (
    PredictionLabel,
    cover_row,
    interval_score,
    most_target,
    q_row,
    tables,
)
from fedperf_simulations.harness.experiment import Row

ANSWER = Prediction(math.log(2.0), StudentT.within(math.log(2.0)))


def told(seconds: float, group: str = "a", predictor: str = "x") -> Row:
    return PredictionLabel("s", predictor, group).predicted(seconds, ANSWER)


def test_error_quantiles_are_reported_per_case_and_with_equal_group_weights() -> None:
    cases = [*(told(2.0) for _ in range(8)), told(8.0, "b"), told(8.0, "b")]
    row = q_row(cases)
    assert (row["cases"], row["groups"]) == (10, 2)
    assert [row["q50"], row["q90"]] == pytest.approx([1.0, 4.0])
    assert row["q50, groups alike"] == pytest.approx(1.0)
    assert row["q90, groups alike"] == pytest.approx(4.0)
    mostly = q_row([*(told(2.0) for _ in range(8)), told(8.0, "b"), told(8.0, "c")])
    assert mostly["q50, groups alike"] == pytest.approx(4.0)
    assert [row["q50 low"], row["q50 high"]] == pytest.approx([1.0, 4.0])


def test_interval_score_adds_twenty_times_the_distance_outside() -> None:
    inside, beyond = told(2.0), told(8.0)
    assert interval_score([inside])[0] == pytest.approx(np.log(4))
    assert interval_score([beyond])[0] == pytest.approx(np.log(4) + 20 * np.log(2))
    row = cover_row([inside, beyond])
    assert row["covered"] == 0.5
    assert row["upper / lower"] == pytest.approx(4.0)
    assert cover_row([PredictionLabel("s", "x", "a").labelled_row(1.0, 1.0)]) == {}


def test_interval_table_has_a_row_per_predictor_and_missing_value_fails_target() -> None:
    rows = tables([told(1.0), told(3.0), told(1.0, predictor="y")])
    assert [(row["predictor"], row["cases"]) for row in rows] == [("x", 2), ("y", 1)]
    assert most_target("q", rows[0], "q50", 10.0).holds
    assert not most_target("q", rows[0], "nothing", 10.0).holds
    assert not most_target("q", None, "q50", 10.0).holds
