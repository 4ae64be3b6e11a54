"""Distil the additive head that ships with fedperf from the public start that ships.

With one plan of each of some workloads of the measured set, whose workflows are drawn from
public seeds; run times are not looked at. Made anew whenever the start is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedperf_client.optimizer.head import save_head
from fedperf_client.optimizer.heads import SHIPPED_HEAD, Progress, distilled
from fedperf_client.prediction.starts import predictor
from fedperf_shared.execution import Execution
from fedperf_shared.model.public_start import load_public_start
from fedperf_simulations.start import one_per_workload

WORKFLOWS = 600


@dataclass(frozen=True, slots=True)
class HeadReport:
    """What a head was distilled with, and how large its file is."""

    workflows: int
    bytes: int


def distil_shipped_head(
    executions: Iterable[Execution],
    *,
    seed: int = 0,
    workflows: int = WORKFLOWS,
    on_progress: Progress | None = None,
    path: Path = SHIPPED_HEAD,
) -> HeadReport:
    """Distil and write the head; the same for a seed on one machine."""
    known = one_per_workload(executions)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(known))[:workflows].tolist()
    head = distilled(
        predictor(load_public_start()),
        [known[place] for place in sorted(chosen)],
        seed=seed,
        on_progress=on_progress,
    )
    save_head(head, path)
    return HeadReport(len(chosen), path.stat().st_size)
