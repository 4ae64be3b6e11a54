"""The home's predictor, cached in a file so that the next command need not wait.

The file holds the training data as numbers with the predictions of the pretrained models, the
weights of every query regime so far, and the fitted learners that these needed. It also holds the
summary of all own executions (training support, repeats, drifts, resources). Two digests decide
what of it is current: that of all executions, models and code, and that of the training data alone.
If only executions came that are not in the training data, weights and fits stay. A stale, broken or
missing file is made again. Nothing in the file is executed. It is as private as the executions and
never leaves.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
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
from safetensors.numpy import save as encode_arrays

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.encoding import (
    ENCODER_VERSION,
    home_encoder,
    load_encoded_executions,
    predict_pretrained,
    stored_name,
)
from fedperf_client.prediction.ensemble.ensemble import EnsembleWeights, OnProgress, SplitKey
from fedperf_client.prediction.ensemble.predictor import LearnerPool, PersonalizedEnsemble
from fedperf_client.prediction.ensemble.training_data import LocalSummary, TrainingData, TrainingSet
from fedperf_client.prediction.fetched_models import FetchedModels, ReplaceFile
from fedperf_client.prediction.learners.base_learners import PUBLIC
from fedperf_client.prediction.learners.boosted_trees import Additive
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.features import FLAT_FEATURES
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform

# The cluster of a query that names none, before any own execution.
USUAL_CLUSTER = ClusterConfig(nodes=1, cores=2, memory_bytes=16 * 2**30)

# Version of all code between the columns of executions and a prediction. A change of the meaning of
# a stored number, or of a prediction, raises it: see `ENCODER_VERSION`.
PREDICTOR_VERSION = 14

_STATE, _TRAINING = "state", "training"  # digests of everything, and of the training data


@dataclass(frozen=True, slots=True, eq=False)
class _Content:
    """The content of the file."""

    training: TrainingSet  # training data
    facts: LocalSummary  # of all own executions
    # Weights by engines (`PersonalizedEnsemble.part`) and query regime.
    outcomes: Mapping[tuple[int, SplitKey], EnsembleWeights]
    fits: Mapping[tuple[int, str], Additive]  # fitted learners that are arrays, by engines and name


def _read(path: Path, name: str, digest: str) -> tuple[_Content, dict[str, str]] | None:
    """Read content and digests; None where the file is missing, broken or has another digest."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get(name) != digest:
                return None
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        digests = {each: metadata[each] for each in (_STATE, _TRAINING)}
        return _unpacked(_Content, json.loads(metadata["content"]), arrays), digests
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, InvalidInputError):
        return None


