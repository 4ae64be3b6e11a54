"""A beam over whole plans by their predictions alone, where no additive costs are known.

It searches over segments, short chains of operators that move together, in topological
order: it keeps whole plans, starts with every single-platform plan and moves one segment, or
that segment and all behind it; then, in a second sweep, single operators. It only ever
improves on where it started, so the choice is never predicted to be slower than one platform
for everything.
"""

from collections.abc import Sequence

from fedperf_client.optimizer.plan_scores import Assignment, Scores
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import Platform

BEAM_WIDTH = 4
SEGMENT_LENGTH = 3
"""Most operators of a chain that move together; long chains may switch platforms inside."""


def segment_search(
    workflow: Workflow,
    allowed: Sequence[tuple[Platform, ...]],
    candidates: Sequence[Platform],
    scores: Scores,
) -> None:
    """One beam per single-platform plan: what the first operators run on stays open to the end."""
    everything = tuple(range(len(allowed)))
    first = tuple(able[0] for able in allowed)
    starts = [_moved(first, everything, platform, allowed) for platform in candidates]
    scores.add(starts)
    single = tuple((position,) for position in topological_order(workflow))
    for start in dict.fromkeys(starts):
        beam = [start]
        for pieces in (segments(workflow), single):
            beam = _sweep(beam, pieces, candidates, allowed, scores=scores)


def segments(workflow: Workflow) -> tuple[tuple[int, ...], ...]:
    """Chains of up to `SEGMENT_LENGTH` operators with one way in and one way out.

    In topological order of their heads; every operator is in one of them.
    """
    children = workflow.children
    chains: dict[int, list[int]] = {}
    head_of: dict[int, int] = {}
    for position in topological_order(workflow):
        parents = set(workflow.operators[position].inputs)
        parent = next(iter(parents)) if len(parents) == 1 else None
        follows = parent is not None and len(set(children[parent])) == 1
        head = head_of[parent] if follows and parent is not None else position
        if head != position and len(chains[head]) >= SEGMENT_LENGTH:
            head = position
        head_of[position] = head
        chains.setdefault(head, []).append(position)
    return tuple(tuple(chain) for chain in chains.values())


def _sweep(
    beam: list[Assignment],
    pieces: Sequence[tuple[int, ...]],
    candidates: Sequence[Platform],
    allowed: Sequence[tuple[Platform, ...]],
    *,
    scores: Scores,
) -> list[Assignment]:
    """The beam after every piece, alone or with all behind it, could move to every platform."""
    for number, piece in enumerate(pieces):
        behind = tuple(position for later in pieces[number:] for position in later)
        beam = beam + [
            _moved(assignment, positions, platform, allowed)
            for assignment in beam
            for platform in candidates
            for positions in (piece, behind)
        ]
        scores.add(beam)
        beam = [assignment for assignment, *_ in scores.best(BEAM_WIDTH, beam)]
    return beam


def _moved(
    assignment: Assignment,
    positions: Sequence[int],
    platform: Platform,
    allowed: Sequence[tuple[Platform, ...]],
) -> Assignment:
    """`assignment` with `positions` on `platform`, wherever it can run them."""
    moved = list(assignment)
    for position in positions:
        if platform in allowed[position]:
            moved[position] = platform
    return tuple(moved)
