"""The home's predictor, kept in a file so that the next command need not wait.

The file holds own executions in numbers and the answers of the start models on them. It holds the
weights for every kind of question asked so far, and the fitted members that these needed. The file
belongs to one state of executions and models, and to one version of the code.
`load_or_fit` compares a digest of all and makes a stale, broken or missing file again. Where only
executions came that are not learnt from, what was learnt stays. The file is as private as the
executions and never leaves.

Nothing in the file could be run. It has two parts. What is told of all own executions (hull,
repeats, drifts, resources) belongs to one state of the store. What was learnt from some of them
(weights, fits) belongs to these alone, and stays when others come.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.ensemble.ensemble import EnsembleWeights, OnProgress
from fedperf_client.prediction.ensemble.predictor import LearnerPool, PersonalizedEnsemble
from fedperf_client.prediction.ensemble.repeats import WorkloadChange
from fedperf_client.prediction.ensemble.training_data import LocalSummary, TrainingData, TrainingSet
from fedperf_client.prediction.ensemble.weighting import SplitKey
from fedperf_client.prediction.execution_table import ENCODER_VERSION
from fedperf_client.prediction.fetched_models import FetchedModels, ReplaceFile
from fedperf_client.prediction.learners.boosted_trees import Additive
from fedperf_client.prediction.learners.learner import Learner
from fedperf_client.prediction.learners.residual_learners import PUBLIC
from fedperf_client.prediction.prediction import PredictLog
from fedperf_client.prediction.query_encoding import hash64, predict_pretrained
from fedperf_client.prediction.serving.encoded_executions import (
    home_encoder,
    load_encoded_executions,
)
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.features import FLAT_FEATURES
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform

USUAL_CLUSTER = ClusterConfig(nodes=1, cores=2, memory_bytes=16 * 2**30)
"""The cluster of a question that names none, before any own execution."""

PREDICTOR_VERSION = 13
"""Of all code between the columns of executions and an answer: learners, their mix and this file.
A change of what a stored number means, or of an answer, raises it: see `ENCODER_VERSION`."""

_STALE = -1
"""Less than any file holds: it is written again, whatever was weighed."""


@dataclass(frozen=True, slots=True, eq=False)
class CachedFits:
    """What was learnt from some own executions.

    Attributes:
        known: they themselves.
        outcomes: what weighing came to, by engines (`PersonalizedEnsemble.part`) and kind of
        question. fits: members that were needed so far, as far as they are arrays, by engines and
        name.
    """

    known: TrainingSet
    outcomes: Mapping[tuple[int, SplitKey], EnsembleWeights]
    fits: Mapping[tuple[int, str], Additive]


@dataclass(frozen=True, slots=True)
class Digests:
    """What the file follows from.

    Attributes:
        state: of everything: executions, models, code.
        learnt: of what is learnt from.
    """

    state: str
    learnt: str


@dataclass(frozen=True, slots=True, eq=False)
class PredictorFile:
    """A whole file."""

    learnt: CachedFits
    facts: LocalSummary
    digests: Digests


def _encode(predictor: PersonalizedEnsemble, digests: Digests) -> bytes:
    """The whole file."""
    mixes, pool = predictor.with_parts().items(), predictor.pool
    learnt = CachedFits(
        pool.training,
        {(kin, key): each for kin, mix in mixes for key, each in mix.weights_by_split.items()},
        {
            (kin, name): each
            for kin, mix in mixes
            for name, each in mix.pool.fits.items()
            if isinstance(each, Additive)
        },
    )
    arrays: dict[str, NDArray[Any]] = {}
    content = _packed(PredictorFile(learnt, pool.summary, digests), arrays)
    return save(arrays, metadata={**asdict(digests), "content": json.dumps(content)})


def _load(
    path: Path, *, state: str | None = None, learnt: str | None = None
) -> PredictorFile | None:
    """What the file holds, if it has these digests; None where it is stale, broken or not there."""
    wanted = {"state": state, "learnt": learnt}
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if any(each not in (None, metadata.get(name)) for name, each in wanted.items()):
                return None
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found: PredictorFile = _unpacked(PredictorFile, json.loads(metadata["content"]), arrays)
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, InvalidInputError):
        return None
    return found


def _packed(value: Any, arrays: dict[str, NDArray[Any]]) -> object:  # noqa: ANN401
    """`value` as JSON has it, each array by the name under which it is put into `arrays`."""
    if isinstance(value, np.ndarray):
        single = value.astype(np.float32) if value.dtype == np.float64 else value
        is_same = np.array_equal(single, value)  # features were float32, and are half of a file
        arrays[str(len(arrays))] = np.ascontiguousarray(single if is_same else value)
        return str(len(arrays) - 1)
    if names := _stored(value.__class__):
        return {name: _packed(getattr(value, name), arrays) for name in names}
    if isinstance(value, Mapping):
        return [[_packed(each, arrays) for each in pair] for pair in value.items()]
    if isinstance(value, tuple):
        return [_packed(each, arrays) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _unpacked(hint: Any, value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
    """What `_packed` was given, of the type `hint`; any of the errors that `_load` expects."""
    of, parts = get_origin(hint) or hint, get_args(hint)
    if of is UnionType:
        return None if value is None else _unpacked(parts[0], value, arrays)
    if of is np.ndarray:
        return np.asarray(arrays[value], get_args(parts[1])[0])
    if of is Mapping:
        key, item = parts
        return {_unpacked(key, k, arrays): _unpacked(item, v, arrays) for k, v in value}
    if of is tuple:
        hints = repeat(parts[0], len(value)) if parts[-1] is Ellipsis else parts
        return tuple(_unpacked(*each, arrays) for each in zip(hints, value, strict=True))
    if names := _stored(of):
        found = {name: _unpacked(each, value[name], arrays) for name, each in names.items()}
        return of(**found)
    return of.fromisoformat(value) if of is datetime else of(value)


@cache
def _stored(of: type) -> dict[str, Any]:
    """Names and types of what a dataclass or a named tuple is made of; none of other types."""
    hints = get_type_hints(of) if is_dataclass(of) or hasattr(of, "_fields") else {}
    return {name: hint for name, hint in hints.items() if name[0] != "_"}


@dataclass(slots=True)
class CachedPredictor:
    """A predictor and the file that it is kept in.

    Attributes:
        predictor: the mix of everything that the organization has.
    """

    predictor: PersonalizedEnsemble
    _path: Path
    _digests: Digests
    _written: int

    def change_of(self, workload: str) -> WorkloadChange | None:
        """The last change of a workload's run times, if any is sure."""
        number = hash64(workload.encode())
        return next(
            (each for each in self.predictor.pool.summary.changes if each.workload == number),
            None,
        )

    def typical_cluster(self, plan: Plan) -> ClusterConfig:
        """Resources for a plan that names none: those its platforms usually had here.

        Platforms that never ran here have `USUAL_CLUSTER`: another engine's say nothing.
        """
        return next(iter(self.clusters_of(plan)), USUAL_CLUSTER)

    def clusters_of(self, plan: Plan) -> list[ClusterConfig]:
        """Resources that its platforms had here, by platform, the usual ones first."""
        assigned = [each for each in plan.platforms if each is not Platform.UNASSIGNED]
        platforms = dict.fromkeys(assigned or (Platform.UNASSIGNED,))
        clusters = self.predictor.pool.summary.clusters
        found = (each for platform in platforms for each in clusters.get(platform, ()))
        return list(dict.fromkeys(found))

    def keep(self, replace_file: ReplaceFile) -> None:
        """Write the file again where more has been weighed or fitted since it was read.

        In a home that can only be read it stays as it is, and the next command weighs again.

        Raises:
            StorageError: it cannot be written.
        """
        pieces = _pieces(self.predictor)
        if pieces > self._written and os.access(self._path.parent, os.W_OK):
            content = _encode(self.predictor, self._digests)
            try:
                replace_file(self._path, content)
            except OSError as error:
                raise StorageError(
                    f"cannot write {self._path}: {error.strerror}; make room or let it be written"
                ) from error
            self._written = pieces


