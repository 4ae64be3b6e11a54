"""Experiment: an organization's gain by joining, over the number of its own executions.

Newcomers come from three kinds of data. C3O slices (18) each ask what the others of their job have
run; the list of configurations is public. TOKIO platforms (6) have wall time and bandwidth. The
organizations of the project's own measured set (3) have plans and private configurations. The gain
is what the product's mechanisms give at that epsilon: three staged reports, or private steps of the
shared model at its tangent. Predictions at home are the client's.

Epsilon is for all releases of an organization together at delta 1e-5. On C3O and TOKIO it is for
replacing one label, as the published figures are; in the measured set for adding or removing one
workload, as fedperf promises. A configuration stands for a workload on C3O. On TOKIO a run does,
which is not what fedperf promises; the rows named "workload level" send one number per point
instead.

Each seed draws the newcomer's own executions, the noise and the folds; in the measured set noise is
drawn once. A case is a newcomer, a seed and an n; a row is a mean over newcomers of means over
seeds. Changes are paired by newcomer, in percent (`harness.paired`), against two predictors. One is
the strongest local-only predictor, chosen in hindsight at each n among the client's and the plain
ones of `baselines.home_models`. The other is the mix of own executions with the public start.
Beside mean percentages, which a few answers far too long can make, stands the MAE of the log.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.query_encoding import History
from fedperf_client.release.accountant import PrivacyBudget, calibrate, to_event
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.execution import Execution
from fedperf_shared.model.checkpoint import Checkpoint, model_from_arrays, state_to_arrays
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.release import LinearizedParameters
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.corpus.limited_start import load_limited_start
from fedperf_simulations.corpus.new_platform import MeasuredTimes
from fedperf_simulations.corpus.organizations import WorkloadPart, organization, split
from fedperf_simulations.corpus.starts.pretraining import one_per_workload
from fedperf_simulations.corpus.training_set import measured_plans
from fedperf_simulations.data import c3o, tokio
from fedperf_simulations.data.datasets import measured_executions, measured_files
from fedperf_simulations.experiments.joining_gain.new_participants import (
    WITH_PUBLIC,
    Predictors,
    TableRows,
    judge_plans,
    judge_tables,
    personalized,
)
from fedperf_simulations.experiments.joining_gain.table import (
    EPS1,
    EPS3,
    LOG_MAE,
    MAPE,
    NO_NOISE,
    ONCE1,
    ONCE3,
    Q50,
    GainTable,
    plotted,
)
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
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target
from fedperf_simulations.harness.side_by_side import computed

Floats = NDArray[np.float64]

SIZES = (0, 3, 5, 10, 30, 100)
SEEDS = 5
QUICK_SIZES, QUICK_SEEDS, QUICK_NEWCOMERS = (0, 3), 1, 1

LEAST_ASKED = 10
"""Rows that a newcomer must have left to be asked about."""
MOST_ASKED = 500

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
        """Rows per data set, predictor and n; every newcomer of a data set has a cell."""
        tasks = [
            (name, newcomer)
            for name, each in WORLDS.items()
            for newcomer in range(QUICK_NEWCOMERS if settings.quick else each.newcomers)
        ]
        found: dict[str, list[Row]] = {name: [] for name in WORLDS}
        cells = computed(partial(_cell, settings), tasks, "newcomers", jobs=settings.jobs)
        for (name, _), cell in zip(tasks, cells, strict=True):
            found[name] += cell
        tables = {name: GainTable.of(cases) for name, cases in found.items()}
        return ExperimentOutcome(
            [row for name, table in tables.items() for row in table.rows(name)],
            _targets(tables),
            [*self.public_files(settings.data), *measured_files()],
            [plotted(settings.out, name, table) for name, table in tables.items()],
            [case for cases in found.values() for case in cases],
            NOTES,
        )

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Files of both public data sets."""
        return [*c3o.data_files(data), *tokio.data_files(data)]


def _cell(settings: Settings, task: tuple[str, int]) -> Sequence[Row]:
    name, newcomer = task
    key = f"{name.replace(',', '').replace(' ', '-')}-{newcomer}"
    return settings.cases(key, lambda: list(_newcomer(settings, name, newcomer)))


