"""A template depends on the DAG alone, not on how it was written down."""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.template import (
    canonical,
    canonical_plan,
    fingerprint,
)
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.fakes.plans import relabelled

KINDS = (OperatorKind.TABLE_SOURCE, OperatorKind.MAP, OperatorKind.JOIN)


@st.composite
def workflows(draw: st.DrawFn, max_operators: int = 9) -> Workflow:
    """Random DAGs with few distinct values, so that ties and symmetries are common."""
    operators = []
    for position in range(draw(st.integers(1, max_operators))):
        parents = st.integers(0, max(position - 1, 0))
        operators.append(
            Operator(
                kind=draw(st.sampled_from(KINDS)),
                operator_class=draw(st.sampled_from(list(OperatorClass)[:2])),
                inputs=tuple(draw(st.lists(parents, max_size=2 if position else 0))),
                output_rows=draw(st.sampled_from([10.0, 1000.0])),
            )
        )
    return Workflow(tuple(operators))


def with_sorted_inputs(workflow: Workflow) -> Workflow:
    operators = tuple(replace(o, inputs=tuple(sorted(o.inputs))) for o in workflow.operators)
    return replace(workflow, operators=operators)


@given(st.data())
def test_any_permutation_of_the_operators_gives_the_same_fingerprint(data: st.DataObject) -> None:
    workflow = data.draw(workflows())
    order = data.draw(st.permutations(range(len(workflow.operators))))
    assert fingerprint(relabelled(workflow, order)) == fingerprint(workflow)


@given(st.data())
@settings(max_examples=200)
def test_any_permutation_of_the_operators_gives_the_same_canonical_form(
    data: st.DataObject,
) -> None:
    workflow = data.draw(workflows(max_operators=6))
    order = data.draw(st.permutations(range(len(workflow.operators))))
    again = canonical(relabelled(workflow, order))
    assert with_sorted_inputs(again) == with_sorted_inputs(canonical(workflow))


@given(workflows())
def test_a_canonical_workflow_stands_in_topological_order_and_is_its_own_canonical_form(
    workflow: Workflow,
) -> None:
    once = canonical(workflow)
    assert topological_order(once) == tuple(range(len(once.operators)))
    assert with_sorted_inputs(canonical(once)) == with_sorted_inputs(once)
    assert fingerprint(once) == fingerprint(workflow)


def _all_small_dags(count: int) -> list[tuple[tuple[int, tuple[int, ...]], ...]]:
    """Every DAG of `count` operators of two kinds, edges from lower to higher positions."""
    choices = [
        [
            (kind, parents)
            for kind in (0, 1)
            for size in range(position + 1)
            for parents in itertools.combinations(range(position), size)
        ]
        for position in range(count)
    ]
    return list(itertools.product(*choices))


def _exact_form(dag: tuple[tuple[int, tuple[int, ...]], ...]) -> tuple[object, ...]:
    """The smallest writing over all permutations: equal only for isomorphic DAGs."""
    return min(
        tuple(
            sorted(
                (place[i], kind, tuple(sorted(place[p] for p in parents)))
                for i, (kind, parents) in enumerate(dag)
            )
        )
        for place in itertools.permutations(range(len(dag)))
    )


def test_different_small_dags_have_different_fingerprints() -> None:
    forms: dict[str, object] = {}
    shapes = set()
    for count in (1, 2, 3, 4):
        for dag in _all_small_dags(count):
            operators = tuple(
                Operator(KINDS[kind], OperatorClass.RELATIONAL, parents) for kind, parents in dag
            )
            form = (count, _exact_form(dag))
            shapes.add(form)
            assert forms.setdefault(fingerprint(Workflow(operators)), form) == form
    assert len(forms) == len(shapes) > 100


def test_sizes_do_not_count_and_kinds_classes_and_repeated_edges_do() -> None:
    source = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, output_rows=5)
    join = Operator(OperatorKind.JOIN, OperatorClass.RELATIONAL, (0,), output_rows=7, row_bytes=8)
    plain = fingerprint(Workflow((source, join)))
    assert fingerprint(Workflow((source, replace(join, output_rows=9, code_steps=3)))) == plain
    others = [
        replace(join, kind=OperatorKind.MAP),
        replace(join, operator_class=OperatorClass.TEXT),
        replace(join, inputs=(0, 0)),
        replace(join, inputs=()),
    ]
    assert len({plain, *(fingerprint(Workflow((source, other))) for other in others)}) == 5


def test_a_fingerprint_is_the_same_in_every_process_and_version() -> None:
    source = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL)
    assert fingerprint(Workflow((source,))) == (
        "858c1bc630d7cbd0c9aed06d036bc4926a101a1511f713f62ac5f805092580ac"
    )


def test_a_canonical_plan_keeps_every_operator_on_its_platform() -> None:
    first = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, output_rows=5)
    second = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, output_rows=5)
    join = Operator(OperatorKind.JOIN, OperatorClass.RELATIONAL, (1, 2))
    mixed = Plan(
        Workflow((join, first, second)), (Platform.PANDAS, Platform.POLARS, Platform.DUCKDB)
    )
    swapped = Plan(
        Workflow((join, first, second)), (Platform.PANDAS, Platform.DUCKDB, Platform.POLARS)
    )
    assert canonical_plan(mixed).platforms == (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)
    assert canonical_plan(swapped).platforms == canonical_plan(mixed).platforms


def test_twin_chains_are_kept_together_however_they_are_labelled() -> None:
    source = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL)
    over = [Operator(OperatorKind.MAP, OperatorClass.RELATIONAL, (p,)) for p in (0, 1)]
    straight = Workflow((source, source, over[0], over[1]))
    crossed = Workflow((source, source, over[1], over[0]))
    assert canonical(crossed) == canonical(straight) == straight


def test_the_largest_symmetric_workflow_is_handled_in_reasonable_time() -> None:
    source = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL)
    workflow = Workflow((source,) * 128)
    assert canonical(workflow) == workflow
    assert topological_order(workflow) == tuple(range(128))
