"""Advice: the best plan on every cluster size, the right size, and the alternatives there.

Every figure is a prediction of a complete plan by one predictor. The search under additive costs
hands on candidate plans. Each plan in which one group of operators leaves its platform is predicted
as well, and replaces the choice where it is faster, until no move is. Alternatives on the right
size are the next best plans, one platform for everything, and the current plan. Engines inside one
process use one node, so a plan without a distributed platform is predicted on one node. Nothing
here reads a clock, a file or the environment.

With a deadline, the right size meets it at the fewest core-seconds (cores x run time, the unit of
cloud bills). Without one it is the fastest, or a cheaper one that is at most `WORTH` slower. A job
keeps its current size where that does as well and is not distinguishable from the right one.

To verify advice, plans run interleaved on this machine: all plans the same number of times, one
after the other and over again, so that interference meets all of them alike. Every second turn
goes backwards, so that no plan always runs behind the same one.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter

import numpy as np

from fedperf_client.advice.executor_sizes import WORTH
from fedperf_client.prediction.prediction import SURE, Prediction, probability_faster
from fedperf_client.prediction.serving.reconfiguration import node_of, reconfigure, uses_one_node
from fedperf_client.prediction.serving.what_if import ON_TIME
from fedperf_engines.advice.constraints import PlanConstraints
from fedperf_engines.advice.job import Job
from fedperf_engines.optimizer.additive_surrogate import STARTUP_SECONDS, AdditiveSurrogate
from fedperf_engines.optimizer.costs import AdditiveCosts, Constraints, Mask, NoPlatformError
from fedperf_engines.optimizer.enumeration import (
    ALTERNATIVES,
    Alternative,
    Assignment,
    Choice,
    Predict,
    choose,
)
from fedperf_engines.platforms.engine import EMBEDDED_PLATFORMS
from fedperf_engines.trials.profiler import Trial
from fedperf_shared.execution import ClusterConfig, ExecutionStatus, PlanOnCluster
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, Platform


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """The best plan on one size of cluster."""

    cluster: ClusterConfig  # the size
    choice: Choice  # what runs where there
    estimate: Prediction  # how long, on platforms that are warm
    deadline_seconds: float | None = None  # to be met; None without one

    @property
    def seconds(self) -> float:
        """Median and start-up."""
        return self.choice.seconds

    @property
    def core_seconds(self) -> float:
        """Return the cost: all cores for all the time."""
        return self.cluster.cores * self.seconds

    @property
    def chance(self) -> float | None:
        """To be done within the deadline, start-up included; None without one."""
        if self.deadline_seconds is None:
            return None
        left = self.deadline_seconds - self.choice.startup_seconds
        return self.estimate.probability_within(left) if left > 0 else 0.0

    @property
    def holds(self) -> bool | None:
        """Return whether the deadline is met with a probability of 90 %; None without one."""
        return None if self.chance is None else self.chance >= ON_TIME


def choose_size(sizes: Sequence[ClusterChoice]) -> ClusterChoice | None:
    """Return the right size (see the module), or None where none keeps the deadline."""
    if all(each.holds is None for each in sizes):
        fastest = min(each.seconds for each in sizes)
        able = [each for each in sizes if each.seconds <= (1 + WORTH) * fastest]
    else:
        able = [each for each in sizes if each.holds]
    return min(able, key=lambda each: (each.core_seconds, each.seconds), default=None)


def beats(right: ClusterChoice, had: ClusterChoice) -> bool:
    """Return whether the right size is distinguishably better than the current one.

    It costs less; or it takes less time, where there is no deadline; or
    the other one does not keep the deadline.
    """
    if had.holds is False:
        return True
    startups = right.choice.startup_seconds, had.choice.startup_seconds
    cores = float(right.cluster.cores), float(had.cluster.cores)
    chances = [
        probability_faster(right.estimate, had.estimate, startup_seconds=startups, rates=cores)
    ]
    if had.holds is None:
        chances.append(probability_faster(right.estimate, had.estimate, startup_seconds=startups))
    return max(chances) >= SURE


MOST_MOVES = 64  # of the largest groups, that are looked at


@dataclass(frozen=True, slots=True)
class Move:
    """One group of operators on another platform, all else as chosen."""

    operators: tuple[int, ...]  # positions of neighbours that share a platform in the choice
    to: Platform  # where they would be
    plan: Alternative  # the whole plan then


@dataclass(frozen=True, slots=True)
class ChoiceComparison:
    """A comparison of the choice with the current plan, or else with the best single platform."""

    plan: Alternative  # of the rival, on the size of the choice
    chance: float  # that the choice takes less time

    @property
    def is_open(self) -> bool:
        """Return whether the two are not distinguishable, so that nothing needs to change."""
        return self.chance < SURE


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommended size and plan, with alternatives."""

    job: Job  # what is to run
    constraints: PlanConstraints  # what the plan keeps to
    # The right size and its plan; where no size meets the deadline, the most probable; the size
    # that it has where no other is better for sure.
    best: ClusterChoice
    keeps_deadline: bool | None  # whether it meets the deadline; None without one
    sizes: tuple[ClusterChoice, ...]  # every size with its best plan, small ones first
    # Sizes on which an operator fits nowhere, and why.
    too_small: tuple[tuple[ClusterConfig, str], ...]
    rivals: tuple[Alternative, ...]  # other plans on the size of `best`, the fastest first
    moves: tuple[Move, ...]  # what the groups of the choice would do elsewhere, on that size
    costs: AdditiveCosts  # additive costs on that size
    # The comparison of the choice; None where it is the current plan.
    rivalry: ChoiceComparison | None
    # The right size by medians where `best` is the one that it has, as no difference is
    # significant; else None.
    rival_size: ClusterChoice | None

    @property
    def choice(self) -> Choice:
        """Return the fastest plan by prediction, on the right size."""
        return self.best.choice

    @property
    def advised(self) -> Alternative:
        """Return the plan to run: the choice, or a current or simpler plan as fast as it."""
        rivalry, choice = self.rivalry, self.choice
        if rivalry is None or not rivalry.is_open:
            return choice
        is_kept = rivalry.plan.plan.platforms == self.job.today.platforms
        return rivalry.plan if is_kept or len(set(choice.plan.platforms)) > 1 else choice


