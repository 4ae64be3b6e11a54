"""Experiment: attacks that try to refute the promised epsilon of every mechanism of a release.

Every mechanism is attacked unchanged, with the noise of real releases. It is attacked again with a
fake source of a quarter of that noise and of none. The accountant recomputes the claim from the
slot's parameters. A lower bound on epsilon above the claim refutes it: that must never happen with
real noise and always with fake noise. The bound against real noise as a share of the claim is the
audit's power: a leak in the rest of that share could hide from it.

Steps at the tangent, reports and the synthetic batch that follows from one are audited by many
releases of two neighbouring inputs. Real noise has no seed, so the bounds vary
a little from run to run.

An attacker's success gives a lower bound on epsilon, with confidence. A mechanism that is (epsilon,
delta)-differentially private keeps every attack below a limit. The largest epsilon whose limit an
attack passed is a lower bound on the true epsilon. It is wrong with a chance of at most 1 -
confidence, for any mechanism. A weak attack gives a bound near 0, which proves nothing.

Invariant: what an attack is tuned on is never what it is judged by; where several attacks are
tried, the chance of error is divided among them.

The attacker is the strongest that the promise covers. It chose the workloads, and has the model,
the slot's parameters, the public code and all other data. Membership and noise are secret. Fake
noise serves as a control and protects no release.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from scipy.stats import beta

from fedperf_client.contributions.mechanisms import (
    NoiseSource,
    PointResiduals,
    WorkloadFeatures,
    WorkloadResiduals,
    noisy,
    sum_features,
    sum_residuals,
)
from fedperf_client.release.accountant import PrivacyBudget, calibrate, epsilon, to_event
from fedperf_client.release.noise import SystemNoise
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.corrections import (
    ReceivedReport,
    correct_sums,
    pool_by_organization,
)
from fedperf_server.rehearsal.synthetic_batch import SyntheticBatch, by_cell
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_shared.releases.basis import cell_of
from fedperf_shared.releases.kinds import RESIDUAL_REPORT
from fedperf_shared.releases.linear_queries import DIRECTIONS
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    ReportParameters,
    ResidualReport,
    Slot,
    SlotKey,
)
from fedperf_simulations.federation.channel import directed_report
from fedperf_simulations.federation.latent_points import feature_design
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target

CONFIDENCE = 0.95

_THRESHOLDS = 200

Floats = NDArray[np.float64]


def epsilon_of_rates(
    hits: int,
    members: int,
    *,
    false_alarms: int,
    others: int,
    delta: float,
    confidence: float = CONFIDENCE,
) -> float:
    """Lower bound on epsilon from how often one event happened on two neighbouring inputs.

    Under (epsilon, delta)-DP, P[event | one] <= e^epsilon P[event | other] + delta. Both
    chances are bounded by Clopper and Pearson, each at half of the error.

    Args:
        hits: releases of the one input with the event.
        members: releases of the one input.
        false_alarms: releases of the other input with the event.
        others: releases of the other input.
        delta: of the claim.
        confidence: of the bound.
    """
    level = (1 - confidence) / 2
    lowest = float(beta.ppf(level, hits, members - hits + 1)) if hits else 0.0
    highest = (
        float(beta.isf(level, false_alarms + 1, others - false_alarms))
        if false_alarms < others
        else 1.0
    )
    if not lowest - delta > highest > 0:
        return 0.0
    return math.log((lowest - delta) / highest)


@dataclass(frozen=True, slots=True)
class _Event:
    """A score beyond a threshold, on one of two sides."""

    threshold: float
    above: bool

    def count(self, scores: Floats) -> int:
        beyond = scores > self.threshold if self.above else scores < self.threshold
        return int(beyond.sum())


def best_threshold(
    without: Floats, with_one: Floats, *, delta: float, confidence: float = CONFIDENCE
) -> float:
    """Lower bound on epsilon from scores of releases of two neighbouring inputs.

    The event that separates best on the first half of the scores is judged on the second.

    Args:
        without: scores of releases without the workload.
        with_one: scores of releases with it, larger in tendency.
        delta: of the claim.
        confidence: of the bound.
    """

    def bound(event: _Event, absent: Floats, present: Floats) -> float:
        # Large scores speak for the workload, small ones against it.
        one, other = (present, absent) if event.above else (absent, present)
        return epsilon_of_rates(
            event.count(one),
            len(one),
            false_alarms=event.count(other),
            others=len(other),
            delta=delta,
            confidence=confidence,
        )

    tuned = without[: len(without) // 2], with_one[: len(with_one) // 2]
    held_out = without[len(without) // 2 :], with_one[len(with_one) // 2 :]
    places = np.linspace(0, 1, _THRESHOLDS + 2)[1:-1]
    thresholds = np.unique(np.quantile(np.concatenate(tuned), places))
    events = [_Event(float(t), above) for t in thresholds for above in (True, False)]
    return bound(max(events, key=lambda event: bound(event, *tuned)), *held_out)


def best_direction(without: Floats, with_one: Floats) -> Floats:
    """Return the linear score that separates two samples best (Fisher), float64 [features].

    To be found on other releases than those that it is used on.

    Args:
        without: float64 [releases, features].
        with_one: the same of the neighbouring input.
    """
    spread = np.cov(np.concatenate([without - without.mean(0), with_one - with_one.mean(0)]).T)
    ridge = 1e-9 * float(np.trace(np.atleast_2d(spread))) + 1e-12
    regular = np.atleast_2d(spread) + ridge * np.eye(without.shape[1])
    return np.asarray(np.linalg.solve(regular, with_one.mean(0) - without.mean(0)))


NOMINAL_WORKLOADS = 1e7
"""The largest number that may be declared. The noise does not depend on it."""


class FakeNoise(SeededNoise):
    """Noise of the wrong scale from a seed: a control that an audit has to catch."""

    def __init__(self, seed: int, *, factor: float) -> None:
        super().__init__([seed])
        self._factor = factor

    def gaussian(self, size: int) -> Floats:
        """Normal numbers of standard deviation `factor`."""
        return self._factor * super().gaussian(size)


class PairedNoise:
    """Gives every discrete draw of a source twice in a row, to one input and its neighbour.

    Each of the two samples of releases is still just what the mechanism gives, and a bound
    from two samples needs no independence between them; drawing is what takes the time.
    """

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self._kept: NDArray[np.int64] | None = None

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """Return a new draw, or the one before again."""
        if self._kept is None:
            self._kept = self._noise.discrete_gaussian(size, scale)
            return self._kept.copy()
        again, self._kept = self._kept, None
        return again


REAL = "as declared"
FACTORS = {REAL: 1.0, "a quarter": 0.25, "none": 0.0}
"""Factors of the noise, by name. All but the real one are controls."""

CLIP = 1.5
BACKGROUND_WORKLOADS = 40
SYNTHETIC_ROWS = 512
TUNING_SHARE = 0.1
QUICK_SHARE = 0.01

_SLOT = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
_UPDATE_SLOT = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)
_REFERENCE = 1

Parameters = ReportParameters | LinearizedParameters
Release = Callable[[bool, NoiseSource], Floats]
"""One release with or without the target workload, as the attacker's few features."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """The bound that an attack proved.

    Attributes:
        bound: lower bound on epsilon.
        looks: pairs of releases that it rests on.
    """

    bound: float
    looks: int


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism, what is claimed of it, and the attack on it.

    Attributes:
        name: of the row.
        epsilon: that its noise is calibrated for.
        delta: of the claim.
        make: a slot's parameters for a noise multiplier.
        looks: pairs of releases.
        attack: from parameters, delta, factor on the noise, number of looks and seed.
        silent_looks: as `looks`, where there is no noise; 0 for as many.
    """

    name: str
    epsilon: float
    delta: float
    make: Callable[[float], Parameters]
    looks: int
    attack: Callable[[Parameters, float, float, int, int], AuditFinding]
    silent_looks: int = 0

    def looks_at(self, factor: float) -> int:
        """Return number of looks at releases with this factor on the noise."""
        return self.silent_looks if self.silent_looks and not factor else self.looks


