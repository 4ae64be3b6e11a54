"""Heads: one ships, one per fetched model is distilled at home and kept."""

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
from tests.unit.client.optimizer.additive_worlds import chain
from tests.unit.client.public import seeded_checkpoint


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


def test_the_head_that_ships_is_small_and_knows_every_engine() -> None:
    assert SHIPPED_SURROGATE.stat().st_size < 200_000
    costs = shipped_surrogate().costs(chain(3), ClusterConfig(1, 2, 2**33), tuple(ENGINES))
    assert np.isfinite(costs.operator_seconds).all()


def test_without_a_fetched_model_the_shipped_head_is_taken_and_nothing_is_read(
    models: FetchedModels,
) -> None:
    read: list[str] = []
    found = load_or_distill_surrogate(models, own(read))
    assert all((found.arrays[name] == shipped_surrogate().arrays[name]).all() for name in SHAPES)
    assert read == []
    assert not models.directory.exists()


def test_a_fetched_model_gets_a_head_once(models: FetchedModels) -> None:
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


def test_a_newer_model_gets_another_and_the_old_one_goes(models: FetchedModels) -> None:
    models.keep_reference(encode_checkpoint(seeded_checkpoint(1, version=3)))
    load_or_distill_surrogate(models, own([]))
    [before] = kept(models)
    models.keep_shared(encode_checkpoint(seeded_checkpoint(2, version=4)))
    load_or_distill_surrogate(models, own([]))
    [after] = kept(models)
    assert after != before


def test_a_broken_head_is_made_again(models: FetchedModels) -> None:
    models.keep_shared(encode_checkpoint(seeded_checkpoint(1, version=3)))
    load_or_distill_surrogate(models, own([]))
    [path] = kept(models)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    load_or_distill_surrogate(models, own([]))
    assert path.read_bytes() == whole


def test_each_workload_teaches_once_and_not_too_many_do() -> None:
    assert len(list(surrogate_store._one_per_workload(own([]), 10))) == 3
    assert len(list(surrogate_store._one_per_workload(own([]), 2))) == 2


def test_a_head_that_cannot_be_written_is_one_clear_line(
    models: FetchedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.keep_shared(encode_checkpoint(seeded_checkpoint(1, version=3)))

    def full(head: object, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(surrogate_store, "save_surrogate", full)
    with pytest.raises(StorageError, match="No space left on device; make room"):
        load_or_distill_surrogate(models, own([]))