def advise(
    job: Job,
    sizes: Sequence[ClusterConfig],
    constraints: PlanConstraints,
    estimates: Predict,
    surrogate: AdditiveSurrogate,
    *,
    deadline_seconds: float | None = None,
) -> Advice:
    """Advise where `job` should run.

    Args:
        job: what is to run.
        sizes: of the cluster, at least one.
        constraints: what every plan keeps to.
        estimates: predicts plans.
        surrogate: gives the additive costs of the search.
        deadline_seconds: to be met.

    Raises:
        NoPlatformError: on no size every operator has somewhere to run.
        InvalidInputError: see `Constraints`.
    """
    choices: dict[ClusterConfig, tuple[Choice, tuple[Move, ...]]] = {}
    refused: dict[ClusterConfig, NoPlatformError] = {}
    for cluster in sizes:
        try:
            choices[cluster] = _Search(job.on(cluster), constraints, estimates, surrogate).choice()
        except NoPlatformError as error:
            refused[cluster] = error
    if not choices:
        raise next(reversed(refused.values()))
    queries = [PlanOnCluster(choice.plan, cluster) for cluster, (choice, _) in choices.items()]
    by_size = tuple(
        ClusterChoice(cluster, choice, estimate, deadline_seconds)
        for (cluster, (choice, _)), estimate in zip(
            choices.items(), _estimates(job, estimates, queries), strict=True
        )
    )
    right = choose_size(by_size)
    best = right or min(by_size, key=lambda each: (-(each.chance or 0.0), each.seconds))
    had = next((each for each in by_size if each.cluster == job.cluster), best)
    rival_size = None
    if right is not None and not (had is right or beats(right, had)):
        best, rival_size = had, right
    search = _Search(job.on(best.cluster), constraints, estimates, surrogate)
    rivals, costs = search.rivals(best), search.costs()
    return Advice(
        job,
        constraints,
        best,
        None if deadline_seconds is None else right is not None,
        by_size,
        tuple((cluster, str(error)) for cluster, error in refused.items()),
        rivals,
        choices[best.cluster][1],
        costs,
        search.rivalry(best, rivals, costs),
        rival_size,
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """The search on one size of cluster, the one that `job` is given."""

    job: Job
    constraints: PlanConstraints
    estimates: Predict
    surrogate: AdditiveSurrogate

    @property
    def rules(self) -> Constraints:
        constraints = self.constraints
        caps = constraints.memory_caps(self.job.cluster)
        return Constraints(constraints.platforms, self.job.can_run, constraints.pinned, caps)

    def predict(self, queries: Sequence[PlanOnCluster]) -> Sequence[Prediction]:
        return _estimates(self.job, self.estimates, queries)

    def costs(self) -> AdditiveCosts:
        return self.surrogate.costs(
            self.job.workflow,
            self.job.cluster,
            self.constraints.platforms,
            startup_seconds={p: self._startup(p) for p in self.constraints.platforms},
        )

    def choice(self) -> tuple[Choice, tuple[Move, ...]]:
        """Return the best plan of the search, improved by moving groups, and its moves."""
        choice = choose(
            self.job.workflow,
            self.job.cluster,
            self.rules,
            self.predict,
            costs=self.costs(),
            also=(self.job.today.platforms,),
        )
        allowed = self.rules.allowed(self.job.workflow)
        while True:
            moves = self._moves(choice.plan, allowed)
            better = min((each.plan for each in moves), key=attrgetter("seconds"), default=choice)
            if not better.seconds < choice.seconds:
                return choice, moves
            choice = _improved(choice, better, scored=len(moves))

    def rivals(self, best: ClusterChoice) -> tuple[Alternative, ...]:
        """Return the alternatives on that size, the fastest first."""
        allowed = self.rules.allowed(self.job.workflow)
        by_platforms = {each.plan.platforms: each for each in best.choice.alternatives}
        single = set(_single(self.job, self.constraints.platforms, allowed)) - by_platforms.keys()
        by_platforms |= self._alternatives(sorted(single - {best.choice.plan.platforms}))
        return tuple(sorted(by_platforms.values(), key=attrgetter("seconds")))

    def rivalry(
        self, best: ClusterChoice, rivals: Sequence[Alternative], costs: AdditiveCosts
    ) -> ChoiceComparison | None:
        """Compare the choice with the current plan, or else with the best single platform."""
        today = self.job.today.platforms
        costs = costs.within(self.constraints.platforms, self.rules.allowed(self.job.workflow))
        had = [each for each in rivals if each.plan.platforms == today and costs.allows(today)]
        single = [each for each in rivals if len(set(each.plan.platforms)) == 1]
        candidates = [*had, *(each for each in single if costs.allows(each.plan.platforms))]
        if best.choice.plan.platforms == today or not candidates:
            return None
        queries = [PlanOnCluster(candidates[0].plan, best.cluster)]
        [of_rival] = _estimates(self.job, self.estimates, queries)
        startups = best.choice.startup_seconds, candidates[0].startup_seconds
        return ChoiceComparison(
            candidates[0], probability_faster(best.estimate, of_rival, startup_seconds=startups)
        )

    def _moves(self, plan: Plan, allowed: Mask) -> tuple[Move, ...]:
        moves = list(islice(_moves(plan, self.constraints.platforms, allowed), MOST_MOVES))
        alternatives = self._alternatives(sorted({each for _, _, each in moves}))
        return tuple(Move(group, to, alternatives[each]) for group, to, each in moves)

    def _alternatives(self, assignments: Sequence[Assignment]) -> dict[Assignment, Alternative]:
        if not assignments:
            return {}
        workflow, cluster = self.job.workflow, self.job.cluster
        predictions = self.predict(PlanOnCluster.of(workflow, assignments, cluster))
        return {
            each: Alternative(
                Plan(workflow, each),
                prediction,
                sum(self._startup(platform) for platform in set(each)),
            )
            for each, prediction in zip(assignments, predictions, strict=True)
        }

    def _startup(self, platform: Platform) -> float:
        return 0.0 if platform in self.constraints.warm else STARTUP_SECONDS.get(platform, 0.0)


def _estimates(
    job: Job, estimates: Predict, queries: Sequence[PlanOnCluster]
) -> Sequence[Prediction]:
    """Estimate plans of a job, on one node where no platform of the plan is distributed."""
    adapted = []
    for query in map(job.query, queries):
        plan, cluster = query.plan, query.cluster
        if cluster.nodes > 1 and uses_one_node(plan):
            query = reconfigure(plan, cluster, node_of(cluster), query.job).query  # noqa: PLW2901
        adapted.append(query)
    return estimates(adapted)


def _improved(choice: Choice, better: Alternative, *, scored: int) -> Choice:
    """Return the better plan, with the previous choice as its first alternative."""
    before = Alternative(choice.plan, choice.prediction, choice.startup_seconds)
    return replace(
        choice,
        plan=better.plan,
        prediction=better.prediction,
        startup_seconds=better.startup_seconds,
        alternatives=(before, *choice.alternatives)[:ALTERNATIVES],
        plans_scored=choice.plans_scored + scored,
    )


def platform_groups(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return operators that are connected on one platform, by the first of them."""
    group = list(range(len(plan.platforms)))

    def root(position: int) -> int:
        while group[position] != position:
            position = group[position]
        return position

    for parent, child in plan.workflow.edges:
        if plan.platforms[parent] is plan.platforms[child]:
            first, second = sorted((root(parent), root(child)))
            group[second] = first
    members: dict[int, list[int]] = {}
    for position in range(len(group)):
        members.setdefault(root(position), []).append(position)
    return tuple(tuple(each) for each in members.values())


def _moves(
    plan: Plan, platforms: Sequence[Platform], allowed: Mask
) -> Iterator[tuple[tuple[int, ...], Platform, Assignment]]:
    for group in sorted(platform_groups(plan), key=len, reverse=True):
        for column in np.flatnonzero(allowed[list(group)].all(axis=0)).tolist():
            there = list(plan.platforms)
            for position in group:
                there[position] = platforms[column]
            if platforms[column] is not plan.platforms[group[0]]:
                yield group, platforms[column], tuple(there)


def _single(job: Job, platforms: Sequence[Platform], allowed: Mask) -> Iterator[Assignment]:
    """Yield every allowed single-platform plan, and the current plan."""
    for column in np.flatnonzero(allowed.all(axis=0)).tolist():
        yield (platforms[column],) * len(job.workflow.operators)
    if set(job.today.platforms) <= set(NAMED_PLATFORMS):
        yield job.today.platforms


@dataclass(frozen=True, slots=True)
class PlanRuns:
    """How the runs of one plan went."""

    # Median of its runs on engines that are awake; None where one of them did not end well.
    runtime_seconds: float | None
    reason: str = ""  # why it did not; empty otherwise


@dataclass(frozen=True, slots=True)
class MeasuredChoice(PlanRuns):
    """How the runs of `plan` went, with its prediction."""

    plan: Alternative = field(kw_only=True)

    @property
    def seconds(self) -> float | None:
        """Return the measured run time and the predicted start-up, by which plans are compared."""
        if self.runtime_seconds is None:
            return None
        return self.runtime_seconds + self.plan.startup_seconds


NEXT_BEST = 2  # mixed plans that run in addition to the choice and the single platforms
RunTrial = Callable[[Assignment], Trial]  # runs one plan once


def runnable_alternatives(advice: Advice, *, all_of_them: bool) -> list[Alternative]:
    """Single platforms, the next best plans, and the one that is advised.

    Args:
        advice: whose choice they are compared with.
        all_of_them: also on platforms outside of this process that neither the choice nor what
            is advised uses;
            without, no JVM starts unless the advice needs one.
    """
    usable = {*EMBEDDED_PLATFORMS, *advice.choice.plan.platforms, *advice.advised.plan.platforms}
    able = [each for each in advice.rivals if all_of_them or usable.issuperset(each.plan.platforms)]
    single = [each for each in able if len(set(each.plan.platforms)) == 1]
    mixed = [each for each in able if len(set(each.plan.platforms)) > 1]
    return sorted([*single, *mixed[:NEXT_BEST]], key=attrgetter("seconds"))


def run_interleaved(
    run: RunTrial,
    plans: Sequence[Assignment],
    *,
    repeats: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[PlanRuns]:
    """Run every plan `repeats` times, interleaved. A failed plan does not run again."""
    seconds: list[list[float]] = [[] for _ in plans]
    failed: dict[int, str] = {}
    for turn in range(repeats):
        there = range(len(plans))
        for count, place in enumerate(reversed(there) if turn % 2 else there):
            if place not in failed:
                trial = run(plans[place])
                if trial.status is ExecutionStatus.OK and trial.measurement is not None:
                    seconds[place].append(trial.measurement.runtime_seconds)
                else:
                    failed[place] = trial.reason or trial.status.name.lower().replace("_", " ")
            if on_progress is not None:
                on_progress(turn * len(plans) + count + 1, repeats * len(plans))
    return [
        PlanRuns(None, failed[place]) if place in failed else PlanRuns(statistics.median(runs))
        for place, runs in enumerate(seconds)
    ]


def measure_plans(
    run: RunTrial,
    plans: Sequence[Alternative],
    *,
    repeats: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[MeasuredChoice]:
    """Run plans with `run_interleaved`, and return them with their predictions."""
    assignments = [each.plan.platforms for each in plans]
    runs_by_plan = run_interleaved(run, assignments, repeats=repeats, on_progress=on_progress)
    return [
        MeasuredChoice(runs.runtime_seconds, runs.reason, plan=plan)
        for plan, runs in zip(plans, runs_by_plan, strict=True)
    ]


def fastest(runs: Sequence[MeasuredChoice]) -> MeasuredChoice | None:
    """Return the fastest measured plan; None where all failed."""
    ended = [(each.seconds, place) for place, each in enumerate(runs) if each.seconds]
    return runs[min(ended)[1]] if ended else None
