"""What predictions are made from, kept in a file so that the next command need not wait.

Own executions in numbers, the answers of the start models on them, what weighing came to
for every kind of question asked so far, and the members that it needed. The file holds
arrays and JSON, nothing that could be run. It belongs to one state of executions and
models, and to the code that predicts: `open_kept` compares a digest of all and makes a
stale, broken or missing file again. It is as private as the executions and never leaves.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedperf_client.drift.kinds import DriftKind
from fedperf_client.drift.streams import StreamDrift
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.answers.source_digest import source_digest
from fedperf_client.prediction.base_models import FetchedModels, ReplaceFile
from fedperf_client.prediction.evidence import History, Samples
from fedperf_client.prediction.learners.additive import Additive, Arrays
from fedperf_client.prediction.mixture.candidates import Candidates, Key, candidates_of
from fedperf_client.prediction.mixture.intervals import Hull
from fedperf_client.prediction.mixture.learner_catalogue import usable
from fedperf_client.prediction.mixture.lower_bounds import LowerBounds
from fedperf_client.prediction.mixture.matched_folds import Asks, Places
from fedperf_client.prediction.mixture.mixture import Known, MixMember, MixOutcome, OnProgress
from fedperf_client.prediction.mixture.personal import Personalized
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.workflow.features import FEATURE_SCHEMA_VERSION
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

USUAL_CLUSTER = ClusterConfig(nodes=1, cores=2, memory_bytes=16 * 2**30)
"""What a question is about that says nothing of it, before any own execution."""

Clusters = Mapping[Platform, tuple[ClusterConfig, ...]]

PREDICTOR_VERSION = 4
"""Of all code between executions and an answer: features, models, learners, their mix and this
file. Whoever changes what a stored number means, or an answer, raises it."""


@dataclass(slots=True)
class Kept:
    """A predictor and the file that it is kept in.

    Attributes:
        predictor: the mix of everything that the organization has.
        clusters: the resources that own executions on a platform had, the usual ones first; for
            `UNASSIGNED`, that executions had at all.
    """

    predictor: Personalized
    clusters: Clusters
    _path: Path
    _digest: str
    _written: int

    def usual_for(self, plan: Plan) -> ClusterConfig:
        """Resources for a plan that names none: those its platforms usually had here.

        Platforms that never ran here have `USUAL_CLUSTER`: another engine's say nothing.
        """
        return next(iter(self.clusters_of(plan)), USUAL_CLUSTER)

    def clusters_of(self, plan: Plan) -> list[ClusterConfig]:
        """Resources that its platforms had here, by platform, the usual ones first."""
        assigned = [each for each in plan.platforms if each is not Platform.UNASSIGNED]
        platforms = dict.fromkeys(assigned or (Platform.UNASSIGNED,))
        found = (each for platform in platforms for each in self.clusters.get(platform, ()))
        return list(dict.fromkeys(found))

    def keep(self, replace_file: ReplaceFile) -> None:
        """Write the file again where more has been weighed or fitted since it was read.

        Raises:
            StorageError: it cannot be written.
        """
        held = _held(self.predictor)
        if held > self._written:
            content = _encoded(self.predictor, self.clusters, self._digest)
            try:
                replace_file(self._path, content)
            except OSError as error:
                raise StorageError(
                    f"cannot write {self._path}: {error.strerror}; make room or let it be written"
                ) from error
            self._written = held


def open_kept(
    path: Path,
    store: ExecutionStore,
    models: FetchedModels,
    *,
    on_progress: OnProgress | None = None,
    on_reading: Callable[[], None] | None = None,
) -> Kept:
    """The predictor of what is stored and fetched now, from the file where it fits.

    Args:
        path: of the file; nothing is written before `Kept.keep`.
        store: own executions.
        models: start models and the correction.
        on_progress: told of every weighing.
        on_reading: told before all executions are read anew.

    Raises:
        StorageError: store or models cannot be read.
    """
    digest = _digest_of(store, models)
    learners, starts = models.learners(), models.starts()
    found = _loaded(path, digest)
    if found is not None:
        known, hull, clusters, drifts, outcomes, fits, cut_short = found
        used = tuple(each for each in learners if usable(each, len(known), starts))
        candidates = Candidates(
            known, hull, used, starts, on_progress=on_progress, drifts=drifts, cut_short=cut_short
        )
        predictor = Personalized.of(candidates, used)
        predictor.outcomes.update(outcomes)
        candidates.fits.update(fits)
        return Kept(predictor, clusters, path, digest, _held(predictor))
    if on_reading is not None:
        on_reading()
    history = History.from_executions(store.executions())
    candidates = candidates_of(history, starts, learners, on_progress=on_progress)
    clusters = _clusters(history.questions)
    return Kept(Personalized.of(candidates, candidates.learners), clusters, path, digest, 0)


def _clusters(questions: Sequence[SizedPlan]) -> Clusters:
    found: dict[Platform, Counter[ClusterConfig]] = defaultdict(Counter)
    for question in questions:
        for platform in {Platform.UNASSIGNED, *question.plan.platforms}:
            found[platform][question.cluster] += 1
    return {
        platform: tuple(each for each, _ in counts.most_common())
        for platform, counts in found.items()
    }


def _held(predictor: Personalized) -> int:
    """How much there is to keep."""
    fits = sum(isinstance(each, Additive) for each in predictor.candidates.fits.values())
    return len(predictor.outcomes) + fits


def _digest_of(store: ExecutionStore, models: FetchedModels) -> str:
    """Of what the answers follow from; other code, of any version, may answer otherwise."""
    versions = f"{PREDICTOR_VERSION} {FEATURE_SCHEMA_VERSION} {version('fedperf')}".encode()
    data = store.digest() + models.digest()
    return hashlib.sha256(data + source_digest() + versions).hexdigest()


def _encoded(predictor: Personalized, clusters: Clusters, digest: str) -> bytes:
    known, hull = predictor.candidates.known, predictor.candidates.hull
    arrays: Arrays = {
        "features": known.samples.features.astype(np.float32),  # they were float32
        "cells": known.samples.cells,
        "log_seconds": known.log_seconds,
        "scale": known.places.scale,
        "size": known.places.size,
        "groups": known.groups,
        **{f"start/{name}": values for name, values in known.samples.starts.items()},
    }
    cut_short = predictor.candidates.cut_short.log_seconds
    for number, bounds in enumerate(cut_short.values()):
        arrays[f"cut/{number}"] = bounds
    for number, outcome in enumerate(predictor.outcomes.values()):
        arrays |= {f"errors/{number}": outcome.errors, f"groups/{number}": outcome.groups}
        arrays |= {f"rows/{number}": outcome.rows}
    kept = [
        (name, member)
        for name, member in predictor.candidates.fits.items()
        if isinstance(member, Additive)
    ]
    for number, (_, member) in enumerate(kept):
        arrays |= {f"fit/{number}/{name}": values for name, values in member.arrays().items()}
    facts = {
        "cut_short": [configuration.hex() for configuration in cut_short],
        "fits": [[name, member.start] for name, member in kept],
        "hull": {
            "lowest": hull.lowest,
            "highest": hull.highest,
            "pairs": [[*pair, *ends] for pair, ends in sorted(hull.pairs.items())],
            "cores_on_node": hull.cores_on_node,
        },
        "drifts": [_drift_facts(each) for each in predictor.candidates.drifts],
        "clusters": [
            [int(platform), [astuple(each) for each in found]]
            for platform, found in clusters.items()
        ],
        "outcomes": [
            {
                "kind": outcome.kind.value,
                "cut": outcome.cut,
                "folds": outcome.folds,
                "members": [[each.name, each.weight, each.error] for each in outcome.members],
            }
            for outcome in predictor.outcomes.values()
        ],
    }
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    return save(plain, metadata={"digest": digest, "facts": json.dumps(facts)})


def _drift_facts(drift: StreamDrift) -> list[object]:
    cell = [int(drift.platform), int(drift.operator_class)]
    moments = [drift.since.isoformat(), drift.noticed_at.isoformat()]
    return [*cell, *moments, drift.log_shift, list(drift.kinds)]


def _drift_of(facts: Sequence[Any]) -> StreamDrift:
    platform, operator_class, since, noticed_at, log_shift, kinds = facts
    return StreamDrift(
        Platform(platform),
        OperatorClass(operator_class),
        datetime.fromisoformat(since),
        datetime.fromisoformat(noticed_at),
        float(log_shift),
        tuple(map(DriftKind, kinds)),
    )


_Loaded = tuple[
    Known,
    Hull,
    Clusters,
    tuple[StreamDrift, ...],
    dict[Key, MixOutcome],
    dict[str, Additive],
    LowerBounds,
]


def _loaded(path: Path, digest: str) -> _Loaded | None:
    """What the file holds; None where it is not there, stale or broken: it is made again."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("digest") != digest:
                return None
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return _decoded(arrays, json.loads(metadata["facts"]))
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, InvalidInputError):
        return None


