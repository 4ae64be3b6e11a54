"""Gaussian processes as learners: alone, on top of another learner, or from what was downloaded.

They answer with a mean and know how sure they are (`sd`). On top of a start model or of
another learner a process learns the residual and shrinks to none where nothing was seen.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.learners.learner import Fitted, Learner
from fedperf_client.prediction.prediction import Floats

if TYPE_CHECKING:
    from fedperf_client.prediction.learners.gaussian_process import GaussianProcess


@dataclass(frozen=True, slots=True, eq=False)
class FittedProcess:
    """Samples -> log seconds, with the standard deviation of one execution beside.

    Attributes:
        process: of the residual, or of log seconds where there is no base.
        base: what the residual belongs to.
    """

    process: "GaussianProcess"
    base: Fitted | None = None

    def __call__(self, asked: Samples) -> Floats:
        """Mean log seconds, [questions]."""
        mean = self.process.mean(asked.features)
        return mean if self.base is None else mean + self.base(asked)

    def sd(self, asked: Samples) -> Floats:
        """Standard deviation of the log seconds of one execution, [questions]."""
        return self.process.sd(asked.features)


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A Gaussian process of log seconds on the features."""

    name: str = "local process"
    start: None = None
    fewest: int = 3
    most: int | None = None

    def fit(self, samples: Samples, log_seconds: Floats) -> FittedProcess:
        """Learn the process."""
        from fedperf_client.prediction.learners.gaussian_process import fit_process  # imports scipy

        return FittedProcess(fit_process(samples.features, log_seconds, samples.weights))


@dataclass(frozen=True, slots=True)
class ResidualProcess:
    """Another learner, and a Gaussian process of what it leaves; `AsIs` makes it a start's."""

    base: Learner
    fewest: int = 3
    most: int | None = None

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.base.name}+process"

    @property
    def start(self) -> str | None:
        """The start model of the base."""
        return self.base.start

    def fit(self, samples: Samples, log_seconds: Floats) -> FittedProcess:
        """Learn the base, then what it leaves."""
        from fedperf_client.prediction.learners.gaussian_process import fit_process  # imports scipy

        base = self.base.fit(samples, log_seconds)
        left = np.asarray(log_seconds - base(samples))
        return FittedProcess(fit_process(samples.features, left, samples.weights), base)
