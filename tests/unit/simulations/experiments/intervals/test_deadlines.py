"""Tests of the number of nodes chosen for a deadline, on synthetic slices."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.data.c3o import slices
from fedperf_simulations.experiments.intervals.deadlines import (
    CHANCE,
    KEPT,
    LARGEST,
    PART,
    RAN_BEFORE,
    TIMES,
    _choices,
    _fewest,
)
from fedperf_simulations.experiments.intervals.figures import (
    OURS,
    SECONDS,
    column,
    covered,
    where,
)
from fedperf_simulations.experiments.intervals.scale_outs import ERNEST
from fedperf_simulations.harness.experiment import Settings
from tests.unit.simulations.public_files import with_c3o


def test_fewest_nodes_meeting_deadline_are_chosen_else_the_most_probable() -> None:
    nodes, surest = np.array([4.0, 2.0, 8.0]), np.array([-0.3, -0.2, -0.8])
    assert _fewest(nodes, np.array([True, False, True]), otherwise=surest) == 0
    assert _fewest(nodes, np.array([False, False, False]), otherwise=surest) == 2


def test_tight_deadline_selects_a_faster_cluster_than_a_loose_one(tmp_path: Path) -> None:
    one = slices(with_c3o(tmp_path))[0]
    places = one.inputs()[0]
    seconds = one.configurations.seconds[places]
    known = np.arange(0, len(one), 3)
    tight, loose = 1.05 * seconds.min(), 2 * seconds.max()
    first, second = where(_choices(one, known, [(places, tight), (places, loose)]), predictor=OURS)
    assert float(str(second[TIMES])) == 1
    assert float(str(second[CHANCE])) >= 0.9
    assert float(str(first[SECONDS])) < 0.7 * seconds.max()


def test_deadline_choices_are_counted_and_compared_with_the_largest_cluster(tmp_path: Path) -> None:
    data = with_c3o(tmp_path / "data")
    cases = PART.cases(Settings(seed=0, out=tmp_path, data=data, quick=True))
    largest, ours, ernest = (where(cases, predictor=name) for name in (LARGEST, OURS, ERNEST))
    assert len(largest) == len(ours) == len(ernest) > 0
    assert (column(largest, TIMES) >= 1).all()
    # Time falls with nodes by construction, so the largest cluster is in time.
    assert column(largest, KEPT).min() == 1
    kept = column(ours, SECONDS) <= column(ours, "deadline")
    np.testing.assert_array_equal(column(ours, KEPT), kept)
    assert (column(ours, TIMES)[kept] >= 1).all()
    assert (column(ours, TIMES)[~kept] < 1).all()
    rows = PART.rows(cases)
    [row] = where(rows, predictor=OURS)
    assert row[KEPT] == pytest.approx(kept.mean())
    assert row["no size reaches 90 %"] == pytest.approx((column(ours, CHANCE) < 0.9).mean())
    targets = PART.targets(cases, rows)
    assert [each.limit for each in targets] == [0.85, 1.5, 0.85, 0.85]
    assert targets[-2].value == pytest.approx(row["covered"])
    new = where(ours, **{RAN_BEFORE: False})
    assert targets[-1].value == pytest.approx(covered(new).mean())
