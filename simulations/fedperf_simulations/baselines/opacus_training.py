"""DP-SGD of GGFN by Opacus: its optimizer clips, adds the noise and steps. Its accountant counts.

Opacus' `GradSampleModule`, with hooks or with functorch, takes the first dimension of a layer's
input for the batch. Of a batch of plans that dimension counts operators, so a sample would be an
operator. A plan's gradient is therefore taken by autograd, one plan at a time, and handed to
`DPOptimizer` as `grad_sample`, which is how Opacus takes per-sample gradients that others computed.
"""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedperf_shared.model.architecture import standardise
from fedperf_shared.workflow.features import Features
from fedperf_simulations.model.fit import huber_per_sample
from fedperf_simulations.model.ggfn import GGFN, collate

with warnings.catch_warnings():
    # Opacus 1.6 imports what torch 2.13 deprecates.
    warnings.simplefilter("ignore")
    from opacus.accountants import PRVAccountant
    from opacus.accountants.utils import get_noise_multiplier
    from opacus.optimizers import DPOptimizer

ACCOUNTANT = "prv"
EPSILON_TOLERANCE = 1e-3

_AT_ONCE = 32
"""Gradients in memory, 2.5 MB each."""


@dataclass(frozen=True, slots=True)
class OpacusTraining:
    """DP-SGD with Adam on Poisson-sampled workloads of one execution each.

    Attributes:
        noise_multiplier: standard deviation of the noise / clip norm.
        sampling_probability: of each workload in each step.
        clip_norm: bound on the L2 norm of one workload's gradient.
    """

    noise_multiplier: float
    sampling_probability: float
    clip_norm: float

    @classmethod
    def within(
        cls,
        epsilon: float,
        delta: float,
        *,
        sampling_probability: float,
        clip_norm: float,
        steps: int,
    ) -> "OpacusTraining":
        """Return the training whose `steps` steps together cost at most `epsilon` at `delta`."""
        with _coarse_bounds():
            sigma = get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=sampling_probability,
                steps=steps,
                accountant=ACCOUNTANT,
                epsilon_tolerance=EPSILON_TOLERANCE,
            )
        return cls(float(sigma), sampling_probability, clip_norm)

    def epsilon(self, steps: int, delta: float) -> float:
        """Return what so many steps cost, for adding or removing one workload."""
        accountant = PRVAccountant()
        accountant.history = [(self.noise_multiplier, self.sampling_probability, steps)]
        with _coarse_bounds():
            return float(accountant.get_epsilon(delta))

    def trained(
        self,
        model: GGFN,
        graphs: Sequence[Features],
        log_seconds: NDArray[np.float64],
        draws: torch.Generator,
        *,
        steps: int,
        learning_rate: float,
    ) -> dict[str, Tensor]:
        """Return the weights after so many steps from `model`, which stays as it is.

        Args:
            model: before training.
            graphs: the plan of one execution of each workload.
            log_seconds: that it took, natural log, [workloads].
            draws: which workloads a step draws, and the noise.
            steps: of the optimizer.
            learning_rate: of Adam.
        """
        trained = copy.deepcopy(model).eval()  # without dropout, as steps at the tangent are
        parameters = list(trained.parameters())
        optimizer = DPOptimizer(
            torch.optim.Adam(parameters, lr=learning_rate),
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.clip_norm,
            expected_batch_size=self.sampling_probability * len(graphs),
            generator=draws,
        )
        targets = standardise(torch.from_numpy(log_seconds)).float()
        for _ in range(steps):
            is_sampled = torch.rand(len(graphs), generator=draws) < self.sampling_probability
            chunks = torch.split(is_sampled.nonzero()[:, 0], _AT_ONCE)
            for number, chunk in enumerate(chunks, start=1):
                gradients = [
                    _gradient(trained, graphs[place], targets[place]) for place in chunk.tolist()
                ]
                for index, parameter in enumerate(parameters):
                    samples = torch.empty(len(gradients), *parameter.shape)
                    for sample, gradient in zip(samples, gradients, strict=True):
                        sample.copy_(gradient[index])
                    parameter.grad_sample = samples  # type: ignore[attr-defined]  # of Opacus
                optimizer.signal_skip_step(do_skip=number < len(chunks))
                optimizer.step()
                optimizer.zero_grad()
        return dict(trained.state_dict())


@contextmanager
def _coarse_bounds() -> Iterator[None]:
    """Let the accountant bound its grid by Renyi orders, which warns where the bound is coarse."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the")
        yield


def _gradient(model: GGFN, graph: Features, target: Tensor) -> tuple[Tensor, ...]:
    """Return the gradient of one plan's loss, in the order of the parameters."""
    loss = huber_per_sample(model(collate([graph])), target[None]).sum()
    return torch.autograd.grad(loss, list(model.parameters()))
