"""Surrogate cost models: one ships, one per fetched model is distilled locally and stored."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_engines.optimizer import surrogate_store
from fedperf_engines.optimizer.additive_surrogate import SHAPES
from fedperf_engines.optimizer.surrogate_store import (
    SHIPPED_SURROGATE,
    load_or_distill_surrogate,
    shipped_surrogate,
)
from fedperf_engines.platforms.engine import ENGINES
from fedperf_shared.errors import StorageError
from fedperf_shared.execution import ClusterConfig, Execution
from fedperf_shared.model.checkpoint import encode_checkpoint
from tests.unit.client.executions import make_execution
from tests.unit.client.optimizer.additive_workflows import chain
from tests.unit.client.pretrained_model import seeded_checkpoint


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchedModels:
    monkeypatch.setattr(surrogate_store, "load_public_plans", lambda: ())
    return FetchedModels(tmp_path / "models")


def own(read: list[str]) -> Iterator[Execution]:
    for number in range(6):
        execution = make_execution(number, workload=f"w{number % 3}")
        read.append(execution.execution_id)
        yield execution


def kept(models: FetchedModels) -> list[Path]:
    return sorted(models.directory.glob("head-*"))


def test_shipped_surrogate_is_small_and_covers_every_engine() -> None:
    assert SHIPPED_SURROGATE.stat().st_size < 200_000
    costs = shipped_surrogate().costs(chain(3), ClusterConfig(1, 2, 2**33), tuple(ENGINES))
    assert np.isfinite(costs.operator_seconds).all()


def test_surrogate_without_fetched_model_is_the_shipped_one(
    models: FetchedModels,
) -> None:
    read: list[str] = []
    found = load_or_distill_surrogate(models, own(read))
    assert all((found.arrays[name] == shipped_surrogate().arrays[name]).all() for name in SHAPES)
    assert read == []
    assert not models.directory.exists()


def test_surrogate_of_fetched_model_is_distilled_once(models: FetchedModels) -> None:
    models.keep_shared(encode_checkpoint(seeded_checkpoint(1, version=3)))
    read: list[str] = []
    epochs: list[tuple[int, int]] = []
    first = load_or_distill_surrogate(models, own(read), on_progress=lambda *at: epochs.append(at))
    assert read
    assert epochs
    [path] = kept(models)
    read.clear()
    again = load_or_distill_surrogate(models, own(read))
    assert read == []
    assert all((first.arrays[name] == again.arrays[name]).all() for name in SHAPES)
    assert kept(models) == [path]


def test_surrogate_of_newer_model_replaces_the_old_file(models: FetchedModels) -> None:
    models.keep_reference(encode_checkpoint(seeded_checkpoint(1, version=3)))
    load_or_distill_surrogate(models, own([]))
    [before] = kept(models)
    models.keep_shared(encode_checkpoint(seeded_checkpoint(2, version=4)))
    load_or_distill_surrogate(models, own([]))
    [after] = kept(models)
    assert after != before


def test_damaged_surrogate_file_is_distilled_again(models: FetchedModels) -> None:
    models.keep_shared(encode_checkpoint(seeded_checkpoint(1, version=3)))
    load_or_distill_surrogate(models, own([]))
    [path] = kept(models)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    load_or_distill_surrogate(models, own([]))
    assert path.read_bytes() == whole


def test_distillation_uses_each_workload_once_up_to_a_limit() -> None:
    assert len(list(surrogate_store._one_per_workload(own([]), 10))) == 3
    assert len(list(surrogate_store._one_per_workload(own([]), 2))) == 2


def test_surrogate_that_cannot_be_written_raises_storage_error(
    models: FetchedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.keep_shared(encode_checkpoint(seeded_checkpoint(1, version=3)))

    def full(head: object, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(surrogate_store, "save_surrogate", full)
    with pytest.raises(StorageError, match="No space left on device; make room"):
        load_or_distill_surrogate(models, own([]))