class PrivacyAudit:
    """The experiment."""

    name = "privacy_audit"
    claim = "the promised epsilon holds against an attacker, and fake noise is caught"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return one row per mechanism and noise."""
        parts = [(mechanism, noise) for mechanism in MECHANISMS for noise in FACTORS]
        rows = [
            settings.cell(
                f"{mechanism.name}-epsilon{mechanism.epsilon:g}-{noise}".replace(" ", "-"),
                partial(_row, mechanism, noise, settings),
            )
            for mechanism, noise in track(parts, "auditing", console=Console(stderr=True))
        ]
        return ExperimentOutcome(rows, [_target(row) for row in rows])


def _row(mechanism: Mechanism, noise: str, settings: Settings) -> Row:
    epsilon_claimed = claimed(mechanism)
    factor = FACTORS[noise]
    looks = mechanism.looks_at(factor)
    if settings.quick:
        looks = math.ceil(QUICK_SHARE * looks)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        result = mechanism.attack(
            _parameters(mechanism), mechanism.delta, factor, looks, settings.seed
        )
    finally:
        torch.set_num_threads(threads)
    return {
        "mechanism": f"{mechanism.name}, epsilon {mechanism.epsilon:g}",
        "noise": noise,
        "claimed": epsilon_claimed,
        "delta": mechanism.delta,
        "bound": result.bound,
        "bound / claimed": result.bound / epsilon_claimed,
        "caught": result.bound > epsilon_claimed,
        "looks": result.looks,
    }


def _target(row: Row) -> Target:
    bound, limit = row["bound"], row["claimed"]
    if not (isinstance(bound, float) and isinstance(limit, float)):
        raise TypeError("a row of the audit has a bound and a claim")
    is_real = row["noise"] == REAL
    what = "bound is below the claim" if is_real else f"noise {row['noise']}: caught"
    return Target(f"{row['mechanism']}: {what}", limit, bound, at_most=is_real)


def claimed(mechanism: Mechanism) -> float:
    """Return the epsilon of the mechanism's parameters, as the accountant of the ledger has it."""
    return epsilon([to_event(_parameters(mechanism))], mechanism.delta)


