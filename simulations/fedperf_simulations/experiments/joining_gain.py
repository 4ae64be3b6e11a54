"""Experiment: an organization's gain by joining, over the number of its own executions.

New participants come from three kinds of data. C3O slices (18) each query the other slices of their
job; the list of configurations is public. TOKIO platforms (6) have wall time and bandwidth. The
organizations of the project's own measured set (3) have plans and private configurations. The gain
is what the product's mechanisms give at that epsilon: three staged reports, or private steps of the
shared model at its tangent. Predictions at home are the client's.

Epsilon is for all releases of an organization together at delta 1e-5. On C3O and TOKIO it is for
replacing one label, as the published figures are; in the measured set for adding or removing one
workload, as fedperf promises. The unit of a workload is a configuration on C3O. On TOKIO it is a
run, which is not what fedperf promises; the rows named "workload level" send one number per point
instead.

Each seed draws the new participant's own executions, the noise and the folds; in the measured set
noise is drawn once. A case is a new participant, a seed and an n. A row is a mean over new
participants of means over seeds. Changes are paired by new participant, in percent
(`harness.paired`), against two predictors. One is the strongest local-only predictor, chosen in
hindsight at each n among the client's and the plain ones of `baselines.home_models`. The other is
the ensemble of own executions and the pretrained model. Mean percentages can be dominated by a few
predictions that are far too long, so the MAE of the log is given as well.

All kinds of data are evaluated alike. A new participant draws n of its own executions. Every
predictor that an organization could use predicts the rest, or some held-out ones: from own
executions alone, with the pretrained model, and with the results of joining. Predictors and their
weights are the client's. Two plain ones are compared with those from own executions alone
(`baselines.home_models`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from fedperf_client.prediction.encoding import EncodedQueries, History
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize, TrainingSet
from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    REFERENCE,
    SHARED,
    Learner,
    LocalProcess,
    joined_learners,
    local_learners,
    public_learners,
)
from fedperf_client.prediction.prediction import PredictLog, QueryRegime
from fedperf_client.release.accountant import PrivacyBudget, calibrate, to_event
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.execution import Execution
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.model.metrics import mape, median_q_error
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.release import LinearizedParameters
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.baselines.cost_models import robopt_vector
from fedperf_simulations.baselines.home_models import HOME_MODELS
from fedperf_simulations.baselines.table_mixture import (
    joined_table_learners,
    local_table_learners,
    mixed_for,
)
from fedperf_simulations.corpus.limited_start import load_limited_model
from fedperf_simulations.corpus.organizations import (
    MeasuredTimes,
    WorkloadPart,
    one_per_workload,
    organization,
    split,
)
from fedperf_simulations.corpus.training_set import measured_plans
from fedperf_simulations.data import c3o, tokio
from fedperf_simulations.data.datasets import measured_executions, measured_files
from fedperf_simulations.federation.c3o_federation import job_federation, published_kernel
from fedperf_simulations.federation.channel import (
    DELTA,
    Channel,
    Sender,
    noise_for,
    public_configurations,
)
from fedperf_simulations.federation.job_kernel import RECORD_VARIANCE, JobKernel
from fedperf_simulations.federation.linearized_training import private_steps
from fedperf_simulations.federation.point_queries import condition
from fedperf_simulations.federation.tokio_federation import sender
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.harness.side_by_side import computed
from fedperf_simulations.model.ggfn import model_from_arrays, state_to_arrays

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

LOCAL = "local-only"
LOCAL_PROCESS = "local-only, Gaussian process"
PUBLIC_AS_IS = "public start as is"
WITH_PUBLIC = "local + public start"

CLIENTS = (LOCAL, LOCAL_PROCESS)
LOCALS = (*CLIENTS, *HOME_MODELS)
"""The strongest of these, chosen in hindsight, is what joining is compared with."""


@dataclass(frozen=True, slots=True)
class PredictorErrors:
    """The errors of one predictor.

    Attributes:
        mape: mean absolute error relative to what was measured, percent.
        q50: median q-error.
        log_mae: mean absolute error of the natural log, log seconds. It is not dominated by a few
            predictions that are far too long, and does not favour predictions that are too short.
    """

    mape: float
    q50: float
    log_mae: float

    @classmethod
    def of(cls, predictions: Floats, measured: Floats) -> "PredictorErrors":
        """Return the errors from natural logs, [queries]."""
        predicted, truth = np.exp(predictions), np.exp(measured)
        log_mae = float(np.abs(predictions - measured).mean())
        return cls(100 * mape(predicted, truth), median_q_error(predicted, truth), log_mae)


Predictors = Mapping[str, PredictorErrors]


def as_is(joined: str) -> str:
    """Return name of the shared posterior or model without own executions."""
    return f"{joined}, as is"


def personalized(joined: str) -> str:
    """Return name of the mix that an organization that joined predicts with."""
    return f"{joined}, personalized"


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """A new participant's own executions as rows of a table.

    Attributes:
        features: what predictors read, [rows, columns].
        measured: natural log of the predicted quantity, [rows].
        points: public point of each row in every posterior, [rows].
    """

    features: Floats
    measured: Floats
    points: Positions

    def samples(self, rows: Positions, posterior: GaussianPosterior) -> EncodedQueries:
        """Samples of those rows, with the mean of `posterior` as the pretrained model."""
        points = self.points[rows]
        return EncodedQueries(self.features[rows], points, {REFERENCE: posterior.mean[points]})


def judge_tables(
    rows: TableRows,
    own: Positions,
    queries: Positions,
    posteriors: Mapping[str, GaussianPosterior],
    *,
    base_model: GaussianPosterior,
    seed: int,
) -> Predictors:
    """Return every predictor's errors on `queries`, given `own` executions.

    Args:
        rows: the new participant's.
        own: rows that it ran, any number.
        queries: rows to predict.
        posteriors: what joining gave, by name.
        base_model: the public pretrained model.
        seed: of folds.
    """

    def errors_of(learners: Sequence[Learner], posterior: GaussianPosterior) -> PredictorErrors:
        training = TrainingSet(
            rows.samples(own, posterior),
            rows.measured[own],
            _nowhere(len(own)),
            np.arange(len(own)),
        )
        _, fitted = mixed_for(
            QueryRegime.SEEN, _nowhere(len(queries)), training, learners, seed=seed
        )
        return PredictorErrors.of(fitted(rows.samples(queries, posterior)), rows.measured[queries])

    def uncorrected(posterior: GaussianPosterior) -> PredictorErrors:
        return PredictorErrors.of(posterior.mean[rows.points[queries]], rows.measured[queries])

    by_predictor = {PUBLIC_AS_IS: uncorrected(base_model)}
    if len(own):
        by_predictor[LOCAL] = errors_of(local_table_learners(), base_model)
        by_predictor[LOCAL_PROCESS] = errors_of([LocalProcess()], base_model)
        by_predictor |= _home_models(rows.features, rows.measured, own, queries)
    by_predictor[WITH_PUBLIC] = errors_of(joined_table_learners(base_model.covariance), base_model)
    for name, posterior in posteriors.items():
        by_predictor[as_is(name)] = uncorrected(posterior)
        by_predictor[personalized(name)] = errors_of(
            joined_table_learners(posterior.covariance), posterior
        )
    return by_predictor


def judge_plans(
    own: History,
    queries: History,
    models: Mapping[str, PredictLog],
    *,
    base_model: PredictLog,
    seed: int,
) -> Predictors:
    """Evaluate plans as `judge_tables` does. The joined models are trained from `base_model`."""

    def errors_of(
        learners: Sequence[Learner], base_models: Mapping[str, PredictLog]
    ) -> PredictorErrors:
        mix = fit_personalized_ensemble(own, base_models, learners, seed=seed)
        return PredictorErrors.of(mix.predict_log(queries.queries), queries.log_seconds)

    def uncorrected(model: PredictLog) -> PredictorErrors:
        return PredictorErrors.of(model(queries.queries), queries.log_seconds)

    by_predictor = {PUBLIC_AS_IS: uncorrected(base_model)}
    if len(own):
        by_predictor[LOCAL] = errors_of(local_learners(), {})
        both = [*own.queries, *queries.queries]
        vectors = np.stack([robopt_vector(each.features) for each in both]).astype(np.float64)
        measured = np.concatenate([own.log_seconds, queries.log_seconds])
        by_predictor |= _home_models(vectors, measured, *np.split(np.arange(len(both)), [len(own)]))
    by_predictor[WITH_PUBLIC] = errors_of(public_learners(), {PUBLIC: base_model})
    for name, model in models.items():
        base_models = {PUBLIC: base_model, REFERENCE: base_model, SHARED: model}
        by_predictor[as_is(name)] = uncorrected(model)
        by_predictor[personalized(name)] = errors_of(joined_learners(is_newer=True), base_models)
    return by_predictor


def _home_models(
    features: Floats, measured: Floats, own: Positions, queries: Positions
) -> Predictors:
    """Return what anybody would try, on rows of `features` and logs of what was measured."""
    return {
        name: PredictorErrors.of(
            learn(features[own], measured[own], features[queries]), measured[queries]
        )
        for name, learn in HOME_MODELS.items()
    }


def _nowhere(count: int) -> ScaleAndSize:
    """Uninformative places: queries are drawn like the training rows."""
    return ScaleAndSize(np.zeros(count), np.zeros(count))


EPS1, EPS3, NO_NOISE = "epsilon 1", "epsilon 3", "no noise"
ONCE1, ONCE3 = "epsilon 1, noise once per job", "epsilon 3, noise once per job"


MAPE, Q50, LOG_MAE = "MAPE", "q50", "MAE of the log"


@dataclass(frozen=True, slots=True)
class GainTable:
    """Errors of one data set.

    Attributes:
        mape: by predictor and n, one value per new participant that has so many executions.
        q50: the same.
        log_mae: the same.
    """

    mape: Mapping[tuple[str, int], Floats]
    q50: Mapping[tuple[str, int], Floats]
    log_mae: Mapping[tuple[str, int], Floats]

    @classmethod
    def of(cls, cases: Sequence[Row]) -> "GainTable":
        """Means over seeds. New participants without enough executions lack some n."""
        return cls(*(_by_new_participant(cases, each) for each in (MAPE, Q50, LOG_MAE)))

    @property
    def sizes(self) -> list[int]:
        """Numbers of own executions."""
        return sorted({own for _, own in self.mape})

    @property
    def joined(self) -> list[str]:
        """Names of the ways to join that the table holds."""
        there = {name for name, _ in self.mape}
        return [
            name for name in (EPS1, EPS3, ONCE1, ONCE3, NO_NOISE) if personalized(name) in there
        ]

    def strongest(self, own: int) -> str | None:
        """Return the local-only predictor with the least mean error at that n. None at 0."""
        names = [name for name in LOCALS if (name, own) in self.mape]
        return min(names, key=lambda name: float(self.mape[name, own].mean()), default=None)

    def change(self, name: str, rival: str, own: int) -> PairedComparison:
        """Return the change from `rival` to `name`. Both keys must be there."""
        return PairedComparison.percent(self.mape[name, own], self.mape[rival, own])

    def log_change(self, name: str, rival: str, own: int) -> PairedComparison:
        """Return the `change` of the log error."""
        return PairedComparison.percent(self.log_mae[name, own], self.log_mae[rival, own])

    def rows(self, data: str) -> Iterator[Row]:
        """Yield one per predictor and n."""
        for name, own in self.mape:
            strongest = self.strongest(own)
            joined = name not in LOCALS
            local = self.change(name, strongest, own) if joined and strongest else None
            public = self.change(name, WITH_PUBLIC, own) if joined and own else None
            log_local = self.log_change(name, strongest, own) if joined and strongest else None
            log_public = self.log_change(name, WITH_PUBLIC, own) if joined and own else None
            yield {
                "data": data,
                "predictor": name,
                "n": own,
                "newcomers": len(self.mape[name, own]),
                MAPE: float(self.mape[name, own].mean()),
                f"median {MAPE}": float(np.median(self.mape[name, own])),
                Q50: float(self.q50[name, own].mean()),
                **_columns("vs local", local),
                **_columns("vs local + public", public),
                LOG_MAE: float(self.log_mae[name, own].mean()),
                **_columns(f"{LOG_MAE} vs local", log_local),
                **_columns(f"{LOG_MAE} vs local + public", log_public),
            }


def _columns(title: str, change: PairedComparison | None) -> Row:
    """Percent: the mean with its 95 % interval, the median participant, the share that gains."""
    low, high = (change and change.interval) or (None, None)
    return {
        f"{title}, %": change.mean if change else None,
        f"{title}, low": low,
        f"{title}, high": high,
        f"{title}, median": change.median if change else None,
        f"{title}, better": change.wins if change else None,
    }


def _by_new_participant(cases: Sequence[Row], metric: str) -> dict[tuple[str, int], Floats]:
    """Means over seeds by predictor and n, [new participants]."""
    grouped: dict[tuple[str, int], dict[int, list[float]]] = {}
    for case in cases:
        own, participant, error = case["n"], case["newcomer"], case[metric]
        if not (isinstance(own, int) and isinstance(participant, int) and isinstance(error, float)):
            raise TypeError(f"a case has n, newcomer and {metric}, not {case}")
        key = str(case["predictor"]), own
        grouped.setdefault(key, {}).setdefault(participant, []).append(error)
    return {
        key: np.array([np.mean(errors) for errors in by_participant.values()])
        for key, by_participant in grouped.items()
    }


def plotted(out: Path, data: str, table: GainTable) -> Path:
    """MAPE over n with standard errors: local-only, with the public pretrained model, joined."""
    predictors = (
        *CLIENTS,
        WITH_PUBLIC,
        *(personalized(name) for name in (EPS1, EPS3, NO_NOISE) if name in table.joined),
    )
    lines = []
    for name in predictors:
        sizes = [own for own in table.sizes if (name, own) in table.mape]
        if not sizes:
            continue
        errors = [table.mape[name, own] for own in sizes]
        lines.append(
            Line(
                name,
                [table.sizes.index(own) for own in sizes],
                [float(each.mean()) for each in errors],
                dashed=name in CLIENTS,
                spread=[float(each.std() / np.sqrt(len(each))) for each in errors],
            )
        )
    marks = [str(own) for own in table.sizes]
    chart = lines_chart(lines, f"own executions: {data}", "MAPE, %", marks=marks, is_log=True)
    path = out / f"{data.replace(',', '').replace(' ', '_').lower()}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(chart, encoding="utf-8")
    return path


SIZES = (0, 3, 5, 10, 30, 100)
SEEDS = 5
QUICK_SIZES, QUICK_SEEDS, QUICK_NEW_PARTICIPANTS = (0, 3), 1, 1

LEAST_QUERIES = 10
"""Rows that a new participant must have left as queries."""
MOST_QUERIES = 500

STEPS = 3
"""Private steps of the shared model in the measured set."""

C3O, MEASURED = "C3O", "measured set"
WALL = "TOKIO wall time, run level, not our promise"
BANDWIDTH = "TOKIO bandwidth, run level, not our promise"
WALL_BY_WORKLOAD = "TOKIO wall time, workload level"

EPSILONS: Mapping[str, int] = {EPS1: 1, EPS3: 3, ONCE1: 1, ONCE3: 3}

WORST_HARM = 5.0
"""Percent by which joining may be worse than local-only on average, from 10 executions on."""
HARM_FROM = 10

STRONGEST = "strongest local-only"
MOST_CHANGE: Mapping[tuple[str, str, str, int], float] = {
    (C3O, EPS1, STRONGEST, 3): -30,
    (C3O, EPS1, STRONGEST, 10): -15,
    (C3O, EPS3, STRONGEST, 3): -40,
    (C3O, EPS3, STRONGEST, 10): -18,
    (C3O, EPS3, WITH_PUBLIC, 3): -18,
    (C3O, ONCE3, STRONGEST, 3): -50,
    (C3O, ONCE3, STRONGEST, 10): -20,
    (C3O, ONCE3, WITH_PUBLIC, 3): -35,
    (WALL, EPS1, STRONGEST, 3): -25,
    (WALL, EPS1, STRONGEST, 10): -14,
    (BANDWIDTH, EPS1, STRONGEST, 3): -30,
    (BANDWIDTH, EPS1, STRONGEST, 10): -22,
}
"""Percent, by data, what was joined, what it is compared with, and own executions."""


NOTES = (
    "TOKIO: the kernel of its points was set by hand while looking at errors of the platforms "
    "that are asked about here",
)


class JoiningGain:
    """The experiment."""

    name = "joining_gain"
    claim = "joining pays at epsilon 1 for the first ten executions, and never costs much"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Rows per data set, predictor and n. Every new participant of a data set has a cell."""
        tasks = [
            (name, participant)
            for name, each in WORLDS.items()
            for participant in range(
                QUICK_NEW_PARTICIPANTS if settings.quick else each.new_participants
            )
        ]
        by_world: dict[str, list[Row]] = {name: [] for name in WORLDS}
        cells = computed(partial(_cell, settings), tasks, "new participants", jobs=settings.jobs)
        for (name, _), cell in zip(tasks, cells, strict=True):
            by_world[name] += cell
        tables = {name: GainTable.of(cases) for name, cases in by_world.items()}
        return ExperimentOutcome(
            [row for name, table in tables.items() for row in table.rows(name)],
            _targets(tables),
            [*self.public_files(settings.data), *measured_files()],
            [plotted(settings.out, name, table) for name, table in tables.items()],
            [case for cases in by_world.values() for case in cases],
            NOTES,
        )

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Files of both public data sets."""
        return [*c3o.data_files(data), *tokio.data_files(data)]


def _cell(settings: Settings, task: tuple[str, int]) -> Sequence[Row]:
    name, participant = task
    key = f"{name.replace(',', '').replace(' ', '-')}-{participant}"
    return settings.cases(key, lambda: list(_new_participant(settings, name, participant)))


def _new_participant(settings: Settings, data: str, participant: int) -> Iterator[Row]:
    """Yield a row per seed, n and predictor."""
    sizes = QUICK_SIZES if settings.quick else SIZES
    for seed in range(QUICK_SEEDS if settings.quick else SEEDS):
        for own, predictors in WORLDS[data].evaluate(settings, participant, sizes, seed):
            about: Row = {"data": data, "newcomer": participant, "seed": seed, "n": own}
            for name, predictor_errors in predictors.items():
                errors = {
                    MAPE: predictor_errors.mape,
                    Q50: predictor_errors.q50,
                    LOG_MAE: predictor_errors.log_mae,
                }
                yield {**about, "predictor": name, **errors}


@dataclass(frozen=True, slots=True)
class NewParticipantFixture:
    """One data set with its new participants.

    Attributes:
        new_participants: how many there are.
        evaluate: for each n, the errors of every predictor, for one new participant and seed.
    """

    new_participants: int
    evaluate: Callable[[Settings, int, Sequence[int], int], Iterator[tuple[int, Predictors]]]


@cache
def _slices(data: Path | None) -> tuple[c3o.C3O, JobKernel]:
    loaded = c3o.load(data)
    return loaded, published_kernel(loaded)


def _judge_c3o(
    settings: Settings, participant: int, sizes: Sequence[int], seed: int
) -> Iterator[tuple[int, Predictors]]:
    job = job_federation(*_slices(settings.data), participant, seed=settings.seed)

    def joined(name: str) -> GaussianPosterior:
        if name == NO_NOISE:
            everything = np.arange(len(job.others))
            posterior = condition(
                job.public_prior, everything, job.others.log_seconds, RECORD_VARIANCE
            )
        else:
            senders = [job.together()] if name in {ONCE1, ONCE3} else job.organizations()
            posterior = public_configurations(
                job.public_prior,
                senders,
                job.targets,
                channel=_channel(name),
                noise=SeededNoise([settings.seed, participant, seed]),
            )
        return job.query_posterior(posterior)

    posteriors = {name: joined(name) for name in (EPS1, EPS3, ONCE1, ONCE3, NO_NOISE)}
    count = len(job.new_participant)
    rows = TableRows(
        job.new_participant.features, job.new_participant.log_seconds, np.arange(count)
    )
    order = np.random.default_rng([settings.seed, participant, seed, 1]).permutation(count)
    base_model = job.query_posterior(job.public_prior)
    for own in sizes:
        if count - own >= LEAST_QUERIES:
            yield (
                own,
                judge_tables(
                    rows, order[:own], order[own:], posteriors, base_model=base_model, seed=seed
                ),
            )


def _judge_tokio(
    target: str,
    by_run: bool,
    settings: Settings,
    participant: int,
    sizes: Sequence[int],
    seed: int,
) -> Iterator[tuple[int, Predictors]]:
    runs = _tokio_runs(settings.data)
    platforms = sorted(tokio.PEAKS)
    own_platform = platforms[participant]
    base_model = runs.points.prior(target)
    senders = [
        sender(runs, each, target, by_run=by_run) for each in platforms if each != own_platform
    ]
    targets = np.flatnonzero(runs.points.platforms == own_platform)

    def joined(name: str) -> GaussianPosterior:
        channel = _channel(name, tokio.RECORD_VARIANCE)
        noise = SeededNoise([settings.seed, participant, seed])
        return public_configurations(base_model, senders, targets, channel=channel, noise=noise)

    names = (EPS1, EPS3, NO_NOISE)
    posteriors = {
        name: _without_noise(base_model, senders) if name == NO_NOISE else joined(name)
        for name in names
    }
    mine = runs.of(own_platform)
    order = np.random.default_rng([settings.seed, participant, seed, 2]).permutation(len(mine))
    queries, training = order[:MOST_QUERIES], order[MOST_QUERIES:]
    points = runs.point[mine]
    rows = TableRows(runs.points.features()[points], runs.measured(target)[mine], points)
    for own in sizes:
        yield (
            own,
            judge_tables(
                rows, training[:own], queries, posteriors, base_model=base_model, seed=seed
            ),
        )


@cache
def _tokio_runs(data: Path | None) -> tokio.ProbeRuns:
    return tokio.load(data)


def _without_noise(base_model: GaussianPosterior, senders: Sequence[Sender]) -> GaussianPosterior:
    """Conditioned on the mean of every sender's records at each point: nothing private."""
    posterior = base_model
    for each in senders:
        points, place, counts = np.unique(each.positions, return_inverse=True, return_counts=True)
        means = np.bincount(place, each.log_seconds) / counts
        noise = tokio.RECORD_VARIANCE / float(counts.min())
        posterior = condition(posterior, points, means, noise)
    return posterior


