"""Tests of predictions from few known configurations and their baselines, on synthetic slices."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.data.c3o import slices
from fedperf_simulations.experiments.intervals import scale_outs
from fedperf_simulations.experiments.intervals.figures import GROUP, OURS, PREDICTOR, SITUATION
from fedperf_simulations.experiments.intervals.scale_outs import (
    BASELINES,
    CHOSEN,
    COVERED,
    MAPE,
    PART,
    SLOPES,
    situation,
)
from fedperf_simulations.harness.experiment import Row, Settings
from tests.unit.simulations.public_files import with_c3o


def case(of: str, name: str, group: int, mape: float) -> Row:
    row: Row = {SITUATION: of, PREDICTOR: name, GROUP: str(group), MAPE: mape}
    told: Row = {COVERED: 0.9, CHOSEN: 1.0, "upper / lower": 2.0, scale_outs.LOG_ERROR: 0.1}
    return {**row, **(told if name == OURS else {scale_outs.LOG_ERROR: 0.1})}


def test_scale_out_part_evaluates_all_predictors_from_one_known_configuration(
    tmp_path: Path,
) -> None:
    data = with_c3o(tmp_path / "data")
    cases = PART.cases(Settings(seed=0, out=tmp_path, data=data, quick=True))
    assert len(cases) == 2 * 3 * (1 + len(BASELINES))
    assert all(0 <= float(str(each[MAPE])) < 1e4 for each in cases)
    rows = PART.rows(cases)
    assert {row[SITUATION] for row in rows} == {situation(known) for known in (1, 2, 3)}
    targets = PART.targets(cases, rows)
    assert len(targets) == 3 * (len(BASELINES) + 2)
    assert all(np.isfinite(each.value) for each in targets)


def test_slope_prior_from_one_configuration_decreases_with_nodes(tmp_path: Path) -> None:
    one = slices(with_c3o(tmp_path))[0]
    layout = one.layout
    features = layout.samples(one.configurations.table).features
    places = one.inputs()[0]
    known, logs = features[places[:1]], np.log(one.configurations.seconds[places[:1]])
    said = BASELINES[SLOPES](layout, known, logs, features[places])
    assert said[0] == pytest.approx(logs[0])
    assert (np.diff(said) < 0).all()


def test_scale_out_target_compares_with_one_best_baseline_over_all_cases() -> None:
    cases = []
    for known in (1, 2, 3):
        for group in range(20):
            errors = dict.fromkeys(BASELINES, 20.0) | {
                SLOPES: 10.0,
                OURS: 30.0 if group < 2 else 9.0,
            }
            cases += [case(situation(known), name, group, mape) for name, mape in errors.items()]
    targets = {each.what: each for each in PART.targets(cases, PART.rows(cases))}
    share = next(each for what, each in targets.items() if "above twice" in what)
    assert SLOPES in share.what
    assert share.value == pytest.approx(0.1)
    assert not share.holds
    [against] = [each for what, each in targets.items() if "1 known" in what and "Ernest" in what]
    assert against.holds
    assert against.paired is not None
    assert against.paired.mean == pytest.approx((18 * np.log(9 / 20) + 2 * np.log(1.5)) / 20)
