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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedperf_client.drift.streams import DriftKind, StreamDrift
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.answers.home_columns import columns_at_home, home_encoder
from fedperf_client.prediction.base_models import FetchedModels, ReplaceFile
from fedperf_client.prediction.ensemble.home_evidence import HomeEvidence, HomeFacts
from fedperf_client.prediction.ensemble.mixture import KnownRuns, MixMember, MixOutcome, OnProgress
from fedperf_client.prediction.ensemble.predictor import Candidates, Key, PersonalMix
from fedperf_client.prediction.ensemble.repeats import (
    MedianChange,
    Repeats,
    RunsApart,
    WorkloadChange,
)
from fedperf_client.prediction.ensemble.support import Hull
from fedperf_client.prediction.ensemble.weighting import Asks, Places
from fedperf_client.prediction.evidence import Samples, checked_answers, number_of
from fedperf_client.prediction.execution_table import ENCODER_VERSION
from fedperf_client.prediction.learners.additive import Additive, Arrays
from fedperf_client.prediction.learners.learner import Learner
from fedperf_client.prediction.learners.residual_learners import PUBLIC
from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.workflow.flat import FLAT_FEATURES
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

USUAL_CLUSTER = ClusterConfig(nodes=1, cores=2, memory_bytes=16 * 2**30)
"""The cluster of a question that names none, before any own execution."""

PREDICTOR_VERSION = 10
"""Of all code between the columns of executions and an answer: learners, their mix and this file.
A change of what a stored number means, or of an answer, raises it: see `ENCODER_VERSION`."""

_STALE = -1
"""Less than any file holds: it is written again, whatever was weighed."""

_APART = tuple(each.name for each in fields(RunsApart))
_REPEATS = ("configurations", "kinds", "first", "begins", "log_seconds")


@dataclass(frozen=True, slots=True, eq=False)
class LearntOutcomes:
    """What was learnt from some own executions.

    Attributes:
        known: they themselves.
        outcomes: what weighing came to, by engines (`PersonalMix.part`) and kind of question.
        fits: members that were needed so far, as far as they are arrays, by engines and name.
    """

    known: KnownRuns
    outcomes: Mapping[tuple[int, Key], MixOutcome]
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


def _encode(predictor: PersonalMix, digests: Digests) -> bytes:
    """The whole file."""
    known, home = predictor.candidates.known, predictor.candidates.facts
    mixes = predictor.mixes().items()
    outcomes = [(kin, each) for kin, mix in mixes for each in mix.outcomes.values()]
    fits = [
        (kin, name, each)
        for kin, mix in mixes
        for name, each in mix.candidates.fits.items()
        if isinstance(each, Additive)
    ]
    cut = home.cut_short
    arrays: Arrays = {
        **_known_arrays(known),
        **{f"repeats/{name}": getattr(home.repeats, name) for name in _REPEATS},
        **{f"apart/{name}": getattr(home.apart, name) for name in _APART},
        "cut/configurations": np.repeat(cut.configurations, np.diff(cut.begins)),
        "cut/log_seconds": cut.log_seconds,
    }
    for number, (_, outcome) in enumerate(outcomes):
        for name in ("errors", "groups", "rows"):
            arrays[f"outcome/{number}/{name}"] = getattr(outcome, name)
    for number, (_, _, member) in enumerate(fits):
        arrays |= {f"fit/{number}/{name}": values for name, values in member.arrays().items()}
    facts = {
        "fits": [[kin, name, member.start] for kin, name, member in fits],
        "outcomes": [{"engines": kin, **_outcome_facts(each)} for kin, each in outcomes],
        "hull": [[*pair, *ends] for pair, ends in sorted(home.hull.pairs.items())],
        "drifts": [_drift_facts(each) for each in home.drifts],
        "clusters": [
            [int(platform), [astuple(each) for each in found]]
            for platform, found in home.clusters.items()
        ],
        "changes": [
            [*astuple(each)[:2], each.since.isoformat(), *astuple(each)[3:]]
            for each in home.changes
        ],
    }
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    names = {each.name: getattr(digests, each.name) for each in fields(digests)}
    return save(plain, metadata={**names, "facts": json.dumps(facts)})


def _load(
    path: Path, *, state: str | None = None, learnt: str | None = None
) -> "PredictorFile | None":
    """What the file holds, if it has these digests; None where it is stale, broken or not there."""
    wanted = {"state": state, "learnt": learnt}
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if any(each not in (None, metadata.get(name)) for name, each in wanted.items()):
                return None
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = json.loads(metadata["facts"])
            return PredictorFile(
                _learnt(arrays, facts),
                _told(arrays, facts),
                Digests(metadata["state"], metadata["learnt"]),
            )
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, InvalidInputError):
        return None


@dataclass(frozen=True, slots=True, eq=False)
class PredictorFile:
    """A whole file."""

    learnt: LearntOutcomes
    facts: HomeFacts
    digests: Digests


def _known_arrays(known: KnownRuns) -> Arrays:
    return {
        "features": known.samples.features.astype(np.float32),  # they were float32
        "cells": known.samples.cells,
        "log_seconds": known.log_seconds,
        "scale": known.places.scale,
        "size": known.places.size,
        "groups": known.groups,
        **{f"start/{name}": values for name, values in known.samples.starts.items()},
    }


