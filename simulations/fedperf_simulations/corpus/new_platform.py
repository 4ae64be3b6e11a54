"""Organizations that all run a platform which the public model has never seen.

Public: the measured set without that platform (the base model is trained on it), and plans
for the platform that nobody ran (anchors). Private: workloads that were measured on that
platform alone, dealt among the organizations by a seed; a workload that is public by
name is nobody's. Who is asked at the end belongs to no organization.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.workflow.features import Features, featurize
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.starts.pretraining import one_per_workload
from fedperf_simulations.corpus.training_set import measured_plans
from fedperf_simulations.data.datasets import measured_executions

Floats = NDArray[np.float64]

ANCHORS = 1500
"""Public plans for the new platform, without a run time."""


@dataclass(frozen=True, eq=False)
class MeasuredTimes:
    """Plans and what they took.

    Attributes:
        graphs: one per workload.
        log_seconds: float64 [workloads].
    """

    graphs: tuple[Features, ...]
    log_seconds: Floats

    def __len__(self) -> int:
        return len(self.graphs)

    def of(self, positions: NDArray[np.int64]) -> "MeasuredTimes":
        """The workloads at `positions`."""
        return MeasuredTimes(
            tuple(self.graphs[position] for position in positions), self.log_seconds[positions]
        )

    @cached_property
    def seconds(self) -> Floats:
        """Measured wall seconds, [workloads]."""
        return np.exp(self.log_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class NewPlatform:
    """The public plans, and the plans measured on the new platform."""

    public: MeasuredTimes
    anchors: tuple[PlanOnCluster, ...]
    private: MeasuredTimes

    @classmethod
    def load(cls, platform: Platform) -> "NewPlatform":
        """The plans from the measured sets that ship with the project.

        Raises:
            MissingDataError: there is no set of that platform.
        """
        name = platform.name.lower()
        known = one_per_workload(measured_executions())
        public = [each for each in known if platform not in each.plan.platforms]
        unrun = [each for each in known if set(each.plan.platforms) == {platform}]
        names = {each.workload for each in known}
        private = one_per_workload(
            each for each in measured_executions(name) if each.workload not in names
        )
        anchors = tuple(PlanOnCluster(each.plan, each.cluster) for each in unrun[:ANCHORS])
        return cls(_measured(public), anchors, _measured(private))

    def deal(self, organizations: int, workloads: int, *, seed: int) -> "NewPlatformSplit":
        """Give each organization its workloads by `seed`; the rest is asked about.

        Raises:
            ConfigurationError: there are not more workloads than the organizations get.
        """
        given = organizations * workloads
        if not given < len(self.private):
            raise ConfigurationError(
                f"{organizations} organizations with {workloads} workloads need more than "
                f"{given} measured ones, there are {len(self.private)}"
            )
        order = np.random.default_rng([seed, 0]).permutation(len(self.private))
        hands = np.split(order[:given], organizations)
        return NewPlatformSplit(
            tuple(self.private.of(hand) for hand in hands), self.private.of(order[given:])
        )


@dataclass(frozen=True, slots=True, eq=False)
class NewPlatformSplit:
    """The workloads of each organization, and those of nobody.

    Attributes:
        organizations: their workloads.
        asked: workloads of nobody, to judge by.
    """

    organizations: tuple[MeasuredTimes, ...]
    asked: MeasuredTimes


def _measured(executions: Iterable[Execution]) -> MeasuredTimes:
    plans = measured_plans(executions)
    return MeasuredTimes(
        tuple(featurize(each.plan, each.cluster) for each in plans),
        np.array([each.log_seconds for each in plans]),
    )
