from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.experiments.report_channel import (
    CONDITIONS,
    EXPERIMENT,
    HIDDEN_OWN,
    LIMITS,
    ONCE,
    OWN,
    START,
    ChannelCondition,
    _targets,
)
from fedperf_simulations.harness.experiment import Settings
from tests.public_data import public_data


def made_up(value: float) -> dict[ChannelCondition, np.ndarray]:
    """Return equal errors of all new participants but one, whose error is 100 larger."""
    errors = {each: np.array([value, value, value + 100, value]) - 25 for each in CONDITIONS}
    return errors | {ChannelCondition(START): np.full(4, 58.0)}


def test_report_channel_targets_cover_every_promised_value() -> None:
    targets = {target.what: target for target in _targets(made_up(25.0))}
    assert len(targets) == len(LIMITS) + 4
    own, once = (f"{what}, epsilon 1: MAPE at n = 0" for what in (OWN, ONCE))
    assert (targets[own].limit, targets[once].limit) == (40.0, 30.0)
    assert targets[f"{OWN}, epsilon 3: MAPE at n = 0"].limit == 29.0
    assert targets[f"{ONCE}, epsilon 3: MAPE at n = 0"].limit == 20.0
    assert targets[f"{HIDDEN_OWN}, epsilon 1: MAPE at n = 0"].limit == 58.0
    assert [name for name, each in targets.items() if not each.holds] == [
        f"{ONCE}, epsilon 3: MAPE at n = 0"
    ]


def test_report_channel_target_reports_mean_and_median_of_participants() -> None:
    [target] = [
        each for each in _targets(made_up(25.0)) if each.what.startswith(f"{ONCE}, epsilon 3")
    ]
    row = target.as_row()
    assert (row["value"], row["holds"]) == (25.0, False)
    assert (row["median"], row["median holds"]) == (0.0, True)


def test_report_channel_conditions_have_distinct_cell_keys() -> None:
    assert len({each.key for each in CONDITIONS}) == len(CONDITIONS)
    assert ChannelCondition(OWN, 1).key == "own-noise-eps1"


@pytest.mark.slow
def test_quick_report_channel_run_reports_spent_epsilon_and_is_repeatable(tmp_path: Path) -> None:
    settings = Settings(seed=1, out=tmp_path, data=public_data("c3o-experiments"), quick=True)
    outcome = EXPERIMENT.run(settings)
    assert [row["what"] for row in outcome.rows] == [each.what for each in CONDITIONS]
    for condition, row in zip(CONDITIONS, outcome.rows, strict=True):
        assert isinstance(row["MAPE"], float)
        assert (row["replace one"] is None) == (condition.epsilon is None)
    rows = {(row["what"], row["epsilon"]): row for row in outcome.rows}
    assert rows[OWN, 1]["replace one"] == pytest.approx(1.0, abs=0.01)
    assert rows[OWN, 1]["add or remove"] == pytest.approx(0.47, abs=0.02)
    again = EXPERIMENT.run(replace(settings, stored_results=tmp_path))
    assert list(again.rows) == list(outcome.rows)
    assert len(outcome.cases) == 4 * len(CONDITIONS)
    assert len(outcome.data_files) == 5
