"""A share of a core and a bound on memory, as a container has: real, by control groups.

Children join a group of the kernel's before they become what they are, so everything that they do
counts, including their startup and their own child processes. The share is given out in slices of a
millisecond: a run of a few milliseconds feels it already.

Needs the controllers cpu and memory of Linux control groups v1, and rights to make groups;
v2 is not supported.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.vocabulary import Platform

CAPPED_WORKLOADS = 2_700
CAPPED_PLATFORMS = (Platform.DUCKDB, Platform.PANDAS)
"""Platforms of the capped set."""

CONTROL_GROUPS = Path("/sys/fs/cgroup")

_SLICE_MICROSECONDS = 1000
"""The shortest that the kernel allows."""

_JOIN = 'for group in {}; do echo $$ > "$group/cgroup.procs" || exit 1; done; exec "$@"'


@dataclass(frozen=True, slots=True)
class Cap:
    """The resources that all child processes get together.

    Attributes:
        cores: share of one core.
        memory_bytes: beyond that the kernel takes file cache back, then kills.
    """

    cores: float
    memory_bytes: int

    def __post_init__(self) -> None:
        if not 0.01 <= self.cores <= 1:  # noqa: PLR2004 (a slice of a tenth of a second)
            raise ConfigurationError(f"a CPU limit must be in [0.01, 1], got {self.cores!r}")
        if not self.memory_bytes >= 1 << 28:
            raise ConfigurationError(
                f"engines need 256 MiB at least, got a memory limit of {self.memory_bytes!r} bytes"
            )

    def of(self, cluster: ClusterConfig) -> ClusterConfig:
        """Return the cluster under this cap: a slower core, and less memory."""
        speed = cluster.machine_speed * self.cores
        return replace(cluster, machine_speed=speed, memory_bytes=self.memory_bytes)


@contextmanager
def joining(cap: Cap, command: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a command like `command`, whose process is under `cap`. The group goes at the end.

    Raises:
        ConfigurationError: there are no such control groups, or this process may not use them.
    """
    name = f"fedperf-{os.getpid()}"
    made: list[Path] = []
    try:
        for controller, values in _settings(cap).items():
            group = CONTROL_GROUPS / controller / name
            group.mkdir()
            made.append(group)
            for file, value in values.items():
                (group / file).write_text(str(value), encoding="ascii")
    except OSError as error:
        _remove(made)
        raise ConfigurationError(
            "a cap needs Linux control groups v1 (cpu and memory) and the right to make them, "
            f"such as root's: {error}"
        ) from error
    try:
        yield ("/bin/sh", "-c", _JOIN.format(" ".join(map(str, made))), "sh", *command)
    finally:
        _remove(made)


def _settings(cap: Cap) -> Mapping[str, Mapping[str, int]]:
    """Values by controller and file, in the order in which they can be set."""
    period = round(_SLICE_MICROSECONDS / cap.cores)
    return {
        "cpu": {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": _SLICE_MICROSECONDS},
        "memory": {"memory.limit_in_bytes": cap.memory_bytes},
    }


def _remove(groups: Sequence[Path]) -> None:
    for group in groups:
        with contextlib.suppress(OSError):  # a process that is just ending keeps it: it is empty
            group.rmdir()
