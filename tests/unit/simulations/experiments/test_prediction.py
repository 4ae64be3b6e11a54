"""The benchmark of predictions, small."""

from pathlib import Path

import pytest

from fedperf_simulations.experiments.prediction import EXPERIMENT
from fedperf_simulations.harness.experiment import Settings


@pytest.mark.slow
def test_a_warm_question_is_faster_than_the_command_and_the_first_command_is_slowest(
    tmp_path: Path,
) -> None:
    outcome = EXPERIMENT.run(Settings(seed=0, out=tmp_path, quick=True))
    warm, cold, first = (float(row["median"] or 0) for row in outcome.rows)
    assert 0 < warm / 1000 < cold < first
    assert len(outcome.targets) == 2
