"""Predict the run time of a plan on several clusters and input sizes, with a deadline.

No deadline is promised for a query so far beyond all measurements that a probability is a guess. An
interval shows the error of a prediction if run time goes on as it did. Far beyond the most cores or
rows that were measured it need not: speed-ups fade, memory ends, disks fill.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Self

from fedperf_client.formatting.facts import Fact, for_people
from fedperf_client.formatting.workflow_file import (
    STANDARD_INPUT,
    InvalidWorkflowFileError,
    WrittenWorkflow,
    read_workflow_file,
)
from fedperf_client.home.store import ExecutionStore, Selection, UnknownExecutionError
from fedperf_client.prediction.ensemble.ensemble import LEVEL_STEP
from fedperf_client.prediction.ensemble.predictor import PersonalizedEnsemble
from fedperf_client.prediction.ensemble.training_data import (
    CORES,
    ROWS,
    SUPPORT_MARGIN,
    TrainingSupport,
)
from fedperf_client.prediction.prediction import (
    SURE,
    UPPER_LEVEL,
    EvidenceSource,
    Prediction,
    QueryRegime,
    probability_faster,
)
from fedperf_client.prediction.serving.reconfiguration import (
    InputSize,
    OneNodeError,
    ScaledPlan,
    estimate_at_size,
    node_of,
    reconfigure,
    scale_input,
    sizes_of,
    uses_one_node,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionStatus,
    KnownJob,
    PlanOnCluster,
)
from fedperf_shared.model.pretrained import shipped_widths
from fedperf_shared.runtime.quantities import UNITS, counted, duration_text
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, platform_of

MAX_CORES = 1_000_000
MOST_QUERIES = 100  # sizes, or combinations of column values, in one query
MAX_RUNS = 200  # newest own runs of a job that a query reads
ON_TIME = UPPER_LEVEL  # probability from which on a deadline counts as met
# Remark of a prediction that keeps the number of partitions, since the new one is unknown.
WITH_ITS_PARTITIONS = "with its partitions"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhd])")


# --- the query --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanQuery:
    """A plan to predict, with the stored runs of its job."""

    plan: Plan  # to predict
    # The resources where it ran, or would run, from the usual ones.
    cluster_or: Callable[[ClusterConfig], ClusterConfig]
    job: KnownJob | None  # of the plan; None where no stored run of it is named
    own: Execution | None  # the stored run that is named, if any
    # Stored runs of its job that ended well, of the plan's shape, at any size; the newest first.
    runs: Sequence[Execution]
    is_as_it_ran: bool  # whether a stored run is named, and no other platform

    @classmethod
    def read(
        cls,
        store: ExecutionStore,
        workflow: Path | None,
        execution: str | None,
        platform: str | None,
    ) -> Self:
        """Read the query of a workflow file, or of a stored run.

        Args:
            store: of executions.
            workflow: the file, or the id of a stored run; None where `execution` is given.
            execution: id of a stored run, or its beginning.
            platform: for the whole plan; None for its own.

        Raises:
            InvalidWorkflowFileError: the file cannot be read, and no id begins so.
            UnknownExecutionError: there is no such execution.
        """
        if workflow is not None and (workflow == STANDARD_INPUT or workflow.exists()):
            workflow_file = read_workflow_file(workflow, platform=platform)
            plan, cluster_or = workflow_file.plan, workflow_file.cluster_or
            own = _stored_run(store, workflow_file, platform)
            job = workflow_file.job if own is None else KnownJob.of(own)
        else:
            try:
                own = ran = store.find(str(workflow if execution is None else execution))
            except UnknownExecutionError as error:
                if workflow is None:
                    raise
                raise InvalidWorkflowFileError(
                    f"{workflow} does not exist: expected a file, how the id of a stored run "
                    "begins (fedperf runs lists those), or the name of a job (fedperf jobs)"
                ) from error
            plan, job = ran.plan, KnownJob.of(ran)
            if platform is not None:
                plan = Plan.on_one_platform(plan.workflow, platform_of(platform))

            def cluster_or(usual: ClusterConfig) -> ClusterConfig:
                del usual
                return ran.cluster

        runs: list[Execution] = []
        if own is not None:
            selection = Selection(workload=own.workload, status=ExecutionStatus.OK)
            platforms, shape = sorted(plan.platforms), fingerprint(plan.workflow)
            runs = [
                each
                for each in store.newest(MAX_RUNS, selection)
                if sorted(each.plan.platforms) == platforms
                and fingerprint(each.plan.workflow) == shape
            ]
        if job is not None and platform is not None:
            job = job.elsewhere()
        return cls(plan, cluster_or, job, own, runs, own is not None and platform is None)

    @property
    def same_size_runs(self) -> list[Execution]:
        """Runs whose source rows are within a factor of two of the plan's."""
        size = math.log1p(self.plan.workflow.source_rows)
        return [
            each
            for each in self.runs
            if abs(math.log1p(each.plan.workflow.source_rows) - size) <= SUPPORT_MARGIN
        ]

    def sizes(
        self,
        cluster: ClusterConfig,
        cores: Sequence[int] | None,
        nodes: Sequence[int] | None,
        clusters: Sequence[ClusterConfig],
    ) -> list[ClusterConfig]:
        """Return the clusters to predict.

        A plan on platforms that use one node gets one node, unless it is as it ran.

        Raises:
            InvalidSizesError: see `sizes_of`.
            OneNodeError: several nodes are named for platforms that use one.
        """
        if uses_one_node(self.plan) and not self.is_as_it_ran:
            if nodes is not None and max(nodes) > 1:
                raise OneNodeError(self.plan)
            cluster, clusters = node_of(cluster), ()
        if cores is None and nodes is None:
            return [cluster]
        return sizes_of(cluster, cores, nodes, clusters)


