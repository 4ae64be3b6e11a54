"""Personalization: what an organization predicts the run times of plans with.

A question lies inside of what was seen, between or beyond known scales (cores over all
nodes), or between or beyond known sizes (rows of all sources). For each kind a mix of its own
answers (`Candidates`). Whose word counts is decided from the nearest evidence on:

* what ran before exactly so is answered by its own times, what ran on other resources by these
  times and what the start says of the change (`repeats`); unknown rows by nothing else;
* own executions speak for their own engines alone, or for those that ran with these in one plan
  (`ExecutionSimilarity.kin`): what another engine or a campaign of commands ran never moves an
  answer;
* of these, they speak for kinds of operators on platforms that they hold together, at about such
  rows and cores (`TrainingSupport.support_fraction`), as far as the mix was better than the best
  start on the like of the question (`Reliability`);
* for the rest the start speaks, as far off as is claimed of it: own jobs of another kind never
  override a better start.

Members agree where they were weighed, and may not on a question that is otherwise: how far they lie
apart bounds the width from below. Failed and stopped runs are lower bounds (`with_lower_bound`).

For each kind of question that is asked for, and not before, learners are weighed by how wrong they
were in folds that mimic it. Executions of one workload are never split by folds for questions
inside; repeats of one configuration are never split at all.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.ensemble.ensemble import (
    CrossValidationErrors,
    EnsembleMember,
    EnsemblePrediction,
    EnsembleWeights,
    FittedEnsemble,
    OnProgress,
    Reliability,
    TrainingSet,
    fit_reliability,
    mix_only,
    spread_about,
    start_on_similar,
    start_only,
    weigh,
    zero_shot_errors,
)
from fedperf_client.prediction.ensemble.intervals import (
    WIDENING,
    Basis,
    Distribution,
    ErrorDistribution,
    Estimate,
    EvidenceSource,
    StudentT,
    estimate_error_correlation,
    half_width,
    least_log_seconds,
    narrowest,
    with_lower_bound,
    with_more,
)
from fedperf_client.prediction.ensemble.learner_catalogue import NoLearnerError, own_share, usable
from fedperf_client.prediction.ensemble.local_training_data import LocalSummary, LocalTrainingData
from fedperf_client.prediction.ensemble.platform_size_limits import (
    HULL_MARGIN,
    ExecutionSimilarity,
    TrainingSupport,
)
from fedperf_client.prediction.ensemble.repeats import (
    RepeatPrediction,
    ResourceChange,
)
from fedperf_client.prediction.ensemble.weighting import (
    LEVEL_STEP,
    HoldoutSplit,
    QueryRegime,
    ScaleAndSize,
    asks,
    closest_scheme,
    deepest,
    depth,
    grouped_folds,
    holdout_splits,
)
from fedperf_client.prediction.execution_table import ExecutionTable, numbered
from fedperf_client.prediction.learners.base_learners import PUBLIC, Fitted, Learner
from fedperf_client.prediction.prediction import Floats, Prediction, PredictLog
from fedperf_client.prediction.query_encoding import (
    EncodedQueries,
    History,
    encode,
    engines_of,
    identities,
)
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.pretrained import (
    UNKNOWN_SIZE,
    estimates_half_width,
    other_engine_half_width,
)

Key = tuple[QueryRegime, int]
"""What is mimicked, and the cut of its folds (`HoldoutSplit`)."""

MIMICKED_FROM = 20
"""Workloads that folds must hold out to be believed. Of fewer a model that has learnt nothing
is right by chance too often; then folds leave workloads out, as for questions inside."""

KEPT_SHARE = 2 / 3
"""Of the workloads, that a fold must keep: who knows much less is no witness."""
INSIDE: Key = (QueryRegime.SEEN, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Own executions in numbers, and who may predict from them.

    Attributes:
        known: own executions that are learnt from.
        facts: of all own executions.
        learners: those that can be used with this history and these starts.
        starts: log predictions of the start models that they need, by name.
        seed: of folds that leave workloads out.
        on_progress: told of every weighing.
        fits: candidates that were needed so far, fitted on all own executions.
        numbers: of the configuration of each that is learnt from.
        plans: of its plan, see `EncodedQueries.plans`.
        similarity: which of them are like a question.
    """

    known: TrainingSet
    facts: LocalSummary
    learners: tuple[Learner, ...]
    starts: Mapping[str, PredictLog]
    seed: int = 0
    on_progress: OnProgress | None = None
    _ways: dict[QueryRegime, list[HoldoutSplit]] = field(default_factory=dict)
    _weighed: dict[Key, CrossValidationErrors] = field(default_factory=dict)
    _depths: dict[tuple[QueryRegime, Key], float] = field(default_factory=dict)
    _parts: dict[int, "Candidates"] = field(default_factory=dict)
    fits: dict[str, Fitted] = field(default_factory=dict)
    numbers: NDArray[np.int64] = field(init=False)
    plans: NDArray[np.int64] = field(init=False)
    similarity: ExecutionSimilarity = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", self.known.by_workload())
        numbers = numbered(self.known.samples.configurations())
        object.__setattr__(self, "numbers", numbers)
        object.__setattr__(self, "plans", self.known.samples.plans())
        object.__setattr__(self, "similarity", ExecutionSimilarity.of(self.known))

    @property
    def hull(self) -> TrainingSupport:
        """What was seen."""
        return self.facts.hull

    def part(self, kin: int) -> "Candidates":
        """The same of executions of some engines alone, see `ExecutionSimilarity.kin`; cached.

        What others ran says nothing of a question. All are asked where nothing else could answer.
        """
        rows = np.flatnonzero(self.similarity.engines & kin)
        if len(rows) == len(self.known) or not (len(rows) or self.starts):
            return self
        if kin not in self._parts:
            self._parts[kin] = replace(
                self,
                known=self.known.take(rows),
                facts=replace(self.facts, hull=self.hull.of_engines(kin)),
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

    def ways_of(self, asked: ScaleAndSize) -> list[tuple[QueryRegime, HoldoutSplit | None]]:
        """For each of the places what it asks, and how to mimic it where that is possible."""
        kinds = asks(self.known.places, asked, size_step=HULL_MARGIN)
        return [(kind, self._way(kind, asked, row)) for row, kind in enumerate(kinds)]

    def is_inside(
        self, question: PlanOnCluster, kind: QueryRegime, way: HoldoutSplit | None
    ) -> bool:
        """Whether the question is one that folds can speak for."""
        if kind.is_beyond or not self.hull.contains(question):
            return False
        if kind is QueryRegime.SEEN:
            return True
        if (kind, key_of(way)) not in self._depths:
            folds = grouped_folds(self.known.groups, self.seed) if way is None else way.folds
            self._depths[kind, key_of(way)] = deepest(self.known.places, kind, folds)
        asked = depth(self.known.places, ScaleAndSize.of([question]), kind)
        return asked <= self._depths[kind, key_of(way)] + LEVEL_STEP

    def support(
        self, questions: Sequence[PlanOnCluster], *, by_pairs: bool, start: Learner | None
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
            return np.array([self.hull.support_fraction(each) for each in questions])
        return np.array([self.hull.share_seen_apart(each.plan) for each in questions])

    def alike_in_sources(self, questions: Sequence[PlanOnCluster]) -> list[bytes]:
        """The executions whose level the start is told for each, as bytes of a mask."""
        return [self.similarity.alike(each, sources=True).tobytes() for each in questions]

    def changes(
        self, asked: EncodedQueries, log_cores: Floats, start: Learner | None
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
        self, question: PlanOnCluster, mixed: EnsemblePrediction, mix_variance: float
    ) -> tuple[RepeatPrediction | None, Floats, Floats]:
        """What own runs say beside a mix; log seconds of those cut, and ended, of exactly this."""
        asked = mixed.identity
        if asked.job:
            tasks = 0 if question.job is None else question.job.tasks
            answer = self.facts.apart.answer(asked, math.log(question.cluster.cores), tasks=tasks)
            cut, ended = (self.facts.apart.runs_of(asked, is_ok=each) for each in (False, True))
            return answer, cut, ended
        number = asked.configuration
        repeated = self.facts.repeats.answer(
            number, mixed.log_seconds, mix_variance, change=mixed.change
        )
        return (
            repeated,
            self.facts.cut_short.runs_of(number),
            self.facts.repeats.runs_of(number),
        )

    def weigh(self, way: HoldoutSplit | None) -> CrossValidationErrors:
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

    def _way(self, kind: QueryRegime, asked: ScaleAndSize, row: int) -> HoldoutSplit | None:
        if kind not in self._ways:
            ways = holdout_splits(self.known.places, kind, self.known.samples.features)
            self._ways[kind] = [way for way in ways if self._tells_enough(way)]
        one = ScaleAndSize(asked.scale[row : row + 1], asked.size[row : row + 1])
        return closest_scheme(self._ways[kind], self.known.places, one)

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

    def _tells_enough(self, way: HoldoutSplit) -> bool:
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
    home = LocalTrainingData.of_history(table, is_timed=is_timed)
    known = home.known(samples.features, samples.starts)
    return Candidates(known, home.facts, used, needed, seed, on_progress)


def key_of(way: HoldoutSplit | None) -> Key:
    """What mixes for such folds are kept by."""
    return INSIDE if way is None else (way.kind, way.cut)


PAIRS_FROM = 10
"""Own executions from which pairs of kind and platform are asked for. Fewer hardly see one twice,
and what is mixed for them is mostly the start with its level moved."""

MOSTLY = 2 / 3
"""Share of an answer from which on it is said to rest on one thing alone."""

MOST_HELD = 256
"""Answers that are held for whoever asks the same again, and reliabilities for the like."""

HELD_TOGETHER = 16
"""Questions asked together whose answers are held; more are of a search, and asked once."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

TrainingMode = tuple[QueryRegime, HoldoutSplit | None]
"""What a question asks, and how to mimic it where that is possible."""


@dataclass(frozen=True, slots=True, eq=False)
class PersonalizedEnsemble:
    """A weighted mix for every kind of question.

    Attributes:
        candidates: among whom the members are.
        learners: those that may be mixed.
        level: of the intervals.
        outcomes: what weighing came to, for each kind asked for so far.
        parts: of the executions of some engines alone, see `part`.
    """

    candidates: Candidates
    learners: tuple[Learner, ...]
    level: float
    outcomes: dict[Key, EnsembleWeights] = field(default_factory=dict)
    parts: dict[int, "PersonalizedEnsemble"] = field(default_factory=dict)
    _wanted: tuple[Learner, ...] = ()
    _answers: dict[tuple[PlanOnCluster, ...], list[Estimate]] = field(default_factory=dict)
    _reliabilities: dict[tuple[Key, bytes], Reliability] = field(default_factory=dict)
    _start_fits: dict[bytes, Fitted] = field(default_factory=dict)
    _start_errors: dict[str, Floats] = field(default_factory=dict)
    _error_correlations: dict[Key, float] = field(default_factory=dict)

    @classmethod
    def of(cls, candidates: Candidates, learners: Iterable[Learner], *, level: float = 0.9) -> Self:
        """A mix of those `learners` that can be used; without executions the first counts.

        Args:
            candidates: who may predict from own executions.
            learners: in any number; they count by name, where they can be used themselves.
            level: of the intervals.

        Raises:
            NoLearnerError: none of them can be used.
        """
        wanted = tuple(learners)
        return cls(candidates, candidates.usable(wanted), level, _wanted=wanted)

    @property
    def members(self) -> tuple[EnsembleMember, ...]:
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

    def outcome(self, way: HoldoutSplit | None = None) -> EnsembleWeights:
        """What weighing came to in such folds; those that leave workloads out by default."""
        key = key_of(way)
        if key not in self.outcomes:
            self.outcomes[key] = self.candidates.weigh(way).outcome(self.learners)
        return self.outcomes[key]

    def predict_log(self, questions: Sequence[PlanOnCluster]) -> Floats:
        """Natural log of the median wall seconds, [questions]."""
        return np.log([each.median_seconds for each in self.predict(questions)])

    def predict(self, questions: Sequence[PlanOnCluster]) -> list[Prediction]:
        """Medians with conformal intervals, in the order of `questions`."""
        return [each.prediction for each in self.estimate(questions)]

    def estimate(self, questions: Sequence[PlanOnCluster]) -> list[Estimate]:
        """As `predict`, with the upper end, the chance to keep a deadline, and the basis.

        A few questions that were asked before, together, have the answers of then.
        """
        if len(questions) > HELD_TOGETHER:
            return self._answered(questions)
        return [*_held(self._answers, tuple(questions), lambda: self._answered(questions))]

    def part(self, kin: int) -> "PersonalizedEnsemble":
        """The mix of the executions of some engines alone, see `Candidates.part`."""
        candidates = self.candidates.part(kin)
        if candidates is self.candidates:
            return self
        mix = partial(PersonalizedEnsemble.of, candidates, self._wanted, level=self.level)
        return _held(self.parts, kin, mix)

    def at_home(self) -> dict[int, "PersonalizedEnsemble"]:
        """The mixes of engines that ran in one plan, by their bits; of all where none did."""
        similarity = self.candidates.similarity
        kins = {similarity.kin(each): None for each in similarity.engines.tolist()}
        return {kin: self.part(kin) for kin in kins or {-1: None}}

    def mixes(self) -> dict[int, "PersonalizedEnsemble"]:
        """This mix by all bits of engines, and its parts by their engines."""
        return {-1: self, **self.parts}

    def _answered(self, questions: Sequence[PlanOnCluster]) -> list[Estimate]:
        _drop_oldest(self._answers)
        rows, found = defaultdict[int, list[int]](list), dict[int, Estimate]()
        for row, question in enumerate(questions):
            rows[self.candidates.similarity.kin(engines_of(question.plan))].append(row)
        for kin, of_kin in rows.items():
            asked = [questions[row] for row in of_kin]
            found.update(zip(of_kin, self.part(kin)._answered_by_kin(asked), strict=True))
        return [found[row] for row in range(len(questions))]

    def _answered_by_kin(self, questions: Sequence[PlanOnCluster]) -> list[Estimate]:
        _drop_oldest(self._reliabilities)
        _drop_oldest(self._start_fits)
        ways = self.candidates.ways_of(ScaleAndSize.of(questions))
        alike = [self.candidates.similarity.alike(each).tobytes() for each in questions]
        shares = self.candidates.support(
            questions, by_pairs=len(self.candidates.known) >= PAIRS_FROM, start=self._start
        )
        mixed = self._mixed(questions, ways, alike, shares=shares)
        answered = zip(questions, ways, alike, shares.tolist(), mixed, strict=True)
        return [
            self._estimate(question, way, like, share=share, mixed=each)
            for question, way, like, share, each in answered
        ]

    def _estimate(
        self,
        question: PlanOnCluster,
        asked: TrainingMode,
        like: bytes,
        *,
        share: float,
        mixed: EnsemblePrediction,
    ) -> Estimate:
        kind, way = asked
        candidates, reliability = self.candidates, self._reliability(like, way)
        repeated, cut, ended = candidates.own_runs(question, mixed, reliability.variance)
        spread: Distribution
        if repeated is not None:
            log_seconds, spread = repeated.log_seconds, repeated.spread
            inside = repeated.is_exact or candidates.is_inside(question, kind, way)
            kind, basis = QueryRegime.SEEN if repeated.is_exact else kind, repeated.basis
        elif (job := question.job) is not None and not job.has_rows:
            inside, basis, spread = (
                False,
                Basis(EvidenceSource.UNKNOWN_ROWS),
                StudentT.within(UNKNOWN_SIZE),
            )
            log_seconds = math.log(job.seconds) if job.seconds > 0 else mixed.log_seconds
        else:
            # One workload that is alike cannot be left out to see how far off the others are.
            is_judged = mixed.weight > 0 and reliability.spread.workloads > 1
            inside = is_judged and candidates.is_inside(question, kind, way)
            log_seconds, basis = mixed.log_seconds, self._basis(mixed.weight, way)
            own = self._own_spreads(like, way, share)
            told = share if inside or basis.is_own else 0.0
            factor = 1.0 if inside or not basis.is_own else WIDENING
            spread = spread_about(question, own, told, factor=factor, level=self.level)
            spread = mixed.widened_by_disagreement(spread, reliability.spread, self.level)
            if self._start is not None:
                most = spread_about(question, own, level=self.level)
                spread = narrowest((spread, most), self.level)
            factor = 1 + other_engine_half_width(question) / half_width(spread, self.level)
            spread = with_more(spread, 0.0, factor)
            basis = basis.sharing(estimates_half_width(question), spread)
        if basis.rests_on is not EvidenceSource.OWN_RUNS:
            log_seconds = max(log_seconds, least_log_seconds(question))
        spread = with_lower_bound(log_seconds, spread, cut=cut, ended=ended)
        return Estimate.around(
            log_seconds, spread, kind=kind, level=self.level, inside=inside, basis=basis
        )

    def _mixed(
        self,
        questions: Sequence[PlanOnCluster],
        ways: Sequence[TrainingMode],
        alike: Sequence[bytes],
        *,
        shares: Floats,
    ) -> list[EnsemblePrediction]:
        """Answers of mixes beside the start, [questions]."""
        found: dict[int, EnsemblePrediction] = {}
        keys = [key_of(way) for _, way in ways]
        for key in dict.fromkeys(keys):
            rows = [row for row, each in enumerate(keys) if each == key]
            way, some = ways[rows[0]][1], [questions[row] for row in rows]
            reliabilities = [self._reliability(alike[row], way) for row in rows]
            found.update(
                zip(rows, self._weighted(some, way, reliabilities, shares[rows]), strict=True)
            )
        return [found[row] for row in range(len(questions))]

    def _weighted(
        self,
        questions: Sequence[PlanOnCluster],
        way: HoldoutSplit | None,
        reliabilities: Sequence[Reliability],
        shares: Floats,
    ) -> list[EnsemblePrediction]:
        """Answers of the mix beside the start, which gains where members lie apart."""
        mixture, start = FittedEnsemble.of(self.outcome(way), self.candidates.fit), self._start
        names = {name for name, weight in mixture.weights.items() if weight > 0}
        asked = self._encoded(questions, names if start is None else {*names, start.name})
        logs, variances = mixture.answers(asked)
        weights = np.array([s.weight_at(k) for s, k in zip(reliabilities, shares, strict=True)])
        if start is not None:
            beyond = np.maximum(variances - mixture.outcome.apart, 0.0)
            alone, groups = self._errors_of(start), self.candidates.known.groups
            weights /= 1 + beyond / mix_only(alone, groups).variance
        if start is not None and (weights < 1).any():
            own = partial(start_on_similar, start, self.candidates.known)
            fits = [
                _held(self._start_fits, like, partial(own, like))
                for like in self.candidates.alike_in_sources(questions)
            ]
            by_start = [fit(asked.take(np.array([row]))) for row, fit in enumerate(fits)]
            from_start, of_mix = np.concatenate(by_start), logs
            logs = from_start + weights * (of_mix - from_start)
            variances = weights * (variances + (1 - weights) * (of_mix - from_start) ** 2)
        changes = self.candidates.changes(asked, ScaleAndSize.of(questions).scale, start)
        known_as = identities(questions, asked)
        told = (each.tolist() for each in (logs, variances, weights))
        return [*map(EnsemblePrediction, known_as, *told, changes)]

    def _encoded(self, questions: Sequence[PlanOnCluster], names: Container[str]) -> EncodedQueries:
        """Questions with the answers of the start models that learners of these names need."""
        needed = {each.start for each in self.learners if each.name in names}
        starts = {k: start for k, start in self.candidates.starts.items() if k in needed}
        return encode(questions, starts)

    @property
    def _start(self) -> Learner | None:
        """The most trusted learner that needs no own executions, but a start model."""
        able = (each for each in self.learners if each.start is not None and each.fewest == 0)
        return next(able, None)

    def _reliability(self, alike: bytes, way: HoldoutSplit | None) -> Reliability:
        """What the mix for such folds is worth on executions that are alike, of a `Mask`."""
        key = (key_of(way), alike)
        return _held(self._reliabilities, key, lambda: self._weighed_on(alike, way))

    def _weighed_on(self, alike: bytes, way: HoldoutSplit | None) -> Reliability:
        outcome = self.outcome(way)
        start, like = self._start, np.frombuffer(alike, np.bool_)
        if start is None or like.all() or len(self.candidates.known) < PAIRS_FROM:
            return mix_only(outcome.errors, outcome.groups)
        if not like.any():
            return start_only()
        rows, chosen = outcome.rows, like[outcome.rows]
        if way is not None and len(np.unique(outcome.groups[chosen])) < MIMICKED_FROM:
            return self._reliability(alike, None)
        own = outcome.errors[chosen], outcome.groups[chosen]
        return fit_reliability(self._errors_of(start)[rows[chosen]], *own)

    def _errors_of(self, start: Learner) -> Floats:
        """Of the start alone on own executions, see `zero_shot_errors`."""
        known = self.candidates.known
        return _held(self._start_errors, start.name, lambda: zero_shot_errors(start, known))

    def _own_spreads(
        self, like: bytes, way: HoldoutSplit | None, share: float
    ) -> list[ErrorDistribution]:
        """What own executions tell that are alike, where they know a share of a question."""
        spreads = (self._reliability(like, each).spread for each in dict.fromkeys((None, way)))
        return [each for each in spreads if share > 0 and each.workloads > 0]

    def _basis(self, weight: float, way: HoldoutSplit | None) -> Basis:
        """What a mix of that weight beside the start rests on."""
        shares = {each.name: own_share(each) for each in self.learners}
        own = weight * sum(shares[each.name] * each.weight for each in self.outcome(way).members)
        error_correlation = self._error_correlation(way)
        if own >= MOSTLY:
            return Basis(EvidenceSource.OWN_JOBS, error_correlation=error_correlation)
        if own > 1 - MOSTLY:
            return Basis(EvidenceSource.OWN_JOBS_AND_START, error_correlation=error_correlation)
        start = self._start
        ships = start is None or start.start == PUBLIC
        return Basis(
            EvidenceSource.START if ships else EvidenceSource.SHARED,
            error_correlation=error_correlation,
        )

    def _error_correlation(self, way: HoldoutSplit | None) -> float:
        key, outcome = key_of(way), self.outcome(way)
        if key not in self._error_correlations:
            configurations = self.candidates.numbers[outcome.rows]
            self._error_correlations[key] = estimate_error_correlation(
                outcome.errors, outcome.groups, configurations
            )
        return self._error_correlations[key]


def _held(held: dict[_Key, _Value], key: _Key, computed: Callable[[], _Value]) -> _Value:
    """What is held by that key, computed where nothing is."""
    if key not in held:
        held[key] = computed()
    return held[key]


def _drop_oldest(held: dict[_Key, _Value]) -> None:
    for key in list(held)[:-MOST_HELD]:
        del held[key]


def fit_personalized_ensemble(
    history: History,
    starts: Mapping[str, PredictLog],
    learners: Iterable[Learner],
    *,
    seed: int = 0,
    level: float = 0.9,
) -> PersonalizedEnsemble:
    """Mix `learners` for the organization whose own executions are `history`.

    Arguments and errors as `candidates_of` and `PersonalizedEnsemble.of`.
    """
    candidates = candidates_of(history, starts, learners, seed=seed)
    return PersonalizedEnsemble.of(candidates, candidates.learners, level=level)
