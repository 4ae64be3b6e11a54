"""Tests of the 736 shared runs: they are read as their paper read them."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.data.shared_runs import (
    JOBS,
    REPEATS,
    SMALL_SIZES,
    JobRuns,
    Mode,
    files,
    load_elsewhere,
    load_runs,
    published,
    split,
)
from fedperf_simulations.experiments.private_sharing import ernest
from tests.public_data import public_data


@pytest.fixture(scope="module")
def data() -> Path:
    return public_data("dos-pm-data-privacy")


@pytest.fixture(scope="module")
def runs(data: Path) -> tuple[JobRuns, ...]:
    return load_runs(data)


def test_shared_runs_are_736_on_distinct_configurations(runs: tuple[JobRuns, ...]) -> None:
    assert [len(each) for each in runs] == [36, 150, 140, 140, 270]
    for each in runs:
        assert len(np.unique(each.grid.inputs, axis=0)) == len(each)


@pytest.mark.parametrize("size", [*SMALL_SIZES, None])
def test_ernest_on_published_splits_reproduces_its_published_error(
    data: Path, runs: tuple[JobRuns, ...], size: int | None
) -> None:
    table = published(data)
    for job, each in enumerate(runs):
        found = [_ernest_error(each, job, size, repeat) for repeat in range(REPEATS)]
        expected = table["ErnestModel", JOBS[job].title, Mode.ORIGINAL, size]
        assert np.mean(found) == pytest.approx(expected, rel=1e-9)


def _ernest_error(runs: JobRuns, job: int, size: int | None, repeat: int) -> float:
    parts = split(job, len(runs), size, repeat, seed=0)
    predict = ernest(runs.grid.inputs[parts.train], runs.seconds[parts.train])
    asked, truth = runs.grid.inputs[parts.test], runs.seconds[parts.test]
    return 100 * float(np.mean(np.abs(predict(asked) / truth - 1)))


def test_runs_elsewhere_use_other_machine_types_and_the_same_arguments(
    runs: tuple[JobRuns, ...],
) -> None:
    data = public_data("c3o-experiments")
    for each in runs:
        found = load_elsewhere(data, each.grid)
        known = {tuple(row) for row in each.grid.inputs[:, 1:].tolist()}
        assert len(found.seconds) >= 10
        assert each.grid.job.machine_type not in found.machine_types
        assert {tuple(row) for row in found.inputs[:, 1:].tolist()} <= known


def test_shared_runs_split_has_requested_size_and_covers_all_rows() -> None:
    for size, trained in ((9, 9), (None, 40)):
        parts = split(1, 50, size, 3, seed=2)
        assert len(parts.train) == trained
        assert sorted([*parts.train, *parts.test]) == list(range(50))


def test_shared_runs_split_differs_for_each_seed_and_repeat() -> None:
    drawn = {
        tuple(split(0, 36, 9, repeat, seed=seed).train.tolist())
        for seed in range(3)
        for repeat in range(REPEATS)
    }
    assert len(drawn) == 3 * REPEATS


def test_shared_runs_loader_with_missing_data_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="FEDPERF_DATA"):
        load_runs(None)
    with pytest.raises(MissingDataError, match=r"sort\.csv"):
        files(tmp_path)
