"""The policy that a period began with, stored with its ledger. A later one applies from the next.

Only what the schedule follows from is kept; whether a kind leaves, a daemon reads when it starts
(`modes_in_force`).
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path

from fedperf_client.release.policy import (
    ConfigurationSecrecy,
    Policy,
    ReleaseMode,
)
from fedperf_shared.errors import StorageError
from fedperf_shared.releases.release import ReleaseKind, SizeClass

MODE_NAMES = {
    ReleaseKind.RESIDUAL_REPORT: "residual_report",
    ReleaseKind.MODEL_UPDATE: "model_update",
}
"""The mode of each kind of slots in the policy: what counts from the daemon's next start on."""


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A declaration that the policy makes otherwise than the one in force.

    Attributes:
        name: of the declaration.
        before: what is in force.
        after: what the policy says.
    """

    name: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.name} {_word(self.before)} -> {_word(self.after)}"

    @property
    def lets_out(self) -> str:
        """Describe what the change releases in addition; empty if the promise is as strong."""
        if self.name in ("epsilon", "delta"):
            is_weaker = _number(self.after) > _number(self.before)
            return _WEAKER[self.name] if is_weaker else ""
        return _WEAKER.get(str(self.after), "")


_WEAKER = {
    "epsilon": "all releases of a period together may tell more of a workload",
    "delta": "the promise may fail more often",
    str(ConfigurationSecrecy.PUBLIC): "numbers of workloads per cell leave without noise",
    str(SizeClass.LARGE): "model updates leave as well, within the same epsilon",
    str(ReleaseMode.AUTO): "its releases leave without being approved",
}


def frozen_part(policy: Policy) -> bytes:
    """Return the settings that determine a period's schedule, encoded for a file."""
    kept = {
        field.name: getattr(policy, field.name)
        for field in fields(policy)
        if field.name not in MODE_NAMES.values()
    }
    return json.dumps(kept, indent=1).encode()


def changes_since(path: Path, policy: Policy) -> tuple[PolicyChange, ...]:
    """Return how `policy` differs from the one in the file.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        begun = json.loads(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    now = json.loads(frozen_part(policy))
    return tuple(
        PolicyChange(name, begun.get(name), now[name])
        for name in now
        if begun.get(name) != now[name]
    )


def _word(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
