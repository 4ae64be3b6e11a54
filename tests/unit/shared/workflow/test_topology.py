"""Tests of the topological order: parents first, and equal for every order of operators."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.topology import depths, heights, topological_order, topological_orders
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind
from tests.fakes.plans import PLATFORMS, diamond, relabelled, workflows

SOURCE = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), 10)


@given(workflows())
def test_topological_order_places_parents_before_children(workflow: Workflow) -> None:
    order = topological_order(workflow)
    place = {position: index for index, position in enumerate(order)}
    assert sorted(order) == list(range(len(workflow.operators)))
    assert all(place[parent] < place[child] for parent, child in workflow.edges)


@given(workflows(), st.randoms(use_true_random=False))
def test_depths_and_heights_are_independent_of_operator_labels(
    workflow: Workflow, shuffle: random.Random
) -> None:
    order = list(range(len(workflow.operators)))
    shuffle.shuffle(order)
    other = relabelled(workflow, order)
    assert [depths(workflow)[old] for old in order] == list(depths(other))
    assert [heights(workflow)[old] for old in order] == list(heights(other))


@pytest.mark.slow
@given(workflows())
def test_topological_order_sorts_by_depth_then_kind(workflow: Workflow) -> None:
    depth = depths(workflow)
    places = [(depth[p], workflow.operators[p].kind) for p in topological_order(workflow)]
    assert places == sorted(places)


@pytest.mark.slow
@given(workflows(), st.randoms(use_true_random=False))
def test_topological_order_is_independent_of_operator_labels(
    workflow: Workflow, shuffle: random.Random
) -> None:
    """Operators may swap places only if their contents are indistinguishable."""
    order = list(range(len(workflow.operators)))
    shuffle.shuffle(order)
    other = relabelled(workflow, order)

    def said(each: Workflow) -> list[Operator]:
        walked = [each.operators[position] for position in topological_order(each)]
        return [replace(operator, inputs=()) for operator in walked]

    assert said(other) == said(workflow)


@pytest.mark.slow
@given(workflows(), st.data())
def test_topological_orders_of_many_assignments_equal_each_alone(
    workflow: Workflow, data: st.DataObject
) -> None:
    tied = Workflow(tuple(replace(each, inputs=each.inputs[:1]) for each in workflow.operators))
    one = st.tuples(*[st.sampled_from(PLATFORMS[:2])] * len(tied.operators))
    assignments = data.draw(st.lists(one, max_size=6))
    alone = [topological_order(tied, platforms) for platforms in assignments]
    assert topological_orders(tied, assignments) == alone


def test_topological_order_breaks_ties_by_sizes_and_neighbours() -> None:
    large = replace(SOURCE, output_rows=1000)
    assert topological_order(Workflow((large, SOURCE))) == (1, 0)
    over = Operator(OperatorKind.MAP, OperatorClass.RELATIONAL, (1,))
    assert topological_order(Workflow((SOURCE, SOURCE, over))) == (0, 1, 2)
    assert topological_order(Workflow((SOURCE, SOURCE, replace(over, inputs=(0,))))) == (1, 0, 2)


def test_topological_order_of_diamond_begins_at_its_sources() -> None:
    workflow = diamond().workflow
    assert topological_order(workflow) == (1, 0, 2, 3, 4)  # the smaller source first
    assert depths(workflow) == (0, 0, 1, 2, 3)
    assert heights(workflow) == (3, 2, 2, 1, 0)


def test_topological_order_of_128_identical_sources_keeps_their_positions() -> None:
    workflow = Workflow((Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL),) * 128)
    assert topological_order(workflow) == tuple(range(128))
