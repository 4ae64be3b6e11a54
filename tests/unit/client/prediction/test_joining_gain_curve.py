"""Benefit of joining by the number of local executions."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_client.prediction.encoding import History, numbered
from fedperf_client.prediction.ensemble.ensemble import OnProgress
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.joining_gain import (
    LOCAL,
    PERSONALIZED,
    STEPS,
    GainPoint,
    gain_curve,
)
from fedperf_shared.errors import InvalidInputError
from tests.unit.client.prediction.synthetic import draw_history
from tests.unit.client.pretrained_model import install_start


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchedModels:
    install_start(tmp_path, monkeypatch)
    return FetchedModels(tmp_path / "models")


def curve(
    history: History, models: FetchedModels, on_progress: OnProgress = lambda *_: None
) -> list[GainPoint]:
    index = numbered(np.array(history.workloads))
    return gain_curve(index, history.take, models, on_progress=on_progress)


def test_gain_curve_evaluates_each_execution_count_on_held_out_workloads(
    models: FetchedModels,
) -> None:
    history = draw_history(np.random.default_rng(0), 10, executions=2)
    told: list[tuple[int, int]] = []
    points = curve(history, models, lambda done, total: told.append((done, total)))
    assert [each.executions for each in points] == [step for step in STEPS if step <= 10]
    assert {each.predictions for each in points} == {20}
    assert all(error >= 1 for each in points[1:] for error in each.errors.values())
    assert points[-1].errors[LOCAL] < points[1].errors[LOCAL]
    assert np.isnan(points[0].errors[LOCAL])  # no executions
    assert min(error for name, error in points[0].errors.items() if name != LOCAL) >= 1
    assert told[-1][0] == told[-1][1] == len(told)


@pytest.mark.slow
def test_unhelpful_pretrained_model_does_not_raise_error_at_ten_executions(
    models: FetchedModels,
) -> None:
    ratios = []
    for seed in range(5):
        history = draw_history(np.random.default_rng(seed), 10, executions=2)
        last = curve(history, models)[-1].errors
        ratios.append(last[PERSONALIZED] / last[LOCAL])
    assert np.median(ratios) <= 1.0


def test_gain_curve_is_deterministic(models: FetchedModels) -> None:
    history = draw_history(np.random.default_rng(1), 8)
    one, other = (repr(curve(history, models)) for _ in range(2))
    assert one == other


def test_gain_curve_with_too_few_workloads_is_refused(models: FetchedModels) -> None:
    for history in (History((), (), np.zeros(0)), draw_history(np.random.default_rng(2), 4)):
        with pytest.raises(InvalidInputError, match="fedperf ingest FILE"):
            curve(history, models)
