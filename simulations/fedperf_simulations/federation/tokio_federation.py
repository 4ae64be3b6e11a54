"""The platforms of the I/O probes as organizations of a federation, each with its own runs."""

import numpy as np

from fedperf_simulations.data.tokio import ProbeRuns
from fedperf_simulations.federation.channel import Sender


def sender(runs: ProbeRuns, platform: str, target: str, *, by_run: bool) -> Sender:
    """The sender of a platform: it adds up every run, or every point's mean as one workload."""
    own = runs.of(platform)
    point, measured = runs.point[own], runs.measured(target)[own]
    if by_run:
        return Sender(point, measured)
    points, place = np.unique(point, return_inverse=True)
    return Sender(points, np.bincount(place, measured) / np.bincount(place))
