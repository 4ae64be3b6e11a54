"""Fetched models: checked, stored as files and used offline."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.home.config import write_private
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    REFERENCE,
    SHARED,
    CellCorrection,
)
from fedperf_shared.errors import FedperfError, StorageError
from fedperf_shared.model.checkpoint import encode_checkpoint
from fedperf_shared.releases.basis import CELLS
from tests.unit.client.prediction.synthetic import draw_questions
from tests.unit.client.pretrained_model import install_start, seeded_checkpoint

SOME = CellCorrection(np.full(CELLS, 0.25), 0.5 * np.eye(CELLS))


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchedModels:
    install_start(tmp_path, monkeypatch)
    return FetchedModels(tmp_path / "models")


def test_fetched_models_before_joining_contain_only_pretrained_model(models: FetchedModels) -> None:
    assert (models.shared_version, models.reference_version) == (0, 0)
    assert models.reference().model_version == 1
    assert set(models.base_models()) == {PUBLIC, REFERENCE}
    assert not models.correction().covariance.any()
    assert not models.directory.exists()


def test_fetched_models_are_used_for_prediction(models: FetchedModels) -> None:
    models.keep_shared(encode_checkpoint(seeded_checkpoint(8, version=4)))
    models.keep_reference(encode_checkpoint(seeded_checkpoint(9, version=2)))
    assert (models.shared_version, models.reference().model_version) == (4, 2)
    questions = draw_questions(np.random.default_rng(0), 5)
    answers = {name: start(questions) for name, start in models.base_models().items()}
    assert set(answers) == {PUBLIC, REFERENCE, SHARED}
    assert not np.allclose(answers[SHARED], answers[PUBLIC])
    assert not np.allclose(answers[REFERENCE], answers[PUBLIC])


def test_fetched_models_determine_order_of_learners(
    models: FetchedModels,
) -> None:
    assert models.learners()[0].name == "pretrained"
    models.keep_shared(encode_checkpoint(seeded_checkpoint(7, version=1)))
    assert models.learners()[0].name == "reference+cells"
    models.keep_shared(encode_checkpoint(seeded_checkpoint(8, version=4)))
    assert models.learners()[0].name == "shared"
    models.keep_reference(encode_checkpoint(seeded_checkpoint(8, version=4)))
    assert models.learners()[0].name == "reference+cells"


def test_cell_correction_is_restored_as_stored(models: FetchedModels) -> None:
    models.keep_correction(SOME, write_private)
    found = models.correction()
    np.testing.assert_array_equal(found.mean, SOME.mean)
    np.testing.assert_array_equal(found.covariance, SOME.covariance)


def test_cell_correction_is_dropped_with_new_reference_model(models: FetchedModels) -> None:
    models.keep_correction(SOME, write_private)
    models.keep_reference(encode_checkpoint(seeded_checkpoint(9, version=2)))
    assert not models.correction().mean.any()


def test_drift_regime_starts_are_stored_and_rewritten_only_on_change(
    models: FetchedModels,
) -> None:
    starts = (datetime(2027, 1, 29, tzinfo=UTC), datetime(2027, 5, 21, tzinfo=UTC))
    assert models.regime_starts() == ()
    models.keep_regime_starts((), write_private)
    assert not models.directory.exists()
    models.keep_regime_starts(starts, write_private)
    assert models.regime_starts() == starts
    (file,) = models.directory.iterdir()
    before = file.stat().st_mtime_ns
    models.keep_regime_starts(starts, write_private)
    assert file.stat().st_mtime_ns == before
    file.write_bytes(b'["yesterday"]')
    with pytest.raises(StorageError, match="remove it"):
        models.regime_starts()


def test_invalid_model_is_refused_and_stored_models_are_kept(models: FetchedModels) -> None:
    models.keep_correction(SOME, write_private)
    models.keep_reference(encode_checkpoint(seeded_checkpoint(9, version=2)))
    models.keep_correction(SOME, write_private)
    good = encode_checkpoint(seeded_checkpoint(version=3))
    for keep in (models.keep_shared, models.keep_reference):
        for bad in (b"", b"junk" * 100, good[:-4]):
            with pytest.raises(FedperfError):
                keep(bad)
    assert (models.shared_version, models.reference_version) == (0, 2)
    assert models.correction().mean.any()


@pytest.mark.parametrize("content", [b"", b"junk" * 50])
def test_damaged_cell_correction_raises_storage_error(
    models: FetchedModels, content: bytes
) -> None:
    models.directory.mkdir()
    (models.directory / "correction.safetensors").write_bytes(content)
    with pytest.raises(StorageError, match="remove it"):
        models.correction()


def test_newest_model_is_shared_model_then_reference_model(models: FetchedModels) -> None:
    assert models.newest is None
    models.keep_reference(encode_checkpoint(seeded_checkpoint(1, version=2)))
    assert models.newest == models.directory / "reference.safetensors"
    models.keep_shared(encode_checkpoint(seeded_checkpoint(2, version=3)))
    assert models.newest == models.directory / "shared.safetensors"
