"""The policy of an organization: its budget, its size and which kinds of releases may leave.

People declare everything here, and the schedule shows it; nothing is derived from data.
`load_policy` reports every problem of a file at once, each with its key and the allowed values. It
refuses unknown keys: a mistyped limit must not fall back to a default. A budget of 0, or none at
all, is refused and never read as "no noise".

A changed policy is not in effect at once. A period's schedule follows from the policy that it began
with. These settings are stored with its ledger, and a later policy applies from the next period.
A daemon reads whether a kind leaves when it starts and when a period begins. It stores these
release modes in the data directory for other commands. Where no daemon runs, the policy's own modes
are those of its next start. The lifetime budget is fixed with the first period.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum, unique
from pathlib import Path

from fedperf_client.home.config import Home, write_private
from fedperf_client.release.accountant import (
    MAX_EPSILON,
    PERIODS_OF_A_LIFETIME,
    PrivacyBudget,
)
from fedperf_shared.errors import ConfigurationError, StorageError
from fedperf_shared.releases.release import DECLARABLE, ReleaseKind, Schedule, SizeClass
from fedperf_shared.runtime.process import is_locked
from fedperf_shared.runtime.quantities import day
from fedperf_shared.runtime.settings_file import (
    WrongSettingsError,
    read_settings,
    unknown_key,
)

DEFAULT_EPSILON = 1.0
DEFAULT_DELTA = 1e-5


@unique
class ReleaseMode(StrEnum):
    """Whether releases of a kind leave; with `ASK` only those that are approved in time."""

    AUTO = "auto"
    ASK = "ask"
    NEVER = "never"


@unique
class ConfigurationSecrecy(StrEnum):
    """Whether the configurations that ran are a secret; their run times always are."""

    PRIVATE = "private"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The releases that an organization allows in a period."""

    size_class: SizeClass  # small: reports only; large: model updates as well
    # About how many workloads a period holds, and the history that a first report is about;
    # declared, not counted.
    nominal_workloads: float
    # About how many of them run in each window, declared as well; None if each runs in one window
    # only. Where they recur, every report is about more of them, so that more reports are worth
    # their noise; what they cost stays the same.
    workloads_per_window: float | None = None
    epsilon: float = DEFAULT_EPSILON  # the budget of all releases of a period together
    delta: float = DEFAULT_DELTA  # of the budget; below 1 / nominal_workloads
    # The budget of all periods together, at the same delta; None for the default of
    # `PrivacyBudget`. The value of the first period holds for good.
    lifetime_epsilon: float | None = None
    # Private, the default; public: exact numbers of workloads per cell leave with reports, without
    # noise, and only run times are protected.
    configurations: ConfigurationSecrecy = ConfigurationSecrecy.PRIVATE
    residual_report: ReleaseMode = ReleaseMode.AUTO  # whether reports leave
    model_update: ReleaseMode = ReleaseMode.AUTO  # whether model updates leave
    report_share: float = 0.5  # share of epsilon for reports where model updates leave as well
    # Bound on the log residual, in log seconds; a first stage is twice as wide, as far as that may
    # be declared.
    residual_clip: float = 1.5
    occupied_cells: int = 24  # about how many cells of the basis the workloads fall into

    def __post_init__(self) -> None:
        problems = [
            f"{_KEYS[field.name].key}: {problem}"
            for field in fields(self)
            if (problem := _KEYS[field.name].problem(getattr(self, field.name))) is not None
        ]
        if not problems and not self.delta * self.nominal_workloads < 1:
            problems.append(
                f"budget.delta: must be below 1 / nominal_workloads "
                f"({1 / self.nominal_workloads:.3g}), got {self.delta!r}"
            )
        per_window = self.workloads_per_window
        if not problems and per_window is not None and not per_window <= self.nominal_workloads:
            problems.append(
                f"workloads_per_window: must be at most nominal_workloads "
                f"({self.nominal_workloads:g}), got {per_window!r}"
            )
        if not problems and not self.lifetime.epsilon >= self.epsilon:
            problems.append(
                f"budget.lifetime_epsilon: must be at least budget.epsilon ({self.epsilon:g}), "
                f"got {self.lifetime_epsilon!r}"
            )
        if problems:
            raise ConfigurationError("policy: " + "; ".join(problems))

    @property
    def budget(self) -> PrivacyBudget:
        """Return the budget of the period."""
        return PrivacyBudget(self.epsilon, self.delta)

    @property
    def lifetime(self) -> PrivacyBudget:
        """Return the budget of all periods together."""
        if self.lifetime_epsilon is None:
            return self.budget.default_lifetime
        return PrivacyBudget(self.lifetime_epsilon, self.delta)

    def mode(self, kind: ReleaseKind) -> ReleaseMode:
        """Return whether releases of `kind` leave."""
        return self.residual_report if kind is ReleaseKind.RESIDUAL_REPORT else self.model_update


