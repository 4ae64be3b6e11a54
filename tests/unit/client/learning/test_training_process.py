"""What the daemon may rely on when training happens in another process."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.learning.training_process import (
    Arrays,
    TrainingFailedError,
    TrainingProcess,
    TrainingTask,
    train_from_store,
)
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.release.noise import SystemNoise
from fedperf_client.store import ExecutionStore
from fedperf_shared.model.checkpoint import state_to_arrays
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.release import TrainingParameters
from tests.fakes.trainings import BUSY_SECONDS, busy, failing, hung, its_process_and_noise, killed
from tests.unit.client.executions import make_execution
from tests.unit.client.privacy.seeded_noise import SeededNoise

PARAMETERS = TrainingParameters(4.0, 0.5, 1, 0.5, 10.0)


def task(noise: NoiseSource, store: Path = Path("store"), *, arrays: Arrays = ()) -> TrainingTask:
    return TrainingTask(store, arrays, PARAMETERS, noise)


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """A child looks for modules where this process does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[4])
        yield


@pytest.fixture(scope="module")
def child(importable: None) -> Iterator[TrainingProcess]:
    """One warm child for the tests that only look at what it answers."""
    del importable
    with TrainingProcess(its_process_and_noise, needs=()) as process:
        process.warm()
        yield process


def test_tasks_run_in_one_warm_process_that_is_not_this_one(child: TrainingProcess) -> None:
    pids = {float(child(task(SystemNoise()))[0][0]) for _ in range(2)}
    assert len(pids) == 1
    assert pids != {float(os.getpid())}


def test_the_noise_of_the_child_is_never_drawn_again(child: TrainingProcess) -> None:
    here = SystemNoise()
    drawn = [child(task(here))[1] for _ in range(3)] + [here.gaussian(8).astype(np.float32)]
    assert len(np.unique(np.concatenate(drawn))) == 4 * 8


def test_a_killed_child_loses_its_task_and_the_next_slot_finds_a_new_one(tmp_path: Path) -> None:
    with TrainingProcess(killed, needs=()) as process:
        with pytest.raises(TrainingFailedError, match="lost"):
            process(task(SeededNoise(), tmp_path / "was-killed"))
        assert process(task(SeededNoise(), tmp_path / "was-killed")) == ()


def test_a_failure_is_told_and_leaves_the_child_alive() -> None:
    with TrainingProcess(failing, needs=()) as process:
        for _ in range(2):
            with pytest.raises(TrainingFailedError, match="ZeroDivisionError: 1"):
                process(task(SeededNoise()))
        assert process._child is not None
        assert process._child[0].is_alive()


def test_closing_ends_a_task_that_hangs(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def ask() -> None:
        try:
            process(task(SeededNoise(), tmp_path / "began"))
        except TrainingFailedError as error:
            errors.append(error)

    process = TrainingProcess(hung, needs=())
    asking = threading.Thread(target=ask)
    asking.start()
    while not (tmp_path / "began").exists():
        time.sleep(0.01)
    process.close()
    asking.join(10)
    assert len(errors) == 1
    with pytest.raises(TrainingFailedError, match="closed"):
        process(task(SeededNoise()))


def test_this_process_has_nothing_to_do_while_the_child_trains() -> None:
    """So that its rhythm cannot depend on the training."""
    with TrainingProcess(busy, needs=()) as process:
        process.warm()
        before = time.process_time()
        process(task(SeededNoise()))
        assert time.process_time() - before < BUSY_SECONDS / 4


def test_the_child_trains_on_the_store_as_this_process_would(tmp_path: Path) -> None:
    with ExecutionStore.open(tmp_path / "store") as store:
        store.add([make_execution(number) for number in range(5)])
    start = tuple(state_to_arrays(GGFN(seed=3)).values())
    asked = task(SeededNoise(1), tmp_path / "store", arrays=start)
    with TrainingProcess() as process:
        there = process(asked)
    here = train_from_store(task(SeededNoise(1), tmp_path / "store", arrays=start))
    assert all(np.array_equal(a, b) for a, b in zip(here, there, strict=True))
    assert any(array.any() for array in here)