def _newcomer(settings: Settings, data: str, newcomer: int) -> Iterator[Row]:
    """A row per seed, n and predictor."""
    sizes = QUICK_SIZES if settings.quick else SIZES
    for seed in range(QUICK_SEEDS if settings.quick else SEEDS):
        for own, predictors in WORLDS[data].judged(settings, newcomer, sizes, seed):
            about: Row = {"data": data, "newcomer": newcomer, "seed": seed, "n": own}
            for name, judged in predictors.items():
                errors = {MAPE: judged.mape, Q50: judged.q50, LOG_MAE: judged.log_mae}
                yield {**about, "predictor": name, **errors}


@dataclass(frozen=True, slots=True)
class NewParticipantFixture:
    """One data set with its newcomers.

    Attributes:
        newcomers: how many there are.
        judged: for each n, the errors of every predictor, for one newcomer and seed.
    """

    newcomers: int
    judged: Callable[[Settings, int, Sequence[int], int], Iterator[tuple[int, Predictors]]]


@cache
def _slices(data: Path | None) -> tuple[c3o.C3O, JobKernel]:
    loaded = c3o.load(data)
    return loaded, published_kernel(loaded)


def _judge_c3o(
    settings: Settings, newcomer: int, sizes: Sequence[int], seed: int
) -> Iterator[tuple[int, Predictors]]:
    job = job_federation(*_slices(settings.data), newcomer, seed=settings.seed)

    def joined(name: str) -> GaussianPosterior:
        if name == NO_NOISE:
            everything = np.arange(len(job.others))
            belief = condition(job.start, everything, job.others.log_seconds, RECORD_VARIANCE)
        else:
            senders = [job.together()] if name in {ONCE1, ONCE3} else job.organizations()
            belief = public_configurations(
                job.start,
                senders,
                job.targets,
                channel=_channel(name),
                noise=SeededNoise([settings.seed, newcomer, seed]),
            )
        return job.asked(belief)

    beliefs = {name: joined(name) for name in (EPS1, EPS3, ONCE1, ONCE3, NO_NOISE)}
    count = len(job.newcomer)
    rows = TableRows(job.newcomer.features, job.newcomer.log_seconds, np.arange(count))
    order = np.random.default_rng([settings.seed, newcomer, seed, 1]).permutation(count)
    start = job.asked(job.start)
    for own in sizes:
        if count - own >= LEAST_ASKED:
            yield (
                own,
                judge_tables(rows, order[:own], order[own:], beliefs, start=start, seed=seed),
            )


def _judge_tokio(
    target: str,
    by_run: bool,
    settings: Settings,
    newcomer: int,
    sizes: Sequence[int],
    seed: int,
) -> Iterator[tuple[int, Predictors]]:
    runs = _tokio_runs(settings.data)
    platforms = sorted(tokio.PEAKS)
    asks = platforms[newcomer]
    start = runs.points.start(target)
    senders = [sender(runs, each, target, by_run=by_run) for each in platforms if each != asks]
    targets = np.flatnonzero(runs.points.platforms == asks)

    def joined(name: str) -> GaussianPosterior:
        channel = _channel(name, tokio.RECORD_VARIANCE)
        noise = SeededNoise([settings.seed, newcomer, seed])
        return public_configurations(start, senders, targets, channel=channel, noise=noise)

    names = (EPS1, EPS3, NO_NOISE)
    beliefs = {name: _known(start, senders) if name == NO_NOISE else joined(name) for name in names}
    mine = runs.of(asks)
    order = np.random.default_rng([settings.seed, newcomer, seed, 2]).permutation(len(mine))
    asked, drawn = order[:MOST_ASKED], order[MOST_ASKED:]
    points = runs.point[mine]
    rows = TableRows(runs.points.features()[points], runs.measured(target)[mine], points)
    for own in sizes:
        yield own, judge_tables(rows, drawn[:own], asked, beliefs, start=start, seed=seed)


@cache
def _tokio_runs(data: Path | None) -> tokio.ProbeRuns:
    return tokio.load(data)


