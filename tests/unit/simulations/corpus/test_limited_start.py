"""Tests of the limited pretrained model, which only simulations of joining use."""

import os

import numpy as np
import pytest

from fedperf_shared.model.pretrained import (
    PRETRAINED_PATH,
    PRETRAINED_VARIABLE,
    load_pretrained_model,
    pretrained_model_path,
)
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_simulations.corpus.limited_start import (
    LIMITED_MODEL_PATH,
    limited_model_in_use,
    load_limited_model,
)
from fedperf_simulations.corpus.pretraining import error_on
from fedperf_simulations.model.ggfn import model_from_arrays


def test_limited_pretrained_model_is_active_only_within_its_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(PRETRAINED_VARIABLE, raising=False)
    assert pretrained_model_path() == PRETRAINED_PATH
    with limited_model_in_use(LIMITED_MODEL_PATH):
        assert pretrained_model_path() == LIMITED_MODEL_PATH
        loaded, limited = load_pretrained_model(), load_limited_model()
        assert all(
            np.array_equal(loaded.arrays[name], limited.arrays[name]) for name in limited.arrays
        )
    assert pretrained_model_path() == PRETRAINED_PATH
    assert PRETRAINED_VARIABLE not in os.environ


def test_pretrained_model_context_restores_previous_environment_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PRETRAINED_VARIABLE, "mine.safetensors")
    with limited_model_in_use(LIMITED_MODEL_PATH):
        pass
    assert str(pretrained_model_path()) == "mine.safetensors"


def test_shipped_pretrained_model_has_lower_error_than_the_limited_one() -> None:
    plans = load_public_plans()
    shipped, limited = (
        error_on(model_from_arrays(each().arrays), plans)
        for each in (load_pretrained_model, load_limited_model)
    )
    assert shipped < 1.2 < limited