def load_or_fit(
    path: Path,
    store: ExecutionStore,
    models: FetchedModels,
    *,
    on_progress: OnProgress | None = None,
    on_reading: Callable[[], None] | None = None,
) -> CachedPredictor:
    """The predictor of what is stored and fetched now, from the file where it fits.

    Args:
        path: of the file; nothing is written before `CachedPredictor.keep`.
        store: own executions.
        models: start models and the correction.
        on_progress: told of every weighing.
        on_reading: told before what all executions tell is looked for anew.

    Raises:
        StorageError: store or models cannot be read.
    """
    state = _digest_of(store.digest(), models)
    found = _load(path, state=state)
    if found is not None:
        predictor = _predictor(found.learnt, found.facts, models, on_progress)
        return CachedPredictor(predictor, path, found.digests, _pieces(predictor))
    if on_reading is not None:
        on_reading()
    home = TrainingData.from_table(load_encoded_executions(store))
    digests = Digests(state, _digest_of(home.digest(), models))
    before = _load(path, learnt=digests.learnt)
    learnt = (
        before.learnt if before is not None else CachedFits(_known(home, store, models), {}, {})
    )
    predictor = _predictor(learnt, home.summary, models, on_progress)
    written = 0 if before is None else _STALE
    return CachedPredictor(predictor, path, digests, written)


