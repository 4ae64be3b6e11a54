"""Rules about stages: memory, the split of work into tasks, and rows that travel.

What is at stake:

- Spilling: at most all time in the code of tasks that did, without garbage collection and waiting
  for shuffles. Sorting in pieces costs processor time as well, and no log tells that apart.
- Garbage collection and waiting for shuffles: their time, as a share of the stage.
- Too few tasks: what the usual task takes longer than its share of all slots would, and no more
  than the slots were without work; not all work can be split.
- Too many: what tasks spent beside computing (their start, waiting, scheduling), as far as there
  were more of them than the slots and the bytes ask for. The log counts the processor time of the
  JVM alone, so nothing is said of stages in which Python works, or whose tasks ran long.
- Unequal: what the stage took longer than it had with the same tasks, all alike, and no more than
  its slots were without work. The longest task tells which of three it is. It read more than others
  (skew), or took longer for no more (straggler). Or it was as long as all others and began in a
  round that had no work for most slots (last wave).
- A shuffle that grew: the stage's span, as far as what it wrote was more than what it read (bytes
  may grow by another encoding; rows do not).
- A table that is far larger than Spark believed: the driver's time to build and send it, once it
  was collected; the memory that it takes on every executor comes on top and is in no log.
"""

import math
import re
from collections.abc import Iterator

import numpy as np

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources.spark.failures import LostAttempt
from fedperf_client.sources.spark.fields import MIB
from fedperf_client.sources.spark.query import SparkQuery
from fedperf_client.sources.spark.settings import (
    ADAPTIVE_BY_DEFAULT,
    DEFAULT_BROADCAST_BYTES,
    SparkSettings,
)
from fedperf_client.sources.spark.tasks import StageAttempt
from fedperf_shared.runtime.quantities import duration_text, size_text

ROOMY = 0.1  # Of an executor's memory: whose tasks hold less has enough of it for them
MUCH_GARBAGE = 0.1  # Of the time in tasks' code: from here on Spark's pages show a task in red


def spills(job: JobFacts) -> Iterator[JobFinding]:
    """Stages with tasks that wrote to disk what they could not hold."""
    for stage in job.stages:
        totals = stage.totals
        if not (totals.spilled_disk and totals.spilled_tasks):
            continue
        # By how much smaller the work of a task must be to fit: what it had, over what it held.
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
    """More partitions where a setting makes them, else more memory."""
    tasks, totals = len(stage.tasks), stage.totals
    if totals.shuffle_read > totals.input_bytes:
        if settings.is_adaptive and tasks < settings.partitions:
            size = max(MIB, totals.shuffle_read // (tasks * factor))
            advisory = f"spark.sql.adaptive.advisoryPartitionSizeInBytes={size}"
            heeded = "spark.sql.adaptive.coalescePartitions.parallelismFirst=false"
            return (advisory, heeded) if settings.knows(ADAPTIVE_BY_DEFAULT) else (advisory,)
        if tasks == settings.partitions:
            return (f"spark.sql.shuffle.partitions={tasks * factor}",)
    return (settings.times_memory(factor),)


def garbage_collection(job: JobFacts) -> Iterator[JobFinding]:
    """Stages with too little memory for the objects that they make."""
    for stage in job.stages:
        share = stage.totals.garbage / stage.run_time
        if share < MUCH_GARBAGE:
            continue
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


WORTH_BYTES = MIB
"""A task for less is not worth its start: what Spark itself merges partitions up to."""

_READS_SCHEMA = re.compile(r"(?:load|parquet|orc|avro|csv|json|text|table) at ")
"""Calls that read no rows, but ask files for their columns, in a task of Spark's own."""


def few_tasks(job: JobFacts) -> Iterator[JobFinding]:
    """Stages that could not use the cores that were there."""
    for stage in job.stages:
        if not len(stage.tasks) < stage.slots:
            continue
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
    """How to get as many partitions as slots, and by which settings, if there is enough to read."""
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
            "Spark asks files for their columns, which no setting splits: give a schema, or read "
            "a table of the catalogue"
        ), conf
    return "more partitions where the code makes them; else fewer cores do as well here", conf


TINY_MILLISECONDS = 100.0  # below this most of a task that reads nothing is its own start
MUCH_WORK_MILLISECONDS = 500.0  # in the code of most tasks: whatever they read, that is no start
WAVES = 2  # fewer tasks per slot are no excess

_LISTING = "Listing leaf files"


