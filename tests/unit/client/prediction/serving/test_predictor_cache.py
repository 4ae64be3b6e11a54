"""The predictor cache: restored between commands, refitted when stale."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_client.home.config import write_private
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.encoding import ExecutionTable
from fedperf_client.prediction.ensemble import training_data
from fedperf_client.prediction.ensemble.training_data import TrainingData
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.learners.base_learners import PUBLIC, CellCorrection
from fedperf_client.prediction.serving import predictor_cache as kept_module
from fedperf_client.prediction.serving.predictor_cache import CachedPredictor, load_or_fit
from fedperf_shared.execution import ExecutionStatus, Measurement
from fedperf_shared.model.checkpoint import encode_checkpoint
from fedperf_shared.releases.basis import CELLS
from tests.unit.client.executions import make_execution
from tests.unit.client.prediction.synthetic import draw_questions
from tests.unit.client.prediction.synthetic_executions import executions_of_world
from tests.unit.client.pretrained_model import install_start, seeded_checkpoint

ASKED = draw_questions(np.random.default_rng(9), 6)


class Place:
    """A store, fetched models and the cache file."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "predictor.safetensors"
        self.models = FetchedModels(directory / "models")
        self.store = directory / "executions.sqlite"
        self.read_anew = 0
        self.add(0, 12)

    def add(self, seed: int, count: int) -> None:
        with ExecutionStore.open(self.store) as store:
            store.add(executions_of_world(seed, count, f"own-{seed}"))

    def opened(self) -> CachedPredictor:
        with ExecutionStore.open(self.store) as store:
            return load_or_fit(self.file, store, self.models)

    def answered(self) -> tuple[list[float], CachedPredictor]:
        kept = self.opened()
        found = [each.median_seconds for each in kept.predictor.predict(ASKED)]
        kept.save(write_private)
        return found, kept


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    install_start(tmp_path, monkeypatch)
    return Place(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that records the number of executions of each new fit."""
    found: list[int] = []

    class Counted(TrainingData):
        @classmethod
        def from_table(cls, columns: ExecutionTable) -> TrainingData:
            found.append(len(columns))
            return TrainingData.from_table(columns)

    monkeypatch.setattr(kept_module, "TrainingData", Counted)
    return found


def test_predictor_cache_restores_same_predictions_without_refitting(
    place: Place, reads: list[int]
) -> None:
    place.add(2, 28)  # enough for linear learners on three platforms
    first, made = place.answered()
    again, found = place.answered()
    np.testing.assert_allclose(again, first, rtol=1e-9)
    assert reads == [40]
    mixes = found.predictor.with_parts()
    assert any("ridge" in name for mix in mixes.values() for name in mix.pool.fits)
    assert {kin: list(mix.weights_by_split) for kin, mix in mixes.items()} == {
        kin: list(mix.weights_by_split) for kin, mix in made.predictor.with_parts().items()
    }
    assert all(mix.pool.errors == {} for mix in mixes.values())
    assert found.predictor.pool.summary.clusters == made.predictor.pool.summary.clusters


def test_predictor_cache_is_refitted_after_new_runs_models_or_correction(
    place: Place, reads: list[int]
) -> None:
    place.answered()
    place.add(1, 5)
    place.answered()
    place.models.keep_shared(encode_checkpoint(seeded_checkpoint(3, version=2)))
    place.answered()
    place.models.keep_shared(encode_checkpoint(seeded_checkpoint(4, version=2)))
    place.answered()
    covariance = 0.1 * np.eye(CELLS)
    place.models.keep_correction(CellCorrection(np.full(CELLS, 0.5), covariance), write_private)
    place.answered()
    place.answered()
    assert reads == [12, 17, 17, 17, 17]


def test_predictor_cache_is_refitted_after_pretrained_model_changes(
    place: Place, reads: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = install_start(tmp_path, monkeypatch)
    place.answered()
    start.write_bytes(encode_checkpoint(seeded_checkpoint(8, version=1)))
    place.answered()
    assert reads == [12, 12]


@pytest.mark.parametrize("what", ["PREDICTOR_VERSION", "ENCODER_VERSION", "version"])
def test_predictor_cache_is_refitted_after_version_changes(
    what: str, place: Place, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.answered()
    monkeypatch.setattr(kept_module, what, (lambda _: "0.2.0") if what == "version" else 99)
    place.answered()
    place.answered()
    assert reads == [12, 12]


@pytest.mark.parametrize("spoilt", [b"", b"{}", b"\x00" * 200, "cut", "flipped", "bent"])
def test_corrupt_predictor_cache_is_refitted(
    spoilt: bytes | str, place: Place, reads: list[int]
) -> None:
    first, _ = place.answered()
    data = place.file.read_bytes()
    contents = {
        "cut": data[: len(data) // 2],
        "flipped": data.replace(b'\\"observed\\"', b'\\"observer\\"'),
        "bent": data.replace(b"log_seconds", b"log_minutes"),
    }
    place.file.write_bytes(contents[spoilt] if isinstance(spoilt, str) else spoilt)
    again, _ = place.answered()
    np.testing.assert_allclose(again, first, rtol=1e-9)
    assert reads == [12, 12]


def test_predictor_cache_is_private_and_unchanged_file_is_not_rewritten(place: Place) -> None:
    place.answered()
    assert place.file.stat().st_mode & 0o077 == 0
    before = place.file.stat().st_mtime_ns
    place.answered()
    assert place.file.stat().st_mtime_ns == before


def test_predictor_cache_restores_right_censored_runs(place: Place, reads: list[int]) -> None:
    [before, *_], _ = place.answered()
    limit = 100 * before
    cut = make_execution(
        99,
        plan=ASKED[0].plan,
        cluster=ASKED[0].cluster,
        status=ExecutionStatus.TIMEOUT,
        measurement=Measurement(limit),
    )
    with ExecutionStore.open(place.store) as store:
        store.add([cut])
    first, _ = place.answered()
    again, _ = place.answered()
    assert reads == [12, 13]
    assert first[0] > limit
    np.testing.assert_allclose(again, first, rtol=1e-9)


def test_predictor_without_executions_marks_every_prediction_extrapolating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_start(tmp_path, monkeypatch)
    models = FetchedModels(tmp_path / "models")
    with ExecutionStore.open(tmp_path / "empty.sqlite") as store:
        found = load_or_fit(tmp_path / "file", store, models).predictor.predict(ASKED)
    start = np.exp(models.base_models()[PUBLIC](ASKED))
    np.testing.assert_allclose([each.median_seconds for each in found], start)
    assert all(each.extrapolating for each in found)


@pytest.mark.slow
def test_predictor_cache_keeps_weights_until_tenth_more_runs_and_adds_new_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_data, "MOST_TRAINING_RUNS", 20)
    place.add(2, 11)  # 23 rows; 20 of the first 22 are sampled
    _, before = place.answered()
    assert len(before.predictor.pool.training) == 20
    place.add(3, 1)
    kept = place.opened()
    assert list(kept.predictor.weights_by_split) == list(before.predictor.weights_by_split)
    assert len(kept.predictor.pool.summary.repeats.log_seconds) == 24
    again, _ = place.answered()
    fresh = Path(place.file)
    fresh.unlink()
    np.testing.assert_allclose(place.answered()[0], again, rtol=1e-9)
    place.add(4, 12)
    assert not place.opened().predictor.weights_by_split
