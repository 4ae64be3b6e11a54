"""The release modes in force, and from when a changed policy counts.

A daemon reads the modes when it starts and when a period begins, and keeps them in the home for
other commands. Where no daemon runs, the policy's own are those of its next start. Everything else
of a policy is fixed with the period's schedule, and the lifetime budget with the first period.
"""

import json
from dataclasses import dataclass, replace

from fedperf_client.home.config import Home, write_private
from fedperf_client.release.active_policy import MODE_NAMES, PolicyChange, changes_since
from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_shared.errors import StorageError
from fedperf_shared.releases.release import Schedule
from fedperf_shared.runtime.process import is_locked
from fedperf_shared.runtime.quantities import day


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change of the policy that is not in force, and from when it counts in words."""

    change: PolicyChange
    counts: str

    def __str__(self) -> str:
        return f"{self.change} counts {self.counts}"

    @property
    def is_of_mode(self) -> bool:
        """Whether it is about what the daemon reads when it starts."""
        return self.change.name in MODE_NAMES.values()


def keep_modes(home: Home, policy: Policy) -> None:
    """Keep what the daemon that runs has read."""
    write_private(home.modes, json.dumps(_modes(policy)).encode())


def policy_in_force(home: Home, policy: Policy) -> Policy:
    """`policy`, with the modes that the running daemon has read; as it is where none runs.

    Raises:
        StorageError: what was kept cannot be read.
    """
    if not is_locked(home.lock):
        return policy
    try:
        kept = json.loads(home.modes.read_bytes())
        residual_report, model_update = (ReleaseMode(kept[name]) for name in MODE_NAMES.values())
    except FileNotFoundError:  # it is about to start
        return policy
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{home.modes}: cannot be read: {error}") from error
    return replace(policy, residual_report=residual_report, model_update=model_update)


def planned_modes(policy: Policy, schedule: Schedule) -> dict[str, str]:
    """The mode of each kind of slots that the schedule has."""
    planned = {slot.key.kind for slot in schedule.slots}
    return {name: str(policy.mode(kind)) for kind, name in MODE_NAMES.items() if kind in planned}


def modes_in_words(policy: Policy, schedule: Schedule) -> str:
    """Return one line for people."""
    said = ", ".join(f"{name} {mode}" for name, mode in planned_modes(policy, schedule).items())
    return f"release modes in force: {said or 'none, as nothing is planned'}"


def pending_changes(home: Home, policy: Policy, schedule: Schedule) -> tuple[PendingChange, ...]:
    """Return how `policy` differs from the modes in effect in the period of `schedule`.

    Raises:
        StorageError: what was kept of the policy cannot be read.
    """
    period = schedule.calendar.period
    next_period = f"from {day(period.end)} on, with the next period"
    frozen = tuple(
        PendingChange(change, _NEVER if change.name == "lifetime_epsilon" else next_period)
        for change in changes_since(home.begun_policy(period.start), policy)
    )
    planned = {slot.key.kind for slot in schedule.slots}
    in_force, declared = _modes(policy_in_force(home, policy)), _modes(policy)
    modes = tuple(
        PendingChange(
            PolicyChange(name, in_force[name], declared[name]),
            "from the daemon's next start on"
            if kind in planned
            else f"{next_period}; this one plans none of the kind",
        )
        for kind, name in MODE_NAMES.items()
        if in_force[name] != declared[name]
    )
    return modes + frozen


_NEVER = "never: the lifetime budget was fixed when the first period began"


def _modes(policy: Policy) -> dict[str, str]:
    return {name: str(policy.mode(kind)) for kind, name in MODE_NAMES.items()}
