"""Additive surrogates on disk: one ships with the pretrained model, others are distilled locally.

A surrogate belongs to one fetched model. It is distilled from that model with plans of public
workflows and of local ones, and stored next to the models under the model's digest. It is as
private as the executions. A surrogate only proposes plans to the predictor, so an older one is good
enough.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from fedperf_client.prediction.encoding import ENCODER_VERSION
from fedperf_client.prediction.fetched_models import FetchedModels, predictor
from fedperf_client.prediction.prediction import PredictLog
from fedperf_engines.optimizer.additive_surrogate import (
    AdditiveSurrogate,
    InvalidSurrogateError,
    load_surrogate,
    save_surrogate,
)
from fedperf_engines.platforms.engine import ENGINES, could_run
from fedperf_shared.errors import StorageError
from fedperf_shared.execution import ClusterConfig, Execution
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_shared.workflow.graph import Workflow

# Distilled from the shipped pretrained model, by `fedperf-sim train-base`.
SHIPPED_SURROGATE = Path(__file__).with_name("shipped_head.safetensors")

OWN_WORKFLOWS = 200  # most local workflows that a surrogate is distilled with: the newest
Progress = Callable[[int, int], None]  # called with epochs that are done, and epochs in all
_KEPT = "head-*.safetensors"


def shipped_surrogate() -> AdditiveSurrogate:
    """Load the surrogate of the pretrained model; errors as `load_surrogate`."""
    return load_surrogate(SHIPPED_SURROGATE)


def load_or_distill_surrogate(
    models: FetchedModels, own: Iterable[Execution], *, on_progress: Progress | None = None
) -> AdditiveSurrogate:
    """Load the surrogate of the newest fetched model; distil it if there is none yet.

    Args:
        models: fetched models; the surrogate is stored next to them.
        own: local executions, the newest first, read only where there is no surrogate yet.
        on_progress: called after every epoch; distilling takes less than a minute.

    Raises:
        StorageError: the model cannot be read, or the surrogate not be written.
        InvalidSurrogateError: the shipped surrogate is damaged.
    """
    newest = models.newest
    if newest is None:
        return shipped_surrogate()
    encoder = f"encoder {ENCODER_VERSION}".encode()
    digest = hashlib.sha256(newest.read_bytes() + encoder).hexdigest()
    path = models.directory / _KEPT.replace("*", digest[:16])
    try:
        return load_surrogate(path)
    except InvalidSurrogateError:  # none yet, or of an older version
        public = [(each.plan.workflow, each.cluster) for each in load_public_plans()]
        executions = _one_per_workload(own, OWN_WORKFLOWS)
        workflows = [*public, *((each.plan.workflow, each.cluster) for each in executions)]
        teacher = predictor(load_checkpoint(newest))
        surrogate = distill_surrogate(teacher, workflows, on_progress=on_progress)
        _keep_alone(surrogate, path)
        return surrogate


def distill_surrogate(
    teacher: PredictLog,
    workflows: Sequence[tuple[Workflow, ClusterConfig]],
    *,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> AdditiveSurrogate:
    """Distil the surrogate of `teacher` from these workflows on all platforms with engines.

    Raises:
        InvalidInputError: none of the platforms can run any of them.
    """
    from fedperf_engines.optimizer.distillation import distil

    return distil(teacher, workflows, tuple(ENGINES), could_run, seed=seed, on_progress=on_progress)


def _one_per_workload(executions: Iterable[Execution], most: int) -> Iterator[Execution]:
    workloads: set[str] = set()
    for each in executions:
        if len(workloads) < most and each.workload not in workloads:
            workloads.add(each.workload)
            yield each


def _keep_alone(surrogate: AdditiveSurrogate, path: Path) -> None:
    """Write the surrogate, and delete those of earlier models."""
    try:
        save_surrogate(surrogate, path)
        for other in path.parent.glob(_KEPT):
            if other != path:
                other.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}; make room or let it be written"
        ) from error