def _decoded(arrays: Arrays, facts: Mapping[str, Any]) -> _Loaded:
    def floats(name: str) -> Floats:
        return np.asarray(arrays[name], np.float64)

    def whole(name: str) -> NDArray[np.int64]:
        return np.asarray(arrays[name], np.int64)

    starts = [name for name in arrays if name.startswith("start/")]
    samples = Samples(
        floats("features"),
        whole("cells"),
        {name.removeprefix("start/"): floats(name) for name in starts},
    )
    places = Places(floats("scale"), floats("size"))
    hull = facts["hull"]
    outcomes = [
        MixOutcome(
            Asks(each["kind"]),
            each["cut"],
            tuple(MixMember(*member) for member in each["members"]),
            each["folds"],
            floats(f"errors/{number}"),
            whole(f"groups/{number}"),
            whole(f"rows/{number}"),
        )
        for number, each in enumerate(facts["outcomes"])
    ]
    return (
        Known(samples, floats("log_seconds"), places, whole("groups")),
        Hull(
            tuple(hull["lowest"]),
            tuple(hull["highest"]),
            {
                (OperatorKind(kind), Platform(platform)): (rows, most_rows, cores, most_cores)
                for kind, platform, rows, most_rows, cores, most_cores in hull["pairs"]
            },
            hull["cores_on_node"],
        ),
        {
            Platform(platform): tuple(ClusterConfig(*each) for each in found)
            for platform, found in facts["clusters"]
        },
        tuple(map(_drift_of, facts["drifts"])),
        {(each.kind, each.cut): each for each in outcomes},
        {
            name: Additive.of(start, _below(arrays, f"fit/{number}/"))
            for number, (name, start) in enumerate(facts["fits"])
        },
        LowerBounds(
            {
                bytes.fromhex(configuration): floats(f"cut/{number}")
                for number, configuration in enumerate(facts["cut_short"])
            }
        ),
    )


def _below(arrays: Arrays, prefix: str) -> Arrays:
    return {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }
