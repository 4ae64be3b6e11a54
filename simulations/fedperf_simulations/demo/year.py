"""Lines (a) and (b) of the demo: a year of large organizations that learn, in memory.

Run as a program (`python -m fedperf_simulations.demo.year SEED whole|quick DIRECTORY`), in parallel
with the rest of the demo. It prints a line of JSON after each step. The last line holds the
results.

Gate, ledgers, controllers and verdicts are the product's (`federated_year`). The cap is not
announced. A new participant predicts with the files that a member fetched, by the client's own
code.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import structlog

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.predictor import (
    PersonalizedEnsemble,
    fit_personalized_ensemble,
)
from fedperf_client.prediction.fetched_models import FetchedModels, predictor
from fedperf_client.prediction.learners.base_learners import PUBLIC, local_learners, public_learners
from fedperf_client.prediction.prediction import PredictLog
from fedperf_memory.memory_federation import Federation
from fedperf_server.app.process import log_event
from fedperf_server.controllers.drift import DetectedDrift, stored_drifts
from fedperf_server.rehearsal import buffer
from fedperf_server.state import registry
from fedperf_server.state.database import RegimeTrigger
from fedperf_server.state.drift_regimes import DriftRegime, regimes
from fedperf_shared.execution import Execution
from fedperf_shared.model.pretrained import PRETRAINED_VERSION, load_pretrained_model
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.period import Period
from fedperf_simulations.baselines.cost_models import zero_constant_inputs
from fedperf_simulations.corpus.limited_start import limited_model_in_use
from fedperf_simulations.corpus.organizations import (
    MeasuredTimes,
    labelled_in,
    measured_of,
    private_executions,
)
from fedperf_simulations.demo.participants import (
    NEW_FAMILY,
    NEW_PLATFORM,
    QUICK_YEAR,
    YearSize,
    cast_of,
)
from fedperf_simulations.demo.summary import (
    Change,
    DriftAlarm,
    Floats,
    MachineResult,
    NewParticipantResult,
    WindowErrors,
    YearResult,
    factor_of,
)
from fedperf_simulations.federation.federated_year import (
    FederatedYear,
    FederationFixture,
    TrainingMode,
    promoted_model,
)
from fedperf_simulations.model.fit import fit, predict
from fedperf_simulations.model.ggfn import GGFN, save_model

STEP, FOUND = "step", "found"
START = "start.safetensors"
OLD_MACHINE, NEW_MACHINE = "whole cores", "half a core"

Announce = Callable[[str], None]


def main() -> None:
    """Live the year that the arguments name."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    seed, quick, directory = int(sys.argv[1]), sys.argv[2] == "quick", Path(sys.argv[3])

    def announce(step: str) -> None:
        print(orjson.dumps({STEP: step}).decode(), flush=True)

    result = lived(QUICK_YEAR if quick else YearSize(), directory, seed=seed, announce=announce)
    print(orjson.dumps({FOUND: asdict(result)}).decode(), flush=True)


def steps_of(size: YearSize) -> int:
    """Return number of lines that the program prints before the last."""
    return size.windows + 2


def lived(size: YearSize, directory: Path, *, seed: int, announce: Announce) -> YearResult:
    """Run the year and return its results.

    The model that is pretrained for it is kept in `directory`.
    """
    began = time.process_time()
    cast = cast_of(private_executions(), size, seed=seed)
    announce("workloads are partitioned")
    base_model = _trained(cast.pretraining, epochs=size.epochs, seed=seed)
    directory.mkdir(parents=True, exist_ok=True)
    save_model(directory / START, base_model, model_version=PRETRAINED_VERSION)
    announce("the base model is trained")
    shipped = predictor(load_pretrained_model())
    plans = load_public_plans()[:: size.public_step]
    planned = size.planned()
    world = FederationFixture(base_model, plans, anchors_of(plans), planned, cast.organizations)
    like = measured_of(labelled_in(cast.similar_to_new, 0))
    way, windows, before = (
        TrainingMode(own_history=True, rehearses=True),
        list[WindowErrors](),
        base_model,
    )
    year = FederatedYear(world, way, [seed, 1], is_announced=False)
    with limited_model_in_use(directory / START), closing(year.lived()) as lived_to:
        for window in range(size.windows):
            federation = next(lived_to)
            while federation.news:
                log_event(federation.news.pop(0))
            model = promoted_model(federation)
            before = model if window < size.cap_window else before
            errors = (errors_of(model, each) for each in (like, cast.old_machine, cast.new_machine))
            windows.append(WindowErrors(*map(factor_of, errors)))
            announce(f"window {window + 1} of {size.windows}")
        fetched = FetchedModels(federation.members[0].home.models)
        results = [
            new_participant_with(runs, cast.similar_to_new, fetched, shipped=shipped)
            for runs in ((), cast.new_participant)
        ]
        return YearResult(
            organizations=size.organizations,
            workloads=size.workloads,
            epsilon=planned.epsilon,
            platform=NEW_PLATFORM,
            family=NEW_FAMILY.replace("_", " "),
            windows=tuple(windows),
            cap_window=size.cap_window,
            newcomer=tuple(results),
            machines=(
                _machine(OLD_MACHINE, cast.old_machine, before, model),
                _machine(NEW_MACHINE, cast.new_machine, before, model),
            ),
            **_of_coordinator(federation, size),
            seconds=round(time.process_time() - began, 1),
        )


def new_participant_with(
    runs: Sequence[Execution],
    queries: Sequence[Execution],
    fetched: FetchedModels,
    *,
    shipped: PredictLog,
) -> NewParticipantResult:
    """Return the errors of a new participant with these runs.

    Args:
        runs: its own.
        queries: of other workloads.
        fetched: what joining gave; the public model in use is the one without it.
        shipped: the pretrained model.
    """
    own, held_out = History.from_executions(runs), History.from_executions(queries)

    def errors(mix: PersonalizedEnsemble) -> Floats:
        return np.abs(mix.predict_log(held_out.queries) - held_out.log_seconds)

    def started(start: PredictLog) -> Floats:
        return errors(fit_personalized_ensemble(own, {PUBLIC: start}, public_learners()))

    start = started(fetched.base_models()[PUBLIC])
    joined = errors(fit_personalized_ensemble(own, fetched.base_models(), fetched.learners()))
    alone = (
        factor_of(errors(fit_personalized_ensemble(own, {}, local_learners()))) if runs else None
    )
    return NewParticipantResult(
        own_runs=len(own),
        alone=alone,
        start=factor_of(start),
        joined=factor_of(joined),
        shipped=factor_of(started(shipped)),
        change=Change.between(start, joined),
    )


def errors_of(model: GGFN, queries: MeasuredTimes) -> Floats:
    """Absolute log errors of a model as it is, [workloads]."""
    return np.abs(predict(model, queries.graphs) - queries.log_seconds)


def noticed_in(
    drifts: Sequence[DetectedDrift],
    regimes: Sequence[DriftRegime],
    period: Period,
    *,
    cap_window: int,
) -> DriftAlarm | None:
    """The first shared drift that reports since the cap showed, with what was seen with it."""
    shared = [
        each.drift for each in drifts if each.drift.shared and each.drift.detected_in >= cap_window
    ]
    if not shared:
        return None
    window = min(each.detected_in for each in shared)
    together = [each for each in shared if each.detected_in == window]
    begun = (
        period.window_at(e.begins_at) for e in regimes if e.cause is RegimeTrigger.SHARED_DRIFT
    )
    organizations = {name for each in together for name in each.organizations}
    return DriftAlarm(
        window=window,
        platforms=tuple(sorted(each.platform.name.lower() for each in together)),
        factor=math.exp(float(np.mean([each.log_factor for each in together]))),
        organizations=len(organizations),
        epoch_window=next((each for each in begun if each is not None and each > window), None),
    )


def _trained(training: MeasuredTimes, *, epochs: int, seed: int) -> GGFN:
    """Train it like the shipped models. Inputs that its measurements did not vary are masked."""
    model = GGFN(seed=seed)
    heard = zero_constant_inputs(model, training.graphs)
    fit(model, heard, training.log_seconds, epochs=epochs, seed=seed)
    return model


def _machine(name: str, queries: MeasuredTimes, before: GGFN, after: GGFN) -> MachineResult:
    then, now = errors_of(before, queries), errors_of(after, queries)
    return MachineResult(name, factor_of(then), factor_of(now), Change.between(then, now))


def _of_coordinator(federation: Federation, size: YearSize) -> dict[str, Any]:
    """Return drift, rehearsal and verdicts from its database."""
    period = federation.config.calendar.period
    with federation.database.transaction() as session:
        drifts = stored_drifts(session, period)
        versions, verdicts = registry.versions(session), registry.decisions(session)
        return {
            "noticed": noticed_in(drifts, regimes(session), period, cap_window=size.cap_window),
            "false_alarms": sum(
                each.drift.shared and each.drift.detected_in < size.cap_window for each in drifts
            ),
            "rehearsed": len(buffer.rows(session)),
            "promoted": sum(each.promoted for each in versions[1:]),
            "last_word": verdicts[-1].reason if verdicts else "no version was judged",
        }


if __name__ == "__main__":
    main()
