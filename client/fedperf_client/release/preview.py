"""What a slot would let out, shown before it does, at no charge.

The sample is made by the slot's own mechanism from public data (an empty window, the
public start), so it costs nothing; size and schema are those of the real release, since
they do not depend on data.
"""

from dataclasses import dataclass
from datetime import datetime

from fedperf_client.privacy.accountant import epsilon, events_of, replace_one_epsilon
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.privacy.report_mechanism import residual_report
from fedperf_client.release.gate import MalformedReleaseError, Mechanism
from fedperf_client.release.ledger import PrivacyLedger, SlotNotPlannedError
from fedperf_shared.release import (
    Release,
    ReportParameters,
    ResidualReport,
    Slot,
    SlotKey,
    TrainingParameters,
)
from fedperf_shared.wire.codec import encode_release


@dataclass(frozen=True, slots=True)
class Preview:
    """One slot before it is drawn.

    Attributes:
        slot: what it is, with its privacy parameters.
        schema: names and shapes of what leaves.
        payload_bytes: size of what leaves, without signature.
        noise_stddev: of each number: in the report's own unit, or of the summed gradient.
        epsilon: what this slot costs alone; in a period it adds less.
        replace_one_epsilon: the same when one workload is replaced.
        spent: epsilon charged until now.
        spent_after: epsilon with this slot.
        budget_epsilon: promised for the period.
        sample: the mechanism's result on public data.
    """

    slot: Slot
    schema: tuple[str, ...]
    payload_bytes: int
    noise_stddev: float
    epsilon: float
    replace_one_epsilon: float
    spent: float
    spent_after: float
    budget_epsilon: float
    sample: Release


def preview(
    ledger: PrivacyLedger,
    key: SlotKey,
    *,
    make_public: Mechanism,
    noise: NoiseSource,
    at: datetime,
) -> Preview:
    """Show what the slot would release; charges nothing.

    Args:
        ledger: whose schedule has the slot.
        key: the slot.
        make_public: its mechanism over public data only, for reports `empty_report`.
        noise: for the sample.
        at: now.

    Raises:
        SlotNotPlannedError: the schedule does not have the slot.
    """
    slot = ledger.schedule.slot(key)
    if slot is None:
        raise SlotNotPlannedError(key)
    sample = make_public(slot, noise)
    delta = ledger.budget.delta
    charged = {entry.key for entry in ledger.entries() if entry.reserved_at <= at}
    after = [each for each in ledger.schedule.slots if each.key in charged | {key}]
    return Preview(
        slot=slot,
        schema=_schema(sample),
        payload_bytes=len(encode_release(sample)),
        noise_stddev=_noise_stddev(slot.parameters),
        epsilon=epsilon(events_of([slot]), delta),
        replace_one_epsilon=replace_one_epsilon(events_of([slot]), delta),
        spent=ledger.spent(at),
        spent_after=epsilon(events_of(after), delta),
        budget_epsilon=ledger.budget.epsilon,
        sample=sample,
    )


def empty_report(slot: Slot, noise: NoiseSource) -> Release:
    """The report of an empty window: noise alone.

    Raises:
        MalformedReleaseError: the slot is not a report's.
    """
    if not isinstance(slot.parameters, ReportParameters):
        raise MalformedReleaseError(f"{slot.key} is no report")
    return residual_report(
        (), noise, slot=slot.key, parameters=slot.parameters, reference_version=0
    )


def _schema(release: Release) -> tuple[str, ...]:
    if isinstance(release, ResidualReport):
        return (
            "slot, basis version, reference version, grid exponent: public",
            f"values: {len(release.values)} noisy integers",
        )
    return (
        "slot, architecture, base version: public",
        *(f"weights {tuple(array.shape)}: float32, noisy" for array in release.arrays),
    )


def _noise_stddev(parameters: ReportParameters | TrainingParameters) -> float:
    if isinstance(parameters, ReportParameters):
        return parameters.noise_multiplier
    return parameters.noise_multiplier * parameters.clip_norm
