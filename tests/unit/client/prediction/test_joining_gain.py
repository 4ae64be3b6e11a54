"""Benefit of joining: predictions do not get worse, and intervals keep their coverage."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.joining_gain import (
    AS_IS,
    LOCAL,
    PERSONALIZED,
    PUBLIC_AS_IS,
    GainPoint,
    gain_on,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution, ExecutionStatus
from fedperf_shared.model.checkpoint import encode_checkpoint
from tests.unit.client.prediction.synthetic_executions import executions_of_world
from tests.unit.client.pretrained_model import garbage_checkpoint, install_start

WORSE_BY_AT_MOST = 1.05


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchedModels:
    install_start(tmp_path, monkeypatch)
    return FetchedModels(tmp_path / "models")


def compared(own: list[Execution], held_out: list[Execution], models: FetchedModels) -> GainPoint:
    history = History.from_executions(own)
    return gain_on(history, history.workloads, held_out, models)


def played(seed: int, models: FetchedModels, own: int = 120) -> GainPoint:
    return compared(
        executions_of_world(seed, own, "own"),
        executions_of_world(seed + 1000, 150, "held-out"),
        models,
    )


@pytest.mark.slow
def test_garbage_shared_model_hardly_changes_personalized_error_and_coverage(
    models: FetchedModels,
) -> None:
    """Means over ten data sets of 120 executions, between which coverage varies by 0.03."""
    models.keep_shared(encode_checkpoint(garbage_checkpoint(2)))
    gains = [played(seed, models) for seed in range(10)]
    ratios = [gain.errors[PERSONALIZED] / gain.errors[LOCAL] for gain in gains]
    coverage = float(np.mean([gain.coverage for gain in gains]))
    print(f"personalized / local: {np.round(ratios, 3)}, coverage {coverage:.3f}")
    assert all(gain.errors[AS_IS] > 1.5 * gain.errors[LOCAL] for gain in gains)  # useless model
    assert np.mean(ratios) <= WORSE_BY_AT_MOST
    assert 0.84 <= coverage <= 0.97


def test_gain_without_shared_model_uses_pretrained_model_in_its_place(
    models: FetchedModels,
) -> None:
    gain = played(1, models, own=12)
    assert (gain.executions, gain.predictions) == (12, 150)
    assert list(gain.errors) == [LOCAL, PUBLIC_AS_IS, AS_IS, PERSONALIZED]
    assert min(gain.errors.values()) >= 1.0
    assert gain.errors[PUBLIC_AS_IS] == gain.errors[AS_IS]


def test_gain_without_own_executions_has_finite_personalized_error(models: FetchedModels) -> None:
    gain = compared([], executions_of_world(5, 20, "held-out"), models)
    assert gain.executions == 0
    assert gain.errors[PERSONALIZED] == pytest.approx(gain.errors[PUBLIC_AS_IS])
    assert gain.errors[LOCAL] != pytest.approx(gain.errors[PUBLIC_AS_IS])


def test_gain_with_workloads_of_training_set_as_held_out_is_refused(models: FetchedModels) -> None:
    own = executions_of_world(1, 10, "own")
    with pytest.raises(InvalidInputError, match="10 of the 10 held-out workloads ran here too"):
        compared(own, own, models)


def test_gain_without_completed_held_out_executions_is_refused(models: FetchedModels) -> None:
    failed = [
        replace(each, status=ExecutionStatus.FAILED, measurement=None)
        for each in executions_of_world(1, 5, "held-out")
    ]
    for held_out in ([], failed):
        with pytest.raises(InvalidInputError, match="there is nothing to predict"):
            compared(executions_of_world(2, 10, "own"), held_out, models)