@lru_cache(maxsize=16)
def _parameters(mechanism: Mechanism) -> Parameters:
    budget = PrivacyBudget(mechanism.epsilon, mechanism.delta)
    return mechanism.make(calibrate(lambda noise: [to_event(mechanism.make(noise))], budget))


def _noise(factor: float, seed: int) -> NoiseSource:
    """Return the source of real releases, or a fake one."""
    return SystemNoise() if factor == FACTORS[REAL] else FakeNoise(seed, factor=factor)


def _report_slot(noise_multiplier: float) -> ReportParameters:
    return ReportParameters(noise_multiplier, CLIP)


def _tangent_slot(noise_multiplier: float) -> LinearizedParameters:
    return LinearizedParameters(noise_multiplier, NOMINAL_WORKLOADS)


def _attack_neighbours(
    parameters: Parameters,
    delta: float,
    factor: float,
    pairs: int,
    seed: int,
    *,
    mechanism: Callable[[float], Release],
) -> AuditFinding:
    """Many releases of an input and its neighbour. The score is learned on the first of them."""
    release, noise = mechanism(parameters.noise_multiplier), PairedNoise(_noise(factor, seed))
    released = np.array([(release(False, noise), release(True, noise)) for _ in range(pairs)])
    without, with_one = released[:, 0], released[:, 1]
    tuning = math.ceil(TUNING_SHARE * pairs)
    direction = best_direction(without[:tuning], with_one[:tuning])
    bound = best_threshold(without[tuning:] @ direction, with_one[tuning:] @ direction, delta=delta)
    return AuditFinding(bound, pairs)


def _residual_report(noise_multiplier: float) -> Release:
    """Return the report, seen along what one workload adds to it."""
    made = partial(_made_report, _report_slot(noise_multiplier))
    silence = FakeNoise(0, factor=0.0)
    added = (made(True, silence).values - made(False, silence).values).astype(np.float64)
    return lambda present, noise: np.array([made(present, noise).values @ added])


