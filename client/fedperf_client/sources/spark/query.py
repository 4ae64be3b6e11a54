"""One query, or one job without a query, while its events arrive."""

from dataclasses import dataclass, field

from fedperf_client.sources.spark.fields import Event, MalformedEventError, integer, objects, text
from fedperf_client.sources.spark.plan import PhysicalPlan
from fedperf_client.sources.spark.rdd import job_plan
from fedperf_client.sources.spark.stage import StageRun, read_stage

CUT = "its application ended before it"

MAX_COUNTERS = 20_000
"""Counters remembered for one query; of more the later ones are left out."""

CPU_NANOSECONDS = (
    "internal.metrics.executorCpuTime",
    "internal.metrics.executorDeserializeCpuTime",
)
READ_BYTES = "internal.metrics.input.bytesRead"
WRITTEN_BYTES = "internal.metrics.output.bytesWritten"
TOTALS = frozenset({*CPU_NANOSECONDS, READ_BYTES, WRITTEN_BYTES})
"""Spark's own counters of a stage, over all its tasks, that are looked at."""


@dataclass(slots=True)
class SparkQuery:
    """What is known so far.

    Attributes:
        number: of the query, or of the job, in its application.
        started_at: milliseconds since 1970, as all moments here.
        root: number of the query that it runs inside of, its own where it runs in none.
        is_job: a job without a query.
        plan: of the last event that brought one.
        shape: of the first plan: what the optimizer changed since does not count.
        description: what its people wrote about it, or where their code asked for it.
        call_site: of a job, where code asked for it.
        display_name: of a job, what people know it by where nobody described it.
        failure: what Spark said when it, or a job of it, failed.
        ended_at: None while it runs.
        ended_badly: whether its end names an error; None where it does not say (before Spark 3.4).
        has_failed_jobs: a job of it failed, or was called off.
        has_failed_tasks: tasks of it failed and were done again.
        open_jobs: its jobs that still run, and their stages.
        open_stages: of all open jobs.
        jobs: how many it had.
        before: queries of its application that had done work when it began.
        counters: values of Spark's accumulators by id.
        totals: sums of `TOTALS` over its stages.
        stages: of a job, those that ended, by number.
        rdds: of all these stages, with their parents.
        problem: why its plan cannot be used, empty otherwise.
        counted_size: its `size` when that was last added to what is kept for all.
    """

    number: int
    started_at: int
    root: int
    is_job: bool = False
    plan: PhysicalPlan = field(default_factory=PhysicalPlan)
    shape: str = ""
    description: str = ""
    call_site: str = ""
    display_name: str = ""
    failure: str = ""
    ended_at: int | None = None
    ended_badly: bool | None = None
    has_failed_jobs: bool = False
    has_failed_tasks: bool = False
    open_jobs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    open_stages: int = 0
    jobs: int = 0
    before: int = 0
    counters: dict[int, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    stages: dict[int, StageRun] = field(default_factory=dict)
    rdds: int = 0
    problem: str = ""
    counted_size: int = 0

    def __str__(self) -> str:
        return f"{'job' if self.is_job else 'query'} {self.number}"

    def open_job(self, number: int, stages: tuple[int, ...]) -> None:
        """A job of it has started."""
        self.open_jobs[number] = stages
        self.open_stages += len(stages)
        self.jobs += 1

    def close_job(self, number: int) -> tuple[int, ...]:
        """A job of it has ended; its stages."""
        stages = self.open_jobs.pop(number)
        self.open_stages -= len(stages)
        return stages

    def take_stage(self, stage: Event) -> None:
        """Take the totals and counters of a stage that has ended."""
        for each in objects(stage, "Accumulables"):
            try:
                name, value = text(each, "Name"), integer(each, "Value")
                if name in TOTALS:
                    self.totals[name] = self.totals.get(name, 0) + value
                elif not name.startswith("internal."):
                    self.count(integer(each, "ID"), value)
            except MalformedEventError:
                continue  # a counter of the user's own, of any type
        if self.is_job:
            ended = read_stage(stage)
            before = self.stages.get(ended.number)
            # What is done again after a failure is mostly a part of the stage.
            if before is None or ended.tasks >= before.tasks:
                self.stages[ended.number] = ended
                self.rdds += ended.size - (0 if before is None else before.size)

    def count(self, counter: int, value: int) -> None:
        """A counter has reached a value; it never falls, so a stage done again counts once."""
        if counter in self.counters:
            self.counters[counter] = max(self.counters[counter], value)
        elif len(self.counters) < MAX_COUNTERS:
            self.counters[counter] = value

    def cut(self, at: int) -> None:
        """Its application ended: what was at work then, or had failed, never comes to its end."""
        if self.ended_at is None and (self.open_jobs or self.has_failed_jobs):
            self.ended_at, self.ended_badly = max(at, self.started_at), True
            self.failure = self.failure or CUT
            self.open_jobs.clear()

    def with_job_plan(self) -> None:
        """Of a job: its plan, from the stages that ran; errors as `job_plan`."""
        self.plan, self.counters = job_plan(tuple(self.stages.values()))

    @property
    def is_nested(self) -> bool:
        """Whether it runs inside of another one."""
        return self.root != self.number and not self.is_job

    @property
    def is_complete(self) -> bool:
        """Whether nothing of it is missing."""
        return self.ended_at is not None and not self.open_jobs

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error, judged as Spark's own user interface does."""
        return self.has_failed_jobs if self.ended_badly is None else self.ended_badly

    @property
    def size(self) -> int:
        """Nodes, counters, jobs, stages and RDDs that are kept for it."""
        running = len(self.open_jobs) + self.open_stages
        return len(self.counters) + len(self.plan.nodes) + running + self.rdds
