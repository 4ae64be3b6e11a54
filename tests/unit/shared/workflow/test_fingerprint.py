"""Tests of fingerprints: they depend on the DAG alone, not on the order of its operators."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind
from tests.fakes.plans import relabelled

KINDS = (OperatorKind.TABLE_SOURCE, OperatorKind.MAP, OperatorKind.JOIN)


@st.composite
def workflows(draw: st.DrawFn, max_operators: int = 9) -> Workflow:
    """Draw random DAGs with few distinct values, so that ties and symmetries are common."""
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


@given(st.data())
def test_fingerprint_is_independent_of_operator_order(data: st.DataObject) -> None:
    workflow = data.draw(workflows())
    order = data.draw(st.permutations(range(len(workflow.operators))))
    assert fingerprint(relabelled(workflow, order)) == fingerprint(workflow)


def _all_small_dags(count: int) -> list[tuple[tuple[int, tuple[int, ...]], ...]]:
    """Return every DAG of `count` operators of two kinds, with edges to higher positions."""
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
    """Return the smallest form over all permutations, which is equal for isomorphic DAGs only."""
    return min(
        tuple(
            sorted(
                (place[i], kind, tuple(sorted(place[p] for p in parents)))
                for i, (kind, parents) in enumerate(dag)
            )
        )
        for place in itertools.permutations(range(len(dag)))
    )


def test_fingerprint_distinguishes_all_dags_of_up_to_four_operators() -> None:
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


def test_fingerprint_ignores_sizes_but_not_kinds_classes_or_repeated_edges() -> None:
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


def test_fingerprint_of_a_known_workflow_is_stable_across_versions() -> None:
    source = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL)
    assert fingerprint(Workflow((source,))) == (
        "858c1bc630d7cbd0c9aed06d036bc4926a101a1511f713f62ac5f805092580ac"
    )
