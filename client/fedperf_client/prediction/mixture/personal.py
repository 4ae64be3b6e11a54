"""Personalization: what an organization predicts the run times of plans with.

A question lies inside of what was seen, between or beyond known scales (cores over all
nodes), or between or beyond known sizes (rows of all sources). For each kind a mix of its own
answers (`candidates`). Whose word counts is decided from the nearest evidence on:

* what ran before exactly so is answered by its own times, what ran on other resources by these
  times and what the start says of the change (`repeat_spread`); unknown rows by nothing else;
* own executions speak for their own engines alone, or for those that ran with these in one plan
  (`Likeness.kin`): what another engine or a campaign of commands ran never moves an answer;
* of these, they speak for kinds of operators on platforms that they hold together, at about such
  rows and cores (`Hull.share_seen`), as far as the mix was better than the best start on the
  like of the question (`standing`);
* for the rest the start speaks, as far off as is claimed of it: own jobs of another kind never
  override a better start.

Members agree where they were weighed, and may not on a question that is otherwise: how far they lie
apart bounds the width from below. Failed and stopped runs are lower bounds (`lower_bounds`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self, TypeVar

import numpy as np

from fedperf_client.prediction.evidence import History, Samples, encode, engines_of, identities
from fedperf_client.prediction.learners.learner import Fitted, Learner
from fedperf_client.prediction.learners.residual_learners import PUBLIC
from fedperf_client.prediction.mixture.candidates import (
    MIMICKED_FROM,
    Candidates,
    Key,
    candidates_of,
    key_of,
)
from fedperf_client.prediction.mixture.intervals import (
    WIDENING,
    Basis,
    Estimate,
    RestsOn,
    kinship_of,
)
from fedperf_client.prediction.mixture.learner_catalogue import own_share
from fedperf_client.prediction.mixture.lower_bounds import heeded, least_log_seconds
from fedperf_client.prediction.mixture.matched_folds import Asks, Mimicry, Places
from fedperf_client.prediction.mixture.mixture import MixAnswer, MixMember, MixOutcome, Mixture
from fedperf_client.prediction.mixture.spreads import (
    Distribution,
    Spread,
    Student,
    half_width,
    narrowest,
    with_more,
)
from fedperf_client.prediction.mixture.standing import (
    Standing,
    against_start,
    errors_alone,
    of_mix_alone,
    of_start_alone,
    spread_about,
    start_told,
)
from fedperf_client.prediction.prediction import Floats, Prediction, PredictLog
from fedperf_shared.execution import SizedPlan
from fedperf_shared.model.start_widths import (
    UNKNOWN_SIZE,
    estimates_half_width,
    other_engine_half_width,
)

PAIRS_FROM = 10
"""Own executions from which pairs of kind and platform are asked for. Fewer hardly see one twice,
and what is mixed for them is mostly the start with its level moved."""

MOSTLY = 2 / 3
"""Share of an answer from which on it is said to rest on one thing alone."""

MOST_HELD = 256
"""Answers that are held for whoever asks the same again, and standings for the like."""

HELD_TOGETHER = 16
"""Questions asked together whose answers are held; more are of a search, and asked once."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

Way = tuple[Asks, Mimicry | None]
"""What a question asks, and how to mimic it where that is possible."""


