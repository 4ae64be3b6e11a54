"""A preview of the release that a slot would send, at no charge.

The sample is made by the slot's own mechanism from public data alone: synthetic jobs, predicted by
the pretrained model. Size and schema are those of the real release, since they do not depend on
data. Nothing here can write the ledger. A schedule and a budget are enough, so a period can be
previewed before it has begun.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from fedperf_client.contributions.local_sums import (
    LabelledGraph,
    linearized_sum,
    workload_residuals,
)
from fedperf_client.contributions.mechanisms import NoiseSource, noisy, report_sum
from fedperf_client.release.accountant import PrivacyBudget, epsilon, replace_one_epsilon, to_events
from fedperf_client.release.gate import Mechanism
from fedperf_client.release.ledger import SlotNotPlannedError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.model.architecture import weights_of
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.basis import (
    BASIS_VERSION,
    CELLS,
    PLATFORM_GROUPS,
    SIZE_BOUNDS,
    cell_of,
)
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.linear_queries import (
    DIRECTIONS,
    QUERY_DIRECTIONS,
    CellQuery,
    LinearizedQuery,
    public_design,
)
from fedperf_shared.releases.release import NoisySum, ReleaseKind, Schedule, Slot, SlotKey
from fedperf_shared.wire.codec import encode_release
from fedperf_shared.workflow.features import featurize
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

# Every synthetic job takes this many times the prediction of the pretrained model.
EXAMPLE_SLOWDOWN = 1.5

_COPIES = 10
_CLUSTER = ClusterConfig(nodes=1, cores=4, memory_bytes=16 << 30)
_KINDS = (OperatorKind.TABLE_SOURCE, OperatorKind.FILTER, OperatorKind.SINK)


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview of one slot before its noise is sampled."""

    slot: Slot  # with its privacy parameters
    schema: tuple[str, ...]  # names and shapes of the values that are sent
    payload_bytes: int  # size of the release, without signature
    epsilon: float  # the cost of this slot alone
    replace_one_epsilon: float  # the same when one workload is replaced
    spent: float  # epsilon of the period's charges until now
    spent_after: float  # epsilon with this slot as the next one
    sample: NoisySum  # the mechanism's result on public data


def preview(
    schedule: Schedule,
    budget: PrivacyBudget,
    key: SlotKey,
    *,
    charged: Collection[SlotKey],
    make_public: Mechanism,
    noise: NoiseSource,
) -> Preview:
    """Preview the slot's release and charge nothing.

    Args:
        schedule: has the slot.
        budget: of the period.
        key: the slot.
        charged: slots that were charged until now.
        make_public: its mechanism over public data only, such as `example_release`.
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
        schema=_schema(slot, sample),
        payload_bytes=len(encode_release(sample)),
        epsilon=epsilon(to_events([slot]), budget.delta),
        replace_one_epsilon=replace_one_epsilon(to_events([slot]), budget.delta),
        spent=epsilon(to_events(before), budget.delta),
        spent_after=epsilon(to_events(after), budget.delta),
        sample=sample,
    )


def next_slots(
    schedule: Schedule, *, charged: Collection[SlotKey], at: datetime
) -> tuple[SlotKey, ...]:
    """Return the next slot of each kind that is not charged and has not passed; no extra ones.

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


def example_release(slot: Slot, noise: NoiseSource) -> NoisySum:
    """Return the release of `slot` for an organization with only the synthetic jobs."""
    pretrained = load_pretrained_model()
    jobs = example_jobs(pretrained)
    kind, version = kind_of(slot.parameters), pretrained.model_version
    if kind.is_report:
        query = _example_cell_query(slot.key) if kind.has_query else None
        residuals = workload_residuals(GgfnArrays.of(pretrained), jobs)
        total = report_sum(slot, query)(_COPIES * residuals)
        version = version if query is None else query.version
    else:
        model = weights_of(pretrained.arrays)
        anchors = anchors_of(load_public_plans())[:DIRECTIONS]
        gradients = LinearizedQuery(1.0, np.eye(len(anchors), DIRECTIONS, dtype=np.float32))
        total = _COPIES * linearized_sum(model, jobs, gradients, anchors)
    return noisy(total, noise, slot, version=version)


def example_jobs(pretrained: Checkpoint) -> list[LabelledGraph]:
    """Return one job of one execution for each platform and input size of the public basis."""
    plans = [
        _example_plan(platform, rows)
        for platform in PLATFORM_GROUPS
        for rows in (1e3, *SIZE_BOUNDS)
    ]
    graphs = [featurize(plan, _CLUSTER) for plan in plans]
    measured = GgfnArrays.of(pretrained).log_seconds(graphs) + math.log(EXAMPLE_SLOWDOWN)
    jobs = zip(graphs, plans, measured.tolist(), strict=True)
    return [
        LabelledGraph(f"example {place}", graph, cell_of(plan).index, seconds)
        for place, (graph, plan, seconds) in enumerate(jobs)
    ]


def _example_plan(platform: Platform, rows: float) -> Plan:
    operators = tuple(
        Operator(
            kind,
            OperatorClass.RELATIONAL,
            (place - 1,) if place else (),
            output_rows=rows,
            row_bytes=32.0,
        )
        for place, kind in enumerate(_KINDS)
    )
    return Plan.on_one_platform(Workflow(operators, SourceStatistics(columns=4)), platform)


def _example_cell_query(key: SlotKey) -> CellQuery:
    """Return a query like the coordinator's: one direction for each group of cells."""
    groups = np.arange(CELLS) * QUERY_DIRECTIONS // CELLS
    directions = (np.arange(QUERY_DIRECTIONS)[:, None] == groups).astype(np.float64)
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
