"""Tests of the benchmark of predictions, in a small form."""

from collections import Counter
from pathlib import Path

import pytest

from fedperf_simulations.experiments.prediction import EXPERIMENT, QUICK_COMMANDS, QUICK_QUERIES
from fedperf_simulations.harness.experiment import Settings


@pytest.mark.slow
def test_quick_prediction_benchmark_times_every_path(
    tmp_path: Path,
) -> None:
    """Every way to ask is timed; how long they took is a target of the experiment alone."""
    outcome = EXPERIMENT.run(Settings(seed=0, out=tmp_path, quick=True))
    medians = [float(row["median"] or 0) for row in outcome.rows]
    assert [row["what"] for row in outcome.rows] == [
        "warm, one question",
        "cold, fedperf predict",
        "cold, first time",
    ]
    assert min(medians) > 0
    assert [target.value for target in outcome.targets] == medians[:2]
    assert Counter(each["what"] for each in outcome.cases) == {
        "warm, one question": QUICK_QUERIES - 1,
        "cold, fedperf predict": QUICK_COMMANDS,
        "cold, first time": 1,
    }
