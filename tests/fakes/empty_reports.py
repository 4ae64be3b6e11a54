"""The report of a window without executions, made without a store."""

from fedperf_client.contributions.mechanisms import NoiseSource, noise_alone
from fedperf_client.release.gate import MalformedReleaseError
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.release import NoisySum, Slot


def empty_report(slot: Slot, noise: NoiseSource) -> NoisySum:
    """Return noise alone. Raises MalformedReleaseError if the slot is not a report's slot."""
    kind = kind_of(slot.parameters)
    if not kind.is_report:
        raise MalformedReleaseError(f"{slot.key} is no report")
    return noise_alone(noise, slot, version=int(kind.has_query))
