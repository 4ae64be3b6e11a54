"""How fast this machine works for one organization; prints JSON.

Run as a program (`python -m fedperf_simulations.pace HISTORY`), so that it has one
thread and a memory of its own like the daemon whose work it foretells. Nothing that
it computes leaves it except run times.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

_WORKLOADS = 64
"""Of the step that is timed."""

_T = TypeVar("_T")


def main() -> None:
    """Measure on the history file that is the only argument."""
    print(orjson.dumps(measured_pace(Path(sys.argv[1]))).decode())


def measured_pace(history: Path) -> dict[str, float]:
    """Seconds of each part of a daemon's work, by the names of `scenario.Pace`."""
    before = time.monotonic()
    from fedperf_shared.flower_settings import quiet_flower

    quiet_flower()
    import fedperf_client.daemon
    from fedperf_client.learning.private_update import examples_by_workload
    from fedperf_client.learning.residuals import labelled_graphs, workload_residuals
    from fedperf_client.privacy.training import Example, PrivateOptimizer, sum_over
    from fedperf_client.sources.history_file import executions_of
    from fedperf_shared.model.ggfn import GGFN
    from fedperf_shared.release import TrainingParameters

    del fedperf_client.daemon  # its imports are what counts
    startup = time.monotonic() - before
    model = GGFN(seed=0).eval()
    labelled, reading = _timed(lambda: labelled_graphs(executions_of(history)))
    _, residuals = _timed(lambda: workload_residuals(model, labelled))
    examples, collating = _timed(lambda: examples_by_workload(labelled))
    parameters = TrainingParameters(
        noise_multiplier=1.0,
        sampling_probability=0.1,
        steps=1,
        clip_norm=1.0,
        nominal_workloads=1000.0,
    )
    optimizer = PrivateOptimizer(model, parameters, _TimedNoise(), learning_rate=0.0)
    some = [members[0] for members in examples[:_WORKLOADS]]

    def step(drawn: Sequence[Example]) -> None:
        optimizer.take(sum_over(model, drawn, parameters.clip_norm))
        optimizer.step()

    step(some[:2])  # what is loaded on first use
    _, empty = _timed(lambda: step([]))
    _, full = _timed(lambda: step(some))
    return {
        "startup_seconds": startup,
        "reading_seconds": reading,
        "residuals_seconds": residuals,
        "examples_seconds": collating,
        "step_seconds": empty,
        "workload_seconds": max(full - empty, 0.0) / max(len(some), 1),
    }


class _TimedNoise:
    """Takes as long as the noise of releases, and is never behind one."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def uniform(self, size: int) -> NDArray[np.float64]:
        return self._rng.random(size)

    def gaussian(self, size: int) -> NDArray[np.float64]:
        from scipy.special import ndtri

        return np.asarray(ndtri(self.uniform(size)), dtype=np.float64)

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        return np.rint(scale * self.gaussian(size)).astype(np.int64)


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    before = time.monotonic()
    result = work()
    return result, time.monotonic() - before


if __name__ == "__main__":
    main()
