"""Tests of anchor plans: public plans on other platforms and machines."""

from collections import Counter

from fedperf_shared.execution import MeasuredPlan
from fedperf_shared.model.public_plans import (
    ANCHOR_PLATFORMS,
    CONTAINER_MEMORY,
    CONTAINER_SPEED,
    anchors_of,
)
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.plans import ONE_CORE, diamond

PLANS = [MeasuredPlan(diamond(Platform.SPARK, 10.0**size), ONE_CORE, 1.0) for size in range(2, 6)]


def test_anchors_run_half_of_each_plan_and_platform_in_a_small_container() -> None:
    found = anchors_of(PLANS)
    for plan, place in zip(PLANS, range(0, len(found), 1 + len(ANCHOR_PLATFORMS)), strict=True):
        variants = found[place : place + 1 + len(ANCHOR_PLATFORMS)]
        assert variants[0].plan == plan.plan
        assert {each.plan.workflow for each in variants} == {plan.plan.workflow}
        assert [each.plan.platforms[0] for each in variants[1:]] == [*ANCHOR_PLATFORMS]
    assert len(found) == len({*found}) == len(PLANS) * (1 + len(ANCHOR_PLATFORMS))
    small = [each.plan for each in found if each.cluster != ONE_CORE]
    [container] = {each.cluster for each in found} - {ONE_CORE}
    assert container.machine_speed == CONTAINER_SPEED * ONE_CORE.machine_speed
    assert container.memory_bytes == round(CONTAINER_MEMORY * ONE_CORE.memory_bytes)
    assert (container.nodes, container.cores) == (ONE_CORE.nodes, ONE_CORE.cores)
    assert {*Counter(plan.workflow for plan in small).values()} == {2}
    assert {*Counter(plan.platforms for plan in small).values()} == {2}


def test_anchors_of_a_plan_are_independent_of_later_plans() -> None:
    assert anchors_of(PLANS)[:4] == anchors_of(PLANS[:1])
