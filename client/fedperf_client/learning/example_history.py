"""Synthetic jobs from which previews compute their samples.

Constants of the code and the public start alone; nothing of an organization's history.
Only previews need this.
"""

import math

import numpy as np

from fedperf_client.learning.residuals import LabelledGraph, workload_residuals
from fedperf_client.privacy.mechanisms import noisy, sum_of
from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.release.preview import example_question
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.model.checkpoint import Checkpoint, model_from_arrays
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.basis import PLATFORM_GROUPS, SIZE_BOUNDS, cell_of
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.linear_queries import DIRECTIONS, LinearizedQuery
from fedperf_shared.releases.release import NoisySum, Slot
from fedperf_shared.workflow.features import featurize
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

EXAMPLE_SLOWDOWN = 1.5
"""Every invented job takes this many times what the public start predicts."""

_COPIES = 10
_CLUSTER = ClusterConfig(nodes=1, cores=4, memory_bytes=16 << 30)
_KINDS = (OperatorKind.TABLE_SOURCE, OperatorKind.FILTER, OperatorKind.SINK)


def example_release(slot: Slot, noise: NoiseSource) -> NoisySum:
    """Return what `slot` would release for an organization with only the example history."""
    start = load_pretrained_model()
    jobs = example_jobs(start)
    kind, version = kind_of(slot.parameters), start.model_version
    if kind.is_report:
        question = example_question(slot.key) if kind.has_question else None
        total = sum_of(slot, question)(_COPIES * workload_residuals(GgfnArrays.of(start), jobs))
        version = version if question is None else question.version
    else:
        from fedperf_client.learning.linearized_contribution import tangent_sum  # needs torch

        model = model_from_arrays(start.arrays)
        anchors = anchors_of(load_public_plans())[:DIRECTIONS]
        total = _COPIES * tangent_sum(model, jobs, example_tangent_question(len(anchors)), anchors)
    return noisy(total, noise, slot, version=version)


def example_tangent_question(anchors: int) -> LinearizedQuery:
    """One direction for each of the anchors: the gradient there."""
    return LinearizedQuery(1.0, np.eye(anchors, DIRECTIONS, dtype=np.float32))


def example_jobs(start: Checkpoint) -> list[LabelledGraph]:
    """One of one execution for each platform and input size of the public basis."""
    plans = [_plan(platform, rows) for platform in PLATFORM_GROUPS for rows in (1e3, *SIZE_BOUNDS)]
    graphs = [featurize(plan, _CLUSTER) for plan in plans]
    measured = GgfnArrays.of(start).log_seconds(graphs) + math.log(EXAMPLE_SLOWDOWN)
    jobs = zip(graphs, plans, measured.tolist(), strict=True)
    return [
        LabelledGraph(f"example {place}", graph, cell_of(plan).index, seconds)
        for place, (graph, plan, seconds) in enumerate(jobs)
    ]


def _plan(platform: Platform, rows: float) -> Plan:
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
