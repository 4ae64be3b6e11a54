"""Attacks on releases: scores that are larger where a workload was in.

The attacker is the strongest that the promise speaks of. It chose the workloads, and knows the
model, the slot's parameters, the public code and everybody else's data. It does not know who is in,
nor the noise. Fake noise is here for controls and stands behind no release.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedperf_client.privacy.clipped_sums import clipped_sum
from fedperf_client.privacy.dp_sgd import Example, dp_train
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.releases.release import TrainingParameters
from fedperf_shared.workflow.features import OPERATOR_FEATURES, PLAN_FEATURES
from fedperf_simulations.experiments.privacy_audit.bounds import Floats
from fedperf_simulations.federation.seeded_noise import SeededNoise

FEATURE_SCALE = 30.0
"""Features so large that every canary's gradient is clipped and points somewhere else."""

WRONG_TARGET = 30.0
"""Standardised log seconds that no model predicts."""

NOMINAL_WORKLOADS = 1e11
"""So many that Adam's division by the gradient's own size, which would hide part of what the
noisy gradient says, plays no part: the worst that a policy may declare."""

_LEARNING_RATE = 1e-3
_ADAM_EPSILON = 1e-8
_ADAM_MOMENTUM = 0.9
_ATTACKED = "dense."
"""The parameters that hold 99.6 % of the canaries' squared gradient norms."""


class FakeNoise(SeededNoise):
    """Noise of the wrong scale from a seed: a control that an audit has to catch.

    Uniform numbers are as declared: sampling is not what is faked.
    """

    def __init__(self, seed: int, *, factor: float) -> None:
        super().__init__([seed])
        self._factor = factor

    def gaussian(self, size: int) -> Floats:
        """Normal numbers of standard deviation `factor`."""
        return self._factor * super().gaussian(size)


class Twice:
    """Gives every discrete draw of a source twice in a row, to one input and its neighbour.

    Each of the two samples of releases is still just what the mechanism gives, and a bound
    from two samples needs no independence between them; drawing is what takes the time.
    """

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self._kept: NDArray[np.int64] | None = None

    def uniform(self, size: int) -> Floats:
        """Uniform numbers from the source."""
        return self._noise.uniform(size)

    def gaussian(self, size: int) -> Floats:
        """Normal numbers from the source."""
        return self._noise.gaussian(size)

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """A new draw, or the one before again."""
        if self._kept is None:
            self._kept = self._noise.discrete_gaussian(size, scale)
            return self._kept.copy()
        again, self._kept = self._kept, None
        return again


def canaries(count: int, rng: np.random.Generator) -> list[Example]:
    """Workloads of one operator with random features and a wrong run time."""
    return [
        Example(
            PlanGraph(
                _random(rng, 1, OPERATOR_FEATURES),
                FEATURE_SCALE * _random(rng, PLAN_FEATURES),
                torch.zeros((2, 0), dtype=torch.int64),
            ),
            float(rng.choice([-WRONG_TARGET, WRONG_TARGET])),
        )
        for _ in range(count)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class CanaryAttack:
    """Tells from a released update which canaries were in.

    Attributes:
        model: that training starts from.
        members: the canaries.
        gradients: float32 [canaries, attacked parameters], clipped to norm 1, at `model`.
        products: float64 [canaries, canaries], their inner products.
    """

    model: GGFN
    members: Sequence[Example]
    gradients: NDArray[np.float32]
    products: Floats

    @classmethod
    def on(cls, model: GGFN, members: Sequence[Example]) -> "CanaryAttack":
        """Prepare the attack: one gradient per canary."""
        gradients = np.stack([_gradient(model, member) for member in members])
        return cls(model, members, gradients, (gradients @ gradients.T).astype(np.float64))

    def scores(
        self,
        parameters: TrainingParameters,
        noise: NoiseSource,
        *,
        factor: float,
        inside: NDArray[np.bool_],
    ) -> Floats:
        """Release one update with the canaries that are `inside`; every canary's score.

        Args:
            parameters: of the slot; the clip norm is 1.
            noise: of the release.
            factor: on the noise that the attacker reckons with.
            inside: whether each canary is, [canaries].
        """
        present = [[member] for member, one in zip(self.members, inside, strict=True) if one]
        trained = dp_train(self.model, present, parameters, noise, learning_rate=_LEARNING_RATE)
        before = self.model.state_dict()
        moved = _flat({name: trained[name] - before[name] for name in trained})
        per_unit = -_ADAM_EPSILON / _LEARNING_RATE * _expected(parameters)
        return self._likeliest(parameters, factor, self.gradients @ (per_unit * moved))

    def _likeliest(self, parameters: TrainingParameters, factor: float, seen: Floats) -> Floats:
        """How often each canary was most likely drawn: the linear estimate of least square error.

        What is seen is products @ draws + noise of covariance products * variance.
        """
        weights = _step_weights(parameters.steps)
        total, square = float(weights.sum()), float(np.square(weights).sum())
        q = parameters.sampling_probability
        expected = q * total / 2
        spread = (q * total / 2) ** 2 + q * (1 - q) * square / 2
        variance = square * (factor * parameters.noise_multiplier) ** 2
        ridge = max(variance / spread, 1e-6) * np.eye(len(seen))
        surprise = seen - self.products @ np.full(len(seen), expected)
        return np.asarray(np.linalg.solve(self.products + ridge, surprise))


def _step_weights(steps: int) -> Floats:
    """How much each step's gradient moves the weights, by Adam's averages without its scaling."""
    later = np.arange(1, steps + 1)
    decay = np.tril(_ADAM_MOMENTUM ** (later[:, None] - later).astype(np.float64))
    averages = (1 - _ADAM_MOMENTUM) * decay / (1 - _ADAM_MOMENTUM ** later[:, None])
    return np.asarray(averages.sum(axis=0))


def _expected(parameters: TrainingParameters) -> float:
    return parameters.sampling_probability * parameters.nominal_workloads


def _gradient(model: GGFN, member: Example) -> NDArray[np.float32]:
    target = torch.tensor([member.target], dtype=torch.float64)
    return _flat(clipped_sum(model, [member.graph], target, 1.0).gradients)


def _flat(named: dict[str, torch.Tensor]) -> NDArray[np.float32]:
    chosen = [named[name].reshape(-1) for name in sorted(named) if name.startswith(_ATTACKED)]
    return np.asarray(torch.cat(chosen).float().numpy())


def _random(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