def _predictor(
    learnt: CachedFits, facts: LocalSummary, models: FetchedModels, on_progress: OnProgress | None
) -> PersonalizedEnsemble:
    starts = models.starts()
    used = _used(models, starts)
    pool = LearnerPool(learnt.known, facts, used, starts, on_progress=on_progress)
    predictor = PersonalizedEnsemble.of(pool, used)
    for (kin, key), outcome in learnt.outcomes.items():
        predictor.part(kin).weights_by_split[key] = outcome
    for (kin, name), fit in learnt.fits.items():
        predictor.part(kin).pool.fits[name] = fit
    return predictor


def _used(models: FetchedModels, starts: Mapping[str, PredictLog]) -> tuple[Learner, ...]:
    return tuple(each for each in models.learners() if each.start is None or each.start in starts)


def _known(home: TrainingData, store: ExecutionStore, models: FetchedModels) -> TrainingSet:
    """What is learnt from, in numbers; start models that were fetched are asked about it."""
    starts, learnt = models.starts(), home.table
    used = _used(models, starts)
    needed = {each.start: starts[each.start] for each in used if each.start is not None}
    own = {name: learnt.start for name, start in needed.items() if start is starts[PUBLIC]}
    others = {name: start for name, start in needed.items() if name not in own}
    if others:
        executions = store.numbered(learnt.number.tolist())
        own |= predict_pretrained(
            [PlanOnCluster(each.plan, each.cluster) for each in executions], others
        )
    order = np.argsort(learnt.number)
    features = np.empty((len(learnt), FLAT_FEATURES))
    if len(learnt):
        features[order] = store.features(home_encoder(), learnt.number[order])
    return home.with_features(features, {name: own[name] for name in needed})


def _pieces(predictor: PersonalizedEnsemble) -> int:
    """How many outcomes and fits there are to keep."""
    return sum(
        len(mix.weights_by_split)
        + sum(isinstance(each, Additive) for each in mix.pool.fits.values())
        for mix in predictor.with_parts().values()
    )


def _digest_of(data: bytes, models: FetchedModels) -> str:
    """Of what the answers follow from; another version of the code may answer otherwise."""
    versions = f"{PREDICTOR_VERSION} {ENCODER_VERSION} {version('fedperf')}".encode()
    return hashlib.sha256(data + models.digest() + versions).hexdigest()
