"""Cached columns and predictions change only with their version, and are then recomputed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedperf_client.prediction import encoding as columns_module
from fedperf_client.prediction.encoding import home_encoder
from fedperf_shared.model import architecture, inference
from tests.unit.client.prediction.cached_predictions import (
    ENCODER,
    FILE,
    PREDICTOR,
    VERSIONS,
    answers_now,
    columns_now,
)
from tests.unit.client.pretrained_model import install_start

RAISE = (
    "raise ENCODER_VERSION or PREDICTOR_VERSION, then: "
    "python -m tests.unit.client.prediction.cached_predictions"
)


def kept(part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_bytes())[part]
    return found


def is_as_kept(part: str, now: dict[str, list[Any]], tolerance: float) -> bool:
    """Return True if floats agree within the tolerance and all other values exactly.

    The tolerance covers differences between libraries and processors.
    """
    before = kept(part)
    if before.pop("version") != VERSIONS[part] or before.keys() != now.keys():
        return False
    return all(
        np.allclose(now[name], values, rtol=tolerance, atol=tolerance)
        if isinstance(values[0], float)
        else now[name] == values
        for name, values in before.items()
    )


def test_encoded_columns_change_only_with_encoder_version() -> None:
    assert is_as_kept(ENCODER, columns_now(), 1e-4), RAISE


@pytest.mark.slow
def test_predictions_change_only_with_predictor_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_start(tmp_path, monkeypatch)
    assert is_as_kept(PREDICTOR, answers_now(), 0.02), RAISE


def test_encoded_columns_differ_if_network_inference_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (architecture, inference):
        if hasattr(module, "TARGET_SCALE"):
            monkeypatch.setattr(module, "TARGET_SCALE", architecture.TARGET_SCALE * 1.01)
    assert not is_as_kept(ENCODER, columns_now(), 1e-4)


def test_encoder_key_changes_with_encoder_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = home_encoder().key
    monkeypatch.setattr(columns_module, "ENCODER_VERSION", columns_module.ENCODER_VERSION + 1)
    columns_module._encoder.cache_clear()
    assert home_encoder().key != before
    columns_module._encoder.cache_clear()
