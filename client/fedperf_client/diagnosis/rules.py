"""Rules that find what slows jobs and stages, and bound the potential saving.

Idle executors: in a job, either a stage was submitted and none of its tasks had begun (it waited
for executors, or for the driver to send its tasks), or none was submitted: the driver planned,
listed files, collected, or built a table to broadcast. More executors help with none of it.

Failures: the time in which lost tasks or repeated stages ran; for a failed job, all its time.

Dropped events: the log reports fewer tasks of a stage than it had, so idle time is unknown, and no
rule reports it.

Stages:

- Spilling: at most all time in the code of tasks that spilled, without garbage collection and
  waiting for shuffles. Sorting in pieces costs processor time as well, which no log separates.
- Garbage collection and waiting for shuffles: their time, as a share of the stage.
- Too few tasks: the time that the median task takes longer than its share of all slots, at most
  the time that slots were idle. Not all work can be split.
- Too many tasks: time of tasks outside of computing (start, waiting, scheduling), as far as there
  were more of them than the slots and the bytes need. The log has the processor time of the JVM
  alone, so stages that run Python, or long tasks, are left out.
- Uneven tasks: the time that the stage took longer than with equally long tasks, at most the time
  that its slots were idle. The longest task decides which of three it is. It read more than others
  (skew), or took longer for no more (straggler). Or it was as long as all others and began in a
  round that had no work for most slots (last wave).
- A slow executor: the time by which its tasks exceed the median of the others', spread over all
  slots, and the idle time of the slots that waited for it. It read no more per task.
- A shuffle that grew: the stage's span, by the share of rows that it added. Bytes may grow by
  another encoding, rows do not.
- Settings that cost time by themselves: cores that tasks reserved and did not use (at most that
  share of the stage), a new process of Python per task (at most the shortest task, for each),
  shuffles without compression (at most the time of writing and waiting).
- A broadcast table that is far larger than Spark estimated: the driver's time to build and send
  it, once it was collected. The memory that it takes on every executor is in no log.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np

from fedperf_client.diagnosis.job_facts import JobFacts, JobFinding, Symptom
from fedperf_client.diagnosis.plan_rules import PLAN_RULES
from fedperf_client.sources.spark.failures import (
    FailureCause,
    FailureText,
    LostAttempt,
    advice_for,
    causes_of,
    last_text,
)
from fedperf_client.sources.spark.fields import MIB
from fedperf_client.sources.spark.query import Interval, SparkQuery, StageAttempt, covered, merged
from fedperf_client.sources.spark.settings import (
    ADAPTIVE_BY_DEFAULT,
    DEFAULT_BROADCAST_BYTES,
    SparkSettings,
)
from fedperf_shared.runtime.quantities import duration_text, size_text

USUAL_EVENTS = 10_000  # capacity of a listener queue by default


def _of_stages(
    rule: Callable[[JobFacts, StageAttempt], Iterator[JobFinding]],
) -> Callable[[JobFacts], Iterator[JobFinding]]:
    """Apply a rule about a stage to all stages of a job."""
    return lambda job: (finding for stage in job.stages for finding in rule(job, stage))


def idle_executors(job: JobFacts) -> Iterator[JobFinding]:
    """Find quiet times that waited for tasks to begin, or for the driver."""
    if not job.query.was_alone or job.query.dropped:
        return
    # Stages of which tasks succeeded, and those of which none ever began.
    begun = [
        (each.began if len(each.tasks) else job.query.end, each)
        for each in job.attempts
        if each.submitted_at and (len(each.tasks) or not each.has_begun)
    ]
    waits = merged((each.submitted_at or 0, began) for began, each in begun)
    both = ((max(a, c), min(b, d)) for a, b in job.quiet for c, d in waits)
    waited = [(start, end) for start, end in both if end > start]
    alone = sum(end - start for start, end in job.quiet) - sum(b - a for a, b in waited)
    if waited:
        _, last = max(waited, key=lambda each: each[1] - each[0])
        _, stage = min(begun, key=lambda each: (each[0] < last, each[0]))
        yield _waiting(job, waited, stage)
    if alone > 0:
        yield _driver(job, alone)


def _waiting(job: JobFacts, waited: list[Interval], stage: StageAttempt) -> JobFinding:
    missing = not stage.had_executors
    conf: tuple[str, ...] = ()
    cores = job.settings.executor_cores
    if cores and missing and not stage.at_start:
        executors = -(-stage.slots * job.settings.cores_per_task // cores)
        conf = (f"spark.dynamicAllocation.minExecutors={max(1, executors)}",)
    total = sum(b - a for a, b in waited) / 1000
    longest = max(end - start for start, end in waited) / 1000
    state = "no executor was there" if missing else "executors were there"
    before = f"before the first task of {stage}" if stage.has_begun else f"no task of {stage} began"
    return JobFinding(
        Symptom.EXECUTOR_WAIT,
        str(stage),
        total,
        f"for {duration_text(total)} stages were submitted and no task ran; the longest time, "
        f"{duration_text(longest)}, {before}: {state}",
        _how_to_wait_less(stage),
        conf,
        {"waited_seconds": total, "longest_seconds": longest},
        max(0.0, total - job.query.wait_milliseconds / 1000) / job.seconds
        if job.seconds > 0
        else 0.0,
    )


def _how_to_wait_less(stage: StageAttempt) -> str:
    if stage.had_executors:
        return (
            "executors that had just started, or a driver that is slow to send tasks: try more "
            "driver cores"
        )
    if stage.at_start:
        return (
            "the application was starting, and its first executors were on their way: the manager "
            "of the cluster sets how long that takes"
        )
    return (
        "keep executors between jobs (their idle time costs; a longer "
        "spark.dynamicAllocation.executorIdleTimeout does it as well), or let jobs follow closely"
    )


def _driver(job: JobFacts, alone: int) -> JobFinding:
    began = min((each.began for each in job.stages), default=job.query.end)
    ended = max((each.ended for each in job.stages), default=job.query.end)
    before = max(0, began - job.query.started_at)
    after = max(0, job.query.end - ended)
    where = (
        f"its first task began {duration_text(before / 1000)} after its start, and it ended "
        f"{duration_text(after / 1000)} after its last"
        if job.stages
        else "no task of it succeeded"
        if job.lost
        else "it had no task"
    )
    return JobFinding(
        Symptom.DRIVER,
        str(job.query),
        alone / 1000,
        f"for {duration_text(alone / 1000)} of {duration_text(job.seconds)} no task ran and no "
        f"stage waited for one ({where})",
        "the driver planned, listed files, collected results or committed: fewer files and "
        "partitions, less to collect; more executors do not help"
        if job.stages or job.lost
        else "no executor took part: planning, or the catalogue and its metastore; more executors "
        "do not help",
        (),
        {"alone_seconds": alone / 1000, "before_seconds": before / 1000,
         "after_seconds": after / 1000},
    )  # fmt: skip


def dropped_events(job: JobFacts) -> Iterator[JobFinding]:
    """Find the stage with most missing tasks."""
    dropped = job.query.dropped
    if dropped is None:
        return
    name = "spark.scheduler.listenerbus.eventqueue.capacity"
    yield JobFinding(
        Symptom.DROPPED_EVENTS,
        f"stage {dropped.stage}",
        0.0,
        f"{dropped.reported} of {dropped.announced} tasks of stage {dropped.stage} are in the log: "
        "Spark dropped events, so idle time is not reported, and sums are too low",
        "a longer queue for the events, and more memory for the driver that keeps it",
        (f"{name}={4 * (job.settings.number(name, 0) or USUAL_EVENTS)}",),
        {"stage": dropped.stage, "told_tasks": dropped.reported, "tasks": dropped.announced},
    )


MOST_CAUSES = 3  # that are reported of one job


def failures(job: JobFacts) -> Iterator[JobFinding]:
    """Find work that was repeated, or lost."""
    own_text = None
    if job.query.has_failed:
        own_text = last_text(job.query.failures) or FailureText.of(job.query.failure)
    causes, again = causes_of(job.lost, job.removals, own_text), list(_repeated(job))
    if again and not causes:
        causes = [FailureCause(None, "")]
    # The cause that lost the files of a stage repeats it, otherwise the one with most attempts.
    repeating = next((each for each in causes if each.missing), causes[0] if causes else None)
    for cause in causes[:MOST_CAUSES]:
        yield _failure(job, cause, again if cause is repeating else [])


def _repeated(job: JobFacts) -> Iterator[StageAttempt]:
    """Yield attempts at stages that ran tasks again that had succeeded before."""
    attempts = defaultdict[int, list[StageAttempt]](list)
    for stage in job.stages:
        attempts[stage.number].append(stage)
    for stage in job.stages:
        so_far = [each for each in attempts[stage.number] if each.attempt <= stage.attempt]
        done = sum(len(each.tasks) for each in so_far)
        if done > max(each.announced or len(each.tasks) for each in so_far):
            yield stage


def _failure(job: JobFacts, cause: FailureCause, again: list[StageAttempt]) -> JobFinding:
    advice = advice_for(cause, job.settings)
    lost = [(each.launched, each.finished) for each in cause.failures]
    seconds = covered([*lost, *((each.began, each.ended) for each in again)]) / 1000
    ended = f"the job ended with an error after {duration_text(job.seconds)}"
    repeated = f"{', '.join(map(str, again))} ran again"
    evidence = (
        ended * cause.ends_job,
        advice.reason,
        *cause.evidence,
        repeated * bool(again),
        f"{duration_text(seconds)} lost" * bool(seconds),
    )
    after = None if cause.moment is None else (cause.moment - job.query.started_at) / 1000
    return JobFinding(
        Symptom.FAILURES,
        str(job.query) if cause.stage is None else f"stage {cause.stage}",
        job.seconds if cause.ends_job else min(seconds, job.seconds),
        "; ".join(filter(None, evidence)),
        advice.action,
        advice.conf,
        {
            "repeated_stages": len(again),
            "lost_seconds": seconds,
            **cause.figures,
            **({} if after is None else {"after_seconds": after}),
            **({"settings": advice.settings} if advice.settings else {}),
        },
    )


ROOMY = 0.1  # of an executor's memory; tasks that hold less have enough
MUCH_GARBAGE = 0.1  # of the time in tasks' code; Spark's pages show such a task in red


@_of_stages
def spills(job: JobFacts, stage: StageAttempt) -> Iterator[JobFinding]:
    """Find stages with tasks that spilled to disk."""
    totals = stage.totals
    if not (totals.spilled_disk and totals.spilled_tasks):
        return
    # The factor by which the work of a task must shrink to fit.
    held = max(1, totals.held)
    factor = max(2, math.ceil((held + totals.spilled_memory) / held))
    yield JobFinding(
        Symptom.SPILL,
        str(stage),
        stage.share_of_span(totals.spilled_run) / 1000,
        f"{totals.spilled_tasks} of {len(stage.tasks)} tasks wrote "
        f"{size_text(totals.spilled_disk)} to disk ({size_text(totals.spilled_memory)} in "
        f"memory); they could hold {size_text(totals.held / len(stage.tasks))} each",
        f"{factor} times as many partitions, or {factor} times the memory per task",
        _against_spills(stage, job.settings, factor),
        {
            "spilled_disk_bytes": totals.spilled_disk,
            "spilled_memory_bytes": totals.spilled_memory,
            "spilled_tasks": totals.spilled_tasks,
            "tasks": len(stage.tasks),
        },
    )


def _against_spills(stage: StageAttempt, settings: SparkSettings, factor: int) -> tuple[str, ...]:
    """Return settings for more partitions if there are any, otherwise for more memory."""
    tasks, totals = len(stage.tasks), stage.totals
    if totals.shuffle_read > totals.input_bytes:
        if settings.is_adaptive and tasks < settings.partitions:
            size = max(MIB, totals.shuffle_read // (tasks * factor))
            advisory = f"spark.sql.adaptive.advisoryPartitionSizeInBytes={size}"
            parallelism = "spark.sql.adaptive.coalescePartitions.parallelismFirst=false"
            return (
                (advisory, parallelism)
                if settings.has_version(ADAPTIVE_BY_DEFAULT)
                else (advisory,)
            )
        if tasks == settings.partitions:
            return (f"spark.sql.shuffle.partitions={tasks * factor}",)
    return (settings.times_memory(factor),)


@_of_stages
def garbage_collection(job: JobFacts, stage: StageAttempt) -> Iterator[JobFinding]:
    """Find stages with too little memory for the objects that they create."""
    share = stage.totals.garbage / stage.run_time
    if share < MUCH_GARBAGE:
        return
    settings, held = job.settings, job.held_at_once(stage)
    is_roomy = held < ROOMY * settings.memory_bytes
    yield JobFinding(
        Symptom.GARBAGE,
        str(stage),
        stage.share_of_span(stage.totals.garbage) / 1000,
        f"{duration_text(stage.totals.garbage / 1000)} of "
        f"{duration_text(stage.run_time / 1000)} in tasks ({share:.0%}) were garbage "
        f"collection; tasks of one executor held at most {size_text(held)} of "
        f"{size_text(settings.memory_bytes)} at once",
        "not for want of room for what tasks hold: a JVM that had just started, data in its "
        "cache, or code that makes many objects"
        if is_roomy
        else "more memory per core: twice as much, or half as many cores per executor",
        () if is_roomy else (settings.times_memory(2),),
        {
            "garbage_seconds": stage.totals.garbage / 1000,
            "run_seconds": stage.run_time / 1000,
            "held_bytes": held,
            "memory_bytes": settings.memory_bytes,
        },
    )


# Least bytes that are worth a task: Spark itself merges partitions up to this size.
WORTH_BYTES = MIB

# Calls that read no rows but the schema of files, in a task of Spark.
_READS_SCHEMA = re.compile(r"(?:load|parquet|orc|avro|csv|json|text|table) at ")


@_of_stages
def few_tasks(job: JobFacts, stage: StageAttempt) -> Iterator[JobFinding]:
    """Find stages with fewer tasks than slots."""
    if not len(stage.tasks) < stage.slots:
        return
    usual = min(stage.mean, stage.median)  # a straggler is another finding
    spread = usual * (1 - len(stage.tasks) / stage.slots)
    seconds = min(spread, job.unused(stage)) / 1000
    totals, tasks = stage.totals, len(stage.tasks)
    read = totals.input_bytes + totals.shuffle_read
    yield JobFinding(
        Symptom.FEW_TASKS,
        str(stage),
        seconds,
        f"{tasks} task{'s' * (tasks > 1)} on {stage.slots} slots for "
        f"{duration_text(stage.span / 1000)}; read: {size_text(read)}",
        *_more_partitions(stage, job.settings),
        {"tasks": tasks, "slots": stage.slots, "read_bytes": read},
    )


def _more_partitions(stage: StageAttempt, settings: SparkSettings) -> tuple[str, tuple[str, ...]]:
    """Return how to get as many partitions as slots, and settings if there is enough to read."""
    totals, tasks, conf = stage.totals, len(stage.tasks), tuple[str, ...]()
    size = max(totals.input_bytes, totals.shuffle_read) // stage.slots
    if size < WORTH_BYTES:
        pass
    elif totals.input_bytes > totals.shuffle_read:
        conf = settings.smaller_files(size)
    elif tasks == settings.partitions:
        conf = (f"spark.sql.shuffle.partitions={stage.slots}",)
    elif settings.is_adaptive and settings.partitions >= stage.slots:
        conf = (f"spark.sql.adaptive.advisoryPartitionSizeInBytes={size}",)
    if conf:
        return "more partitions", conf
    reads = totals.input_bytes or totals.shuffle_read
    if tasks == 1 and not reads and _READS_SCHEMA.match(stage.name):
        return (
            "Spark reads the columns from files, which no setting splits: give a schema, or read "
            "a table of the catalogue"
        ), conf
    return (
        "use more partitions if your code sets their number; otherwise fewer cores are as fast",
        conf,
    )


TINY_MILLISECONDS = 100.0  # a shorter task that reads nothing is mostly its start
MUCH_WORK_MILLISECONDS = 500.0  # in the code of the median task; that is no start
WAVES = 2  # fewer tasks per slot are not too many

_LISTING = "Listing leaf files"


@_of_stages
def tiny_tasks(job: JobFacts, stage: StageAttempt) -> Iterator[JobFinding]:
    """Find stages in which starting tasks took longer than their work."""
    tasks, totals = len(stage.tasks), stage.totals
    read = totals.input_bytes + totals.shuffle_read
    enough = max(stage.slots, -(-read // WORTH_BYTES))
    is_tiny = read > 0 or stage.median < TINY_MILLISECONDS
    is_work = float(np.median(stage.tasks["run"])) > MUCH_WORK_MILLISECONDS
    if stage.runs_python or job.query.dropped or is_work:
        return
    if not (stage.slots and is_tiny and tasks >= WAVES * enough):
        return
    overhead = max(0, stage.task_time - totals.cpu)
    yield JobFinding(
        Symptom.TINY_TASKS,
        str(stage),
        stage.share_of_span(overhead * (1 - enough / tasks)) / 1000,
        f"{tasks} tasks on {stage.slots} slots read {size_text(read / tasks)} each and took "
        f"{duration_text(stage.median / 1000)} in the median; of "
        f"{duration_text(stage.task_time / 1000)} in all, {duration_text(totals.cpu / 1000)} "
        "were CPU time of their code in the JVM; time of other programs is not counted",
        *_fewer_partitions(job, stage, enough),
        {
            "tasks": tasks,
            "slots": stage.slots,
            "read_bytes": read,
            "task_seconds": stage.task_time / 1000,
            "cpu_seconds": totals.cpu / 1000,
        },
    )


def _fewer_partitions(
    job: JobFacts, stage: StageAttempt, enough: int
) -> tuple[str, tuple[str, ...]]:
    if job.description.startswith(_LISTING):
        setting = f"spark.sql.sources.parallelPartitionDiscovery.parallelism={enough}"
        return "fewer and larger files or directories; list them in fewer tasks", (setting,)
    totals, conf = stage.totals, tuple[str, ...]()
    if totals.shuffle_read and len(stage.tasks) == job.settings.partitions:
        conf = (*job.settings.with_adaptive, f"spark.sql.shuffle.partitions={enough}")
    if totals.input_bytes > totals.shuffle_read:
        return "fewer and larger files (small files), or fewer partitions", conf
    return "fewer partitions", conf


MUCH = 2.0  # times the median; below, a second wave would cost as much

# Share of tasks that may be slow: speculation begins when three quarters have ended. If more are
# slow, there are two kinds of tasks and no stragglers.
FEW = 0.25

LEAST_BYTES, LEAST_ROWS = MIB, 100_000  # A task that read less is not slow because of what it read


@_of_stages
def uneven_tasks(job: JobFacts, stage: StageAttempt) -> Iterator[JobFinding]:
    """Find stages of which most slots waited for a few tasks."""
    seconds = job.uneven(stage) / 1000
    longest = float(stage.durations.max())
    overtaken = max(
        (each for each in stage.lost if each.reason.is_called_off),
        key=lambda each: each.duration,
        default=None,
    )
    is_skewed = _is_much(stage, "read_bytes", LEAST_BYTES) or _is_much(
        stage, "read_rows", LEAST_ROWS
    )
    if overtaken and overtaken.duration >= max(longest, MUCH * stage.median):
        yield _overtaken(stage, overtaken)
    elif not is_skewed and (slow := _slow_executor(job, stage)) is not None:
        yield slow
    elif not seconds > 0:
        return
    elif longest < MUCH * stage.median:
        if len(stage.tasks) > stage.slots and not (stage.lost or stage.attempt):
            yield _last_wave(job, stage, seconds)
    elif is_skewed:
        yield _skew(job, stage, seconds)
    elif _slow(stage) <= FEW * len(stage.tasks):
        yield _straggler(job, stage, seconds)


def _is_much(stage: StageAttempt, column: str, least: int) -> bool:
    """Return whether the longest task had much more of a column than the median."""
    own = int(stage.longest[column])
    return own >= least and own >= MUCH * float(np.median(stage.tasks[column]))


def _slow(stage: StageAttempt) -> int:
    return int((stage.durations >= MUCH * stage.median).sum())


def _times(stage: StageAttempt) -> str:
    longest = float(stage.durations.max()) / 1000
    return (
        f"the longest of {len(stage.tasks)} tasks took {duration_text(longest)}, "
        f"the median {duration_text(stage.median / 1000)}"
    )


def _figures(stage: StageAttempt) -> dict[str, float]:
    return {
        "tasks": len(stage.tasks),
        "slots": stage.slots,
        "longest_seconds": float(stage.durations.max()) / 1000,
        "median_seconds": stage.median / 1000,
        "longest_bytes": int(stage.longest["read_bytes"]),
        "median_bytes": float(np.median(stage.tasks["read_bytes"])),
        "longest_rows": int(stage.longest["read_rows"]),
        "median_rows": float(np.median(stage.tasks["read_rows"])),
    }


def _reads(stage: StageAttempt) -> str:
    figures = _figures(stage)
    return (
        f"it read {size_text(figures['longest_bytes'])} and {figures['longest_rows']:,.0f} rows, "
        f"the median {size_text(figures['median_bytes'])} and {figures['median_rows']:,.0f}"
    )


def _skew(job: JobFacts, stage: StageAttempt, seconds: float) -> JobFinding:
    settings, totals = job.settings, stage.totals
    median = int(np.median(stage.tasks["read_bytes"]))
    size = max(LEAST_BYTES, median)
    conf: tuple[str, ...] = ()
    if totals.input_bytes > totals.shuffle_read:
        # Where most tasks found nothing to read, pieces are smaller than what can be split.
        is_whole = median < LEAST_BYTES
        advice = (
            "the files cannot be split further (row groups, or gzip): write them with smaller "
            "row groups, or spread the rows after reading (repartition)"
            if is_whole
            else "smaller pieces of the files"
        )
        conf = () if is_whole else settings.smaller_files(size)
    else:
        advice = "split the large partitions of a join, or spread the frequent keys (salt)"
        if not job.may_join:
            advice = "spread the frequent keys (salt); no join of it could be split"
        elif settings.has_version((3, 0)):
            conf = (
                *settings.with_adaptive,
                "spark.sql.adaptive.skewJoin.enabled=true",
                f"spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes={2 * size}",
            )
    evidence = f"{_times(stage)}; {_reads(stage)}"
    return JobFinding(Symptom.SKEW, str(stage), seconds, evidence, advice, conf, _figures(stage))


def _overtaken(stage: StageAttempt, lost: LostAttempt) -> JobFinding:
    overhead = lost.duration - stage.median  # it would have ended before the others
    took = lost.duration / 1000
    return JobFinding(
        Symptom.STRAGGLER,
        str(stage),
        min(overhead, max(0.0, stage.span - max(stage.even_span, stage.median))) / 1000,
        f"{_where(*lost.executor)} worked on a task for {duration_text(took)} and more, "
        f"the median is {duration_text(stage.median / 1000)}; another attempt at it was first",
        f"not the data: look at {_where(*lost.executor)}, its disk and its garbage collection",
        (),
        {
            **_figures(stage),
            "longest_seconds": took,
            "executor": lost.executor[0],
            "host": lost.executor[1],
        },
    )


def _where(executor: str, host: str) -> str:
    return f"executor {executor or 'unknown'}" + (f" on {host}" if host else "")


SOME_TASKS = 5  # of an executor; fewer may be slow by chance, or because it has just started


def _slow_executor(job: JobFacts, stage: StageAttempt) -> JobFinding | None:
    """Return the finding of the executor whose tasks were slowest, if they read no more."""
    places, durations = stage.tasks["executor"], stage.durations
    slowest = 0.0, -1, 0.0, 0.0
    for place in np.unique(places[places >= 0]):
        own = places == place
        if not (own.sum() >= SOME_TASKS and (~own).sum() >= SOME_TASKS):
            continue
        median, other = float(np.median(durations[own])), float(np.median(durations[~own]))
        excess = float(np.maximum(durations[own] - other, 0).sum())
        is_alike = all(
            np.median(stage.tasks[name][own])
            < max(least, MUCH * float(np.median(stage.tasks[name][~own])))
            for name, least in (("read_bytes", LEAST_BYTES), ("read_rows", LEAST_ROWS))
        )
        is_apart = np.quantile(durations[own], 0.25) > np.quantile(durations[~own], 0.75)
        if median >= MUCH * max(other, 1.0) and is_apart and is_alike:
            slowest = max(slowest, (excess, int(place), median, other))
    excess, place, median, other = slowest
    if place < 0:
        return None
    executor, host = stage.executor(place)
    seconds = (excess / max(1, stage.slots) + job.uneven(stage)) / 1000
    return JobFinding(
        Symptom.SLOW_EXECUTOR,
        str(stage),
        min(seconds, stage.span / 1000),
        f"{_where(executor, host)} took {duration_text(median / 1000)} per task in the median, the "
        f"others {duration_text(other / 1000)}, for no more data",
        f"look at {_where(executor, host)}: other load, its disk, its garbage collection; Spark "
        "repeats late tasks elsewhere with speculation",
        () if job.settings.is_on("spark.speculation") else ("spark.speculation=true",),
        {
            **_figures(stage),
            "executor": executor,
            "host": host,
            "own_median_seconds": median / 1000,
            "other_median_seconds": other / 1000,
        },
    )


def _straggler(job: JobFacts, stage: StageAttempt, seconds: float) -> JobFinding:
    slow = _slow(stage)
    longest = float(stage.durations.max())
    outside = max(0, int(longest - stage.longest["run"]))
    executor, host = stage.executor(int(stage.longest["executor"]))
    evidence = (
        f"{_times(stage)} ({slow} took twice the median or more), the longest on "
        f"{_where(executor, host)}; {duration_text(outside / 1000)} of it were outside of its own "
        f"code; {_reads(stage)}"
    )
    is_late = outside > longest / 2
    others = not (job.settings.is_local or job.settings.is_on("spark.speculation"))
    return JobFinding(
        Symptom.STRAGGLER,
        str(stage),
        seconds,
        evidence,
        "not the data: its executor was slow to begin it (it had just started, or the code was "
        "on its way)"
        if is_late
        else "not the data: look at the executor of that task, its disk and its garbage collection",
        ("spark.speculation=true",) if others else (),
        {
            **_figures(stage),
            "slow_tasks": slow,
            "outside_seconds": outside / 1000,
            "executor": executor,
            "host": host,
        },
    )


def _last_wave(job: JobFacts, stage: StageAttempt, seconds: float) -> JobFinding:
    tasks, totals = len(stage.tasks), stage.totals
    waves = tasks / stage.slots
    more = 3 * stage.slots * -(-tasks // stage.slots)
    conf: tuple[str, ...] = ()
    is_of_files = totals.input_bytes > totals.shuffle_read
    if is_of_files:
        conf = job.settings.smaller_files(max(LEAST_BYTES, totals.input_bytes // more))
    elif totals.shuffle_read and tasks == job.settings.partitions:
        conf = (f"spark.sql.shuffle.partitions={more}",)
    return JobFinding(
        Symptom.LAST_WAVE,
        str(stage),
        seconds,
        f"{tasks} tasks on {stage.slots} slots are {waves:.2f} waves; {_times(stage)}",
        "smaller tasks, so that the last wave is short"
        + (", if the files can be split (row groups; not gzip)" if is_of_files else ""),
        conf,
        _figures(stage),
    )


MUCH_SHUFFLE = 0.1  # of the time in tasks' code
GROWS = 2.0  # times the rows that were read
LEAST_SHUFFLE_BYTES = 128 * MIB  # a smaller shuffle fits into one partition

# Factor of the size up to which Spark broadcasts a table. Spark estimated no more than that size,
# unless the code requested it, and files take at least a tenth of the memory of their rows.
UNDERESTIMATED = 10

_SIZE = "data size"


@_of_stages
def shuffles(job: JobFacts, stage: StageAttempt) -> Iterator[JobFinding]:
    """Find waits for shuffles, and shuffles that grew."""
    totals, run = stage.totals, stage.run_time / 1000
    wait, write = totals.fetch_wait / 1000, totals.shuffle_write / 1000
    waited = totals.fetch_wait + totals.shuffle_write
    if waited >= MUCH_SHUFFLE * stage.run_time:
        yield JobFinding(
            Symptom.SHUFFLE_WAIT,
            str(stage),
            stage.share_of_span(waited) / 1000,
            f"of {duration_text(run)} in tasks {duration_text(waited / 1000)} were shuffle: "
            f"{duration_text(wait)} waiting for {size_text(totals.shuffle_read)}, "
            f"{duration_text(write)} writing {size_text(totals.shuffle_written)}",
            "faster local disks or network, fewer and larger executors, or less to shuffle",
            (),
            {"fetch_wait_seconds": wait, "shuffle_write_seconds": write, "run_seconds": run},
        )
    read, rows, size = totals.rows_read, totals.rows_written, totals.shuffle_written
    if read and rows >= GROWS * read and size >= LEAST_SHUFFLE_BYTES:
        yield JobFinding(
            Symptom.SHUFFLE_GROWTH,
            str(stage),
            stage.span * (1 - read / rows) / 1000,
            f"it read {read:,} rows and wrote {rows:,} for the next stage, {rows / read:.1f} "
            f"times as many, {size_text(size)}",
            "look for joins or explodes that multiply rows, for columns that are not needed, and "
            "for a filter or a partial aggregate that could come first",
            (),
            {"read_rows": read, "written_rows": rows, "written_bytes": size},
        )


def broadcasts(job: JobFacts) -> Iterator[JobFinding]:
    """Find the broadcast table that took the driver longest, if it is far too large."""
    limit = job.settings.size(
        "spark.sql.autoBroadcastJoinThreshold", DEFAULT_BROADCAST_BYTES, unit=1
    )
    large = [each for each in _sent(job.query) if each[0] > UNDERESTIMATED * limit]
    if not large:
        return
    size, *took = max(large, key=lambda each: sum(each[1:]))
    build, send = (each / 1000 for each in took)
    yield JobFinding(
        Symptom.BROADCAST,
        str(job.query),
        build + send,
        f"a table of {size_text(size)} was sent to all executors, {len(large)} such "
        f"in all, where Spark sends up to {size_text(limit)} by itself; building it took "
        f"{duration_text(build)}, sending {duration_text(send)}",
        "join it by a shuffle: no broadcast hint, statistics of the table, or a lower "
        "spark.sql.autoBroadcastJoinThreshold",
        (),
        {"data_bytes": size, "build_seconds": build, "send_seconds": send},
    )


def _sent(query: SparkQuery) -> Iterator[tuple[int, int, int]]:
    """Yield bytes, and build and send milliseconds, of every broadcast table, once."""
    sizes = set[int]()
    for node in query.plan.nodes:
        ids = node.named if node.is_broadcast else {}
        counted = {
            name.removesuffix(" (ms)"): max(0, query.counters[number])
            for name, number in ids.items()
            if number in query.counters
        }
        if counted.get(_SIZE) and ids[_SIZE] not in sizes:
            sizes.add(ids[_SIZE])
            build, send = counted.get("time to build", 0), counted.get("time to broadcast", 0)
            yield counted[_SIZE], build, send


ONE_CORE = 1.1  # CPU time of a task by its run time; above, it uses more than one core


def costly_settings(job: JobFacts) -> Iterator[JobFinding]:
    """Find settings that cost time by themselves, by what the log shows of it."""
    reserved, settings = job.settings.cores_per_task, job.settings
    if reserved > 1 and reserved * job.slots > job.cores / MUCH:
        stages = [
            each
            for each in job.stages
            if not each.runs_python
            and 0 < each.totals.cpu <= ONE_CORE * each.run_time
            and len(each.tasks) > each.slots > 0
        ]
        yield from _setting(
            job,
            "spark.task.cpus=1",
            sum(max(0.0, e.span - max(e.mean, e.even_span / reserved)) for e in stages),
            f"tasks reserved {reserved} cores each, and the code of {len(stages)} stages used "
            f"{sum(e.totals.cpu for e in stages) / max(1, sum(e.run_time for e in stages)):.2f}",
        )
    if not settings.is_on("spark.python.worker.reuse", default=True):
        stages = [each for each in job.stages if each.runs_python]
        started = sum(len(each.tasks) for each in stages)
        yield from _setting(
            job,
            "spark.python.worker.reuse=true",
            sum(e.share_of_span(float(e.durations.min()) * len(e.tasks)) for e in stages),
            f"{started} tasks each started a process of Python; the shortest took "
            f"{duration_text(min((float(e.durations.min()) for e in stages), default=0) / 1000)}",
        )
    if not settings.is_on("spark.shuffle.compress", default=True):
        waits = [each.totals.fetch_wait + each.totals.shuffle_write for each in job.stages]
        yield from _setting(
            job,
            "spark.shuffle.compress=true",
            sum(e.share_of_span(part) for e, part in zip(job.stages, waits, strict=True)),
            f"{size_text(sum(e.totals.shuffle_written for e in job.stages))} were shuffled without "
            f"compression; writing and waiting took {duration_text(sum(waits) / 1000)} of tasks",
        )


def _setting(job: JobFacts, conf: str, milliseconds: float, evidence: str) -> Iterator[JobFinding]:
    if milliseconds > 0:
        name = conf.partition("=")[0]
        yield JobFinding(
            Symptom.SETTINGS,
            str(job.query),
            milliseconds / 1000,
            f"{name}={job.settings.properties.get(name, '')}: {evidence}",
            "change the setting, if nothing needs it",
            (conf,),
            {"setting": name},
        )


RULES: tuple[Callable[[JobFacts], Iterator[JobFinding]], ...] = (
    spills,
    uneven_tasks,
    few_tasks,
    tiny_tasks,
    idle_executors,
    garbage_collection,
    shuffles,
    broadcasts,
    failures,
    dropped_events,
    costly_settings,
    *PLAN_RULES,
)
