"""The home's predictor, kept in a file so that the next command need not wait.

The file holds own executions in numbers and the answers of the start models on them. It holds the
weights for every kind of question asked so far, and the fitted members that these needed. The file
(`predictor_file`) belongs to one state of executions and models, and to one version of the code.
`open_kept` compares a digest of all and makes a stale, broken or missing file again. Where only
executions came that are not learnt from, what was learnt stays. The file is as private as the
executions and never leaves.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.answers.home_columns import columns_at_home, home_encoder
from fedperf_client.prediction.answers.predictor_file import (
    Digests,
    LearntOutcomes,
    encoded,
    loaded,
)
from fedperf_client.prediction.base_models import FetchedModels, ReplaceFile
from fedperf_client.prediction.evidence import checked_answers, number_of
from fedperf_client.prediction.execution_table import ENCODER_VERSION
from fedperf_client.prediction.home_evidence import Clusters, HomeEvidence, HomeFacts
from fedperf_client.prediction.learners.additive import Additive
from fedperf_client.prediction.learners.learner import Learner
from fedperf_client.prediction.learners.residual_learners import PUBLIC
from fedperf_client.prediction.mixture.candidates import Candidates
from fedperf_client.prediction.mixture.level_shifts import WorkloadChange
from fedperf_client.prediction.mixture.mixture import KnownRuns, OnProgress
from fedperf_client.prediction.mixture.personal import PersonalMix
from fedperf_client.prediction.prediction import PredictLog
from fedperf_shared.errors import StorageError
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.workflow.flat import FLAT_FEATURES
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform

USUAL_CLUSTER = ClusterConfig(nodes=1, cores=2, memory_bytes=16 * 2**30)
"""The cluster of a question that names none, before any own execution."""

PREDICTOR_VERSION = 10
"""Of all code between the columns of executions and an answer: learners, their mix and this file.
A change of what a stored number means, or of an answer, raises it: see `ENCODER_VERSION`."""

_STALE = -1
"""Less than any file holds: it is written again, whatever was weighed."""


@dataclass(slots=True)
class KeptPredictor:
    """A predictor and the file that it is kept in.

    Attributes:
        predictor: the mix of everything that the organization has.
        clusters: the resources that own executions on a platform had, the usual ones first; for
            `UNASSIGNED`, that executions had at all.
        changes: of single workloads, found in own executions.
    """

    predictor: PersonalMix
    clusters: Clusters
    changes: tuple[WorkloadChange, ...]
    _path: Path
    _digests: Digests
    _written: int

    def change_of(self, workload: str) -> WorkloadChange | None:
        """The last change of a workload's run times, if any is sure."""
        number = number_of(workload.encode())
        return next((each for each in self.changes if each.workload == number), None)

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

        In a home that can only be read it stays as it is, and the next command weighs again.

        Raises:
            StorageError: it cannot be written.
        """
        pieces = _pieces(self.predictor)
        if pieces > self._written and os.access(self._path.parent, os.W_OK):
            content = encoded(self.predictor, self.clusters, self.changes, self._digests)
            try:
                replace_file(self._path, content)
            except OSError as error:
                raise StorageError(
                    f"cannot write {self._path}: {error.strerror}; make room or let it be written"
                ) from error
            self._written = pieces


def open_kept(
    path: Path,
    store: ExecutionStore,
    models: FetchedModels,
    *,
    on_progress: OnProgress | None = None,
    on_reading: Callable[[], None] | None = None,
) -> KeptPredictor:
    """The predictor of what is stored and fetched now, from the file where it fits.

    Args:
        path: of the file; nothing is written before `KeptPredictor.keep`.
        store: own executions.
        models: start models and the correction.
        on_progress: told of every weighing.
        on_reading: told before what all executions tell is looked for anew.

    Raises:
        StorageError: store or models cannot be read.
    """
    state = _digest_of(store.digest(), models)
    found = loaded(path, state=state)
    if found is not None:
        predictor = _predictor(found.learnt, found.told, models, on_progress)
        return _kept(predictor, found.told, path, found.digests, _pieces(predictor))
    if on_reading is not None:
        on_reading()
    home = HomeEvidence.of(columns_at_home(store))
    digests = Digests(state, _digest_of(home.digest(), models))
    before = loaded(path, learnt=digests.learnt)
    learnt = (
        before.learnt if before is not None else LearntOutcomes(_known(home, store, models), {}, {})
    )
    predictor = _predictor(learnt, home.told, models, on_progress)
    written = 0 if before is None else _STALE
    return _kept(predictor, home.told, path, digests, written)


def _kept(
    predictor: PersonalMix, told: HomeFacts, path: Path, digests: Digests, written: int
) -> KeptPredictor:
    return KeptPredictor(predictor, told.clusters, told.changes, path, digests, written)


def _predictor(
    learnt: LearntOutcomes, told: HomeFacts, models: FetchedModels, on_progress: OnProgress | None
) -> PersonalMix:
    starts, known = models.starts(), learnt.known
    used = _used(models, starts)
    candidates = Candidates.of(known, told, used, starts, on_progress=on_progress)
    predictor = PersonalMix.of(candidates, used)
    for (kin, key), outcome in learnt.outcomes.items():
        predictor.part(kin).outcomes[key] = outcome
    for (kin, name), fit in learnt.fits.items():
        predictor.part(kin).candidates.fits[name] = fit
    return predictor


def _used(models: FetchedModels, starts: Mapping[str, PredictLog]) -> tuple[Learner, ...]:
    return tuple(each for each in models.learners() if each.start is None or each.start in starts)


def _known(home: HomeEvidence, store: ExecutionStore, models: FetchedModels) -> KnownRuns:
    """What is learnt from, in numbers; start models that were fetched are asked about it."""
    starts, learnt = models.starts(), home.learnt
    used = _used(models, starts)
    needed = {each.start: starts[each.start] for each in used if each.start is not None}
    own = {name: learnt.start for name, start in needed.items() if start is starts[PUBLIC]}
    others = {name: start for name, start in needed.items() if name not in own}
    if others:
        executions = store.numbered(learnt.number.tolist())
        own |= checked_answers([SizedPlan(each.plan, each.cluster) for each in executions], others)
    order = np.argsort(learnt.number)
    features = np.empty((len(learnt), FLAT_FEATURES))
    if len(learnt):
        features[order] = store.features(home_encoder(), learnt.number[order])
    return home.known(features, {name: own[name] for name in needed})


def _pieces(predictor: PersonalMix) -> int:
    """How many outcomes and fits there are to keep."""
    return sum(
        len(mix.outcomes) + sum(isinstance(each, Additive) for each in mix.candidates.fits.values())
        for mix in predictor.mixes().values()
    )


def _digest_of(data: bytes, models: FetchedModels) -> str:
    """Of what the answers follow from; another version of the code may answer otherwise."""
    versions = f"{PREDICTOR_VERSION} {ENCODER_VERSION} {version('fedperf')}".encode()
    return hashlib.sha256(data + models.digest() + versions).hexdigest()
