"""Plans for tests: small ones by hand, and hypothesis strategies for any well-formed one."""

from hypothesis import strategies as st

from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_ITERATIONS,
    MAX_ROW_BYTES,
    MAX_ROWS,
    RESERVED_KINDS,
    RESERVED_PLATFORMS,
    Complexity,
    OperatorClass,
    OperatorKind,
    Platform,
)

ONE_CORE = ClusterConfig(nodes=1, cores=1, memory_bytes=8 * 2**30)

KINDS = [kind for kind in OperatorKind if kind not in RESERVED_KINDS]
PLATFORMS = [platform for platform in Platform if platform not in RESERVED_PLATFORMS]


def diamond(platform: Platform = Platform.DUCKDB, rows: float = 1000) -> Plan:
    """Return a plan with two sources, a filter, a join and a sink on one platform."""
    relational = OperatorClass.RELATIONAL
    workflow = Workflow(
        (
            Operator(OperatorKind.FILE_SOURCE, relational, (), rows, 40),
            Operator(OperatorKind.FILE_SOURCE, relational, (), rows / 2, 16),
            Operator(OperatorKind.FILTER, relational, (0,), rows / 4, 40),
            Operator(OperatorKind.JOIN, relational, (2, 1), rows / 4, 56, key_distinct_ratio=0.5),
            Operator(OperatorKind.SINK, relational, (3,), rows / 4, 56),
        ),
        SourceStatistics(columns=6, top_key_share=0.1, distinct_ratio=0.5),
    )
    return Plan.on_one_platform(workflow, platform)


@st.composite
def operators(draw: st.DrawFn, inputs: tuple[int, ...]) -> Operator:
    """Draw any well-formed operator with these inputs."""
    return Operator(
        kind=draw(st.sampled_from(KINDS)),
        operator_class=draw(st.sampled_from(OperatorClass)),
        inputs=inputs,
        output_rows=draw(st.floats(0, MAX_ROWS)),
        row_bytes=draw(st.floats(0, MAX_ROW_BYTES)),
        complexity=draw(st.sampled_from(Complexity)),
        code_steps=draw(st.integers(0, MAX_ITERATIONS)),
        iterations=draw(st.integers(0, MAX_ITERATIONS)),
        key_distinct_ratio=draw(st.floats(0, 1)),
        partitions=draw(st.integers(0, MAX_ITERATIONS)),
    )


@st.composite
def workflows(draw: st.DrawFn, max_operators: int = 9) -> Workflow:
    """Draw any well-formed workflow whose operators are listed parents first."""
    count = draw(st.integers(1, max_operators))
    drawn = []
    for position in range(count):
        parents = st.lists(st.integers(0, position - 1), max_size=2) if position else st.just([])
        drawn.append(draw(operators(tuple(draw(parents)))))
    sources = SourceStatistics(
        columns=draw(st.integers(0, MAX_ITERATIONS)),
        top_key_share=draw(st.floats(0, 1)),
        distinct_ratio=draw(st.floats(0, 1)),
        null_ratio=draw(st.floats(0, 1)),
    )
    return Workflow(tuple(drawn), sources)


@st.composite
def plans(draw: st.DrawFn, max_operators: int = 9) -> Plan:
    """Draw any well-formed plan."""
    workflow = draw(workflows(max_operators))
    count = len(workflow.operators)
    platforms = st.lists(st.sampled_from(PLATFORMS), min_size=count, max_size=count)
    return Plan(workflow, tuple(draw(platforms)))


def relabelled(workflow: Workflow, order: list[int]) -> Workflow:
    """Return the workflow with its operator `order[i]` at position i."""
    place = {old: new for new, old in enumerate(order)}
    return Workflow(
        tuple(
            Operator(
                **{
                    name: getattr(workflow.operators[old], name)
                    for name in Operator.__slots__
                    if name != "inputs"
                },
                inputs=tuple(place[parent] for parent in workflow.operators[old].inputs),
            )
            for old in order
        ),
        workflow.sources,
    )
