"""Own executions in numbers, and who may predict from them; weighed as questions come.

For each kind of question that is asked for, and not before, learners are weighed by how wrong
they were in folds that mimic it (`mixture`). Executions of one workload are never split by folds
for questions inside; repeats of one configuration are never split at all. Where the same work
takes longer or shorter since some day, executions of before count as if they had been measured
since (`level_shifts`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.drift.streams import StreamDrift
from fedperf_client.prediction.evidence import History, Samples, encode
from fedperf_client.prediction.execution_table import ExecutionTable, numbered
from fedperf_client.prediction.home_evidence import HomeEvidence, HomeFacts
from fedperf_client.prediction.learners.learner import Fitted, Learner
from fedperf_client.prediction.learners.residual_learners import PUBLIC
from fedperf_client.prediction.mixture.intervals import HULL_MARGIN, Hull
from fedperf_client.prediction.mixture.learner_catalogue import NoLearnerError, usable
from fedperf_client.prediction.mixture.lower_bounds import LowerBounds
from fedperf_client.prediction.mixture.matched_folds import (
    LEVEL_STEP,
    Asks,
    Mimicry,
    Places,
    asks,
    deepest,
    depth,
    grouped_folds,
    mimicries,
    most_alike,
)
from fedperf_client.prediction.mixture.mixture import (
    KnownRuns,
    MixAnswer,
    OnProgress,
    Weighing,
    weigh,
)
from fedperf_client.prediction.mixture.repeat_spread import (
    RepeatAnswer,
    Repeats,
    ResourceChange,
    RunsApart,
)
from fedperf_client.prediction.mixture.standing import Likeness
from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.execution import SizedPlan

Key = tuple[Asks, int]
"""What is mimicked, and the cut of its folds (`Mimicry`)."""

MIMICKED_FROM = 20
"""Workloads that folds must hold out to be believed. Of fewer a model that has learnt nothing
is right by chance too often; then folds leave workloads out, as for questions inside."""

KEPT_SHARE = 2 / 3
"""Of the workloads, that a fold must keep: who knows much less is no witness."""
INSIDE: Key = (Asks.SEEN, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Own executions in numbers, and who may predict from them.

    Attributes:
        known: own executions.
        hull: what was seen.
        learners: those that can be used with this history and these starts.
        starts: log predictions of the start models that they need, by name.
        seed: of folds that leave workloads out.
        on_progress: told of every weighing.
        drifts: found in the own executions, which are known as of today.
        fits: candidates that were needed so far, fitted on all own executions.
        cut_short: own runs that did not end well.
        repeats: all own executions by configuration, also those that are not learnt from.
        apart: those that answer for their own jobs alone.
        numbers: of the configuration of each that is learnt from.
        plans: of its plan, see `Samples.plans`.
        likeness: which of them are like a question.
    """

    known: KnownRuns
    hull: Hull
    learners: tuple[Learner, ...]
    starts: Mapping[str, PredictLog]
    seed: int = 0
    on_progress: OnProgress | None = None
    drifts: tuple[StreamDrift, ...] = ()
    _ways: dict[Asks, list[Mimicry]] = field(default_factory=dict)
    _weighed: dict[Key, Weighing] = field(default_factory=dict)
    _depths: dict[tuple[Asks, Key], float] = field(default_factory=dict)
    _parts: dict[int, "Candidates"] = field(default_factory=dict)
    fits: dict[str, Fitted] = field(default_factory=dict)
    cut_short: LowerBounds = field(default_factory=lambda: LowerBounds({}))
    apart: RunsApart = field(default_factory=RunsApart.none)
    repeats: Repeats = field(kw_only=True)
    numbers: NDArray[np.int64] = field(init=False)
    plans: NDArray[np.int64] = field(init=False)
    likeness: Likeness = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", self.known.by_workload())
        numbers = numbered(self.known.samples.configurations())
        object.__setattr__(self, "numbers", numbers)
        object.__setattr__(self, "plans", self.known.samples.plans())
        object.__setattr__(self, "likeness", Likeness.of(self.known))

    @classmethod
    def of(
        cls,
        known: KnownRuns,
        told: HomeFacts,
        learners: tuple[Learner, ...],
        starts: Mapping[str, PredictLog],
        *,
        seed: int = 0,
        on_progress: OnProgress | None = None,
    ) -> Self:
        """Those of a home: what is learnt from, with the facts of all own executions."""
        return cls(
            known,
            told.hull,
            learners,
            starts,
            seed,
            on_progress,
            told.drifts,
            cut_short=told.cut_short,
            apart=told.apart,
            repeats=told.repeats,
        )

    def part(self, kin: int) -> "Candidates":
        """The same of the executions of some engines alone, see `Likeness.kin`; computed once.

        What others ran says nothing of a question. All are asked where nothing else could answer.
        """
        rows = np.flatnonzero(self.likeness.engines & kin)
        if len(rows) == len(self.known) or not (len(rows) or self.starts):
            return self
        if kin not in self._parts:
            self._parts[kin] = replace(
                self,
                known=self.known.take(rows),
                hull=self.hull.of_engines(kin),
                fits={},
                _ways={},
                _weighed={},
                _depths={},
                _parts={},
            )
        return self._parts[kin]

    def usable(self, learners: Iterable[Learner]) -> tuple[Learner, ...]:
        """Those of `learners`, by name, that can be used; without executions the first counts.

        Raises:
            NoLearnerError: none of them can be used.
        """
        count = self.known.counted
        wanted = {each.name for each in learners if usable(each, count, self.starts)}
        chosen = tuple(each for each in self.learners if each.name in wanted)
        if not chosen:
            raise NoLearnerError(len(self.known))
        return chosen

    def ways_of(self, asked: Places) -> list[tuple[Asks, Mimicry | None]]:
        """For each of the places what it asks, and how to mimic it where that is possible."""
        kinds = asks(self.known.places, asked, size_step=HULL_MARGIN)
        return [(kind, self._way(kind, asked, row)) for row, kind in enumerate(kinds)]

    def is_inside(self, question: SizedPlan, kind: Asks, way: Mimicry | None) -> bool:
        """Whether the question is one that folds can speak for."""
        if kind.is_beyond or not self.hull.contains(question):
            return False
        if kind is Asks.SEEN:
            return True
        if (kind, key_of(way)) not in self._depths:
            folds = grouped_folds(self.known.groups, self.seed) if way is None else way.folds
            self._depths[kind, key_of(way)] = deepest(self.known.places, kind, folds)
        asked = depth(self.known.places, Places.of([question]), kind)
        return asked <= self._depths[kind, key_of(way)] + LEVEL_STEP

    def support(
        self, questions: Sequence[SizedPlan], *, by_pairs: bool, start: Learner | None
    ) -> Floats:
        """Share of each plan's operators that own executions can speak for, in [0, 1].

        1 where there is no start that could speak instead.

        Args:
            questions: that are asked.
            by_pairs: whether a kind must have been seen on its platform.
            start: that could speak.
        """
        if start is None or len(self.known) == 0:
            return np.ones(len(questions))
        if by_pairs:
            return np.array([self.hull.share_seen(each) for each in questions])
        return np.array([self.hull.share_seen_apart(each.plan) for each in questions])

    def alike_in_sources(self, questions: Sequence[SizedPlan]) -> list[bytes]:
        """The executions whose level the start is told for each, as bytes of a mask."""
        return [self.likeness.alike(each, sources=True).tobytes() for each in questions]

    def changes(
        self, asked: Samples, log_cores: Floats, start: Learner | None
    ) -> list[ResourceChange | None]:
        """From executions of each plan on the nearest other resources, None where there are none.

        Args:
            asked: questions, with the answers of that start.
            log_cores: of each, over all nodes.
            start: that says what the change brings.
        """
        if start is None or start.start is None:
            return [None] * len(asked)
        by_start = asked.starts[start.start].tolist()
        by_question = zip(asked.plans().tolist(), log_cores.tolist(), by_start, strict=True)
        return [self._change(*each, start.start) for each in by_question]

    def own_runs(
        self, question: SizedPlan, mixed: MixAnswer, mix_variance: float
    ) -> tuple[RepeatAnswer | None, Floats, Floats]:
        """What own runs say beside a mix; log seconds of those cut, and ended, of exactly this."""
        asked = mixed.identity
        if asked.job:
            tasks = 0 if question.job is None else question.job.tasks
            answer = self.apart.answer(asked, math.log(question.cluster.cores), tasks=tasks)
            cut, ended = (self.apart.runs_of(asked, is_ok=each) for each in (False, True))
            return answer, cut, ended
        number = asked.configuration
        repeated = self.repeats.answer(number, mixed.log_seconds, mix_variance, change=mixed.change)
        return repeated, self.cut_short.of_configuration(number), self.repeats.runs_of(number)

    def weigh(self, way: Mimicry | None) -> Weighing:
        """How wrong every candidate is in such folds; computed once."""
        key = key_of(way)
        if key not in self._weighed:
            self._weighed[key] = weigh(
                self.known, self.learners, way, seed=self.seed, on_progress=self.on_progress
            )
        return self._weighed[key]

    def fit(self, name: str) -> Fitted:
        """The candidate of that name, fitted on all own executions; computed once."""
        if name not in self.fits:
            [learner] = [each for each in self.learners if each.name == name]
            self.fits[name] = learner.fit(self.known.samples, self.known.log_seconds)
        return self.fits[name]

    def _way(self, kind: Asks, asked: Places, row: int) -> Mimicry | None:
        if kind not in self._ways:
            ways = mimicries(self.known.places, kind, self.known.samples.features)
            self._ways[kind] = [way for way in ways if self._tells_enough(way)]
        one = Places(asked.scale[row : row + 1], asked.size[row : row + 1])
        return most_alike(self._ways[kind], self.known.places, one)

    def _change(
        self, plan: int, log_cores: float, by_start: float, start: str
    ) -> ResourceChange | None:
        rows = np.flatnonzero(self.plans == plan)
        if len(rows) == 0:
            return None
        apart = np.abs(self.known.places.scale[rows] - log_cores)
        nearest = self.known.samples.take(rows[apart == apart.min()][-1:])
        [configuration] = nearest.configurations().tolist()
        longer = by_start - float(nearest.starts[start][0])
        return ResourceChange(configuration, longer, float(apart.min()))

    def _tells_enough(self, way: Mimicry) -> bool:
        groups = self.known.groups
        held = np.unique(groups[np.concatenate([fold.held for fold in way.folds])])
        kept = min(len(np.unique(groups[fold.kept])) for fold in way.folds)
        enough_kept = kept >= KEPT_SHARE * len(np.unique(groups))
        return len(held) >= MIMICKED_FROM and enough_kept


def candidates_of(
    history: History,
    starts: Mapping[str, PredictLog],
    learners: Iterable[Learner],
    *,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Candidates:
    """Everything that predictions are made from.

    Args:
        history: own executions, any number.
        starts: log predictions of the start models, by name.
        learners: in order of trust, each name once; those that need a start that is not
            there, or another number of executions, are left out.
        seed: of folds that leave workloads out.
        on_progress: told of every weighing.

    Raises:
        PredictorFailedError: a start model gave values that cannot be used.
    """
    used = tuple(each for each in learners if each.start is None or each.start in starts)
    needed = {each.start: starts[each.start] for each in used if each.start is not None}
    samples, start = encode(history.questions, needed), needed.get(PUBLIC)
    of_start = None if start is None else samples.starts[PUBLIC]
    table = ExecutionTable.of_history(history, samples, of_start)
    is_timed = history.finished_at is not None and start is not None
    home = HomeEvidence.of_history(table, is_timed=is_timed)
    known = home.known(samples.features, samples.starts)
    return Candidates.of(known, home.told, used, needed, seed=seed, on_progress=on_progress)


def key_of(way: Mimicry | None) -> Key:
    """What mixes for such folds are kept by."""
    return INSIDE if way is None else (way.kind, way.cut)
