"""Rounds under `flwr run`, on Flower's simulation engine, compared with the memory backend."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.federation.flower_app import (
    EngineTraining,
    engine_candidates,
    engine_is_there,
)

MEMBERS = 5
TRAINING = EngineTraining(steps=3, workloads=6, plans=40)


@pytest.mark.slow
@pytest.mark.skipif(not engine_is_there(), reason="Ray is not installed: pip install fedperf[sim]")
def test_flwr_run_gives_same_candidates_as_rounds_in_memory(tmp_path: Path) -> None:
    expected = TRAINING.training().candidates([TRAINING.history(n) for n in range(MEMBERS)])
    found = engine_candidates(TRAINING, members=MEMBERS, place=tmp_path)
    assert len(found) == len(expected) == TRAINING.steps
    for one, other in zip(found, expected, strict=True):
        assert all(map(np.array_equal, one, other))
    assert not np.array_equal(found[0][0], found[-1][0])
