"""Tests of the experiment on the gain of joining: rows, changes and targets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.experiments.joining_gain import (
    C3O,
    EPS1,
    EPS3,
    EXPERIMENT,
    LOCAL,
    LOCAL_PROCESS,
    LOCALS,
    MOST_CHANGE,
    PUBLIC_AS_IS,
    STRONGEST,
    WITH_PUBLIC,
    WORLDS,
    GainTable,
    _targets,
    personalized,
)
from fedperf_simulations.harness.experiment import Row, Settings
from tests.public_data import public_data

NAMES = {
    "mix": LOCAL,
    "process": LOCAL_PROCESS,
    "public": WITH_PUBLIC,
    "one": personalized(EPS1),
    "three": personalized(EPS3),
}


def cases(new_participant: int, own: int, **mape: float) -> list[Row]:
    """Return cases of two seeds, 1 point below and above the mean."""
    return [
        {
            "newcomer": new_participant,
            "seed": seed,
            "n": own,
            "predictor": NAMES[key],
            "MAPE": value + (-1.0 if seed else 1.0),
            "q50": 1.1,
            "MAE of the log": (value / 10) ** 2,
        }
        for key, value in mape.items()
        for seed in range(2)
    ]


TABLE = GainTable.of(
    [
        *cases(0, 3, mix=40.0, process=30.0, public=28.0, one=20.0, three=12.0),
        *cases(1, 3, mix=50.0, process=50.0, public=32.0, one=40.0, three=28.0),
        *cases(0, 10, mix=10.0, process=11.0, public=10.0, one=11.0, three=10.0),
    ]
)


def test_gain_changes_are_paired_against_the_best_local_baseline() -> None:
    assert TABLE.strongest(3) == LOCAL_PROCESS
    assert TABLE.strongest(10) == LOCAL
    assert TABLE.strongest(0) is None
    change = TABLE.change(personalized(EPS1), LOCAL_PROCESS, 3)
    assert change.mean == pytest.approx(-25.0)
    assert change.median == pytest.approx((-100 / 3 - 20) / 2)
    assert change.one_left_out == pytest.approx(-20.0)
    assert (change.wins, change.cases) == (2, 2)
    rows = {(row["predictor"], row["n"]): row for row in TABLE.rows(C3O)}
    assert rows[personalized(EPS3), 3]["vs local, %"] == pytest.approx(-50.0)
    assert rows[personalized(EPS3), 3]["vs local + public, %"] == pytest.approx(-100 / 3)
    assert rows[personalized(EPS3), 3]["newcomers"] == 2
    assert rows[personalized(EPS3), 3]["MAE of the log"] == pytest.approx(4.64)
    assert rows[personalized(EPS1), 3]["MAE of the log vs local, %"] == pytest.approx(-700 / 17)
    assert rows[LOCAL, 3]["vs local, %"] is None


def test_gain_harm_target_is_the_worst_change_from_ten_executions() -> None:
    tables = {name: GainTable({}, {}, {}) for name in WORLDS} | {C3O: TABLE}
    found = {each.what: each for each in _targets(tables)}
    harm = next(each for what, each in found.items() if what.startswith("most that joining"))
    assert harm.value == pytest.approx(10.0)
    assert not harm.holds
    gain = found[f"{C3O}, {EPS1}, n = 3: percent against {STRONGEST}"]
    assert gain.value == pytest.approx(-25.0)
    assert (gain.limit, gain.holds) == (-30, False)


def test_gain_targets_refer_only_to_data_sets_that_are_run() -> None:
    assert {data for data, *_ in MOST_CHANGE} <= set(WORLDS)
    assert {rival for _, _, rival, _ in MOST_CHANGE} == {STRONGEST, WITH_PUBLIC}


@pytest.mark.slow
def test_quick_gain_run_evaluates_one_new_participant_per_data_set(tmp_path: Path) -> None:
    folder = public_data("tokio-abc")
    public_data("c3o-experiments")
    settings = Settings(seed=1, out=tmp_path, data=folder, quick=True)
    outcome = EXPERIMENT.run(settings)
    assert {row["data"] for row in outcome.rows} == set(WORLDS)
    for row in outcome.rows:
        assert row["newcomers"] == 1
        assert isinstance(row["MAPE"], float)
        assert np.isfinite(row["MAPE"])
        assert (row["vs local, %"] is not None) == (
            row["n"] != 0 and row["predictor"] not in LOCALS
        )
    assert PUBLIC_AS_IS in {row["predictor"] for row in outcome.rows}
    assert all(path.read_text().startswith("<svg") for path in outcome.plots)
    again = EXPERIMENT.run(replace(settings, stored_results=tmp_path))
    assert list(again.rows) == list(outcome.rows)
    seen = {(case["data"], case["newcomer"], case["seed"]) for case in outcome.cases}
    assert len(seen) == len(WORLDS)
