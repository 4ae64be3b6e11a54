"""Distil the additive head that ships with fedperf from the public start that ships.

With workflows of the comparison set, which are drawn from a public seed; measured run times
are not looked at. Made anew with the start.
"""

from dataclasses import dataclass
from pathlib import Path

from fedperf_client.prediction.fetched_models import predictor
from fedperf_engines.optimizer.additive_surrogate import save_surrogate
from fedperf_engines.optimizer.surrogate_store import SHIPPED_SURROGATE, Progress, distill_surrogate
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.pretrained import PRETRAINED_PATH
from fedperf_simulations.corpus.training_set import Measurements


@dataclass(frozen=True, slots=True)
class HeadReport:
    """The size of a head's training set, and that of its file."""

    workflows: int
    bytes: int


def distil_shipped_head(
    measurements: Measurements,
    *,
    on_progress: Progress | None = None,
    start_path: Path = PRETRAINED_PATH,
    path: Path = SHIPPED_SURROGATE,
) -> HeadReport:
    """Distil and write the head; the same for a seed on one machine."""
    teacher = predictor(load_checkpoint(start_path))
    workflows = measurements.workflows(lambda _: True)
    head = distill_surrogate(teacher, workflows, seed=measurements.seed, on_progress=on_progress)
    save_surrogate(head, path)
    return HeadReport(len(workflows), path.stat().st_size)
