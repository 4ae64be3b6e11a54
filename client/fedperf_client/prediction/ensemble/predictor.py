"""The predictor of an organization: its own runs, an ensemble of learners, a pretrained model.

A query is a repeat of what ran, or interpolates or extrapolates in scale (cores over all nodes) or
size (rows of all sources). For each of these regimes there is an ensemble with weights of its own
(`LearnerPool`). The most specific evidence takes precedence:

* Runs of exactly the query predict it. Runs on other resources do, moved by the change that the
  pretrained model predicts (`repeats`). Nothing else predicts a query of unknown rows.
* Local executions are evidence for their own engines only, and for engines that ran with these in
  one plan (`TrainingSet.connected_engines`). Runs of another engine, or a campaign of commands,
  never move a prediction.
* Among these, they are evidence for kinds of operators on platforms that they hold together, at
  about such rows and cores (`TrainingSupport.fraction`), as far as the ensemble was better than the
  pretrained model on executions similar to the query (`Reliability`).
* The pretrained model predicts the rest, with its published error. Local jobs of another kind never
  override a better pretrained model.

Members agree where they were weighted, and may not on a query that is different. Their disagreement
is a lower bound of the width. Outside the training support the width of local errors is doubled.
The published error of the pretrained model already is that of unseen jobs, and stays. The
errors of folds that hold out whole workloads count for a query of any regime, so its interval is
never narrower than theirs.

Weights are computed when a regime is first queried. No fold splits the repeats of a configuration,
and the folds for repeats split no workload.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_
from typing import NamedTuple, Self, TypeVar

import numpy as np

from fedperf_client.prediction.encoding import (
    EncodedQueries,
    ExecutionTable,
    History,
    Identity,
    Ints,
    encode,
    engine_bit,
    identify,
    numbered,
)
from fedperf_client.prediction.ensemble.ensemble import (
    LEVEL_STEP,
    CrossValidationErrors,
    EnsembleWeights,
    HoldoutSplit,
    OnProgress,
    Reliability,
    SplitKey,
    closest_split,
    cross_validate,
    error_correlation,
    grouped_split,
    holdout_splits,
    largest_gap,
    query_regimes,
)
from fedperf_client.prediction.ensemble.repeats import ResourceChange
from fedperf_client.prediction.ensemble.training_data import (
    MOST_OF_GROUP,
    SUPPORT_MARGIN,
    LocalSummary,
    ScaleAndSize,
    TrainingData,
    TrainingSet,
)
from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    Fitted,
    Learner,
    NoLearnerError,
    is_usable,
    local_share,
)
from fedperf_client.prediction.prediction import (
    WIDENING,
    Distribution,
    Evidence,
    EvidenceSource,
    Floats,
    Prediction,
    PredictLog,
    QueryRegime,
    StudentT,
    narrowest,
    shares_of,
    widest,
)
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.pretrained import (
    UNKNOWN_SIZE,
    estimates_half_width,
    other_engine_half_width,
    pretrained_half_width,
)

# Workloads that the folds of a split must hold out. With fewer, a model without any training is
# right by chance too often; then folds hold out whole workloads.
MIN_HELD_OUT_WORKLOADS = 20

# Minimum share of workloads left for training in a fold. With fewer, fold errors overstate the true
# error.
MIN_TRAINING_SHARE = 2 / 3

# Executions that an operator must have on its platform to be covered. Fewer hardly
# contain a pair twice, and their ensemble is mostly the pretrained model with its level corrected.
PAIRS_FROM = 10

MOSTLY = 2 / 3  # share of a prediction from which on one source is named as its evidence
MOST_HELD = 256  # entries of each cache
# Predictions of up to so many queries are cached. More are a search, whose queries do not repeat.
HELD_TOGETHER = 16

ALL_ENGINES = -1  # the bits of all engines
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, eq=False)
class LearnerPool:
    """Training executions, and the learners that can use them, weighted and fitted on demand."""

    training: TrainingSet  # executions that learners are fitted on
    summary: LocalSummary  # of all local executions
    # In order of precedence; none predicts without its pretrained model.
    learners: tuple[Learner, ...]
    base_models: Mapping[str, PredictLog]  # the pretrained models that they need, by name
    seed: int = 0  # of folds that hold out workloads
    on_progress: OnProgress | None = None  # called while folds are computed
    # Learners fitted so far on all training executions, by name.
    fits: dict[str, Fitted] = field(default_factory=dict)
    # Of every learner in folds so far.
    errors: dict[SplitKey, CrossValidationErrors] = field(default_factory=dict)
    _splits: dict[QueryRegime, list[HoldoutSplit]] = field(default_factory=dict)
    _gaps: dict[tuple[QueryRegime, SplitKey], float] = field(default_factory=dict)
    _parts: dict[int, "LearnerPool"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shares = shares_of(self.training.groups, MOST_OF_GROUP)
        samples = replace(self.training.samples, shares=shares)
        object.__setattr__(self, "training", replace(self.training, samples=samples))

    @classmethod
    def from_history(
        cls,
        history: History,
        base_models: Mapping[str, PredictLog],
        learners: Iterable[Learner],
        *,
        seed: int = 0,
        on_progress: OnProgress | None = None,
    ) -> Self:
        """Return the pool of a history.

        Args:
            history: local executions, any number.
            base_models: pretrained models, by name.
            learners: in order of precedence, each name once. None predicts without its pretrained
                model.
            seed: of folds that hold out workloads.
            on_progress: called while folds are computed.

        Raises:
            PredictorFailedError: A pretrained model returned values that cannot be used.
        """
        used = tuple(learners)
        names = (each.base_model for each in used if each.base_model is not None)
        needed = {name: base_models[name] for name in names if name in base_models}
        samples = encode(history.queries, needed)
        table = ExecutionTable.from_history(history, samples, samples.base_predictions.get(PUBLIC))
        is_timed = history.finished_at is not None and PUBLIC in needed
        data = TrainingData.from_history(table, is_timed=is_timed)
        training = data.with_features(samples.features, samples.base_predictions)
        return cls(training, data.summary, used, needed, seed, on_progress)

    @cached_property
    def workload_split(self) -> HoldoutSplit:
        """Folds that hold out whole workloads."""
        return grouped_split(self.training.groups, self.seed)

    @cached_property
    def configurations(self) -> Ints:
        """Number of the configuration of each training execution."""
        return numbered(self.training.samples.configurations())

    @cached_property
    def _plans(self) -> Ints:
        return self.training.samples.plans()

    def part(self, engines: int) -> "LearnerPool":
        """Return the pool of executions on some engines, bits as of `engine_bit`; cached.

        It is this pool if nothing else could predict.
        """
        rows = np.flatnonzero(self.training.engines & engines)
        if len(rows) == len(self.training) or not (len(rows) or self.base_models):
            return self
        if engines not in self._parts:
            self._parts[engines] = LearnerPool(
                self.training.take(rows),
                replace(self.summary, support=self.summary.support.on_engines(engines)),
                self.learners,
                self.base_models,
                self.seed,
                self.on_progress,
            )
        return self._parts[engines]

    def split_for(self, regime: QueryRegime, query: ScaleAndSize) -> HoldoutSplit:
        """Return the folds that imitate a query best; whole workloads if none does."""
        if regime not in self._splits:
            places, features = self.training.places, self.training.samples.features
            splits = holdout_splits(places, regime, features)
            self._splits[regime] = [each for each in splits if self._is_sufficient(each)]
        closest = closest_split(self._splits[regime], self.training.places, query)
        return closest or self.workload_split

    def _is_sufficient(self, split: HoldoutSplit) -> bool:
        groups = self.training.groups
        held_out = np.unique(groups[np.concatenate([fold.held_out for fold in split.folds])])
        fewest_groups = min(len(np.unique(groups[fold.training])) for fold in split.folds)
        is_enough = fewest_groups >= MIN_TRAINING_SHARE * len(np.unique(groups))
        return len(held_out) >= MIN_HELD_OUT_WORKLOADS and is_enough

    def is_inside(self, query: PlanOnCluster, regime: QueryRegime, split: HoldoutSplit) -> bool:
        """Return whether a query is supported, and no farther away than queries of the folds."""
        if regime.is_beyond or not self.summary.support.contains(query):
            return False
        if regime is QueryRegime.SEEN:
            return True
        places, key = self.training.places, (regime, split.key)
        if key not in self._gaps:
            gaps = (
                largest_gap(places.take(fold.training), places.take(fold.held_out), regime)
                for fold in split.folds
            )
            self._gaps[key] = max(gaps, default=0.0)
        gap = largest_gap(places, ScaleAndSize.from_queries([query]), regime)
        return gap <= self._gaps[key] + LEVEL_STEP

    def change_from_runs(
        self, plan: int, log_cores: float, predicted: float, base_model: str
    ) -> ResourceChange | None:
        """Return the change from runs of a plan on the nearest other resources, if there are any.

        Args:
            plan: number of the plan, see `EncodedQueries.plans`.
            log_cores: of the query, over all nodes.
            predicted: log seconds that the pretrained model predicts for the query.
            base_model: name of that model.
        """
        rows = np.flatnonzero(self._plans == plan)
        if len(rows) == 0:
            return None
        apart = np.abs(self.training.places.scale[rows] - log_cores)
        nearest = self.training.samples.take(rows[apart == apart.min()][-1:])
        [configuration] = nearest.configurations().tolist()
        longer = predicted - float(nearest.base_predictions[base_model][0])
        return ResourceChange(configuration, longer, float(apart.min()))

    def fit(self, name: str) -> Fitted:
        """Return the learner of that name, fitted on all training executions; cached."""
        if name not in self.fits:
            [learner] = [each for each in self.learners if each.name == name]
            self.fits[name] = learner.fit(self.training.samples, self.training.log_seconds)
        return self.fits[name]


class _Context(NamedTuple):
    """A query with its relation to the training executions."""

    query: PlanOnCluster  # the plan and its resources
    regime: QueryRegime  # of the query
    split: HoldoutSplit  # folds that imitate it
    similar: bytes  # mask of the training executions that are similar, as bytes
    support: float  # share of its operators that local executions cover, in [0, 1]


class _Blend(NamedTuple):
    """The prediction of an ensemble and a pretrained model for one query, without its error."""

    identity: Identity  # of the query
    log_seconds: float  # prediction
    variance: float  # weighted variance between the members, the pretrained model included
    weight: float  # of the ensemble, in [0, 1]
    change: ResourceChange | None  # from runs of the plan on other resources, if there are any


@dataclass(frozen=True, slots=True, eq=False)
class PersonalizedEnsemble:
    """The predictor: an ensemble for every query regime, with runs and a pretrained model."""

    pool: LearnerPool  # training executions and learners
    learners: tuple[Learner, ...]  # those that may be members
    confidence_level: float  # of the intervals
    requested: tuple[Learner, ...]  # learners that the predictors of parts may have
    # The first learner that needs a pretrained model but no local executions.
    pretrained: Learner | None
    # Ensemble weights for each split so far.
    weights_by_split: dict[SplitKey, EnsembleWeights] = field(default_factory=dict)
    # Predictors on the executions of some engines, see `part`.
    parts: dict[int, "PersonalizedEnsemble"] = field(default_factory=dict)
    _predictions: dict[tuple[PlanOnCluster, ...], list[Prediction]] = field(default_factory=dict)
    _reliabilities: dict[tuple[SplitKey, bytes], Reliability] = field(default_factory=dict)
    _pretrained_fits: dict[bytes, Fitted] = field(default_factory=dict)
    _pretrained_errors: dict[str, Floats] = field(default_factory=dict)
    _error_correlations: dict[SplitKey, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, pool: LearnerPool, learners: Iterable[Learner], *, confidence_level: float = 0.9
    ) -> Self:
        """Return the predictor with those learners of the pool that can be used, by name.

        Raises:
            NoLearnerError: None of them can be used.
        """
        requested, size = tuple(learners), pool.training.effective_size
        names = {each.name for each in requested if is_usable(each, size, pool.base_models)}
        usable = tuple(each for each in pool.learners if each.name in names)
        if not usable:
            raise NoLearnerError(len(pool.training))
        able = (each for each in usable if each.base_model is not None and each.fewest == 0)
        return cls(pool, usable, confidence_level, requested, next(able, None))

    def weights_for(self, split: HoldoutSplit | None = None) -> EnsembleWeights:
        """Return the ensemble weights by these folds; by default they hold out workloads."""
        split = split or self.pool.workload_split
        if split.key not in self.weights_by_split:
            pool = self.pool
            if split.key not in pool.errors:
                pool.errors[split.key] = cross_validate(
                    pool.training, pool.learners, split, on_progress=pool.on_progress
                )
            self.weights_by_split[split.key] = pool.errors[split.key].weights(self.learners)
        return self.weights_by_split[split.key]

    def part(self, engines: int) -> "PersonalizedEnsemble":
        """Return the predictor on the executions of some engines, see `LearnerPool.part`."""
        pool = self.pool.part(engines)
        if pool is self.pool:
            return self
        if engines not in self.parts:
            self.parts[engines] = PersonalizedEnsemble.of(
                pool, self.requested, confidence_level=self.confidence_level
            )
        return self.parts[engines]

    def by_engines(self) -> dict[int, "PersonalizedEnsemble"]:
        """Return the predictor of each set of engines that ran together, by their bits."""
        training = self.pool.training
        connected = {training.connected_engines(each): None for each in training.engines.tolist()}
        return {engines: self.part(engines) for engines in connected or {ALL_ENGINES: None}}

    def with_parts(self) -> dict[int, "PersonalizedEnsemble"]:
        """Return this predictor and its parts so far, by the bits of their engines."""
        return {ALL_ENGINES: self, **self.parts}

    def predict_log(self, queries: Sequence[PlanOnCluster]) -> Floats:
        """Return the natural log of the median wall seconds, [queries]."""
        return np.log([each.median_seconds for each in self.predict(queries)])

    def predict(self, queries: Sequence[PlanOnCluster]) -> list[Prediction]:
        """Return the predictions, in the order of the queries."""
        if len(queries) > HELD_TOGETHER:
            return self._predict(queries)
        key = tuple(queries)
        if key not in self._predictions:
            _keep(self._predictions, key, self._predict(queries))
        return [*self._predictions[key]]

    def predict_across_platforms(self, queries: Sequence[PlanOnCluster]) -> list[Prediction]:
        """Return predictions to compare platforms by.

        They are extrapolations for platforms that only ran much smaller jobs, see
        `TrainingSupport.platforms_exceeded`.
        """
        exceeded = self.pool.summary.support.platforms_exceeded
        return [
            prediction.as_extrapolation() if exceeded(query.plan) else prediction
            for query, prediction in zip(queries, self.predict(queries), strict=True)
        ]

    def _predict(self, queries: Sequence[PlanOnCluster]) -> list[Prediction]:
        rows, predictions = defaultdict[int, list[int]](list), dict[int, Prediction]()
        for row, query in enumerate(queries):
            kinds = (each.kind for each in query.plan.workflow.operators)
            bits = map(engine_bit, zip(kinds, query.plan.platforms, strict=True))
            rows[self.pool.training.connected_engines(reduce(or_, bits))].append(row)
        for engines, of_part in rows.items():
            predicted = self.part(engines)._predict_part([queries[row] for row in of_part])
            predictions.update(zip(of_part, predicted, strict=True))
        return [predictions[row] for row in range(len(queries))]

    def _predict_part(self, queries: Sequence[PlanOnCluster]) -> list[Prediction]:
        training, places = self.pool.training, ScaleAndSize.from_queries(queries)
        regimes = query_regimes(training.places, places, size_step=SUPPORT_MARGIN)
        rows, blends = defaultdict[SplitKey, list[int]](list), dict[int, _Blend]()
        contexts = []
        for row, (query, regime) in enumerate(zip(queries, regimes, strict=True)):
            split = self.pool.split_for(regime, places.take(slice(row, row + 1)))
            similar, support = training.similar_to(query).tobytes(), 1.0
            if self.pretrained is not None and len(training) > 0:  # else there is no alternative
                of_runs, is_many = self.pool.summary.support, len(training) >= PAIRS_FROM
                support = of_runs.fraction(query) if is_many else of_runs.fraction_apart(query.plan)
            contexts.append(_Context(query, regime, split, similar, support))
            rows[split.key].append(row)
        for of_split in rows.values():
            blended = self._blend([contexts[row] for row in of_split])
            blends.update(zip(of_split, blended, strict=True))
        return [self._predict_one(each, blends[row]) for row, each in enumerate(contexts)]

    def _predict_one(self, context: _Context, blend: _Blend) -> Prediction:
        query, job = context.query, context.query.job
        repeated, censored, ended = self._from_runs(context, blend)
        if repeated is not None:
            is_exact = repeated.evidence.source is EvidenceSource.OWN_RUNS
            is_inside = is_exact or self.pool.is_inside(query, context.regime, context.split)
            prediction = replace(
                repeated,
                confidence_level=self.confidence_level,
                regime=QueryRegime.SEEN if is_exact else context.regime,
                extrapolating=not is_inside,
            )
        elif job is not None and not job.has_rows:
            prediction = Prediction(
                math.log(job.seconds) if job.seconds > 0 else blend.log_seconds,
                StudentT.within(UNKNOWN_SIZE),
                self.confidence_level,
                context.regime,
                Evidence(EvidenceSource.UNKNOWN_ROWS),
                extrapolating=True,
            )
        else:
            prediction = self._from_blend(context, blend)
        is_measured = prediction.evidence.source is EvidenceSource.OWN_RUNS
        if job is not None and job.cpu_seconds > 0 and not is_measured:
            least = math.log(job.cpu_seconds / query.cluster.cores)
            prediction = replace(prediction, log_seconds=max(prediction.log_seconds, least))
        return prediction.with_censored_runs(censored, ended)

    def _from_runs(
        self, context: _Context, blend: _Blend
    ) -> tuple[Prediction | None, Floats, Floats]:
        """Predict from runs of the job; return log seconds of exact censored and ended runs too."""
        query, identity, summary = context.query, blend.identity, self.pool.summary
        if identity.job:
            tasks = 0 if query.job is None else query.job.tasks
            runs, log_cores = summary.isolated, math.log(query.cluster.cores)
            prediction = runs.predict(identity, log_cores, tasks=tasks)
            censored, ended = (runs.runs_of(identity, is_ok=each) for each in (False, True))
            return prediction, censored, ended
        number = identity.configuration
        variance = self._reliability(context.similar, context.split).variance
        repeats, log_seconds = summary.repeats, blend.log_seconds
        prediction = repeats.predict(number, log_seconds, variance, change=blend.change)
        return prediction, summary.censored.runs_of(number), repeats.runs_of(number)

    def _from_blend(self, context: _Context, blend: _Blend) -> Prediction:
        query, split, level = context.query, context.split, self.confidence_level
        errors = self._reliability(context.similar, split).distribution
        # With one similar workload, no other is left to estimate the error of its prediction.
        is_inside = blend.weight > 0 and errors.workloads > 1
        is_inside = is_inside and self.pool.is_inside(query, context.regime, split)
        evidence = self._evidence(blend.weight, split)
        support = context.support if is_inside or evidence.is_local else 0.0
        factor = 1.0 if is_inside or not evidence.is_local else WIDENING
        distribution = self._error_distribution(context, support, factor)
        if blend.variance > 0:
            disagreement = StudentT(math.sqrt(blend.variance), errors.student.degrees)
            distribution = widest((distribution, disagreement), level)
        if self.pretrained is not None:
            published = self._error_distribution(context, 0.0, 1.0)
            distribution = narrowest((distribution, published), level)
        other_engine = other_engine_half_width(query) / distribution.half_width(level)
        distribution = distribution.scaled(1 + other_engine)
        return Prediction(
            blend.log_seconds,
            distribution,
            level,
            context.regime,
            evidence.with_common_error(estimates_half_width(query), distribution),
            extrapolating=not is_inside,
        )

    def _error_distribution(self, context: _Context, support: float, factor: float) -> Distribution:
        """Return the widest of local error distributions, and of the published one if needed.

        Args:
            context: of the query.
            support: share of operators that local errors cover; at 1 they are enough.
            factor: on the width of local errors.
        """
        query, similar = context.query, context.similar
        added = estimates_half_width(query)
        distributions: list[Distribution] = []
        for split in dict.fromkeys((self.pool.workload_split, context.split)):
            errors = self._reliability(similar, split).distribution
            if context.support > 0 and errors.workloads > 0:
                distributions.append(errors.scaled(factor, added=added))
        if support < 1 or not distributions:
            distributions.append(StudentT.within(pretrained_half_width(query)))
        return widest(distributions, self.confidence_level)

    def _blend(self, contexts: Sequence[_Context]) -> list[_Blend]:
        """Combine the ensemble of one split with the pretrained model, [contexts]."""
        weights_of = self.weights_for(contexts[0].split)
        queries, pretrained = [each.query for each in contexts], self.pretrained
        names = {each.name for each in weights_of.members if each.weight > 0}
        if pretrained is not None:
            names.add(pretrained.name)
        needed = {each.base_model for each in self.learners if each.name in names}
        encoded = encode(queries, {k: v for k, v in self.pool.base_models.items() if k in needed})
        logs, variances = weights_of.predict(encoded, self.pool.fit)
        reliabilities = [self._reliability(each.similar, each.split) for each in contexts]
        trusted = zip(reliabilities, contexts, strict=True)
        weights = np.array([each.weight_at(context.support) for each, context in trusted])
        changes: list[ResourceChange | None] = [None] * len(queries)
        if pretrained is not None and pretrained.base_model is not None:
            errors = self._zero_shot_errors(pretrained)
            usual = Reliability.of_ensemble(errors, self.pool.training.groups).variance
            weights /= 1 + np.maximum(variances - weights_of.disagreement, 0.0) / usual
            if (weights < 1).any():
                corrected = np.concatenate(
                    [
                        self._fit_on_similar(pretrained, query)(encoded.take(np.array([row])))
                        for row, query in enumerate(queries)
                    ]
                )
                apart = logs - corrected
                logs = corrected + weights * apart
                variances = weights * (variances + (1 - weights) * apart**2)
            changes = [
                self.pool.change_from_runs(*each, pretrained.base_model)
                for each in zip(
                    encoded.plans().tolist(),
                    ScaleAndSize.from_queries(queries).scale.tolist(),
                    encoded.base_predictions[pretrained.base_model].tolist(),
                    strict=True,
                )
            ]
        numbers = (each.tolist() for each in (logs, variances, weights))
        return [*map(_Blend, identify(queries, encoded), *numbers, changes)]

    def _zero_shot_errors(self, pretrained: Learner) -> Floats:
        """Return the log errors of the pretrained model, uncorrected, on local executions."""
        if pretrained.name not in self._pretrained_errors:
            training, nothing = self.pool.training, np.zeros(0, np.int64)
            fitted = pretrained.fit(training.samples.take(nothing), training.log_seconds[nothing])
            errors = training.log_seconds - fitted(training.samples)
            self._pretrained_errors[pretrained.name] = errors
        return self._pretrained_errors[pretrained.name]

    def _fit_on_similar(self, pretrained: Learner, query: PlanOnCluster) -> Fitted:
        """Return the pretrained model, its level corrected on the executions similar to a query."""
        training = self.pool.training
        similar = training.similar_to(query, sources=True)
        key = similar.tobytes()
        if key not in self._pretrained_fits:
            rows, samples = np.flatnonzero(similar), training.samples
            no_features = np.zeros((len(training), 0))  # none is read, and many are slow to copy
            level = EncodedQueries(
                no_features, samples.cells, samples.base_predictions, samples.shares
            )
            fitted = pretrained.fit(level.take(rows), training.log_seconds[rows])
            _keep(self._pretrained_fits, key, fitted)
        return self._pretrained_fits[key]

    def _reliability(self, similar: bytes, split: HoldoutSplit) -> Reliability:
        """Return the reliability on similar executions, given as the bytes of a mask."""
        key = (split.key, similar)
        if key not in self._reliabilities:
            _keep(self._reliabilities, key, self._weigh_on(similar, split))
        return self._reliabilities[key]

    def _weigh_on(self, similar: bytes, split: HoldoutSplit) -> Reliability:
        weights, pretrained = self.weights_for(split), self.pretrained
        is_similar = np.frombuffer(similar, np.bool_)
        if pretrained is None or is_similar.all() or len(self.pool.training) < PAIRS_FROM:
            return Reliability.of_ensemble(weights.errors, weights.groups)
        if not is_similar.any():
            return Reliability.of_pretrained()
        subset = is_similar[weights.rows]
        workloads = len(np.unique(weights.groups[subset]))
        if split is not self.pool.workload_split and workloads < MIN_HELD_OUT_WORKLOADS:
            return self._reliability(similar, self.pool.workload_split)
        errors = self._zero_shot_errors(pretrained)[weights.rows[subset]]
        return Reliability.of_both(errors, weights.errors[subset], weights.groups[subset])

    def _evidence(self, weight: float, split: HoldoutSplit) -> Evidence:
        """Return the evidence of an ensemble of that weight and of the pretrained model."""
        weights, shares = self.weights_for(split), {e.name: local_share(e) for e in self.learners}
        local = weight * sum(shares[each.name] * each.weight for each in weights.members)
        if split.key not in self._error_correlations:
            self._error_correlations[split.key] = error_correlation(
                weights.errors, weights.groups, self.pool.configurations[weights.rows]
            )
        pretrained = self.pretrained
        if local >= MOSTLY:
            source = EvidenceSource.OWN_JOBS
        elif local > 1 - MOSTLY:
            source = EvidenceSource.OWN_JOBS_AND_PRETRAINED
        elif pretrained is None or pretrained.base_model == PUBLIC:
            source = EvidenceSource.PRETRAINED
        else:
            source = EvidenceSource.SHARED
        return Evidence(source, error_correlation=self._error_correlations[split.key])


def fit_personalized_ensemble(
    history: History,
    base_models: Mapping[str, PredictLog],
    learners: Iterable[Learner],
    *,
    seed: int = 0,
    confidence_level: float = 0.9,
) -> PersonalizedEnsemble:
    """Return the predictor of a history.

    Arguments and errors as of `LearnerPool.from_history` and `PersonalizedEnsemble.of`.
    """
    pool = LearnerPool.from_history(history, base_models, learners, seed=seed)
    return PersonalizedEnsemble.of(pool, pool.learners, confidence_level=confidence_level)


def _keep(cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Put a value into a cache; the oldest entry beyond a limit is dropped."""
    cache[key] = value
    if len(cache) > MOST_HELD:
        del cache[next(iter(cache))]