def policy_template(size_class: SizeClass, nominal_workloads: int) -> str:
    """Return a policy file with the defaults, for people to read and change."""
    return f"""\
# What may leave this organization. A period's schedule is fixed when the period begins;
# later changes count from the next one. The unit of privacy is the workload: one shape of
# query, or one place in the code, of one application, one shape of DuckDB query, or one
# campaign, with all its executions. A job with ten shapes of queries is ten workloads.

size_class = "{size_class}"  # large: model updates too, from about 2,000 workloads on
nominal_workloads = {nominal_workloads}  # about how many run in a period; declared, not counted
# The first report is about the history that is there when you join: about as many, it is assumed.
# About how many of them run in each window. Without the key each runs in one window only; where
# they recur, reports leave more often with it, at the same epsilon.
# workloads_per_window = {nominal_workloads}

# "public": how many workloads run, on which platform, with which kind of operators and how
# large an input, is no secret: these numbers leave WITHOUT NOISE, only run times are protected.
configurations = "private"

[budget]  # of all releases of a period together
epsilon = {DEFAULT_EPSILON}
delta = {DEFAULT_DELTA}
# Of all periods together, at the same delta; fixed when the first period begins. Without
# the key it is {PERIODS_OF_A_LIFETIME} times epsilon.
# lifetime_epsilon = {PERIODS_OF_A_LIFETIME * DEFAULT_EPSILON}

[release]  # read when the daemon starts
# "auto": leaves when its slot is due. "ask": leaves if approved (fedperf release approve)
# before that; an undecided slot is charged and drawn when it opens, and stays here without
# a refund if nobody approves it. "never": does not leave.
residual_report = "auto"
model_update = "auto"
"""


def load_policy(path: Path) -> Policy:
    """Read a policy from a TOML file.

    Raises:
        ConfigurationError: the file cannot be read or is not TOML, or with every key that
            is missing, unknown or wrong.
    """
    return parse_policy(read_settings(path, name=f"policy {path}"), str(path))


def parse_policy(content: Mapping[str, object], origin: str) -> Policy:
    """Return the policy in parsed TOML; `origin` names it in errors.

    Raises:
        ConfigurationError: with every key that is missing, unknown or wrong.
    """
    settings = {k: each for k, each in _flatten(content).items() if k not in _REMOVED_KEYS}
    by_key = {rule.key: name for name, rule in _KEYS.items()}
    problems = [f"{key}: {unknown_key(key, by_key)}" for key in settings.keys() - by_key]
    problems += [
        f"{_KEYS[name].key}: missing, must be {_KEYS[name].allowed}"
        for name in ("size_class", "nominal_workloads", "epsilon")
        if _KEYS[name].key not in settings
    ]
    values: dict[str, object] = {}
    for key, value in settings.items():
        if key not in by_key:
            continue
        name = by_key[key]
        problem = _KEYS[name].problem(value)
        if problem is not None:
            problems.append(f"{key}: {problem}")
        kind: Callable[[object], object] = _KEYS[name].kind
        values[name] = value if problem or value is None else kind(value)
    if problems:
        raise WrongSettingsError(f"policy {origin}", sorted(problems))
    try:
        return Policy(**values)  # type: ignore[arg-type]
    except ConfigurationError as error:
        raise ConfigurationError(f"policy {origin}: {error}") from error