def _stored_run(
    store: ExecutionStore, workflow_file: WrittenWorkflow, platform: str | None
) -> Execution | None:
    """Return the execution that a file shows; None where it is not stored, or its plan differs."""
    if not workflow_file.execution_id:
        return None
    try:
        own = store.find(workflow_file.execution_id)
    except UnknownExecutionError:
        return None
    is_same = own.plan == workflow_file.plan if platform is None else True
    return own if is_same and own.plan.workflow == workflow_file.plan.workflow else None


# --- predictions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterPrediction:
    """The prediction for one cluster, a row of the table."""

    cluster: ClusterConfig  # where it would run
    estimate: Prediction  # of its run time
    probability: float | None  # to meet the deadline; None without deadline
    # The plan has partitions whose number on this cluster is unknown.
    keeps_partitions: bool = False
    no_promise: str | None = None  # why no deadline is promised; None where one may be
    # The plan at the input size of the query; None where none was given.
    scaled: ScaledPlan | None = None

    @property
    def cores(self) -> int:
        """Cores over all nodes."""
        return self.cluster.cores

    @property
    def meets_deadline(self) -> bool | None:
        """Return whether the deadline is met with a probability of 90 %; None without deadline."""
        return (
            None
            if self.probability is None
            else self.no_promise is None and self.probability >= ON_TIME
        )

    @property
    def facts(self) -> list[Fact]:
        """The row; seconds and shares."""
        estimate, scaled = self.estimate, self.scaled
        is_extrapolating = estimate.extrapolating
        is_seen = estimate.regime is QueryRegime.SEEN
        regime = "unlike own jobs" if is_seen and is_extrapolating else estimate.regime.value
        words = [regime]
        words += [WITH_ITS_PARTITIONS] if self.keeps_partitions else []
        words += ["uncalibrated"] if is_extrapolating else []
        facts = [
            *([] if scaled is None else [for_people("input", scaled.words)]),
            Fact("nodes", self.cluster.nodes, "nodes"),
            Fact("cores", self.cores, "cores"),
            *time_facts(estimate),
            Fact("regime", regime, "regime", ", ".join(words)),
            Fact("extrapolating", is_extrapolating),
            Fact("fixed_partitions", self.keeps_partitions),
            Fact("evidence", estimate.evidence.source.value, "evidence", estimate.evidence.text),
            Fact("observed_runs", estimate.evidence.runs),
            Fact("no_promise", self.no_promise),
        ]
        if scaled is not None:
            facts += [
                Fact("input_times", scaled.factor),
                Fact("input_rows", scaled.plan.workflow.source_rows),
                Fact("input_bytes", scaled.plan.workflow.source_bytes),
            ]
        if self.probability is not None:
            text = "-" if self.no_promise else format_probability(self.probability)
            facts += deadline_facts(self.probability, text, self.meets_deadline, self.no_promise)
        return facts