def _directed_report(noise_multiplier: float) -> Release:
    """Return a directed report with private configurations, seen along what one workload adds."""
    design = feature_design(np.array([[0.0], [1.0]]), CLIP, offset_share=0.5)
    background = [PointResiduals(np.array([0]), np.array([0.0]))]
    attacked = PointResiduals(np.array([1]), np.array([CLIP]))

    def made(present: bool, noise: NoiseSource) -> Floats:
        report = directed_report(
            [*background, attacked] if present else background,
            design,
            noise,
            slot=_SLOT,
            noise_multiplier=noise_multiplier,
            design_version=1,
        )
        return report.natural()

    silence = FakeNoise(0, factor=0.0)
    added = made(True, silence) - made(False, silence)
    return lambda present, noise: np.array([made(present, noise) @ added])


def _tangent_step(noise_multiplier: float) -> Release:
    """Return a step at the tangent, seen along what one workload adds to it."""
    parameters = _tangent_slot(noise_multiplier)
    features = np.ones((1, DIRECTIONS))
    background = [WorkloadFeatures(features, np.array([0.0]))] * BACKGROUND_WORKLOADS
    attacked = WorkloadFeatures(features, np.array([CLIP]))
    sums = {
        present: sum_features([*background, attacked] if present else background, CLIP)
        for present in (False, True)
    }
    added = (sums[True] - sums[False]).astype(np.float64)

    def released(present: bool, noise: NoiseSource) -> Floats:
        update = noisy(sums[present], noise, Slot(_UPDATE_SLOT, parameters), version=1)
        return np.array([update.values @ added])

    return released


def _synthetic_batch(noise_multiplier: float) -> Release:
    """Return the batch that follows from one report: mean label and number of rows in one cell."""
    parameters = _report_slot(noise_multiplier)
    entries = [PlanOnCluster(each.plan, each.cluster) for each in load_public_plans()]
    catalogue = by_cell(entries)
    plans = {id(each.plan) for each in catalogue[_attacked_cell()]}

    def release(present: bool, noise: NoiseSource) -> Floats:
        report = ReceivedReport("audited", _made_report(parameters, present, noise), parameters)
        batch = SyntheticBatch.from_reports(
            [report],
            correct_sums(
                pool_by_organization([report], reference_version=_REFERENCE),
                reference_version=_REFERENCE,
            ),
            catalogue,
            rows=SYNTHETIC_ROWS,
            predict=lambda queries: np.zeros(len(queries)),  # public, so the attacker subtracts it
            seed=0,
        )
        labels = [row.log_seconds for row in batch.rows if id(row.plan) in plans]
        return np.array([np.mean(labels) if labels else 0.0, len(labels)])

    return release


@lru_cache(maxsize=1)
def _attacked_cell() -> int:
    return cell_of(load_public_plans()[0].plan).index


def _made_report(parameters: ReportParameters, present: bool, noise: NoiseSource) -> ResidualReport:
    """Workloads without error in one cell, and one that is off as far as the clip allows."""
    place = np.array([_attacked_cell()])
    workloads = [WorkloadResiduals(place, np.array([0.0]))] * BACKGROUND_WORKLOADS
    attacked = [WorkloadResiduals(place, np.array([CLIP]))] if present else []
    total = sum_residuals(workloads + attacked, parameters.residual_clip)
    report = noisy(total, noise, Slot(_SLOT, parameters), version=_REFERENCE)
    return RESIDUAL_REPORT.as_release(report)


MECHANISMS = (
    *(
        Mechanism(
            name,
            target,
            1e-5,
            make,
            pairs,
            partial(_attack_neighbours, mechanism=released),
            silent,
        )
        for name, target, make, pairs, silent, released in (
            ("step at the tangent", 1.0, _tangent_slot, 3000, 1000, _tangent_step),
            ("residual report", 1.0, _report_slot, 3000, 1000, _residual_report),
            ("directed report", 1.0, _report_slot, 25_000, 1000, _directed_report),
            ("directed report", 8.0, _report_slot, 40_000, 0, _directed_report),
            ("synthetic batch", 3.0, _report_slot, 4500, 1000, _synthetic_batch),
        )
    ),
)

EXPERIMENT = PrivacyAudit()
