"""One order, parents first, the same for every way to write a workflow down."""

import random

from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.topology import depths, heights, topological_order
from tests.fakes.plans import diamond, relabelled, workflows


@given(workflows())
def test_parents_come_before_children(workflow: Workflow) -> None:
    order = topological_order(workflow)
    place = {position: index for index, position in enumerate(order)}
    assert sorted(order) == list(range(len(workflow.operators)))
    assert all(place[parent] < place[child] for parent, child in workflow.edges)


@given(workflows(), st.randoms(use_true_random=False))
def test_depths_and_heights_do_not_depend_on_labels(
    workflow: Workflow, shuffle: random.Random
) -> None:
    order = list(range(len(workflow.operators)))
    shuffle.shuffle(order)
    other = relabelled(workflow, order)
    assert [depths(workflow)[old] for old in order] == list(depths(other))
    assert [heights(workflow)[old] for old in order] == list(heights(other))


def test_a_diamond_is_walked_from_its_sources() -> None:
    workflow = diamond().workflow
    assert topological_order(workflow) == (0, 1, 2, 3, 4)
    assert depths(workflow) == (0, 0, 1, 2, 3)
    assert heights(workflow) == (3, 2, 2, 1, 0)