@dataclass(frozen=True, slots=True, eq=False)
class PersonalMix:
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
    outcomes: dict[Key, MixOutcome] = field(default_factory=dict)
    parts: dict[int, "PersonalMix"] = field(default_factory=dict)
    _wanted: tuple[Learner, ...] = ()
    _answers: dict[tuple[SizedPlan, ...], list[Estimate]] = field(default_factory=dict)
    _standings: dict[tuple[Key, bytes], Standing] = field(default_factory=dict)
    _start_fits: dict[bytes, Fitted] = field(default_factory=dict)
    _start_errors: dict[str, Floats] = field(default_factory=dict)
    _kinships: dict[Key, float] = field(default_factory=dict)

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

    def outcome(self, way: Mimicry | None = None) -> MixOutcome:
        """What weighing came to in such folds; those that leave workloads out by default."""
        key = key_of(way)
        if key not in self.outcomes:
            self.outcomes[key] = self.candidates.weigh(way).outcome(self.learners)
        return self.outcomes[key]

    def predict_log(self, questions: Sequence[SizedPlan]) -> Floats:
        """Natural log of the median wall seconds, [questions]."""
        return np.log([each.median_seconds for each in self.predict(questions)])

    def predict(self, questions: Sequence[SizedPlan]) -> list[Prediction]:
        """Medians with conformal intervals, in the order of `questions`."""
        return [each.prediction for each in self.estimate(questions)]

    def estimate(self, questions: Sequence[SizedPlan]) -> list[Estimate]:
        """As `predict`, with the upper end, the chance to keep a deadline, and the basis.

        A few questions that were asked before, together, have the answers of then.
        """
        if len(questions) > HELD_TOGETHER:
            return self._answered(questions)
        return [*_held(self._answers, tuple(questions), lambda: self._answered(questions))]

    def part(self, kin: int) -> "PersonalMix":
        """The mix of the executions of some engines alone, see `Candidates.part`."""
        candidates = self.candidates.part(kin)
        if candidates is self.candidates:
            return self
        mix = partial(PersonalMix.of, candidates, self._wanted, level=self.level)
        return _held(self.parts, kin, mix)

    def at_home(self) -> dict[int, "PersonalMix"]:
        """The mixes of engines that ran in one plan, by their bits; of all where none did."""
        likeness = self.candidates.likeness
        kins = {likeness.kin(each): None for each in likeness.engines.tolist()}
        return {kin: self.part(kin) for kin in kins or {-1: None}}

    def mixes(self) -> dict[int, "PersonalMix"]:
        """This mix by all bits of engines, and its parts by their engines."""
        return {-1: self, **self.parts}

    def _answered(self, questions: Sequence[SizedPlan]) -> list[Estimate]:
        _drop_oldest(self._answers)
        rows, found = defaultdict[int, list[int]](list), dict[int, Estimate]()
        for row, question in enumerate(questions):
            rows[self.candidates.likeness.kin(engines_of(question.plan))].append(row)
        for kin, of_kin in rows.items():
            asked = [questions[row] for row in of_kin]
            found.update(zip(of_kin, self.part(kin)._answered_by_kin(asked), strict=True))
        return [found[row] for row in range(len(questions))]

    def _answered_by_kin(self, questions: Sequence[SizedPlan]) -> list[Estimate]:
        _drop_oldest(self._standings)
        _drop_oldest(self._start_fits)
        ways = self.candidates.ways_of(Places.of(questions))
        alike = [self.candidates.likeness.alike(each).tobytes() for each in questions]
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
        question: SizedPlan,
        asked: Way,
        like: bytes,
        *,
        share: float,
        mixed: MixAnswer,
    ) -> Estimate:
        kind, way = asked
        candidates, standing = self.candidates, self._standing(like, way)
        repeated, cut, ended = candidates.own_runs(question, mixed, standing.variance)
        spread: Distribution
        if repeated is not None:
            log_seconds, spread = repeated.log_seconds, repeated.spread
            inside = repeated.is_exact or candidates.is_inside(question, kind, way)
            kind, basis = Asks.SEEN if repeated.is_exact else kind, Basis.of_runs(repeated)
        elif (job := question.job) is not None and not job.has_rows:
            inside, basis, spread = False, Basis(RestsOn.UNKNOWN_ROWS), Student.within(UNKNOWN_SIZE)
            log_seconds = math.log(job.seconds) if job.seconds > 0 else mixed.log_seconds
        else:
            # One workload that is alike cannot be left out to see how far off the others are.
            is_judged = mixed.weight > 0 and standing.spread.workloads > 1
            inside = is_judged and candidates.is_inside(question, kind, way)
            log_seconds, basis = mixed.log_seconds, self._basis(mixed.weight, way)
            own = self._own_spreads(like, way, share)
            told = share if inside or basis.is_own else 0.0
            factor = 1.0 if inside or not basis.is_own else WIDENING
            spread = spread_about(question, own, told, factor=factor, level=self.level)
            spread = mixed.heeded(spread, standing.spread, self.level)
            if self._start is not None:
                most = spread_about(question, own, level=self.level)
                spread = narrowest((spread, most), self.level)
            factor = 1 + other_engine_half_width(question) / half_width(spread, self.level)
            spread = with_more(spread, 0.0, factor)
            basis = basis.sharing(estimates_half_width(question), spread)
        if basis.rests_on is not RestsOn.OWN_RUNS:
            log_seconds = max(log_seconds, least_log_seconds(question))
        spread = heeded(log_seconds, spread, cut=cut, ended=ended)
        return Estimate.around(
            log_seconds, spread, kind=kind, level=self.level, inside=inside, basis=basis
        )

    def _mixed(
        self,
        questions: Sequence[SizedPlan],
        ways: Sequence[Way],
        alike: Sequence[bytes],
        *,
        shares: Floats,
    ) -> list[MixAnswer]:
        """Answers of mixes beside the start, [questions]."""
        found: dict[int, MixAnswer] = {}
        keys = [key_of(way) for _, way in ways]
        for key in dict.fromkeys(keys):
            rows = [row for row, each in enumerate(keys) if each == key]
            way, some = ways[rows[0]][1], [questions[row] for row in rows]
            standings = [self._standing(alike[row], way) for row in rows]
            found.update(zip(rows, self._weighted(some, way, standings, shares[rows]), strict=True))
        return [found[row] for row in range(len(questions))]

    def _weighted(
        self,
        questions: Sequence[SizedPlan],
        way: Mimicry | None,
        standings: Sequence[Standing],
        shares: Floats,
    ) -> list[MixAnswer]:
        """Answers of the mix beside the start, which gains where members lie apart."""
        mixture, start = self._mixture(way), self._start
        names = {name for name, weight in mixture.weights.items() if weight > 0}
        asked = self._encoded(questions, names if start is None else {*names, start.name})
        logs, variances = mixture.answers(asked)
        weights = np.array([s.weight_at(k) for s, k in zip(standings, shares, strict=True)])
        if start is not None:
            beyond = np.maximum(variances - mixture.outcome.apart, 0.0)
            alone, groups = self._errors_of(start), self.candidates.known.groups
            weights /= 1 + beyond / of_mix_alone(alone, groups).variance
        if start is not None and (weights < 1).any():
            own = partial(start_told, start, self.candidates.known)
            fits = [
                _held(self._start_fits, like, partial(own, like))
                for like in self.candidates.alike_in_sources(questions)
            ]
            by_start = [fit(asked.take(np.array([row]))) for row, fit in enumerate(fits)]
            from_start, of_mix = np.concatenate(by_start), logs
            logs = from_start + weights * (of_mix - from_start)
            variances = weights * (variances + (1 - weights) * (of_mix - from_start) ** 2)
        changes = self.candidates.changes(asked, Places.of(questions).scale, start)
        known_as = identities(questions, asked)
        told = (each.tolist() for each in (logs, variances, weights))
        return [*map(MixAnswer, known_as, *told, changes)]

    def _encoded(self, questions: Sequence[SizedPlan], names: Container[str]) -> Samples:
        """Questions with the answers of the start models that learners of these names need."""
        needed = {each.start for each in self.learners if each.name in names}
        starts = {k: start for k, start in self.candidates.starts.items() if k in needed}
        return encode(questions, starts)

    @property
    def _start(self) -> Learner | None:
        """The most trusted learner that needs no own executions, but a start model."""
        able = (each for each in self.learners if each.start is not None and each.fewest == 0)
        return next(able, None)

    def _standing(self, alike: bytes, way: Mimicry | None) -> Standing:
        """What the mix for such folds is worth on executions that are alike, of a `Mask`."""
        key = (key_of(way), alike)
        return _held(self._standings, key, lambda: self._weighed_on(alike, way))

    def _weighed_on(self, alike: bytes, way: Mimicry | None) -> Standing:
        outcome = self.outcome(way)
        start, like = self._start, np.frombuffer(alike, np.bool_)
        if start is None or like.all() or len(self.candidates.known) < PAIRS_FROM:
            return of_mix_alone(outcome.errors, outcome.groups)
        if not like.any():
            return of_start_alone()
        rows, chosen = outcome.rows, like[outcome.rows]
        if way is not None and len(np.unique(outcome.groups[chosen])) < MIMICKED_FROM:
            return self._standing(alike, None)
        own = outcome.errors[chosen], outcome.groups[chosen]
        return against_start(self._errors_of(start)[rows[chosen]], *own)

    def _errors_of(self, start: Learner) -> Floats:
        """Of the start alone on own executions, see `errors_alone`."""
        known = self.candidates.known
        return _held(self._start_errors, start.name, lambda: errors_alone(start, known))

    def _own_spreads(self, like: bytes, way: Mimicry | None, share: float) -> list[Spread]:
        """What own executions tell that are alike, where they know a share of a question."""
        spreads = (self._standing(like, each).spread for each in dict.fromkeys((None, way)))
        return [each for each in spreads if share > 0 and each.workloads > 0]

    def _basis(self, weight: float, way: Mimicry | None) -> Basis:
        """What a mix of that weight beside the start rests on."""
        shares = {each.name: own_share(each) for each in self.learners}
        own = weight * sum(shares[each.name] * each.weight for each in self.outcome(way).members)
        kinship = self._kinship(way)
        if own >= MOSTLY:
            return Basis(RestsOn.OWN_JOBS, kinship=kinship)
        if own > 1 - MOSTLY:
            return Basis(RestsOn.OWN_JOBS_AND_START, kinship=kinship)
        start = self._start
        ships = start is None or start.start == PUBLIC
        return Basis(RestsOn.START if ships else RestsOn.SHARED, kinship=kinship)

    def _kinship(self, way: Mimicry | None) -> float:
        key, outcome = key_of(way), self.outcome(way)
        if key not in self._kinships:
            configurations = self.candidates.numbers[outcome.rows]
            self._kinships[key] = kinship_of(outcome.errors, outcome.groups, configurations)
        return self._kinships[key]

    def _mixture(self, way: Mimicry | None) -> Mixture:
        return Mixture.of(self.outcome(way), self.candidates.fit)


def _held(held: dict[_Key, _Value], key: _Key, computed: Callable[[], _Value]) -> _Value:
    """What is held by that key, computed where nothing is."""
    if key not in held:
        held[key] = computed()
    return held[key]


def _drop_oldest(held: dict[_Key, _Value]) -> None:
    for key in list(held)[:-MOST_HELD]:
        del held[key]


def personalize(
    history: History,
    starts: Mapping[str, PredictLog],
    learners: Iterable[Learner],
    *,
    seed: int = 0,
    level: float = 0.9,
) -> PersonalMix:
    """Mix `learners` for the organization whose own executions are `history`.

    Arguments and errors as `candidates_of` and `PersonalMix.of`.
    """
    candidates = candidates_of(history, starts, learners, seed=seed)
    return PersonalMix.of(candidates, candidates.learners, level=level)
