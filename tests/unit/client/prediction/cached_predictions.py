"""Golden values of all caches for forty executions. They may only change with the cache version.

After an intended change, raise the version and write the file again:

    python -m tests.unit.client.prediction.cached_predictions
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.encoding import ENCODER_VERSION, encode_executions, numbered
from fedperf_client.prediction.fetched_models import FetchedModels, predictor
from fedperf_client.prediction.serving.predictor_cache import PREDICTOR_VERSION, load_or_fit
from fedperf_shared.execution import (
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    KnownJob,
    PlanOnCluster,
)
from fedperf_shared.model import pretrained
from fedperf_shared.model.checkpoint import encode_checkpoint
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.executions import chain_plan, make_execution
from tests.unit.client.prediction.synthetic_executions import executions_of_world
from tests.unit.client.pretrained_model import seeded_checkpoint

FILE = Path(__file__).with_suffix(".json")

ENCODER, PREDICTOR = "encoder", "predictor"
VERSIONS: Mapping[str, int] = {ENCODER: ENCODER_VERSION, PREDICTOR: PREDICTOR_VERSION}

_NAMES = ("configuration", "job", "mark", "workload")
"""Columns of hashes. Only equality of their values matters."""


def golden_executions() -> list[Execution]:
    """Return 34 synthetic executions, and six with unknown rows, warnings or failures."""
    spark = chain_plan(platform=Platform.SPARK)
    unknown = ExecutionMetadata(rows_known=0.0, description="count at job.py:1", tasks=8)
    own = [
        make_execution(100, workload="unknown", plan=spark, origin=unknown),
        make_execution(101, workload="unknown", plan=spark, origin=replace(unknown, tasks=9)),
        make_execution(102, plan=spark, origin=replace(unknown, rows_known=1 / 3)),
        make_execution(
            103, plan=spark, origin=ExecutionMetadata(remarks=(ExecutionWarning.ACCELERATED,))
        ),
        make_execution(104, origin=ExecutionMetadata(rows_within=4.0)),
        make_execution(105, status=ExecutionStatus.TIMEOUT),
    ]
    return [*executions_of_world(5, 34, "golden"), *own]


def columns_now() -> dict[str, list[Any]]:
    """Return the encoder's columns, reduced to numbers that all libraries round alike."""
    found = encode_executions(golden_executions(), predictor(seeded_checkpoint()))
    features = found.pop("features").astype(np.float64)
    return {
        **{k: numbered(v).tolist() for k, v in found.items() if k in _NAMES},
        **{k: v.tolist() for k, v in found.items() if k not in (*_NAMES, "pairs")},
        "pairs": [each.tobytes().hex() for each in found["pairs"]],
        "features": (features @ np.cos(np.arange(features.shape[1]))).tolist(),
        "squares": (features**2).sum(axis=1).tolist(),
    }


def answers_now() -> dict[str, list[Any]]:
    """Return predictions from these executions and the installed pretrained model."""
    executions = golden_executions()
    asked = [*executions[::8], *executions[-6:]]
    questions = [
        PlanOnCluster(each.plan, replace(each.cluster, cores=each.cluster.cores * more), job)
        for each in asked
        for more in (1, 3)
        for job in (None, KnownJob.of(each))
    ]
    with TemporaryDirectory() as place, ExecutionStore.open(Path(place, "store")) as store:
        store.add(executions)
        kept = load_or_fit(Path(place, "predictor"), store, FetchedModels(Path(place, "models")))
        found = kept.predictor.predict(questions)
    return {
        "median": [each.median_seconds for each in found],
        "lower": [each.lower_seconds for each in found],
        "upper": [each.upper_seconds for each in found],
    }


def _main() -> None:
    with TemporaryDirectory() as place:
        start = Path(place, "start.safetensors")
        start.write_bytes(encode_checkpoint(seeded_checkpoint()))
        pretrained.PRETRAINED_PATH = start
        now = {ENCODER: columns_now(), PREDICTOR: answers_now()}
    before = json.loads(FILE.read_bytes()) if FILE.exists() else {}
    for name, values in now.items():
        told = {"version": VERSIONS[name], **values}
        if before.get(name, {}).get("version") == VERSIONS[name] and before[name] != told:
            sys.exit(f"{name}: raise its version first, it is {VERSIONS[name]} as before")
        before[name] = told
    FILE.write_text(json.dumps(before, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _main()
