"""Tests of the GGFN part of the experiment on drift: rows, targets, charts and a run."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.corpus.organizations import FIRST_WINDOWS, SEGMENTS
from fedperf_simulations.experiments.drift import federated_drift
from fedperf_simulations.experiments.drift.continual import MAE, MAPE, Q50
from fedperf_simulations.experiments.drift.federated_drift import (
    BY_SEGMENT,
    OWN,
    PART,
    PRODUCT,
    SPREAD,
    WAYS,
    plotted,
    rows,
    targets,
)
from fedperf_simulations.experiments.drift.table import (
    CUMULATIVE,
    FACTOR,
    FINAL,
    NAIVE,
    WORSE,
    DriftTable,
    cell_of,
)
from fedperf_simulations.harness.experiment import Row

LEARNT = 0.2
"""Error on a segment at the end of its drift regime, before any later training."""

LAST = (*[each - 1 for each in FIRST_WINDOWS[1:]], 12)


def cell(method: str, finals: tuple[float, float, float]) -> Row:
    """Return a year whose final errors on the segments are `finals`."""
    by_window = np.full((13, 3), 0.9)
    for place, last in enumerate(LAST):
        by_window[last:, place] = LEARNT
    by_window[-1] = finals
    square = by_window[[*LAST]][None]
    errors = {MAE: square, MAPE: 100 * square, Q50: 1 + square}
    return {
        **cell_of({method: errors}),
        **{
            f"{method}|on {place} after {window}|0": float(by_window[window, place])
            for place in range(3)
            for window in range(13)
        },
    }


def table(**finals: tuple[float, float, float]) -> DriftTable:
    names = {"naive": NAIVE, "cumulative": CUMULATIVE, "product": PRODUCT}
    others = [each for each in WAYS if each not in names.values()]
    return DriftTable.of(
        [
            *(cell(names[name], each) for name, each in finals.items()),
            *(cell(each, (0.3, 0.3, 0.3)) for each in others),
        ]
    )


GOOD = table(naive=(0.5, 0.21, 0.2), cumulative=(0.2, 0.2, 0.2), product=(0.24, 0.22, 0.2))
BAD = table(naive=(0.5, 0.4, 0.2), cumulative=(0.2, 0.2, 0.2), product=(0.24, 0.25, 0.2))


def row_of(found: list[Row], part: str, method: str, **more: str) -> Row:
    wanted = {"part": part, "method": method, **more}
    return next(row for row in found if all(row[key] == value for key, value in wanted.items()))


@pytest.mark.slow
def test_federated_drift_rows_include_epsilon_and_comparisons() -> None:
    found = rows(GOOD)
    row = row_of(found, PART, PRODUCT)
    assert row["epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert float(str(row["epsilon"])) <= 1.0
    assert float(str(row["replace one"])) > 2
    assert row[FINAL] == pytest.approx(0.22)
    assert row[FACTOR] == pytest.approx((0.91 / 3) / 0.22, abs=1e-3)
    assert row[WORSE] == pytest.approx(10.0)
    assert row_of(found, PART, CUMULATIVE)["epsilon"] is None
    assert len(found) == (2 + len(SEGMENTS)) * len(WAYS)
    assert {each["part"] for each in found} == {PART, SPREAD, BY_SEGMENT}


@pytest.mark.slow
def test_federated_drift_rows_show_error_before_best_and_final_per_segment() -> None:
    row = row_of(rows(GOOD), BY_SEGMENT, NAIVE, segment=SEGMENTS[0])
    assert (row["before"], row["best"], row["final"]) == (None, LEARNT, 0.5)
    row = row_of(rows(GOOD), BY_SEGMENT, PRODUCT, segment=SEGMENTS[1])
    assert (row["before"], row["best"], row["final"]) == (0.9, LEARNT, 0.22)
    assert row["x naive"] == pytest.approx(0.21 / 0.22, abs=1e-3)
    assert row["vs cumulative, %"] == pytest.approx(10.0)


@pytest.mark.slow
def test_federated_drift_targets_cover_forgotten_and_worst_segments() -> None:
    factor, least, worse = targets(rows(GOOD))
    assert f"({SEGMENTS[0]})" in factor.what  # 5 % worse than best is not forgetting
    assert factor.value == least.value == pytest.approx(0.5 / 0.24, abs=1e-3)
    assert factor.holds is least.holds is True
    assert worse.value == pytest.approx(20.0)
    assert worse.holds is True
    factor, least, worse = targets(rows(BAD))
    assert f"({SEGMENTS[0]}, {SEGMENTS[1]})" in factor.what
    assert factor.value == pytest.approx(0.9 / 0.49, abs=1e-3)
    assert least.value == pytest.approx(0.4 / 0.25, abs=1e-3)
    assert factor.holds is least.holds is worse.holds is False
    assert worse.value == pytest.approx(25.0)


def test_federated_drift_target_without_naive_forgetting_is_missed() -> None:
    flat = table(naive=(0.2, 0.2, 0.2), cumulative=(0.2, 0.2, 0.2), product=(0.2, 0.2, 0.2))
    factor, least, _ = targets(rows(flat))
    assert not factor.holds
    assert not least.holds


def test_federated_drift_charts_show_one_segment_over_windows(tmp_path: Path) -> None:
    paths = plotted(tmp_path, GOOD)
    assert len(paths) == len(SEGMENTS)
    chart = paths[0].read_text(encoding="utf-8")
    for text in (NAIVE, PRODUCT, SEGMENTS[0]):
        assert text in chart


def test_federated_drift_uses_default_calendar_and_large_organization_schedule() -> None:
    planned = federated_drift._planned(quick=False)
    calendar = planned.schedule.calendar
    assert (calendar.period.windows, len(calendar.model_slots), calendar.most_extra) == (
        13,
        3,
        6,
    )
    assert planned.epsilon <= 1
    assert WAYS[PRODUCT].own_history
    assert WAYS[PRODUCT].rehearses
    assert not WAYS[OWN].rehearses
