"""Public measured plans that ship with fedperf.

They are the validation part of the project's measured set. The coordinator evaluates a model
version by its error on them, and synthetic rows contain their plans. No model is trained on their
run times. They also define the anchors of linearized rounds: these plans, and the same plans on
other platforms and in a small container. Anchors need no run times.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedperf_shared.errors import StorageError
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.wire.codec import decode_measured_plans, encode_measured_plans
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform

# Platforms on which each public plan is also evaluated.
ANCHOR_PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)

# An anchor's small container, as fractions of the machine that the public plan ran on.
CONTAINER_SPEED, CONTAINER_MEMORY = 1 / 2, 1 / 8

PUBLIC_PLANS_PATH = Path(__file__).with_name("public_plans.binpb")


def load_public_plans(path: Path = PUBLIC_PLANS_PATH) -> tuple[MeasuredPlan, ...]:
    """Return the shipped plans.

    Raises:
        StorageError: the file cannot be read.
        InvalidInputError: it is damaged.
    """
    try:
        return decode_measured_plans(path.read_bytes())
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror}); install again") from error


def anchors_of(plans: Sequence[MeasuredPlan]) -> tuple[PlanOnCluster, ...]:
    """Return each plan as it ran and on every one of `ANCHOR_PLATFORMS`, in the order of the plans.

    Every second anchor of a plan is in a small container, with platforms that alternate from plan
    to plan. All plans ran on one machine, so machines would not be distinguishable otherwise.
    """
    anchors = []
    for number, each in enumerate(plans):
        container = replace(
            each.cluster,
            machine_speed=CONTAINER_SPEED * each.cluster.machine_speed,
            memory_bytes=round(CONTAINER_MEMORY * each.cluster.memory_bytes),
        )
        others = (Plan.on_one_platform(each.plan.workflow, other) for other in ANCHOR_PLATFORMS)
        variants = [each.plan, *(other for other in others if other != each.plan)]
        for place, variant in enumerate(variants, number):
            anchors.append(PlanOnCluster(variant, container if place % 2 else each.cluster))
    return tuple(anchors)


def save_public_plans(plans: Sequence[MeasuredPlan], path: Path = PUBLIC_PLANS_PATH) -> None:
    """Write the plans after a new measurement of the project's set."""
    path.write_bytes(encode_measured_plans(tuple(plans)))
