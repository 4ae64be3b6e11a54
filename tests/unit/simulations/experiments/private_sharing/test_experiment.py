"""Tests of the experiment on private sharing: predictors, rows and targets."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.data.shared_runs import JOBS
from fedperf_simulations.experiments.private_sharing import (
    BOOSTING,
    ERNEST,
    EXPERIMENT,
    OURS,
    PLOT,
    REPLACE_ONE,
    SAME_JOB,
    SIZES,
    TRAININGS,
    boosting,
    ernest,
)
from fedperf_simulations.harness.experiment import Row, Settings
from tests.public_data import public_data
from tests.unit.simulations.synthetic_jobs import made_up


@pytest.fixture
def data() -> Path:
    public_data("c3o-experiments")
    return public_data("dos-pm-data-privacy")


def test_ernest_fits_a_job_that_follows_its_law_exactly() -> None:
    inputs = made_up("a").grid.inputs
    machines, size = inputs.T
    seconds = 20 + 0.3 * size / machines + 4 * np.log(machines)
    assert np.allclose(ernest(inputs, seconds)(inputs), seconds)


def test_boosting_reproduces_its_training_runs_within_five_percent() -> None:
    runs = made_up("a")
    predicted = boosting(runs.grid.inputs, runs.seconds, seed=1)(runs.grid.inputs)
    assert np.abs(predicted / runs.seconds - 1).mean() < 0.05


def _cases(job: str, of_ours: float) -> list[Row]:
    return [
        {
            "job": job,
            "n": "80 %" if size is None else str(size),
            "split": split,
            "trained on": training.name,
            "prior": training.prior,
            "epsilon": training.epsilon,
            "predictor": predictor,
            "MAPE": (of_ours if training.name == OURS and training.epsilon == 1.0 else 20.0)
            - (2.0 if training.prior == SAME_JOB else 0.0)
            + (1.0 if split else -1.0),
        }
        for size in SIZES
        for split in range(2)
        for training in TRAININGS
        for predictor in (ERNEST, BOOSTING)
    ]


@pytest.mark.parametrize(
    ("of_ours", "held"), [(24.0, [True, False, False]), (21.5, [True, True, True])]
)
def test_private_sharing_targets_follow_from_the_rows(
    tmp_path: Path, data: Path, of_ours: float, held: list[bool]
) -> None:
    settings = Settings(seed=3, out=tmp_path, data=data)
    for place, job in enumerate(JOBS):
        settings.cases(f"job{place}", partial(_cases, job.title, of_ours))
    outcome = EXPERIMENT.run(settings)
    assert [target.value for target in outcome.targets] == pytest.approx(
        [of_ours - 20, of_ours - 22, of_ours - 22]
    )
    assert [target.holds for target in outcome.targets] == held
    near_ten = outcome.targets[0].paired
    assert near_ten is not None
    assert (near_ten.median, near_ten.cases) == (of_ours - 20, 2 * 2 * len(JOBS))
    assert near_ten.interval == pytest.approx((of_ours - 20, of_ours - 20))
    assert (tmp_path / PLOT).read_text().startswith("<svg")
    assert len(outcome.rows) == 2 * 2 * len(SIZES)
    for row in outcome.rows:
        assert row["epsilon 1"] == pytest.approx(of_ours - 2 * (row["prior"] == SAME_JOB))
        assert "published synthetic (their epsilon 0: no noise)" in row
        assert row[REPLACE_ONE] == 2.15


@pytest.mark.slow
def test_quick_private_sharing_run_stores_and_reuses_its_cells(tmp_path: Path, data: Path) -> None:
    settings = Settings(seed=3, out=tmp_path, data=data, quick=True)
    first = EXPERIMENT.run(settings)
    again = EXPERIMENT.run(replace(settings, stored_results=tmp_path))
    assert list(first.rows) == list(again.rows)
    assert len(list((tmp_path / "cells").iterdir())) == len(JOBS)
