"""Jobs without a query: the operators of the stages that ran.

An operator is a call of Spark's API. Between stages stands an exchange, whose rows and bytes
were counted; what a job reads of an exchange of an earlier job is a table that is there. Of
other rows, Spark counts those that a stage read at its sources and those that it wrote; the
rest follows as in `plan`, or is estimated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from fedperf_client.sources.spark.fields import MalformedEventError
from fedperf_client.sources.spark.plan import MAX_NODES, PhysicalPlan, PlanNode, PlanTooLargeError
from fedperf_client.sources.spark.stage import StageRun
from fedperf_shared.workflow.vocabulary import OperatorKind

_Place = tuple[str, int]  # what an operator stands for, and the number of its RDD or stage

_RDD, _MOVED, _KEPT, _SINK = "rdd", "moved", "kept", "sink"
_END: _Place = ("end", 0)

_ROWS, _BYTES, _TASKS, _MILLISECONDS = range(4)


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator, or what only leads to one, with its figures; 0 where nobody knows."""

    kind: OperatorKind | None
    inputs: tuple[_Place, ...]
    figures: tuple[int, int, int, int] = (0, 0, 0, 0)
    code_steps: int = 0


def job_plan(stages: Sequence[StageRun]) -> tuple[PhysicalPlan, dict[int, int]]:
    """The operators of a job, and their figures as counters of a plan.

    Args:
        stages: that ended, each once.

    Raises:
        MalformedEventError: its RDDs read each other.
        PlanTooLargeError: more of them than are read.
    """
    steps = _steps(stages)
    if len(steps) > MAX_NODES:
        raise PlanTooLargeError
    order = _consumers_first({place: step.inputs for place, step in steps.items()})
    position = {place: number for number, place in enumerate(order)}
    nodes: list[PlanNode] = []
    counters: dict[int, int] = {}
    for number, place in enumerate(order):
        step = steps[place]
        ids = [4 * number + which for which in range(4)]
        counters |= {each: value for each, value in zip(ids, step.figures, strict=True) if value}
        nodes.append(
            PlanNode(
                step.kind,
                rows=(ids[_ROWS],),
                sizes=(ids[_BYTES],),
                partitions=ids[_TASKS],
                times=((ids[_MILLISECONDS], 1e-3),),
                code_steps=step.code_steps,
                children=tuple(position[each] for each in step.inputs),
            )
        )
    return PhysicalPlan(tuple(nodes)), counters


def _steps(stages: Sequence[StageRun]) -> dict[_Place, _Step]:
    """Everything that happened in the stages, and the end that reads what nobody else does."""
    rdds = {rdd.number: rdd for stage in stages for rdd in stage.rdds}
    # The last RDD of a scope is its operator; the others only lead to it.
    inner = {
        parent
        for rdd in rdds.values()
        for parent in rdd.parents
        if parent in rdds and rdds[parent].scope == rdd.scope
    }
    writers = {end: stage for stage in stages for end in _ends(stage)}
    steps: dict[_Place, _Step] = {}
    for stage in stages:
        fetched = _fetched(stage, writers)
        steps |= dict(fetched.values())
        moving = {rdd.scope for rdd in stage.rdds if not fetched.keys().isdisjoint(rdd.parents)}
        sources = {rdd.scope for rdd in stage.rdds if not rdd.parents}
        for rdd in stage.rdds:
            is_moved = rdd.kind is OperatorKind.EXCHANGE and rdd.scope in moving
            is_source = sources == {rdd.scope}
            kind = None if rdd.number in inner or is_moved else rdd.kind
            if not rdd.parents and rdd.kind in (None, OperatorKind.OTHER):
                kind = OperatorKind.TABLE_SOURCE  # whatever it is called, rows come from it
            step = _Step(
                kind,
                tuple(fetched[p][0] if p in fetched else (_RDD, p) for p in rdd.parents),
                (stage.read_rows, stage.read_bytes, 0, 0) if is_source else (0, 0, 0, 0),
                rdd.code_steps,
            )
            steps.setdefault((_RDD, rdd.number), step)
    for stage in stages:
        _add_output(stage, steps)
    read = {place for step in steps.values() for place in step.inputs}
    steps[_END] = _Step(None, tuple(place for place in steps if place not in read))
    return steps


def _ends(stage: StageRun) -> set[int]:
    """What no other RDD of the stage reads: its output."""
    read = {parent for rdd in stage.rdds for parent in rdd.parents}
    return {rdd.number for rdd in stage.rdds} - read


def _fetched(stage: StageRun, writers: Mapping[int, StageRun]) -> dict[int, tuple[_Place, _Step]]:
    """By the RDDs of other stages that this one reads: the exchange, or the table, between."""
    here = {rdd.number for rdd in stage.rdds}
    outside = [p for rdd in stage.rdds for p in rdd.parents if p not in here]
    ran = {parent: writers[parent] for parent in outside if parent in writers}
    rows = stage.fetched_rows - sum(each.moved_rows for each in ran.values())
    size = stage.fetched_bytes - sum(each.moved_bytes for each in ran.values())
    kept = _Step(OperatorKind.TABLE_SOURCE, (), (max(rows, 0), max(size, 0), 0, 0))
    found: dict[int, tuple[_Place, _Step]] = dict.fromkeys(outside, ((_KEPT, stage.number), kept))
    for parent, each in ran.items():
        figures = (each.moved_rows, each.moved_bytes, stage.tasks, each.run_milliseconds)
        moved = _Step(OperatorKind.EXCHANGE, ((_RDD, parent),), figures)
        found[parent] = ((_MOVED, each.number), moved)
    return found


def _add_output(stage: StageRun, steps: dict[_Place, _Step]) -> None:
    """Where a stage's time stands: at its exchange, at what it wrote, or at its last operator."""
    if (_MOVED, stage.number) in steps:
        return
    ends = tuple((_RDD, end) for end in sorted(_ends(stage)))
    took = stage.run_milliseconds
    if stage.written_rows or stage.written_bytes:
        figures = (stage.written_rows, stage.written_bytes, 0, took)
        steps[_SINK, stage.number] = _Step(OperatorKind.SINK, ends, figures)
    elif ends:
        rows, size, parts, _ = steps[ends[0]].figures
        steps[ends[0]] = replace(steps[ends[0]], figures=(rows, size, parts, took))


def _consumers_first(inputs: Mapping[_Place, Sequence[_Place]]) -> list[_Place]:
    """The places in an order in which each stands before what it reads.

    Raises:
        MalformedEventError: there is no such order.
    """
    try:
        return list(TopologicalSorter(inputs).static_order())[::-1]
    except CycleError as error:
        raise MalformedEventError("Parent IDs") from error
