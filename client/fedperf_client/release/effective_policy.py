"""The policy in effect, and from when a changed policy counts.

A period's schedule follows from the policy that it began with. These settings are stored with its
ledger, and a later policy applies from the next period. Whether a kind leaves, a daemon reads when
it starts and when a period begins. It stores these release modes in the data directory for other
commands. Where no daemon runs, the policy's own modes are those of its next start. The lifetime
budget is fixed with the first period.
"""

import json
from dataclasses import dataclass, fields, replace

from fedperf_client.home.config import Home, write_private
from fedperf_client.release.policy import ConfigurationSecrecy, Policy, ReleaseMode
from fedperf_shared.errors import StorageError
from fedperf_shared.releases.release import ReleaseKind, Schedule, SizeClass
from fedperf_shared.runtime.process import is_locked
from fedperf_shared.runtime.quantities import day

_MODE_NAMES = {
    ReleaseKind.RESIDUAL_REPORT: "residual_report",
    ReleaseKind.MODEL_UPDATE: "model_update",
}
_NEVER = "never: the lifetime budget was fixed when the first period began"
_WEAKER = {
    "epsilon": "all releases of a period together may tell more of a workload",
    "delta": "the promise may fail more often",
    str(ConfigurationSecrecy.PUBLIC): "numbers of workloads per cell leave without noise",
    str(SizeClass.LARGE): "model updates leave as well, within the same epsilon",
    str(ReleaseMode.AUTO): "its releases leave without being approved",
}


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A setting of the policy that differs from the one in effect.

    Attributes:
        name: of the setting.
        before: the value in effect.
        after: the value in the policy.
        counts: from when the new value counts, for people.
    """

    name: str
    before: object
    after: object
    counts: str

    def __str__(self) -> str:
        return f"{self.change} counts {self.counts}"

    @property
    def change(self) -> str:
        """Describe the change itself."""
        return f"{self.name} {_format(self.before)} -> {_format(self.after)}"

    @property
    def is_of_mode(self) -> bool:
        """Whether the daemon reads the setting when it starts."""
        return self.name in _MODE_NAMES.values()

    @property
    def lets_out(self) -> str:
        """Describe what the change releases in addition; empty if the promise is as strong."""
        if self.name in ("epsilon", "delta"):
            return _WEAKER[self.name] if _to_number(self.after) > _to_number(self.before) else ""
        return _WEAKER.get(str(self.after), "")


def store_settings(home: Home, policy: Policy, schedule: Schedule) -> None:
    """Store the settings that the schedule of a new period follows from."""
    settings = json.dumps(_schedule_settings(policy), indent=1).encode()
    write_private(home.begun_policy(schedule.calendar.period.start), settings)


def store_modes(home: Home, policy: Policy) -> None:
    """Store the modes that the running daemon has read."""
    write_private(home.modes, json.dumps(_modes(policy)).encode())


def effective_policy(home: Home, policy: Policy) -> Policy:
    """Return `policy` with the modes that the running daemon has read; unchanged if none runs.

    Raises:
        StorageError: the stored modes cannot be read.
    """
    if not is_locked(home.lock):
        return policy
    try:
        stored = json.loads(home.modes.read_bytes())
        modes = {name: ReleaseMode(stored[name]) for name in _MODE_NAMES.values()}
    except FileNotFoundError:  # it is about to start
        return policy
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{home.modes}: cannot be read: {error}") from error
    return replace(policy, **modes)  # type: ignore[arg-type]


def planned_modes(policy: Policy, schedule: Schedule) -> dict[str, str]:
    """Return the mode of each kind of slots that the schedule has."""
    planned = {_MODE_NAMES[slot.key.kind] for slot in schedule.slots}
    return {name: mode for name, mode in _modes(policy).items() if name in planned}


def format_modes(policy: Policy, schedule: Schedule) -> str:
    """Return one line for people."""
    modes = ", ".join(f"{name} {mode}" for name, mode in planned_modes(policy, schedule).items())
    return f"release modes in force: {modes or 'none, as nothing is planned'}"


def pending_changes(home: Home, policy: Policy, schedule: Schedule) -> tuple[PendingChange, ...]:
    """Return how `policy` differs from what is in effect in the period of `schedule`.

    Raises:
        StorageError: stored settings or modes cannot be read.
    """
    period = schedule.calendar.period
    next_period = f"from {day(period.end)} on, with the next period"
    effective, declared = _modes(effective_policy(home, policy)), _modes(policy)
    planned = planned_modes(policy, schedule)
    modes = [
        PendingChange(
            name,
            effective[name],
            mode,
            "from the daemon's next start on"
            if name in planned
            else f"{next_period}; this one plans none of the kind",
        )
        for name, mode in declared.items()
        if effective[name] != mode
    ]
    path = home.begun_policy(period.start)
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        return tuple(modes)
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    settings = [
        PendingChange(
            name, stored.get(name), value, _NEVER if name == "lifetime_epsilon" else next_period
        )
        for name, value in _schedule_settings(policy).items()
        if stored.get(name) != value
    ]
    return (*modes, *settings)


def _schedule_settings(policy: Policy) -> dict[str, object]:
    names = [field.name for field in fields(policy) if field.name not in _MODE_NAMES.values()]
    return {name: getattr(policy, name) for name in names}


def _modes(policy: Policy) -> dict[str, str]:
    return {name: str(policy.mode(kind)) for kind, name in _MODE_NAMES.items()}


def _format(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _to_number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