_MODE_NAMES = {
    ReleaseKind.RESIDUAL_REPORT: "residual_report",
    ReleaseKind.MODEL_UPDATE: "model_update",
}
_NEVER = "never: the lifetime budget was fixed when the first period began"
_WEAKER: Mapping[str, str] = {
    "epsilon": "all releases of a period together may tell more of a workload",
    "delta": "the promise may fail more often",
    ConfigurationSecrecy.PUBLIC: "numbers of workloads per cell leave without noise",
    SizeClass.LARGE: "model updates leave as well, within the same epsilon",
    ReleaseMode.AUTO: "its releases leave without being approved",
}


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A setting of the policy that differs from the one in effect.

    `counts` describes from when the value `after` of the policy counts, for people.
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
        """Return whether the daemon reads the setting when it starts."""
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


@dataclass(frozen=True, slots=True)
class _Rule:
    """A key of the file with its allowed values: members of an enumeration, or bounded numbers."""

    key: str
    kind: type[StrEnum | int | float]
    low: float = 0.0
    high: float = 0.0
    low_included: bool = False
    optional: bool = False

    @property
    def allowed(self) -> str:
        if issubclass(self.kind, StrEnum):
            return " or ".join(f'"{each}"' for each in self.kind)
        if self.kind is int:
            return f"a whole number from {self.low:g} to {self.high:g}"
        lower = f"{'at least' if self.low_included else 'above'} {self.low:g}"
        return f"a number {lower} and at most {self.high:g}"

    def problem(self, value: object) -> str | None:
        if value is None and self.optional:
            return None
        if issubclass(self.kind, StrEnum):
            is_allowed = value in list(self.kind)
        else:
            is_allowed = (
                isinstance(value, int if self.kind is int else int | float)
                and not isinstance(value, bool)
                and (self.low <= value if self.low_included else self.low < value)
                and value <= self.high
                and math.isfinite(value)
            )
        return None if is_allowed else f"must be {self.allowed}, got {value!r}"


def _declared(name: str, key: str = "", *, optional: bool = False) -> _Rule:
    """Return the rule of a number that becomes the parameter `name` of slots."""
    bounds = DECLARABLE[name]
    low, high = bounds.least, bounds.most
    return _Rule(key or name, float, low, high, low_included=True, optional=optional)


_KEYS: dict[str, _Rule] = {
    "size_class": _Rule("size_class", SizeClass),
    "nominal_workloads": _declared("nominal_workloads"),
    "workloads_per_window": _declared("nominal_workloads", "workloads_per_window", optional=True),
    "epsilon": _Rule("budget.epsilon", float, 0, MAX_EPSILON),
    "delta": _Rule("budget.delta", float, 0, 0.1),
    "lifetime_epsilon": _Rule("budget.lifetime_epsilon", float, 0, MAX_EPSILON, optional=True),
    "configurations": _Rule("configurations", ConfigurationSecrecy),
    "residual_report": _Rule("release.residual_report", ReleaseMode),
    "model_update": _Rule("release.model_update", ReleaseMode),
    "report_share": _Rule("report.share", float, 0, 1, low_included=True),
    "residual_clip": _declared("residual_clip", "report.residual_clip"),
    "occupied_cells": _Rule("report.occupied_cells", int, 1, 10_000, low_included=True),
}

# Keys for DP-SGD that a policy may still have; they have no effect.
_REMOVED_KEYS = frozenset({"training.clip_norm", "training.sampling_probability", "training.steps"})


def _flatten(content: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


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
