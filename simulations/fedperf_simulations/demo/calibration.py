"""The speed of this machine at one organization's work, printed as JSON.

It is measured by a program of its own (`python -m fedperf_simulations.demo.calibration HISTORY`).
So it has one thread and its own memory, like the daemon whose work it foretells. Nothing that it
computes leaves it except run times.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import orjson

from fedperf_shared.workflow.features import featurize

_PLANS = 64
"""Whose features at a tangent are timed."""

_T = TypeVar("_T")


def main() -> None:
    """Measure on the history file that is the only argument."""
    print(orjson.dumps(measured_pace(Path(sys.argv[1]))).decode())


def measured_pace(history: Path) -> dict[str, float]:
    """Seconds of each part of a daemon's work, by the names of `scenario.MachineTimings`."""
    before = time.monotonic()
    from fedperf_shared.runtime.process import quiet_flower

    quiet_flower()
    import fedperf_client.node.daemon
    from fedperf_client.contributions.local_sums import (
        label_executions,
        workload_features,
        workload_residuals,
    )
    from fedperf_client.sources.history_file import executions_of
    from fedperf_shared.model.architecture import weights_of
    from fedperf_shared.model.inference import GgfnArrays
    from fedperf_shared.model.linearization import combine_gradients
    from fedperf_shared.model.pretrained import load_pretrained_model
    from fedperf_shared.model.public_plans import anchors_of, load_public_plans
    from fedperf_shared.releases.linear_queries import DIRECTIONS

    del fedperf_client.node.daemon  # its imports are what counts
    startup = time.monotonic() - before
    pretrained = load_pretrained_model()
    model, reference = weights_of(pretrained.arrays), GgfnArrays.of(pretrained)
    labelled, reading = _timed(lambda: label_executions(executions_of(history)))
    _, residuals = _timed(lambda: workload_residuals(reference, labelled))
    some = labelled[:_PLANS]
    anchors = [featurize(each.plan, each.cluster) for each in anchors_of(load_public_plans())]
    coefficients = np.eye(len(anchors), DIRECTIONS, dtype=np.float32)
    directions = combine_gradients(model, anchors[:1], coefficients[:1])
    workload_features(model, some, directions)  # what is loaded on first use
    _, together = _timed(lambda: combine_gradients(model, anchors, coefficients))
    _, full = _timed(lambda: workload_features(model, some, directions))
    return {
        "startup_seconds": startup,
        "reading_seconds": reading,
        "residuals_seconds": residuals,
        "executions": float(len(labelled)),
        "anchor_seconds": together / len(anchors),
        "plan_seconds": full / max(len(some), 1),
    }


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    before = time.monotonic()
    result = work()
    return result, time.monotonic() - before


if __name__ == "__main__":
    main()
