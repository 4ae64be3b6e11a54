"""The file of arrays and JSON that a predictor is kept in; nothing in it could be run.

It has two parts. What is told of all own executions (hull, repeats, drifts, resources) belongs
to one state of the store. What was learnt from some of them (weights, fits) belongs to these
alone, and stays when others come.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedperf_client.drift.kinds import DriftKind
from fedperf_client.drift.streams import StreamDrift
from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.home_evidence import Clusters, HomeFacts
from fedperf_client.prediction.learners.additive import Additive, Arrays
from fedperf_client.prediction.mixture.candidates import Key
from fedperf_client.prediction.mixture.intervals import Hull
from fedperf_client.prediction.mixture.level_shifts import MedianChange, WorkloadChange
from fedperf_client.prediction.mixture.lower_bounds import LowerBounds
from fedperf_client.prediction.mixture.matched_folds import Asks, Places
from fedperf_client.prediction.mixture.mixture import KnownRuns, MixMember, MixOutcome
from fedperf_client.prediction.mixture.personal import PersonalMix
from fedperf_client.prediction.mixture.repeat_spread import Repeats, RunsApart
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

_APART = tuple(each.name for each in fields(RunsApart))
_REPEATS = ("configurations", "kinds", "first", "begins", "log_seconds")


@dataclass(frozen=True, slots=True, eq=False)
class LearntOutcomes:
    """What was learnt from some own executions.

    Attributes:
        known: they themselves.
        outcomes: what weighing came to, for each kind of question asked for so far.
        fits: members that were needed so far, as far as they are arrays.
    """

    known: KnownRuns
    outcomes: Mapping[Key, MixOutcome]
    fits: Mapping[str, Additive]


@dataclass(frozen=True, slots=True)
class Digests:
    """What the file follows from.

    Attributes:
        state: of everything: executions, models, code.
        learnt: of what is learnt from.
    """

    state: str
    learnt: str


def encoded(
    predictor: PersonalMix,
    clusters: Clusters,
    changes: Sequence[WorkloadChange],
    digests: Digests,
) -> bytes:
    """The whole file."""
    candidates = predictor.candidates
    outcomes = list(predictor.outcomes.values())
    fits = {k: each for k, each in candidates.fits.items() if isinstance(each, Additive)}
    cut = candidates.cut_short.log_seconds
    bounds = [(key, bound) for key, values in cut.items() for bound in values.tolist()]
    repeats = candidates.repeats
    arrays: Arrays = {
        **_known_arrays(candidates.known),
        **{f"repeats/{name}": getattr(repeats, name) for name in _REPEATS},
        **{f"apart/{name}": getattr(candidates.apart, name) for name in _APART},
        "cut/configurations": np.array([key for key, _ in bounds], np.int64),
        "cut/log_seconds": np.array([bound for _, bound in bounds], np.float64),
    }
    for number, outcome in enumerate(outcomes):
        for name in ("errors", "groups", "rows"):
            arrays[f"outcome/{number}/{name}"] = getattr(outcome, name)
    for number, member in enumerate(fits.values()):
        arrays |= {f"fit/{number}/{name}": values for name, values in member.arrays().items()}
    facts = {
        "fits": [[name, member.start] for name, member in fits.items()],
        "outcomes": [_outcome_facts(each) for each in outcomes],
        "hull": _hull_facts(candidates.hull),
        "drifts": [_drift_facts(each) for each in candidates.drifts],
        "clusters": [
            [int(platform), [astuple(each) for each in found]]
            for platform, found in clusters.items()
        ],
        "changes": [
            [*astuple(each)[:2], each.since.isoformat(), *astuple(each)[3:]] for each in changes
        ],
    }
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    names = {each.name: getattr(digests, each.name) for each in fields(digests)}
    return save(plain, metadata={**names, "facts": json.dumps(facts)})


def loaded(
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
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, InvalidInputError):
        return None


@dataclass(frozen=True, slots=True, eq=False)
class PredictorFile:
    """A whole file."""

    learnt: LearntOutcomes
    told: HomeFacts
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
        "members": [[each.name, each.weight, each.error] for each in outcome.members],
    }


def _hull_facts(hull: Hull) -> dict[str, object]:
    return {
        "lowest": hull.lowest,
        "highest": hull.highest,
        "pairs": [[*pair, *ends] for pair, ends in sorted(hull.pairs.items())],
        "cores_on_node": hull.cores_on_node,
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
        )
        for number, each in enumerate(facts["outcomes"])
    ]
    return LearntOutcomes(
        KnownRuns(samples, _floats(arrays["log_seconds"]), places, _whole(arrays["groups"])),
        {(each.kind, each.cut): each for each in outcomes},
        {
            name: Additive.of(start, _below(arrays, f"fit/{number}/"))
            for number, (name, start) in enumerate(facts["fits"])
        },
    )


def _told(arrays: Arrays, facts: Mapping[str, Any]) -> HomeFacts:
    hull = facts["hull"]
    repeats = _below(arrays, "repeats/")
    return HomeFacts(
        Hull(
            tuple(hull["lowest"]),
            tuple(hull["highest"]),
            {
                (OperatorKind(kind), Platform(platform)): (rows, most_rows, cores, most_cores)
                for kind, platform, rows, most_rows, cores, most_cores in hull["pairs"]
            },
            hull["cores_on_node"],
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
        LowerBounds.of(arrays["cut/configurations"].tolist(), _floats(arrays["cut/log_seconds"])),
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