def _judge_measured(
    settings: Settings, participant: int, sizes: Sequence[int], seed: int
) -> Iterator[tuple[int, Predictors]]:
    part = NEW_PARTICIPANTS[participant]
    whole = organization(part, _parts()[part], seed=settings.seed)
    rng = np.random.default_rng([settings.seed, participant, seed, 3])
    executions = one_per_workload(each for each in whole.history if each.is_ok)
    held = one_per_workload(each for each in whole.held_out if each.is_ok)
    order, queries = rng.permutation(len(executions)), rng.permutation(len(held))[:MOST_QUERIES]
    query_history = History.from_executions([held[place] for place in queries])
    models = {
        name: predictor(_joined_model(settings.seed, participant, name, settings.quick))
        for name in (EPS1, EPS3, NO_NOISE)
    }
    base_model = predictor(load_limited_model())
    for own in sizes:
        history = History.from_executions([executions[place] for place in order[:own]])
        yield own, judge_plans(history, query_history, models, base_model=base_model, seed=seed)


NEW_PARTICIPANTS = (WorkloadPart.ALDER, WorkloadPart.BIRCH, WorkloadPart.CEDAR)
MEMBERS: Mapping[WorkloadPart, tuple[WorkloadPart, ...]] = {
    WorkloadPart.ALDER: (WorkloadPart.BIRCH,),
    WorkloadPart.BIRCH: (WorkloadPart.ALDER,),
    WorkloadPart.CEDAR: (WorkloadPart.ALDER, WorkloadPart.BIRCH),
}
"""Members that train for each new participant: those with enough workloads for model rounds."""

