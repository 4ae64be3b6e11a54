"""Personalization: what an organization predicts the run times of plans with.

A question lies inside of what was seen, between or beyond known scales (cores over all
nodes), or between or beyond known sizes (rows of all sources). For each kind that is asked
for, and not before, learners are mixed by how wrong they were in folds that mimic it
(`mixture`). Executions of one workload are never split by folds for questions inside;
repeats of one configuration are never split at all. Where the same work takes longer or
shorter since some day, executions of before count as if they had been measured since
(`level_shifts`). What ran before exactly so is answered by its own times as well (`exact_match`).

Own executions speak for kinds of operators on platforms that they hold together, at about such
rows (`Hull.share_seen`), as far as the mix was better than the best start on the like of the
question (`standing`). For the rest the start speaks, with the interval of an empty home: own
jobs of another kind never override a better start.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedperf_client.drift.streams import StreamDrift
from fedperf_client.prediction.evidence import History, Samples, encode
from fedperf_client.prediction.learners.learner import Fitted, Learner
from fedperf_client.prediction.mixture.exact_match import Repeats
from fedperf_client.prediction.mixture.intervals import (
    HULL_MARGIN,
    Estimate,
    Hull,
    Spread,
)
from fedperf_client.prediction.mixture.learner_catalogue import NoLearnerError, usable
from fedperf_client.prediction.mixture.level_shifts import as_of_today, streams_known
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
    Known,
    MixMember,
    MixOutcome,
    Mixture,
    OnProgress,
    Weighing,
    weigh,
)
from fedperf_client.prediction.mixture.own_executions import known_of, places_of
from fedperf_client.prediction.mixture.standing import (
    Standing,
    against_start,
    alike,
    of_mix_alone,
    of_start_alone,
    told_by_start,
)
from fedperf_client.prediction.prediction import Floats, Prediction, PredictLog
from fedperf_shared.execution import SizedPlan
from fedperf_shared.workflow.graph import Plan

Key = tuple[Asks, int]
"""What is mimicked, and the cut of its folds (`Mimicry`)."""

MIMICKED_FROM = 20
"""Workloads that folds must hold out to be believed. Of fewer a model that has learnt nothing
is right by chance too often; then folds leave workloads out, as for questions inside."""

KEPT_SHARE = 2 / 3
"""Of the workloads, that a fold must keep: who knows much less is no witness."""
INSIDE: Key = (Asks.SEEN, 0)

PAIRS_FROM = 10
"""Own executions from which pairs of kind and platform are asked for. Fewer hardly see one twice,
and what is mixed for them is mostly the start with its level moved."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Own executions in numbers, and who may predict from them; mixes are made on demand.

    Attributes:
        known: own executions.
        hull: what was seen.
        learners: those that can be used with this history and these starts.
        starts: log predictions of the start models that they need, by name.
        seed: of folds that leave workloads out.
        on_progress: told of every weighing.
        drifts: found in the own executions, which are known as of today.
        fits: candidates that were needed so far, fitted on all own executions.
        repeats: own executions by configuration.
    """

    known: Known
    hull: Hull
    learners: tuple[Learner, ...]
    starts: Mapping[str, PredictLog]
    seed: int = 0
    on_progress: OnProgress | None = None
    drifts: tuple[StreamDrift, ...] = ()
    _ways: dict[Asks, list[Mimicry]] = field(default_factory=dict)
    _weighed: dict[Key, Weighing] = field(default_factory=dict)
    _depths: dict[tuple[Asks, Key], float] = field(default_factory=dict)
    fits: dict[str, Fitted] = field(default_factory=dict)
    repeats: Repeats = field(init=False)

    def __post_init__(self) -> None:
        repeats = Repeats.of(self.known.samples, self.known.log_seconds)
        object.__setattr__(self, "repeats", repeats)

    def mix(self, learners: Iterable[Learner], *, level: float = 0.9) -> "Personalized":
        """A mix of those `learners` that can be used; without executions the first counts.

        Args:
            learners: in any number; they count by name, where they can be used themselves.
            level: of the intervals.

        Raises:
            NoLearnerError: none of them can be used.
        """
        count = len(self.known)
        wanted = {each.name for each in learners if usable(each, count, self.starts)}
        chosen = tuple(each for each in self.learners if each.name in wanted)
        if not chosen:
            raise NoLearnerError(len(self.known))
        return Personalized(self, chosen, level)

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
        asked = depth(self.known.places, places_of([question]), kind)
        return asked <= self._depths[kind, key_of(way)] + LEVEL_STEP

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

    def _tells_enough(self, way: Mimicry) -> bool:
        groups = self.known.groups
        held = np.unique(groups[np.concatenate([fold.held for fold in way.folds])])
        kept = min(len(np.unique(groups[fold.kept])) for fold in way.folds)
        enough_kept = kept >= KEPT_SHARE * len(np.unique(groups))
        return len(held) >= MIMICKED_FROM and enough_kept


@dataclass(frozen=True, slots=True, eq=False)
class Personalized:
    """A weighted mix for every kind of question.

    Attributes:
        candidates: among whom the members are.
        learners: those that may be mixed.
        level: of the intervals.
        outcomes: what weighing came to, for each kind asked for so far.
    """

    candidates: Candidates
    learners: tuple[Learner, ...]
    level: float
    outcomes: dict[Key, MixOutcome] = field(default_factory=dict)
    _standings: dict[tuple[Key, Plan], Standing] = field(default_factory=dict)

    @property
    def members(self) -> tuple[MixMember, ...]:
        """Who is mixed for questions inside, with weights and errors."""
        return self.outcome().members

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each member by name, for questions inside."""
        return {member.name: member.weight for member in self.members}

    @property
    def errors(self) -> dict[str, float]:
        """Error in folds of each member by name, for questions inside, log seconds."""
        return {member.name: member.error for member in self.members}

    @property
    def folds(self) -> int:
        """Number of folds behind the errors for questions inside."""
        return self.outcome().folds

    @property
    def half_width(self) -> float:
        """Of intervals inside the hull, log seconds."""
        outcome = self.outcome()
        return Spread.of(outcome.errors, outcome.groups).half_width(self.level)

    def outcome(self, way: Mimicry | None = None) -> MixOutcome:
        """What weighing came to in such folds; those that leave workloads out by default."""
        key = key_of(way)
        if key not in self.outcomes:
            self.outcomes[key] = self.candidates.weigh(way).outcome(self.learners)
        return self.outcomes[key]

    def predict_log(self, questions: Sequence[SizedPlan]) -> Floats:
        """Natural log of the median wall seconds, [questions]."""
        return self._logs(questions, self.candidates.ways_of(places_of(questions)))

    def predict(self, questions: Sequence[SizedPlan]) -> list[Prediction]:
        """Medians with conformal intervals, in the order of `questions`."""
        return [each.prediction for each in self.estimate(questions)]

    def estimate(self, questions: Sequence[SizedPlan]) -> list[Estimate]:
        """As `predict`, with the upper end and the chance to keep a deadline."""
        ways = self.candidates.ways_of(places_of(questions))
        logs = self._logs(questions, ways)
        found = []
        for question, log, share, (kind, way) in zip(
            questions, logs, self._support(questions).tolist(), ways, strict=True
        ):
            alone = self._standing(question.plan, way).weight_at(share) == 0
            inside = not alone and self.candidates.is_inside(question, kind, way)
            spreads = self._spreads_for(question.plan, way, share, inside=inside)
            found.append(
                Estimate.around(float(log), spreads, kind=kind, level=self.level, inside=inside)
            )
        return found

    def _logs(
        self, questions: Sequence[SizedPlan], ways: Sequence[tuple[Asks, Mimicry | None]]
    ) -> Floats:
        answers, support = np.zeros(len(questions)), self._support(questions)
        keys = [key_of(way) for _, way in ways]
        for key in dict.fromkeys(keys):
            rows = [row for row, each in enumerate(keys) if each == key]
            way, some = ways[rows[0]][1], [questions[row] for row in rows]
            standings = [self._standing(each.plan, way) for each in some]
            shares = zip(standings, support[rows].tolist(), strict=True)
            weights = np.array([each.weight_at(share) for each, share in shares])
            variances = np.array([each.variance for each in standings])
            asked, found = self._weighted(some, way, weights)
            answers[rows] = self.candidates.repeats.drawn(asked, found, variances)
        return answers

    def _weighted(
        self, questions: Sequence[SizedPlan], way: Mimicry | None, weights: Floats
    ) -> tuple[Samples, Floats]:
        """The questions in numbers, and answers of the mix at these weights beside the start."""
        mixture, start = self._mixture(way), self._start
        names = {name for name, weight in mixture.weights.items() if weight > 0}
        if start is None or (weights == 1).all():
            asked = self._encoded(questions, names)
            return asked, mixture(asked)
        asked = self._encoded(questions, {*names, start.name})
        plans = [each.plan for each in questions]
        from_start = told_by_start(start, self.candidates.known, asked, plans)
        return asked, from_start + weights * (mixture(asked) - from_start)

    def _encoded(self, questions: Sequence[SizedPlan], names: Container[str]) -> Samples:
        """Questions with the answers of the start models that learners of these names need."""
        needed = {each.start for each in self.learners if each.name in names}
        starts = {k: start for k, start in self.candidates.starts.items() if k in needed}
        return encode(questions, starts)

    def _support(self, questions: Sequence[SizedPlan]) -> Floats:
        """Share of each plan's operators that own executions can speak for, in [0, 1].

        1 where there is no start that could speak instead.
        """
        if self._start is None or len(self.candidates.known) == 0:
            return np.ones(len(questions))
        hull = self.candidates.hull
        share = hull.share_seen if self._has_pairs() else hull.share_seen_apart
        return np.array([share(each.plan) for each in questions])

    def _has_pairs(self) -> bool:
        return len(self.candidates.known) >= PAIRS_FROM

    @property
    def _start(self) -> Learner | None:
        """The most trusted learner that needs no own executions, but a start model."""
        able = (each for each in self.learners if each.start is not None and each.fewest == 0)
        return next(able, None)

    def _standing(self, plan: Plan, way: Mimicry | None) -> Standing:
        """What the mix for such folds is worth on the like of `plan`; computed once."""
        key = (key_of(way), plan)
        if key not in self._standings:
            self._standings[key] = self._weighed_again(plan, way)
        return self._standings[key]

    def _weighed_again(self, plan: Plan, way: Mimicry | None) -> Standing:
        outcome, known = self.outcome(way), self.candidates.known
        like = alike(known, plan)
        start = self._start
        if start is None or like.all() or not self._has_pairs():
            return of_mix_alone(outcome.errors, outcome.groups)
        if not like.any():
            return of_start_alone()
        rows, chosen = outcome.rows, like[outcome.rows]
        if way is not None and len(np.unique(outcome.groups[chosen])) < MIMICKED_FROM:
            return self._standing(plan, None)
        nothing = np.zeros(0, np.int64)
        fitted = start.fit(known.samples.take(nothing), known.log_seconds[nothing])
        of_start = (known.log_seconds - fitted(known.samples))[rows[chosen]]
        return against_start(of_start, outcome.errors[chosen], outcome.groups[chosen])

    def _spreads_for(
        self, plan: Plan, way: Mimicry | None, share: float, *, inside: bool
    ) -> tuple[Spread, ...]:
        """Of what speaks for a question of which own executions know that share."""
        own = tuple(self._standing(plan, each).spread for each in dict.fromkeys((None, way)))
        of_start = () if share == 1 else (Spread.of_start(widened=inside),)
        return (*of_start, *(own if share > 0 else ()))

    def _mixture(self, way: Mimicry | None) -> Mixture:
        return Mixture.of(self.outcome(way), self.candidates.fit)


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
    used = tuple(each for each in learners if usable(each, len(history), starts))
    needed = {each.start: starts[each.start] for each in used if each.start is not None}
    known = known_of(history, needed)
    streams = streams_known(history, known)
    drifts = tuple(drift for stream in streams for drift in stream.drifts)
    hull = Hull.around(history.questions)
    current = as_of_today(known, streams)
    return Candidates(current, hull, used, needed, seed, on_progress, drifts)


def personalize(
    history: History,
    starts: Mapping[str, PredictLog],
    learners: Iterable[Learner],
    *,
    seed: int = 0,
    level: float = 0.9,
) -> Personalized:
    """Mix `learners` for the organization whose own executions are `history`.

    Arguments and errors as `candidates_of` and `Candidates.mix`.
    """
    candidates = candidates_of(history, starts, learners, seed=seed)
    return candidates.mix(candidates.learners, level=level)


def key_of(way: Mimicry | None) -> Key:
    """What mixes for such folds are kept by."""
    return INSIDE if way is None else (way.kind, way.cut)