def _known(start: GaussianPosterior, senders: Sequence[Sender]) -> GaussianPosterior:
    """Conditioned on the mean of every sender's records at each point: nothing private."""
    belief = start
    for each in senders:
        points, place, counts = np.unique(each.positions, return_inverse=True, return_counts=True)
        means = np.bincount(place, each.log_seconds) / counts
        noise = tokio.RECORD_VARIANCE / float(counts.min())
        belief = condition(belief, points, means, noise)
    return belief


def _judge_measured(
    settings: Settings, newcomer: int, sizes: Sequence[int], seed: int
) -> Iterator[tuple[int, Predictors]]:
    part = NEWCOMERS[newcomer]
    whole = organization(part, _parts()[part], seed=settings.seed)
    rng = np.random.default_rng([settings.seed, newcomer, seed, 3])
    known = one_per_workload(each for each in whole.history if each.is_ok)
    held = one_per_workload(each for each in whole.held_out if each.is_ok)
    order, asked = rng.permutation(len(known)), rng.permutation(len(held))[:MOST_ASKED]
    questions = History.from_executions([held[place] for place in asked])
    models = {
        name: predictor(_joined_model(settings.seed, newcomer, name, settings.quick))
        for name in (EPS1, EPS3, NO_NOISE)
    }
    start = predictor(load_limited_start())
    for own in sizes:
        history = History.from_executions([known[place] for place in order[:own]])
        yield own, judge_plans(history, questions, models, start=start, seed=seed)


NEWCOMERS = (WorkloadPart.ALDER, WorkloadPart.BIRCH, WorkloadPart.CEDAR)
MEMBERS: Mapping[WorkloadPart, tuple[WorkloadPart, ...]] = {
    WorkloadPart.ALDER: (WorkloadPart.BIRCH,),
    WorkloadPart.BIRCH: (WorkloadPart.ALDER,),
    WorkloadPart.CEDAR: (WorkloadPart.ALDER, WorkloadPart.BIRCH),
}
"""Who trains where a part is the newcomer: those with workloads enough for model rounds."""

QUICK_WORKLOADS, QUICK_ANCHORS = 40, 30


@cache
def _parts() -> Mapping[WorkloadPart, tuple[Execution, ...]]:
    return split(measured_executions())


@cache
def _joined_model(seed: int, newcomer: int, name: str, quick: bool) -> Checkpoint:
    """The shared model that the newcomer finds; its noise is drawn once for all seeds."""
    part = NEWCOMERS[newcomer]
    members = [_member(each, quick=quick) for each in MEMBERS[part]]
    anchors = anchors_of(load_public_plans())
    size = float(min(len(each) for each in members))

    def events(sigma: float) -> list[DpEvent]:
        return [to_event(LinearizedParameters(sigma, size))] * STEPS

    # Without privacy the noise is one that nobody would notice.
    sigma = 0.01 if name == NO_NOISE else calibrate(events, PrivacyBudget(EPSILONS[name], DELTA))
    start = load_limited_start()
    trained = private_steps(
        model_from_arrays(start.arrays),
        members,
        anchors[: QUICK_ANCHORS if quick else None],
        LinearizedParameters(sigma, size),
        steps=STEPS,
        seed=[seed, newcomer, int(EPSILONS.get(name, 0))],
    )
    return Checkpoint(state_to_arrays(trained), model_version=start.model_version + STEPS)


def _member(part: WorkloadPart, *, quick: bool) -> MeasuredTimes:
    known = [each for each in organization(part, _parts()[part]).history if each.is_ok]
    plans = measured_plans(one_per_workload(known))[: QUICK_WORKLOADS if quick else None]
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
    MEASURED: NewParticipantFixture(len(NEWCOMERS), _judge_measured),
}


def _targets(tables: Mapping[str, GainTable]) -> list[Target]:
    targets = []
    for (data, joined, rival, own), limit in MOST_CHANGE.items():
        table = tables[data]
        name = table.strongest(own) if rival == STRONGEST else rival
        if name is None or not table.mape.keys() >= {(personalized(joined), own), (name, own)}:
            continue  # a quick run asks for fewer n
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
