"""The choice of a platform for every operator of a workflow, by predicted run time.

Few assignments are all scored (`exhaustive`). Beyond `EXHAUSTIVE_LIMIT` a beam searches
over segments, short chains of operators that move together, in topological order (`beam`):
it keeps whole plans, starts with every single-platform plan and moves one segment, or
that segment and all behind it; then, in a second sweep, single operators. It only ever
improves on where it started, so the choice
is never predicted to be slower than one platform for everything.
Only the predictor decides; an assignment that `supports` refuses is never scored.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from itertools import islice, product

from fedperf_client.prediction.prediction import Prediction, Question
from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

EXHAUSTIVE_LIMIT = 4096
"""Most assignments that are all scored."""

BEAM_WIDTH = 4
SEGMENT_LENGTH = 3
"""Most operators of a chain that move together; long chains may switch platforms inside."""

ALTERNATIVES = 4
BATCH = 256
"""Questions per call of the predictor."""

Supports = Callable[[int, Platform], bool]
"""(position of an operator, platform) -> whether that platform can run it."""

Predict = Callable[[Sequence[Question]], Sequence[Prediction]]
"""Questions -> predictions in the same order."""

_Assignment = tuple[Platform, ...]


class NoPlatformError(InvalidInputError):
    """No candidate platform can run an operator."""

    def __init__(self, position: int, kind: OperatorKind, candidates: Sequence[Platform]) -> None:
        names = ", ".join(platform.name.lower() for platform in candidates) or "none"
        super().__init__(
            f"operator {position} ({kind.name}) runs on none of the candidate platforms ({names})"
        )
        self.position = position


class MissingPredictionsError(FedperfError):
    """The predictor answered another number of questions than it was asked."""


@unique
class Method(StrEnum):
    """How the plans were enumerated."""

    EXHAUSTIVE = "exhaustive"
    BEAM = "beam"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan that was considered, and its prediction."""

    plan: Plan
    prediction: Prediction


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan with the smallest predicted median, and what came after it.

    Attributes:
        plan: the choice.
        prediction: its predicted run time.
        alternatives: the next best plans, best first.
        method: how plans were enumerated.
        plans_scored: how many complete plans the predictor has seen.
    """

    plan: Plan
    prediction: Prediction
    alternatives: tuple[Alternative, ...]
    method: Method
    plans_scored: int


def supports_everything(position: int, platform: Platform) -> bool:
    """The mask that refuses nothing."""
    del position, platform
    return True


def choose(
    workflow: Workflow,
    cluster: ClusterConfig,
    candidates: Sequence[Platform],
    predict: Predict,
    *,
    supports: Supports = supports_everything,
) -> Choice:
    """The platform per operator with the smallest predicted median run time on `cluster`.

    Equal predictions are decided by the order of `candidates`, so the choice is deterministic.

    Raises:
        NoPlatformError: an operator runs on no candidate.
        MissingPredictionsError: the predictor did not answer every question.
    """
    allowed = _allowed(workflow, candidates, supports)
    scores = _Scores(workflow, cluster, predict)
    if math.prod(len(each) for each in allowed) <= EXHAUSTIVE_LIMIT:
        method = Method.EXHAUSTIVE
        scores.add(product(*allowed))
    else:
        method = Method.BEAM
        _search(workflow, allowed, candidates, scores)
    best = [Alternative(scores.plan(each), p) for each, p in scores.best(1 + ALTERNATIVES)]
    return Choice(best[0].plan, best[0].prediction, tuple(best[1:]), method, len(scores))


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


class _Scores:
    """Predictions of complete plans, each asked for once, in the order of asking."""

    def __init__(self, workflow: Workflow, cluster: ClusterConfig, predict: Predict) -> None:
        self._workflow, self._cluster, self._predict = workflow, cluster, predict
        self._known: dict[_Assignment, Prediction] = {}

    def __len__(self) -> int:
        return len(self._known)

    def plan(self, assignment: _Assignment) -> Plan:
        return Plan(self._workflow, assignment)

    def add(self, assignments: Iterable[_Assignment]) -> None:
        """Score those that are new, in batches."""
        new = iter([each for each in dict.fromkeys(assignments) if each not in self._known])
        for batch in iter(lambda: list(islice(new, BATCH)), []):
            questions = [Question(self.plan(each), self._cluster) for each in batch]
            predictions = self._predict(questions)
            if len(predictions) != len(batch):
                raise MissingPredictionsError(
                    f"{len(batch)} plans were asked for, {len(predictions)} predictions came"
                )
            self._known.update(zip(batch, predictions, strict=True))

    def best(
        self, count: int, among: Iterable[_Assignment] | None = None
    ) -> list[tuple[_Assignment, Prediction]]:
        """The `count` fastest, of all or of those `among`."""
        pool = self._known if among is None else dict.fromkeys(among)
        ranked = sorted(pool, key=lambda each: self._known[each].median_seconds)
        return [(each, self._known[each]) for each in ranked[:count]]


def _allowed(
    workflow: Workflow, candidates: Sequence[Platform], supports: Supports
) -> list[tuple[Platform, ...]]:
    """For every operator the candidates that can run it, in their order."""
    allowed = []
    for position, operator in enumerate(workflow.operators):
        able = tuple(p for p in dict.fromkeys(candidates) if supports(position, p))
        if not able:
            raise NoPlatformError(position, operator.kind, candidates)
        allowed.append(able)
    return allowed


def _search(
    workflow: Workflow,
    allowed: Sequence[tuple[Platform, ...]],
    candidates: Sequence[Platform],
    scores: _Scores,
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


def _sweep(
    beam: list[_Assignment],
    pieces: Sequence[tuple[int, ...]],
    candidates: Sequence[Platform],
    allowed: Sequence[tuple[Platform, ...]],
    *,
    scores: _Scores,
) -> list[_Assignment]:
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
        beam = [assignment for assignment, _ in scores.best(BEAM_WIDTH, beam)]
    return beam


def _moved(
    assignment: _Assignment,
    positions: Sequence[int],
    platform: Platform,
    allowed: Sequence[tuple[Platform, ...]],
) -> _Assignment:
    """`assignment` with `positions` on `platform`, wherever it can run them."""
    moved = list(assignment)
    for position in positions:
        if platform in allowed[position]:
            moved[position] = platform
    return tuple(moved)
