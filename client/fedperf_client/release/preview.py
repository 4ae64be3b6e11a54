"""A preview of the release that a slot would let out, at no charge.

The sample is made by the slot's own mechanism from public data (invented jobs, or an empty window),
so it costs nothing. Size and schema are those of the real release, since they do not depend on
data. Nothing here can write the ledger. A schedule and a budget are enough, so a period can be
looked at before it has begun.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from fedperf_client.privacy.accountant import (
    PrivacyBudget,
    epsilon,
    events_of,
    replace_one_epsilon,
)
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.release.gate import Mechanism
from fedperf_client.release.ledger.errors import SlotNotPlannedError
from fedperf_shared.releases.basis import BASIS_VERSION, CELLS
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.linear_queries import QUESTION_DIRECTIONS, CellQuery, public_design
from fedperf_shared.releases.release import NoisySum, ReleaseKind, Schedule, Slot, SlotKey
from fedperf_shared.wire.codec import encode_release


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview of one slot before its noise is sampled.

    Attributes:
        slot: what it is, with its privacy parameters.
        opens_at: when its release is drawn.
        leaves_at: when it leaves.
        schema: names and shapes of what leaves.
        payload_bytes: size of what leaves, without signature.
        noise_stddev: of each number, in units of the most that one workload can send.
        epsilon: what this slot costs alone.
        replace_one_epsilon: the same when one workload is replaced.
        spent: epsilon of the period's charges until now.
        spent_after: epsilon with this slot as the next one.
        budget_epsilon: promised for the period.
        sample: the mechanism's result on public data.
    """

    slot: Slot
    opens_at: datetime
    leaves_at: datetime
    schema: tuple[str, ...]
    payload_bytes: int
    noise_stddev: float
    epsilon: float
    replace_one_epsilon: float
    spent: float
    spent_after: float
    budget_epsilon: float
    sample: NoisySum

    @property
    def marginal_epsilon(self) -> float:
        """Return the cost that this slot adds to the spent budget."""
        return self.spent_after - self.spent


def preview(
    schedule: Schedule,
    budget: PrivacyBudget,
    key: SlotKey,
    *,
    charged: Collection[SlotKey],
    make_public: Mechanism,
    noise: NoiseSource,
) -> Preview:
    """Show what the slot would release; charges nothing.

    Args:
        schedule: has the slot.
        budget: of the period.
        key: the slot.
        charged: slots that were charged until now.
        make_public: its mechanism over public data only.
        noise: for the sample.

    Raises:
        SlotNotPlannedError: the schedule does not have the slot.
    """
    slot = schedule.slot(key)
    if slot is None:
        raise SlotNotPlannedError(key)
    sample = make_public(slot, noise)
    before = [each for each in schedule.slots if each.key in charged]
    after = before if key in charged else [*before, slot]
    return Preview(
        slot=slot,
        opens_at=schedule.opens_at(key),
        leaves_at=schedule.replies_at(key),
        schema=_schema(slot, sample),
        payload_bytes=len(encode_release(sample)),
        noise_stddev=slot.parameters.noise_multiplier,
        epsilon=epsilon(events_of([slot]), budget.delta),
        replace_one_epsilon=replace_one_epsilon(events_of([slot]), budget.delta),
        spent=epsilon(events_of(before), budget.delta),
        spent_after=epsilon(events_of(after), budget.delta),
        budget_epsilon=budget.epsilon,
        sample=sample,
    )


def next_slots(
    schedule: Schedule, *, charged: Collection[SlotKey], at: datetime
) -> tuple[SlotKey, ...]:
    """The next slot of each kind that is not charged and has not passed; no extra ones.

    Slots of a removed kind are left out: they release nothing.
    """
    keys: dict[ReleaseKind, SlotKey] = {}
    for slot in sorted(schedule.slots, key=lambda slot: schedule.opens_at(slot.key)):
        is_free = slot.key not in charged and not schedule.is_extra(slot.key)
        if (
            is_free
            and not kind_of(slot.parameters).is_removed
            and at < schedule.replies_at(slot.key)
        ):
            keys.setdefault(slot.key.kind, slot.key)
    return tuple(keys.values())


def example_question(key: SlotKey) -> CellQuery:
    """A question as the coordinator's may be: one direction for each group of cells."""
    groups = np.arange(CELLS) * QUESTION_DIRECTIONS // CELLS
    directions = (np.arange(QUESTION_DIRECTIONS)[:, None] == groups).astype(np.float64)
    return CellQuery(
        slot=key,
        version=1,
        basis_version=BASIS_VERSION,
        reference_version=1,
        center=np.zeros(CELLS),
        design=public_design(directions, np.ones(CELLS)),
    )


def _schema(slot: Slot, release: NoisySum) -> tuple[str, ...]:
    exact = slot.parameters.exact_counts
    counts = (
        f"values: {exact} exact numbers of workloads per cell, WITHOUT NOISE: the policy "
        "declares configurations public"
    )
    return (
        f"slot, {kind_of(release).public}: public",
        *([counts] if exact else []),
        *release.noisy_parts(exact),
    )