def tiny_tasks(job: JobFacts) -> Iterator[JobFinding]:
    """Stages in which starting tasks took more than their work."""
    for stage in job.stages:
        tasks, totals = len(stage.tasks), stage.totals
        read = totals.input_bytes + totals.shuffle_read
        enough = max(stage.slots, -(-read // WORTH_BYTES))
        is_tiny = read > 0 or stage.median < TINY_MILLISECONDS
        is_work = float(np.median(stage.tasks["run"])) > MUCH_WORK_MILLISECONDS
        if stage.runs_python or job.query.dropped or is_work:
            continue
        if not (stage.slots and is_tiny and tasks >= WAVES * enough):
            continue
        beside = max(0, stage.task_time - totals.cpu)
        yield JobFinding(
            Symptom.TINY_TASKS,
            str(stage),
            stage.share_of_span(beside * (1 - enough / tasks)) / 1000,
            f"{tasks} tasks on {stage.slots} slots read {size_text(read / tasks)} each and took "
            f"{duration_text(stage.median / 1000)} in the median; of "
            f"{duration_text(stage.task_time / 1000)} in all, {duration_text(totals.cpu / 1000)} "
            "were CPU time of their code in the JVM; time of programs beside it is not counted",
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
    """How to split work into fewer tasks, and by which settings."""
    if job.description.startswith(_LISTING):
        setting = f"spark.sql.sources.parallelPartitionDiscovery.parallelism={enough}"
        return "fewer and larger files or directories; list them in fewer tasks", (setting,)
    totals, conf = stage.totals, tuple[str, ...]()
    if totals.shuffle_read and len(stage.tasks) == job.settings.partitions:
        conf = (*job.settings.with_adaptive, f"spark.sql.shuffle.partitions={enough}")
    if totals.input_bytes > totals.shuffle_read:
        return "fewer and larger files (small files), or fewer partitions", conf
    return "fewer partitions", conf


MUCH = 2.0  # A task is unlike others at twice the median: below, a second wave would cost as much

FEW = 0.25
"""Of the tasks, that may be slow: speculation begins when three quarters have ended. Where more
are, there are two kinds of tasks and no stragglers, and the log does not tell why."""

LEAST_BYTES, LEAST_ROWS = MIB, 100_000
"""A task that read less is not slow because of what it read: that takes milliseconds."""


def uneven_tasks(job: JobFacts) -> Iterator[JobFinding]:
    """Stages of which most slots waited for a few tasks."""
    for stage in job.stages:
        seconds = job.uneven(stage) / 1000
        longest = float(stage.durations.max())
        overtaken = max(
            (each for each in stage.lost if each.reason.is_called_off),
            key=lambda each: each.duration,
            default=None,
        )
        if overtaken and overtaken.duration >= max(longest, MUCH * stage.median):
            yield _overtaken(stage, overtaken)
        elif not seconds > 0:
            continue
        elif longest < MUCH * stage.median:
            if len(stage.tasks) > stage.slots and not (stage.lost or stage.attempt):
                yield _last_wave(job, stage, seconds)
        elif _is_much(stage, "read_bytes", LEAST_BYTES) or _is_much(stage, "read_rows", LEAST_ROWS):
            yield _skew(job, stage, seconds)
        elif _slow(stage) <= FEW * len(stage.tasks):
            yield _straggler(job, stage, seconds)


def _is_much(stage: StageAttempt, column: str, least: int) -> bool:
    """Whether the longest task had much more of something than the middle one."""
    own = int(stage.longest[column])
    return own >= least and own >= MUCH * float(np.median(stage.tasks[column]))


def _slow(stage: StageAttempt) -> int:
    """How many tasks took much longer than the middle one."""
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
    found = _figures(stage)
    return (
        f"it read {size_text(found['longest_bytes'])} and {found['longest_rows']:,.0f} rows, "
        f"the median {size_text(found['median_bytes'])} and {found['median_rows']:,.0f}"
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
        if settings.knows((3, 0)):
            conf = (
                *settings.with_adaptive,
                "spark.sql.adaptive.skewJoin.enabled=true",
                f"spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes={2 * size}",
            )
    evidence = f"{_times(stage)}; {_reads(stage)}"
    return JobFinding(Symptom.SKEW, str(stage), seconds, evidence, advice, conf, _figures(stage))


def _overtaken(stage: StageAttempt, lost: LostAttempt) -> JobFinding:
    """An attempt that was called off since another, which began later, was first."""
    beside = lost.duration - stage.median  # it would have ended before the others
    took = lost.duration / 1000
    return JobFinding(
        Symptom.STRAGGLER,
        str(stage),
        min(beside, max(0.0, stage.span - max(stage.even_span, stage.median))) / 1000,
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


MUCH_SHUFFLE = 0.1  # Of the time in tasks' code
GROWS = 2.0  # times the rows that were read: a stage that only joins to keys adds none
LEAST_SHUFFLE_BYTES = 128 * MIB  # A shuffle below this fits into one partition of the usual size

LARGER_THAN_BELIEVED = 10
"""Of the size up to which Spark sends a table to all: it estimated no more than that, unless the
code asked for it, and its files take a tenth of what rows take in memory at the least."""

_SIZE = "data size"


def shuffles(job: JobFacts) -> Iterator[JobFinding]:
    """Waiting for shuffles, and shuffles of a surprising size."""
    for stage in job.stages:
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
        read, rows, written = totals.rows_read, totals.rows_written, totals.shuffle_written
        if read and rows >= GROWS * read and written >= LEAST_SHUFFLE_BYTES:
            yield JobFinding(
                Symptom.SHUFFLE_GROWTH,
                str(stage),
                stage.span * (1 - read / rows) / 1000,
                f"it read {read:,} rows and wrote {rows:,} for the next stage, {rows / read:.1f} "
                f"times as many, {size_text(written)}",
                "look for joins or explodes that multiply rows, for columns that nobody needs, and "
                "for a filter or a partial aggregate that could come first",
                (),
                {"read_rows": read, "written_rows": rows, "written_bytes": written},
            )


def broadcasts(job: JobFacts) -> Iterator[JobFinding]:
    """The table that took the driver longest, where it is that large."""
    # Spark's default where that is switched off.
    limit = job.settings.size(
        "spark.sql.autoBroadcastJoinThreshold", DEFAULT_BROADCAST_BYTES, unit=1
    )
    large = [each for each in _sent(job.query) if each[0] > LARGER_THAN_BELIEVED * limit]
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
    """Every table that was sent to all and whose size was counted, once.

    Its bytes in memory, and milliseconds in which the driver built and sent it once collected.
    """
    seen = set[int]()
    for node in query.plan.nodes:
        ids = node.sent or {}
        counted = {
            name.removesuffix(" (ms)"): max(0, query.counters[number])
            for name, number in ids.items()
            if number in query.counters
        }
        if counted.get(_SIZE) and ids[_SIZE] not in seen:
            seen.add(ids[_SIZE])
            build, send = counted.get("time to build", 0), counted.get("time to broadcast", 0)
            yield counted[_SIZE], build, send
