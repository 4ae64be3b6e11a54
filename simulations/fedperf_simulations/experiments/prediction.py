"""Benchmark: the time of a prediction, in a warm process and by the command from cold.

A home holds the executions of one organization of the measured set. Warm is one query to the
predictor that `fedperf predict` uses, compared with one pass of the same plan through the GGFN in
torch. Cold is the whole process of `fedperf predict`, compared with `fedperf --help`. An earlier
command cached the fitted predictors. The first command, which reads and weighs everything, is timed
as well.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.serving.predictor_cache import load_or_fit
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.corpus.organizations import WorkloadPart, organization, split
from fedperf_simulations.data.datasets import measured_executions, measured_files
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target
from fedperf_simulations.model.ggfn import collate, model_from_arrays

MOST_WARM_MS = 5.0
MOST_COLD_SECONDS = 4.0

QUERIES, QUICK_QUERIES = 300, 10
COMMANDS, QUICK_COMMANDS = 7, 1
QUICK_EXECUTIONS = 40

CORES = "1,2,4"


class PredictionBenchmark:
    """The benchmark."""

    name = "prediction"
    claim = "a prediction takes at most 5 ms warm, and the command at most 4 s from cold"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return a row per way to predict, with the time of each query or command."""
        taken = settings.cases("taken", partial(_taken, settings))
        rows = [
            _row("warm, one question", "GGFN in torch", "ms", taken),
            _row("cold, fedperf predict", "fedperf --help", "s", taken),
            _row("cold, first time", "fedperf --help", "s", taken),
        ]
        return ExperimentOutcome(
            rows,
            [
                Target("warm, one question: median ms", MOST_WARM_MS, number(rows[0]["median"])),
                Target(
                    "cold, fedperf predict: median s", MOST_COLD_SECONDS, number(rows[1]["median"])
                ),
            ],
            measured_files(),
            cases=taken,
        )


def _taken(settings: Settings) -> list[Row]:
    """Return a row per query or command."""
    part = split(measured_executions())[WorkloadPart.ALDER]
    history = [each for each in organization(WorkloadPart.ALDER, part).history if each.is_ok]
    executions = history[: QUICK_EXECUTIONS if settings.quick else None]
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory) / "home")
        _fill(home, executions)
        first, cold = _commands(home, executions, QUICK_COMMANDS if settings.quick else COMMANDS)
        rng = np.random.default_rng(settings.seed)
        count = QUICK_QUERIES if settings.quick else QUERIES
        sample = [executions[place] for place in rng.permutation(len(executions))[:count]]
        warm = _warm(home, sample)
    measured = {
        "warm, one question": warm,
        "cold, fedperf predict": cold,
        "cold, first time": first,
    }
    return [
        {"what": what, "taken": ours, "beside": peer}
        for what, pairs in measured.items()
        for ours, peer in zip(*pairs, strict=True)
    ]


TimingPair = tuple[Sequence[float], Sequence[float]]
"""Return its time and the time of its peer."""


def _fill(home: Home, executions: Sequence[Execution]) -> None:
    home.create("")
    with ExecutionStore.open(home.store) as store:
        store.add(executions)


def _commands(
    home: Home, executions: Sequence[Execution], count: int
) -> tuple[TimingPair, TimingPair]:
    """Seconds of the first command and of later ones, and those of `--help`."""
    execution_id = executions[0].execution_id
    predict = (
        "--home",
        str(home.directory),
        "predict",
        "--execution",
        execution_id,
        "--cores",
        CORES,
    )
    first = ([_seconds(*predict)], [_seconds("--help")])
    pairs = [(_seconds(*predict), _seconds("--help")) for _ in range(count)]
    return first, ([each[0] for each in pairs], [each[1] for each in pairs])


def _seconds(*arguments: str) -> float:
    before = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", "from fedperf_client.cli import main; main()", *arguments],
        check=True,
        capture_output=True,
        env=os.environ,
    )
    return time.monotonic() - before


def _warm(home: Home, queries: Sequence[Execution]) -> TimingPair:
    """Milliseconds of one query each, none of them repeated."""
    model = model_from_arrays(load_pretrained_model().arrays)
    model.eval()
    ours, torchs = [], []
    with ExecutionStore.open(home.store) as store:
        predictor = load_or_fit(home.predictor, store, FetchedModels(home.models)).predictor
    predictor.predict([PlanOnCluster(queries[0].plan, queries[0].cluster)])
    for each in queries[1:]:
        query, graph = PlanOnCluster(each.plan, each.cluster), featurize(each.plan, each.cluster)
        before = time.perf_counter()
        predictor.predict([query])
        between = time.perf_counter()
        with torch.no_grad():
            model(collate([graph]))
        ours.append(1e3 * (between - before))
        torchs.append(1e3 * (time.perf_counter() - between))
    return ours, torchs


def _row(what: str, peer: str, unit: str, taken: Sequence[Row]) -> Row:
    mine = [each for each in taken if each["what"] == what]
    ours, peers = (np.array([number(each[name]) for each in mine]) for name in ("taken", "beside"))
    return {
        "what": what,
        "unit": unit,
        "median": float(np.median(ours)),
        "p99": float(np.quantile(ours, 0.99)),
        "beside": peer,
        "its median": float(np.median(peers)),
        "ratio": float(np.median(ours / peers)),
    }


EXPERIMENT = PredictionBenchmark()