QUICK_WORKLOADS, QUICK_ANCHORS = 40, 30


@cache
def _parts() -> Mapping[WorkloadPart, tuple[Execution, ...]]:
    return split(measured_executions())


@cache
def _joined_model(seed: int, participant: int, name: str, quick: bool) -> Checkpoint:
    """Return the global model for a new participant. All seeds share its noise."""
    part = NEW_PARTICIPANTS[participant]
    members = [_member(each, quick=quick) for each in MEMBERS[part]]
    anchors = anchors_of(load_public_plans())
    size = float(min(len(each) for each in members))

    def events(sigma: float) -> list[DpEvent]:
        return [to_event(LinearizedParameters(sigma, size))] * STEPS

    # Without privacy the noise is negligible.
    sigma = 0.01 if name == NO_NOISE else calibrate(events, PrivacyBudget(EPSILONS[name], DELTA))
    base_model = load_limited_model()
    trained = private_steps(
        model_from_arrays(base_model.arrays),
        members,
        anchors[: QUICK_ANCHORS if quick else None],
        LinearizedParameters(sigma, size),
        steps=STEPS,
        seed=[seed, participant, int(EPSILONS.get(name, 0))],
    )
    return Checkpoint(state_to_arrays(trained), model_version=base_model.model_version + STEPS)


