"""Public bounds on the parameters that an organization may declare for its slots.

A coordinator computes with what its members declared, so a number that is positive and finite is
not enough. A noise of 1e200 overflows, one of 1e-170 divides by nothing, and a clip of a million
log seconds lets one report outweigh everybody's. Policies keep to the same bounds
(`fedperf_client.release.policy`), so an honest organization never plans what is refused here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import MAX_STEPS, Schedule


@dataclass(frozen=True, slots=True)
class Bounds:
    """The interval from `least` to `most`, both included."""

    least: float
    most: float

    def hold(self, value: float) -> bool:
        """Whether `value` lies within them; NaN never does."""
        return self.least <= value <= self.most


MAX_RESIDUAL_CLIP = 10.0
"""Log seconds: a factor of 22,000; a model that is further off is no model of these workloads."""

DECLARABLE: Mapping[str, Bounds] = MappingProxyType(
    {
        # At the largest epsilon that a budget can have a single report's noise is 0.002.
        "noise_multiplier": Bounds(1e-3, 1e6),
        "residual_clip": Bounds(1e-2, MAX_RESIDUAL_CLIP),
        "nominal_workloads": Bounds(1.0, 1e7),
        "sampling_probability": Bounds(1e-6, 1.0),
        "steps": Bounds(1, MAX_STEPS),
        "clip_norm": Bounds(1e-6, 1e6),
    }
)
"""By the name of the parameter, in whatever kind of slot."""


class NotDeclarableError(ConfigurationError):
    """Raised for a slot parameter out of bounds; `rule` is the bound, without the value."""

    def __init__(self, name: str, value: float) -> None:
        bounds = DECLARABLE[name]
        self.rule = f"{name} must be {bounds.least:g} to {bounds.most:g}"
        super().__init__(f"{self.rule}, got {value!r}")
        self.name = name
        self.value = value


def require_declarable(schedule: Schedule) -> None:
    """Refuse a schedule that may not be declared.

    Raises:
        NotDeclarableError: with the first parameter that is out of its bounds.
    """
    for parameters in dict.fromkeys(slot.parameters for slot in schedule.slots):
        for field in fields(parameters):
            value = getattr(parameters, field.name)
            if field.name in DECLARABLE and not DECLARABLE[field.name].hold(value):
                raise NotDeclarableError(field.name, value)