def _packed(value: Any, arrays: dict[str, NDArray[Any]]) -> object:  # noqa: ANN401
    """Return `value` as JSON has it, each array by the name under which it is put into `arrays`."""
    if isinstance(value, np.ndarray):
        single = value.astype(np.float32) if value.dtype == np.float64 else value
        is_same = np.array_equal(single, value)  # features were float32, and are half of a file
        arrays[str(len(arrays))] = np.ascontiguousarray(single if is_same else value)
        return str(len(arrays) - 1)
    if names := _stored(value.__class__):
        return {stored_name(name): _packed(getattr(value, name), arrays) for name in names}
    if isinstance(value, Mapping):
        return [[_packed(each, arrays) for each in pair] for pair in value.items()]
    if isinstance(value, tuple):
        return [_packed(each, arrays) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _unpacked(hint: Any, value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
    """Invert `_packed` for a value of the type `hint`, or raise an error that `_read` expects."""
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
        fields = {name: value[stored_name(name)] for name in names}
        return of(**{name: _unpacked(names[name], each, arrays) for name, each in fields.items()})
    return of.fromisoformat(value) if of is datetime else of(value)


@cache
def _stored(of: type) -> dict[str, Any]:
    """Return names and types of the fields of a dataclass or named tuple; none for other types."""
    hints = get_type_hints(of) if is_dataclass(of) or hasattr(of, "_fields") else {}
    return {name: hint for name, hint in hints.items() if name[0] != "_"}


@dataclass(slots=True)
class CachedPredictor:
    """A predictor and its file."""

    predictor: PersonalizedEnsemble  # of everything that the organization has
    _path: Path
    _digests: Mapping[str, str]
    _written: int  # weights and fits in the file; below 0 where it is stale

    def typical_cluster(self, plan: Plan) -> ClusterConfig:
        """Return resources for a plan that names none: those its platforms usually had here.

        Platforms that never ran here have `USUAL_CLUSTER`, independently of other engines.
        """
        return next(iter(self.clusters_of(plan)), USUAL_CLUSTER)

    def clusters_of(self, plan: Plan) -> list[ClusterConfig]:
        """Return resources that its platforms had here, by platform, the usual ones first."""
        assigned = [each for each in plan.platforms if each is not Platform.UNASSIGNED]
        platforms = dict.fromkeys(assigned or (Platform.UNASSIGNED,))
        clusters = self.predictor.pool.summary.clusters
        every = (each for platform in platforms for each in clusters.get(platform, ()))
        return list(dict.fromkeys(every))

    def save(self, replace_file: ReplaceFile) -> None:
        """Write the file if there are more weights or fits than it has.

        In a home that is read-only it stays unchanged, and the next command computes them again.

        Raises:
            StorageError: it cannot be written.
        """
        parts, pool = self.predictor.with_parts().items(), self.predictor.pool
        content = _Content(
            pool.training,
            pool.summary,
            {(kin, key): each for kin, of in parts for key, each in of.weights_by_split.items()},
            {
                (kin, name): each
                for kin, of in parts
                for name, each in of.pool.fits.items()
                if isinstance(each, Additive)
            },
        )
        pieces = len(content.outcomes) + len(content.fits)
        if pieces > self._written and os.access(self._path.parent, os.W_OK):
            arrays: dict[str, NDArray[Any]] = {}
            text = json.dumps(_packed(content, arrays))
            try:
                replace_file(self._path, encode_arrays(arrays, {**self._digests, "content": text}))
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
) -> CachedPredictor:
    """Return the predictor of all stored executions and fetched models, from the file if current.

    Args:
        path: of the file; nothing is written before `CachedPredictor.save`.
        store: own executions.
        models: pretrained models and the correction.
        on_progress: called after every fold of cross-validation.

    Raises:
        StorageError: store or models cannot be read.
    """
    state = _digest(store.digest(), models)
    cached, is_stale = _read(path, _STATE, state), False
    if cached is not None:
        content, digests = cached
    else:
        home = TrainingData.from_table(load_encoded_executions(store))
        digests = {_STATE: state, _TRAINING: _digest(home.digest(), models)}
        cached = _read(path, _TRAINING, digests[_TRAINING])
        is_stale = cached is not None
        if cached is None:
            content = _Content(_training_set(home, store, models), home.summary, {}, {})
        else:
            content = replace(cached[0], facts=home.summary)
    learners, base_models = models.learners(), models.base_models()
    pool = LearnerPool(
        content.training, content.facts, learners, base_models, on_progress=on_progress
    )
    predictor = PersonalizedEnsemble.of(pool, learners)
    for (kin, key), outcome in content.outcomes.items():
        predictor.part(kin).weights_by_split[key] = outcome
    for (kin, name), fit in content.fits.items():
        predictor.part(kin).pool.fits[name] = fit
    stored = -1 if is_stale else len(content.outcomes) + len(content.fits)
    return CachedPredictor(predictor, path, digests, stored)


def _training_set(home: TrainingData, store: ExecutionStore, models: FetchedModels) -> TrainingSet:
    """Return the training data, with predictions of fetched models as well."""
    base_models, table = models.base_models(), home.table
    used = (each.base_model for each in models.learners() if each.base_model is not None)
    names = [each for each in dict.fromkeys(used) if each in base_models]
    own = {
        name: table.pretrained_log_seconds
        for name in names
        if base_models[name] is base_models[PUBLIC]
    }
    if others := {name: base_models[name] for name in names if name not in own}:
        executions = store.numbered(table.number.tolist())
        own |= predict_pretrained(
            [PlanOnCluster(each.plan, each.cluster) for each in executions], others
        )
    order = np.argsort(table.number)
    features = np.empty((len(table), FLAT_FEATURES))
    if len(table):
        features[order] = store.features(home_encoder(), table.number[order])
    return home.with_features(features, own)


def _digest(data: bytes, models: FetchedModels) -> str:
    versions = f"{PREDICTOR_VERSION} {ENCODER_VERSION} {version('fedperf')}".encode()
    return hashlib.sha256(data + models.digest() + versions).hexdigest()