def time_facts(prediction: Prediction) -> list[Fact]:
    """Describe a predicted time and its interval."""
    lower, upper = map(duration_text, (prediction.lower_seconds, prediction.upper_seconds))
    heading, interval = f"{prediction.confidence_level:.0%} interval", f"{lower} to {upper}"
    return [
        Fact("p50_seconds", prediction.median_seconds, "P50"),
        Fact("p90_seconds", prediction.p90_seconds, "P90"),
        Fact("lower_seconds", prediction.lower_seconds),
        Fact("upper_seconds", prediction.upper_seconds),
        Fact("confidence_level", prediction.confidence_level, heading, interval),
    ]


def deadline_facts(
    probability: float, text: str, is_met: bool | None, no_promise: str | None
) -> list[Fact]:
    """Describe whether a deadline is met; `text` is the probability for people."""
    status = "on time" if is_met else "at risk"
    return [
        for_people("deadline", status if no_promise is None else "no promise"),
        Fact("probability", probability, "probability", text),
        Fact("meets_deadline", is_met),
    ]


def predict_plan(
    predictor: PersonalizedEnsemble,
    plan: Plan,
    cluster: ClusterConfig,
    sizes: Sequence[ClusterConfig],
    *,
    inputs: Sequence[InputSize] = (),
    job: KnownJob | None = None,
    runs: Sequence[PlanOnCluster] = (),
    load: float = 0.0,
    deadline_seconds: float | None = None,
) -> list[ClusterPrediction]:
    """Predict the run time of `plan`, which ran on `cluster`, on each of `sizes`.

    Args:
        predictor: of the home.
        plan: to predict.
        cluster: where it ran, or would run.
        sizes: of the cluster.
        inputs: sizes of its input, each to predict on all `sizes`; none for the size that it has.
        job: of the plan; None where no own execution of it is named.
        runs: own runs of the job at any input size; only read with `inputs`.
        load: half width that interference adds where runs of the job count, log seconds.
        deadline_seconds: that may be met; None without deadline.

    Raises:
        InvalidValueError: an input size cannot be predicted, see `scale_input`.
    """
    scaled_plans: list[ScaledPlan | None] = [None]
    plans = [reconfigure(plan, cluster, size, job) for size in sizes]
    if not inputs:
        estimates = predictor.predict([each.query for each in plans])
    else:
        rows = plan.workflow.source_rows
        measured_sizes = [(1.0, PlanOnCluster(plan, cluster, job))]
        for run in runs:
            if rows > 0 and run.plan.workflow.source_rows > 0:
                measured_sizes.append((run.plan.workflow.source_rows / rows, run))
        alone = job if job is not None and job.needs_own_runs else None
        scaled_plans, plans, estimates = [], [], []
        for scaled in [scale_input(plan, each) for each in inputs]:
            scaled_plans.append(scaled)
            for size in sizes:
                there = reconfigure(scaled.plan, cluster, size, alone)
                plans.append(there)
                measured = [
                    (factor, reconfigure(one.plan, one.cluster, size, one.job).query)
                    for factor, one in measured_sizes
                ]
                estimates.append(estimate_at_size(predictor, there.query, scaled.factor, measured))
    support, predictions = predictor.pool.summary.support, []
    has_partitions = any(each.partitions > 1 for each in plan.workflow.operators)
    for place, (there, direct) in enumerate(zip(plans, estimates, strict=True)):
        scaled_plan, count, estimate = (
            scaled_plans[place // len(sizes)],
            direct.evidence.runs,
            direct,
        )
        is_inside = not direct.extrapolating
        is_exact = direct.evidence.source is EvidenceSource.OWN_RUNS and is_inside
        if load > 0 and count > 0:
            estimate = direct.shifted(added=load)
        if count == 0 and is_inside and is_beyond_its_platforms(there.query, support):
            estimate = direct.as_extrapolation().shifted(regime=QueryRegime.BEYOND_SCALES)
        is_resized = scaled_plan is not None and scaled_plan.factor != 1
        ran_on = cluster.cores if count else 0
        predictions.append(
            ClusterPrediction(
                there.query.cluster,
                estimate,
                None if deadline_seconds is None else estimate.probability_within(deadline_seconds),
                there.keeps_partitions or (is_resized and has_partitions),
                None if is_exact else no_promise(there.query, support, ran_on=ran_on),
                scaled_plan,
            )
        )
    return predictions


def by_input(predictions: Sequence[ClusterPrediction]) -> list[list[ClusterPrediction]]:
    """Group predictions by input size."""
    parts: dict[float, list[ClusterPrediction]] = {}
    for each in predictions:
        parts.setdefault(1.0 if each.scaled is None else each.scaled.factor, []).append(each)
    return list(parts.values())


# --- decisions and sentences ------------------------------------------------------------------


def smallest_meeting_deadline(predictions: Sequence[ClusterPrediction]) -> int | None:
    """Return the fewest cores that meet the deadline at every input size, None where none do."""
    late = {each.cores for each in predictions if not each.meets_deadline}
    return min((each.cores for each in predictions if each.cores not in late), default=None)


def smallest_equivalent(
    predictions: Sequence[ClusterPrediction],
) -> tuple[ClusterPrediction, float] | None:
    """Return the smallest size from which no larger one is distinguishably faster.

    Returns:
        Its prediction and the highest probability that one of more cores is faster. None where
        every larger one is faster than those below, or none is larger.
    """
    for each in sorted(predictions, key=lambda each: each.cores):
        more = [other for other in predictions if other.cores > each.cores]
        chances = [probability_faster(other.estimate, each.estimate) for other in more]
        if chances and max(chances) < SURE:
            return each, max(chances)
    return None


def equivalence_sentence(predictions: Sequence[ClusterPrediction]) -> str | None:
    """Say from where on more cores make no distinguishable difference, None where all do."""
    least = smallest_equivalent(predictions)
    if least is None:
        return None
    smallest, chance = least
    cores = counted(smallest.cores, "core")
    sentence = (
        f"median time stops improving at {cores} (more cores are faster with a probability of "
        f"{format_probability(chance)})"
    )
    if smallest.meets_deadline is False and any(each.meets_deadline for each in predictions):
        sentence += (
            f"; a deadline depends on slow runs too: {cores} meet it with a probability of "
            f"{format_probability(smallest.probability or 0.0)}"
        )
    return sentence


def p90_discontinuity_note(predictions: Sequence[ClusterPrediction]) -> str | None:
    """Explain a jump of P90 between sizes that ran and others; None unless there are both."""
    kinds = {each.estimate.evidence.source for each in predictions}
    if not kinds >= {EvidenceSource.OWN_RUNS, EvidenceSource.OTHER_RESOURCES}:
        return None
    ran = [each for each in predictions if each.estimate.evidence.source is EvidenceSource.OWN_RUNS]
    cores = ", ".join(str(each) for each in sorted({each.cores for each in ran}))
    return (
        f"P90 of {cores} cores is from own runs there, that of other sizes is derived from them; "
        "it may jump between the two"
    )


def deadline_sentence(
    predictions: Sequence[ClusterPrediction], deadline_seconds: float, *, of_nodes: bool
) -> str:
    """Say whether a deadline is met.

    Args:
        predictions: at least one, small sizes first.
        deadline_seconds: of the query.
        of_nodes: whether nodes were listed, and no cores.
    """

    def count_of(each: ClusterPrediction) -> int:
        return each.cluster.nodes if of_nodes else each.cores

    unit, words = "node" if of_nodes else "core", duration_text(deadline_seconds)
    on_time = [each for each in predictions if each.meets_deadline]
    if on_time:
        best = min(on_time, key=count_of)
        probability = format_probability(best.probability or 0.0)
        return f"fewest {unit}s that meet {words}: {count_of(best)}, with {probability} probability"
    promised = [each for each in predictions if each.no_promise is None]
    if not promised:
        return f"no deadline is promised: {predictions[0].no_promise}"
    best = max(promised, key=lambda each: each.probability or 0.0)
    return (
        f"none of these {unit} counts meets {words} with 90% probability; the best: "
        f"{counted(count_of(best), unit)}, {format_probability(best.probability or 0.0)}"
    )


# --- words of a query ---------------------------------------------------------------------------


def parse_cores(text: str, option: str = "--cores") -> list[int]:
    """Parse counts like `8,16,32`, ascending, each once.

    Raises:
        InvalidInputError: not such a list, or a count that no cluster has.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 7 for word in words):  # noqa: PLR2004
        raise InvalidInputError(
            f"{option} must be whole numbers from 1 on like 8,16,32, got {text!r}"
        )
    counts = sorted({int(word) for word in words})
    if not (counts[0] >= 1 and counts[-1] <= MAX_CORES and len(counts) <= MOST_QUERIES):
        raise InvalidInputError(
            f"{option} must be up to {MOST_QUERIES} numbers from 1 to {MAX_CORES}, got {text!r}"
        )
    return counts


def parse_duration(text: str) -> float:
    """Parse seconds from words like `30ms`, `90s`, `20m`, `1.5h`.

    Raises:
        InvalidInputError: not a duration, or one that no execution has.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * UNITS[match[2]] if match else math.nan
    if not 0 < seconds <= MAX_RUNTIME_SECONDS:
        raise InvalidInputError(
            f"a deadline is a number with its unit, like 30ms, 90s, 20m or 1.5h, more than 0 and "
            f"at most {MAX_RUNTIME_SECONDS:g} seconds; got {text!r}"
        )
    return seconds


def seconds_until(text: str, now: datetime) -> float:
    """Return the seconds from `now` to the next time of day like `06:00`, in its time zone.

    Raises:
        InvalidInputError: not a time of day.
    """
    try:
        at = time.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(f"--by is a time of day like 06:00, got {text!r}") from None
    due = datetime.combine(now.date(), at, at.tzinfo or now.tzinfo)
    if due <= now:
        due += timedelta(days=1)
    return (due - now).total_seconds()


def format_probability(chance: float) -> str:
    """Format a probability in whole percent, rounded down, never 0 % or 100 %."""
    percent = int(100 * chance)
    return f"{min(percent, 99)}%" if percent >= 1 else "< 1%"


MOST_TIMES_CORES = 8.0  # multiple of the most cores measured, beyond which a speed-up is a guess
# Multiple of the most rows, beyond which own executions are no evidence (`STRANGE_ROWS`).
MOST_TIMES_ROWS = 100.0


def no_promise(query: PlanOnCluster, support: TrainingSupport, *, ran_on: int = 0) -> str | None:
    """Return why no deadline is promised, for people; None where one may be.

    Args:
        query: to predict.
        support: training support of own executions.
        ran_on: cores of own runs of the very job; 0 where there are none.
    """
    platforms = sorted(set(query.plan.platforms))
    limits = (
        (float(query.cluster.cores), "cores", MOST_TIMES_CORES, CORES, float(ran_on)),
        (query.plan.workflow.source_rows, "rows", MOST_TIMES_ROWS, ROWS, 0.0),
    )
    for value, unit, times, at, own in limits:
        for platform in platforms:
            width = shipped_widths()[platform]
            shipped = width.most_cores if at == CORES else width.most_rows
            most = max(own, support.most(platform, at), shipped if shipped < math.inf else 0.0)
            if most == 0:
                if ran_on > 0:
                    continue
                return f"nothing was ever measured on {platform.name.lower()}"
            if value > times * most * (1 + _ROUNDING):
                where = platform.name.lower()
                return (
                    f"{value:,.0f} {unit} are {value / most:,.3g} times the {most:,.0f} that were "
                    f"measured on {where}"
                )
    return None


def is_beyond_its_platforms(query: PlanOnCluster, support: TrainingSupport) -> bool:
    """Return whether a platform of the plan never ran on so many, or so few, cores here.

    The training support of all executions has a small engine at the cores of a large one.
    """
    cores = math.log(query.cluster.cores)
    for platform in set(query.plan.platforms):
        ends = [each for (_, where), each in support.ranges.items() if where is platform]
        least = min((low[CORES] for low, _ in ends), default=cores)
        most = max((high[CORES] for _, high in ends), default=cores)
        if not least - LEVEL_STEP <= cores <= most + LEVEL_STEP:
            return True
    return False


_ROUNDING = 1e-9