def _member(part: WorkloadPart, *, quick: bool) -> MeasuredTimes:
    executions = [each for each in organization(part, _parts()[part]).history if each.is_ok]
    plans = measured_plans(one_per_workload(executions))[: QUICK_WORKLOADS if quick else None]
    return MeasuredTimes(
        tuple(featurize(each.plan, each.cluster) for each in plans),
        np.array([each.log_seconds for each in plans]),
    )


def _channel(name: str, record_variance: float = RECORD_VARIANCE) -> Channel:
    noise = noise_for(EPSILONS[name], replace_one=True)
    return Channel(noise, record_variance=record_variance)


WORLDS: Mapping[str, NewParticipantFixture] = {
    C3O: NewParticipantFixture(18, _judge_c3o),
    **{
        name: NewParticipantFixture(len(tokio.PEAKS), partial(_judge_tokio, target, by_run))
        for name, target, by_run in (
            (WALL, tokio.WALL, True),
            (BANDWIDTH, tokio.BANDWIDTH, True),
            (WALL_BY_WORKLOAD, tokio.WALL, False),
        )
    },
    MEASURED: NewParticipantFixture(len(NEW_PARTICIPANTS), _judge_measured),
}


def _targets(tables: Mapping[str, GainTable]) -> list[Target]:
    targets = []
    for (data, joined, rival, own), limit in MOST_CHANGE.items():
        table = tables[data]
        name = table.strongest(own) if rival == STRONGEST else rival
        if name is None or not table.mape.keys() >= {(personalized(joined), own), (name, own)}:
            continue  # a quick run has fewer n
        change = table.change(personalized(joined), name, own)
        what = f"{data}, {joined}, n = {own}: percent against {rival}"
        targets.append(Target(what, limit, change.mean, paired=change))
    harm = [
        table.change(personalized(joined), strongest, own)
        for table in tables.values()
        for joined in table.joined
        for own in table.sizes
        if own >= HARM_FROM and (strongest := table.strongest(own))
    ]
    if harm:
        what = f"most that joining costs against {STRONGEST}, percent, n >= {HARM_FROM}"
        worst = max(harm, key=lambda change: change.mean)
        targets.append(Target(what, WORST_HARM, worst.mean, paired=worst))
    return targets


EXPERIMENT = JoiningGain()
