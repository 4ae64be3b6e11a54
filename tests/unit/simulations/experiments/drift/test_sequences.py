"""Tests of the sequences of real drift."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.data import c3o, tokio
from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.drift.continual import TRAINING_SHARE
from fedperf_simulations.experiments.drift.sequences import (
    C3O_JOB,
    CORI,
    FLEET,
    FLEET_PERF,
    FLEET_REVERSED,
    FLEET_WALL,
    JOB_ORDER,
    LOG_RUNTIME,
    SEQUENCES,
    DriftSequence,
    data_files,
    load,
)
from tests.public_data import public_data


def training_rows(drift: DriftSequence) -> int:
    return sum(int(TRAINING_SHARE * len(each.table)) for each in drift.segments)


def is_inside(drift: DriftSequence) -> bool:
    """Return True if every row fits the public columns and no number exceeds its bounds."""
    for segment in drift.segments:
        table = segment.table
        fits = bool(np.all((table.codes >= 0) & (table.codes < drift.columns.sizes)))
        if not fits or table.numbers.shape != (len(table), drift.columns.numeric):
            return False
        if not (np.abs(table.numbers).max() <= 1 and np.isfinite(segment.targets).all()):
            return False
    return True


def test_drift_sequence_without_data_names_what_is_missing(tmp_path: Path) -> None:
    for name in SEQUENCES:
        with pytest.raises(MissingDataError, match="FEDPERF_DATA"):
            load(name, None)
    with pytest.raises(MissingDataError, match="tokio-abc"):
        data_files(tmp_path)


def test_c3o_drift_sequence_has_every_repeat_of_every_job() -> None:
    drift = load(C3O_JOB, public_data(c3o.FOLDER))
    assert drift.marks == list(JOB_ORDER)
    assert [len(each.table) for each in drift.segments] == [810, 630, 1410, 900, 900]
    assert training_rows(drift) == 3_254
    assert is_inside(drift)
    seconds = np.exp(drift.segments[0].targets * drift.unit + np.mean(LOG_RUNTIME))
    with (public_data(c3o.FOLDER) / c3o.FOLDER / "grep.tsv").open(encoding="utf-8") as lines:
        measured = sorted(float(line.split("\t")[-1]) for line in list(lines)[1:])
    np.testing.assert_allclose(sorted(seconds), measured)


@pytest.mark.slow
def test_fleet_drift_sequences_reverse_platform_order_and_change_target() -> None:
    data = public_data(tokio.FOLDER)
    forwards, backwards, wall = (
        load(each, data) for each in (FLEET_PERF, FLEET_REVERSED, FLEET_WALL)
    )
    assert forwards.marks == list(FLEET) == backwards.marks[::-1]
    assert training_rows(forwards) == training_rows(backwards) == training_rows(wall) == 14_852
    assert all(is_inside(each) for each in (forwards, backwards, wall))
    np.testing.assert_array_equal(forwards.segments[0].targets, backwards.segments[-1].targets)
    medians = [float(np.median(each.targets)) for each in forwards.segments]
    assert medians[0] == min(medians) < medians[-1] == max(medians)
    assert not np.array_equal(forwards.segments[0].targets, wall.segments[0].targets)


@pytest.mark.slow
def test_cori_drift_sequence_is_split_at_its_maintenance_dates() -> None:
    drift = load(CORI, public_data(tokio.FOLDER))
    assert [len(each.table) for each in drift.segments] == [508, 1_798, 2_683]
    assert training_rows(drift) == 3_491
    assert drift.columns.inputs == 18
    assert is_inside(drift)
