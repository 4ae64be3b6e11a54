"""Sizes of a cluster: which ones come into question, and which one is the right one.

Cores are counted over all nodes, as everywhere. A node more brings its memory, and its cores
where none are named. With a deadline the right size keeps it at the fewest core-seconds
(cores x run time, what a cloud bills); without one it is the fastest, or a cheaper one that
is at most `WORTH` slower.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from fedperf_client.optimizer.enumeration import Choice
from fedperf_client.prediction.asking import HOLDS
from fedperf_client.prediction.intervals import Estimate
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig

MOST_SIZES = 32

WORTH = 0.10
"""Slower by so much is no reason to pay for more."""


class InvalidSizesError(InvalidInputError):
    """Numbers of cores and nodes that no cluster, or too many, can have."""


@dataclass(frozen=True, slots=True)
class Sized:
    """The best plan on one size of cluster.

    Attributes:
        cluster: the size.
        choice: what runs where there.
        estimate: how long, on platforms that are warm.
        deadline_seconds: that is to be kept; None without one.
    """

    cluster: ClusterConfig
    choice: Choice
    estimate: Estimate
    deadline_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """Median and start-up."""
        return self.choice.seconds

    @property
    def core_seconds(self) -> float:
        """What it costs: all cores for all the time."""
        return self.cluster.cores * self.seconds

    @property
    def chance(self) -> float | None:
        """To be done within the deadline, start-up included; None without one."""
        if self.deadline_seconds is None:
            return None
        left = self.deadline_seconds - self.choice.startup_seconds
        return self.estimate.chance_within(left) if left > 0 else 0.0

    @property
    def holds(self) -> bool | None:
        """Whether the deadline is kept with a chance of 90 %; None without one."""
        return None if self.chance is None else self.chance >= HOLDS


def sizes_of(
    cluster: ClusterConfig, cores: Sequence[int] | None, nodes: Sequence[int] | None
) -> list[ClusterConfig]:
    """The sizes that come into question, small ones first.

    Args:
        cluster: what there is; without numbers its powers of two, in nodes where it has
            several, else in cores.
        cores: over all nodes.
        nodes: each with the memory of a node of `cluster`, and with its cores without `cores`.

    Raises:
        InvalidSizesError: more than `MOST_SIZES`, or less than a core for every node.
    """
    if cores is None and nodes is None:
        if cluster.nodes == 1:
            cores = _powers_of_two(cluster.cores)
        else:
            nodes = _powers_of_two(cluster.nodes)
    per_node = max(1, cluster.cores // cluster.nodes)
    pairs = [
        pair
        for many in nodes or [cluster.nodes]
        for pair in product([many], [per_node * many] if cores is None else cores)
    ]
    found = [_resized(cluster, many, count) for many, count in pairs if count >= many]
    if not found:
        raise InvalidSizesError(f"every node needs a core: {min(pairs)[0]} nodes and fewer cores")
    if len(found) > MOST_SIZES:
        raise InvalidSizesError(f"{len(found)} sizes are too many to compare, at most {MOST_SIZES}")
    return sorted(found, key=lambda each: (each.cores, each.nodes))


def best_size(sizes: Sequence[Sized]) -> Sized | None:
    """The right one, see the module; None where none keeps the deadline."""
    if all(each.holds is None for each in sizes):
        fastest = min(each.seconds for each in sizes)
        able = [each for each in sizes if each.seconds <= (1 + WORTH) * fastest]
    else:
        able = [each for each in sizes if each.holds]
    return min(able, key=lambda each: (each.core_seconds, each.seconds), default=None)


def _resized(cluster: ClusterConfig, nodes: int, cores: int) -> ClusterConfig:
    memory = cluster.memory_bytes * nodes // cluster.nodes
    return replace(cluster, nodes=nodes, cores=cores, memory_bytes=max(1, memory))


def _powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return sorted({most, *(1 << power for power in range(most.bit_length()))})
