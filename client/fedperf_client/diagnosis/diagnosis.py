"""The findings about jobs, those that cost most first.

A finding below `LEAST_SHARE` of its job's time, or below `LEAST_SECONDS`, is not worth a
person's look and is left out. Only the jobs that are shown are kept, so that memory does not
grow with a log.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from fedperf_client.diagnosis.finding import JobFinding
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.diagnosis.rules.broadcasts import broadcasts
from fedperf_client.diagnosis.rules.failures import failures
from fedperf_client.diagnosis.rules.few_tasks import few_tasks
from fedperf_client.diagnosis.rules.garbage import garbage_collection
from fedperf_client.diagnosis.rules.idle_executors import idle_executors
from fedperf_client.diagnosis.rules.shuffles import shuffles
from fedperf_client.diagnosis.rules.spill import spills
from fedperf_client.diagnosis.rules.tiny_tasks import tiny_tasks
from fedperf_client.diagnosis.rules.uneven_tasks import uneven_tasks
from fedperf_client.home.prices import PriceList
from fedperf_shared.execution import ClusterConfig

LEAST_SHARE = 0.05
"""Of a job's time: two runs of one job differ by as much."""

LEAST_SECONDS = 0.2
"""Nobody waits for less."""

Rule = Callable[[JobFacts], Iterable[JobFinding]]

RULES: tuple[Rule, ...] = (
    spills,
    uneven_tasks,
    few_tasks,
    tiny_tasks,
    idle_executors,
    garbage_collection,
    shuffles,
    broadcasts,
    failures,
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One job and what is wrong with it.

    Attributes:
        log: name of the file or directory that tells it; local text.
        application, label, description: which job it is; local text.
        started_at: milliseconds since 1970.
        seconds: that it took.
        cores: that it had.
        cluster: its executors; None where none is known.
        findings: the one with most at stake first; at least one.
        cost: of the job, in money where prices are known, else in core-seconds.
    """

    log: str
    application: str
    label: str
    description: str
    started_at: int
    seconds: float
    cores: int
    cluster: ClusterConfig | None
    findings: tuple[JobFinding, ...]
    cost: float

    def at_stake(self, finding: JobFinding) -> float:
        """The part of its cost that a finding is about, at most."""
        return self.cost * finding.seconds / self.seconds


def diagnosed(job: JobFacts, log: str, prices: PriceList | None) -> Diagnosis | None:
    """What all rules found about a job; None where nothing is worth a look."""
    least = max(LEAST_SECONDS, LEAST_SHARE * job.seconds)
    bounded = (
        replace(each, seconds=min(each.seconds, job.seconds))
        for rule in RULES
        for each in rule(job)
    )
    findings = [each for each in bounded if each.seconds >= least]
    if not findings:
        return None
    cost = job.core_seconds
    if prices is not None:
        cost = 0.0 if job.cluster is None else prices.cost(job.cluster, job.seconds)
    return Diagnosis(
        log,
        job.application,
        job.label,
        job.description,
        job.started_at,
        job.seconds,
        job.cores,
        job.cluster,
        tuple(sorted(findings, key=lambda each: -each.seconds)),
        cost,
    )


@dataclass(slots=True)
class Ranking:
    """The jobs with most at stake among all that were added, `most` of them.

    Attributes:
        most: that are kept.
        jobs: that were added, with findings or without.
        without_tasks: of these, that ran no task, such as commands of the catalogue.
        seconds: that all of them took.
        with_findings: how many have some.
    """

    most: int
    jobs: int = 0
    without_tasks: int = 0
    seconds: float = 0.0
    with_findings: int = 0
    _kept: list[tuple[float, int, Diagnosis]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)

    def add(self, job: JobFacts, log: str, prices: PriceList | None) -> None:
        """Diagnose a job and keep what was found if it is among the largest."""
        self.jobs += 1
        self.without_tasks += not (job.stages or job.failed)
        self.seconds += job.seconds
        found = diagnosed(job, log, prices)
        if found is None:
            return
        self.with_findings += 1
        worth = found.at_stake(found.findings[0]), -next(self._numbers)
        heapq.heappush(self._kept, (*worth, found))
        if len(self._kept) > self.most:
            heapq.heappop(self._kept)

    @property
    def first(self) -> list[Diagnosis]:
        """The kept ones, most at stake first."""
        return [each for *_, each in sorted(self._kept, key=lambda kept: kept[:2], reverse=True)]