def _outcome_facts(outcome: MixOutcome) -> dict[str, object]:
    return {
        "kind": outcome.kind.value,
        "cut": outcome.cut,
        "folds": outcome.folds,
        "apart": outcome.apart,
        "members": [[each.name, each.weight, each.error] for each in outcome.members],
    }


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


def _change_of(facts: Sequence[Any]) -> WorkloadChange:
    workload, first, since, is_upgrade, change, *runs = facts
    moment = datetime.fromisoformat(since)
    return WorkloadChange(workload, first, moment, is_upgrade, MedianChange(*change), *runs)


def _learnt(arrays: Arrays, facts: Mapping[str, Any]) -> LearntOutcomes:
    starts = {k.removeprefix("start/"): _floats(v) for k, v in arrays.items() if k[:6] == "start/"}
    samples = Samples(_floats(arrays["features"]), _whole(arrays["cells"]), starts)
    places = Places(_floats(arrays["scale"]), _floats(arrays["size"]))
    outcomes = [
        MixOutcome(
            Asks(each["kind"]),
            each["cut"],
            tuple(MixMember(*member) for member in each["members"]),
            each["folds"],
            _floats(arrays[f"outcome/{number}/errors"]),
            _whole(arrays[f"outcome/{number}/groups"]),
            _whole(arrays[f"outcome/{number}/rows"]),
            each["apart"],
        )
        for number, each in enumerate(facts["outcomes"])
    ]
    return LearntOutcomes(
        KnownRuns(samples, _floats(arrays["log_seconds"]), places, _whole(arrays["groups"])),
        {
            (told["engines"], (each.kind, each.cut)): each
            for told, each in zip(facts["outcomes"], outcomes, strict=True)
        },
        {
            (kin, name): Additive.of(start, _below(arrays, f"fit/{number}/"))
            for number, (kin, name, start) in enumerate(facts["fits"])
        },
    )


def _told(arrays: Arrays, facts: Mapping[str, Any]) -> HomeFacts:
    repeats, cut = _below(arrays, "repeats/"), _whole(arrays["cut/configurations"])
    return HomeFacts(
        Hull(
            {
                (OperatorKind(kind), Platform(platform)): (tuple(least), tuple(most))
                for kind, platform, least, most in facts["hull"]
            }
        ),
        Repeats(
            _whole(repeats["configurations"]),
            _whole(repeats["kinds"]),
            _whole(repeats["first"]),
            _whole(repeats["begins"]),
            _floats(repeats["log_seconds"]),
        ),
        {
            Platform(platform): tuple(ClusterConfig(*each) for each in found)
            for platform, found in facts["clusters"]
        },
        tuple(map(_drift_of, facts["drifts"])),
        Repeats.of(cut, np.zeros_like(cut), _floats(arrays["cut/log_seconds"])),
        _apart(_below(arrays, "apart/")),
        tuple(map(_change_of, facts["changes"])),
    )


def _apart(arrays: Arrays) -> RunsApart:
    return RunsApart(
        _whole(arrays["job"]),
        _whole(arrays["configuration"]),
        _floats(arrays["read_bytes"]),
        _whole(arrays["mark"]),
        _floats(arrays["log_cores"]),
        np.asarray(arrays["is_ok"], np.bool_),
        _floats(arrays["log_seconds"]),
    )


def _below(arrays: Arrays, prefix: str) -> Arrays:
    return {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }


def _floats(values: NDArray[Any]) -> Floats:
    return np.asarray(values, np.float64)


def _whole(values: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(values, np.int64)


@dataclass(slots=True)
class CachedPredictor:
    """A predictor and the file that it is kept in.

    Attributes:
        predictor: the mix of everything that the organization has.
    """

    predictor: PersonalMix
    _path: Path
    _digests: Digests
    _written: int

    def change_of(self, workload: str) -> WorkloadChange | None:
        """The last change of a workload's run times, if any is sure."""
        number = number_of(workload.encode())
        return next(
            (each for each in self.predictor.candidates.facts.changes if each.workload == number),
            None,
        )

    def usual_for(self, plan: Plan) -> ClusterConfig:
        """Resources for a plan that names none: those its platforms usually had here.

        Platforms that never ran here have `USUAL_CLUSTER`: another engine's say nothing.
        """
        return next(iter(self.clusters_of(plan)), USUAL_CLUSTER)

    def clusters_of(self, plan: Plan) -> list[ClusterConfig]:
        """Resources that its platforms had here, by platform, the usual ones first."""
        assigned = [each for each in plan.platforms if each is not Platform.UNASSIGNED]
        platforms = dict.fromkeys(assigned or (Platform.UNASSIGNED,))
        clusters = self.predictor.candidates.facts.clusters
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
    home = HomeEvidence.of(columns_at_home(store))
    digests = Digests(state, _digest_of(home.digest(), models))
    before = _load(path, learnt=digests.learnt)
    learnt = (
        before.learnt if before is not None else LearntOutcomes(_known(home, store, models), {}, {})
    )
    predictor = _predictor(learnt, home.facts, models, on_progress)
    written = 0 if before is None else _STALE
    return CachedPredictor(predictor, path, digests, written)


def _predictor(
    learnt: LearntOutcomes, facts: HomeFacts, models: FetchedModels, on_progress: OnProgress | None
) -> PersonalMix:
    starts = models.starts()
    used = _used(models, starts)
    candidates = Candidates(learnt.known, facts, used, starts, on_progress=on_progress)
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
