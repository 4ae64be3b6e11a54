"""Constraints of advice, parsed from the command line: platforms, pins, memory, warm platforms.

`optimizer.costs` applies them. Without an option on memory, a platform that cannot spill to disk
gets the memory of one node.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fedperf_engines.optimizer.costs import (
    MEMORY_FACTORS,
    MEMORY_IN_OBJECTS,
    MEMORY_WHERE_SPILLED,
)
from fedperf_engines.platforms.engine import ENGINES, installed_platforms
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, KnownJob
from fedperf_shared.runtime.quantities import size_text
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, Platform, platform_of

_UNITS = {
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_MEMORY = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})")

# Of platforms that are not installed by their own name.
_HOW_TO_INSTALL = {
    Platform.SPARK: "pip install 'fedperf[spark]' and Java 17",
    Platform.SKLEARN: "pip install scikit-learn scipy",
}


@dataclass(frozen=True, slots=True)
class PlanConstraints:
    """The constraints that every plan meets."""

    platforms: tuple[Platform, ...]  # to choose from
    # Operators, by position, that stay on a platform.
    pinned: Mapping[int, Platform] = field(default_factory=dict)
    # Bytes that an operator may use at once on a platform.
    memory: Mapping[Platform, float] = field(default_factory=dict)
    # The same, on platforms without an entry; None for the memory of a node on those that cannot
    # spill.
    memory_of_others: float | None = None
    warm: frozenset[Platform] = frozenset()  # platforms that are running already

    def memory_caps(self, cluster: ClusterConfig) -> dict[Platform, float]:
        """Return bytes per platform, of those that have a cap on `cluster`."""
        caps: dict[Platform, float] = {}
        for platform in self.platforms:
            if self.memory_of_others is not None:
                caps[platform] = self.memory_of_others
            elif MEMORY_FACTORS.get(platform, MEMORY_IN_OBJECTS) > MEMORY_WHERE_SPILLED:
                caps[platform] = cluster.memory_bytes / cluster.nodes
        return caps | dict(self.memory)


def candidate_platforms(
    named: Sequence[Platform] | None, pinned: Collection[Platform], at_home: Collection[Platform]
) -> tuple[Platform, ...]:
    """Return the platforms to choose from.

    Args:
        named: those that were wished for; None for all there are.
        pinned: those that operators are to stay on.
        at_home: those that are there without being installed on this machine.

    Raises:
        InvalidInputError: one that was named is not there.
    """
    installed = installed_platforms()
    here = [each for each in NAMED_PLATFORMS if each in installed or each in at_home]
    for platform in (*(named or ()), *pinned):
        if platform not in here:
            name = platform.name.lower()
            why = f": {_HOW_TO_INSTALL.get(platform, f'pip install {name}')}"
            if platform not in ENGINES:
                why = ", and no local execution ran on it"
            raise InvalidInputError(f"{name} is not installed{why}")
    return tuple(here if named is None else dict.fromkeys(named))


def platforms_without_rows(
    job: KnownJob | None, today: Plan, pinned: Collection[Platform]
) -> tuple[Platform, ...] | None:
    """Return the platforms to choose from where rows are unknown; None where they are known."""
    if job is None or job.has_rows:
        return None
    platforms = dict.fromkeys((*today.platforms, *pinned))
    return tuple(each for each in platforms if each in NAMED_PLATFORMS) or None


def parse_platforms(text: str) -> tuple[Platform, ...]:
    """Parse platforms from words like `duckdb,polars`.

    Raises:
        InvalidInputError: an unknown word.
    """
    return tuple(platform_of(word.strip()) for word in text.split(","))


def parse_pins(texts: Sequence[str], workflow: Workflow) -> dict[int, Platform]:
    """Parse pinned operators from words like `3=spark` or `join=spark`.

    Raises:
        InvalidInputError: not such words, a kind that no operator has, or several, or an
            unknown platform.
    """
    pins: dict[int, Platform] = {}
    for text in texts:
        operator, equals, platform = text.partition("=")
        if not (operator and equals and platform):
            raise InvalidInputError(f"--pin is like 3=spark or join=spark, got {text!r}")
        position, stays = _position(operator.strip(), workflow), platform_of(platform.strip())
        if pins.setdefault(position, stays) is not stays:
            raise InvalidInputError(f"operator {position} cannot stay on two platforms")
    return pins


def parse_memory(texts: Sequence[str]) -> tuple[dict[Platform, float], float | None]:
    """Parse caps by platform, and of all others, from words like `pandas=4GB` or `8GB`.

    Raises:
        InvalidInputError: not such words, or an unknown platform.
    """
    caps: dict[Platform, float] = {}
    others: float | None = None
    for text in texts:
        platform, equals, size = text.rpartition("=")
        match = _MEMORY.fullmatch(size.strip())
        if match is None or bool(equals) is not bool(platform):
            raise InvalidInputError(f"--memory is like 8GB or pandas=4GB, got {text!r}")
        cap = float(match[1]) * _UNITS[match[2]]
        if platform:
            caps[platform_of(platform.strip())] = cap
        else:
            others = cap
    return caps, others


def require_measured(
    caps: Mapping[Platform, float], others: float | None, today: Plan, peak_bytes: int
) -> None:
    """Refuse a cap below what the job took on the one platform where it ran.

    Args:
        caps: bytes by platform, as they were named.
        others: the cap of all others; None without one.
        today: the plan that ran.
        peak_bytes: that it took; 0 if not measured.

    Raises:
        InvalidInputError: a cap is lower.
    """
    platform, *more = set(today.platforms)
    cap = caps.get(platform, others)
    if cap is not None and not more and cap < peak_bytes:
        raise InvalidInputError(
            f"--memory {size_text(cap)} for {platform.name.lower()} is less than the "
            f"{size_text(peak_bytes)} that this execution took there; "
            "name at least as much, or no cap"
        )


def _position(text: str, workflow: Workflow) -> int:
    """Return the operator of that number, or the only one of that kind."""
    if text.isascii() and text.isdigit():
        return int(text)
    kinds = [each.kind.name.lower() for each in workflow.operators]
    places = [place for place, kind in enumerate(kinds) if kind == text.lower()]
    if len(places) == 1:
        return places[0]
    if places:
        numbers = ", ".join(map(str, places))
        raise InvalidInputError(f"several operators are {text} ({numbers}): pin one by number")
    raise InvalidInputError(f"no operator is {text!r}; there are {', '.join(dict.fromkeys(kinds))}")
