"""The findings about jobs and whole applications, those that cost most first.

A finding below `LEAST_SHARE` of its job's time, or below `LEAST_SECONDS`, is not worth a
person's look and is left out, unless it says why there are no others. Only the jobs that are
shown are kept, so that memory does not grow with a log.

Names and descriptions come from logs of others: they are printed so that they command
neither terminal nor markup, and cut where they are long.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.diagnosis.job_rules import (
    dropped_events,
    failures,
    idle_executors,
    outside_jobs,
)
from fedperf_client.diagnosis.stage_rules import (
    broadcasts,
    few_tasks,
    garbage_collection,
    shuffles,
    spills,
    tiny_tasks,
    uneven_tasks,
)
from fedperf_client.home.node_prices import PriceList, cost_text
from fedperf_client.sources.spark.application import Application
from fedperf_client.sources.spark.fields import moment
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.runtime.command_line import shortened, visible
from fedperf_shared.runtime.quantities import duration_text

LEAST_SHARE = 0.05  # Of a job's time: two runs of one job differ by as much
LEAST_SECONDS = 0.2  # nobody waits for less

RULES: tuple[Callable[[JobFacts], Iterable[JobFinding]], ...] = (
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
)

LONGEST_TEXT = 60  # of a name or description that is shown

WHOLE = "application"  # label of what is found about an application as a whole


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One job, or an application as a whole, and what is wrong with it."""

    log: str  # name of the file or directory that tells it; local text
    application: str  # application, label, description: which job it is; local text
    label: str
    description: str
    started_at: int  # milliseconds since 1970
    seconds: float  # that it took, without what it waited for its first executor
    cores: int  # that it had
    cluster: ClusterConfig | None  # its executors; None where none is known
    findings: tuple[JobFinding, ...]  # the one with most at stake first; at least one
    prices: PriceList | None  # where they are known
    waited_seconds: float = 0.0  # for its first executor

    @property
    def cost(self) -> float:
        """What it cost, in money where prices are known, else in core-seconds."""
        if self.prices is None:
            return self.cores * self.seconds
        return 0.0 if self.cluster is None else self.prices.cost(self.cluster, self.seconds)

    def rank(self) -> tuple[float, float]:
        """What it is sorted by: most cost at stake first, then most time."""
        return -max(map(self.at_stake, self.findings)), -self.findings[0].seconds

    def at_stake(self, finding: JobFinding) -> float:
        """The part of its cost that a finding is about, at most."""
        return self.cost * self.share_of(finding)

    def share_of(self, finding: JobFinding) -> float:
        """The same as a share of its cost."""
        return finding.seconds / self.seconds if finding.share is None else finding.share


def diagnosed(job: JobFacts, log: str, prices: PriceList | None) -> Diagnosis | None:
    """What all rules found about a job; None where nothing is worth a look."""
    least = max(LEAST_SECONDS, LEAST_SHARE * job.wall_seconds)
    bounded = (
        replace(each, seconds=min(each.seconds, job.wall_seconds))
        for rule in RULES
        for each in rule(job)
    )
    findings = [
        each for each in bounded if each.seconds >= least or each.symptom is Symptom.DROPPED_EVENTS
    ]
    if not (findings and job.seconds > 0):
        return None
    return Diagnosis(
        log,
        job.application,
        str(job.query),
        job.description,
        job.query.started_at,
        job.seconds,
        job.cores,
        job.query.cluster,
        tuple(sorted(findings, key=lambda each: -each.seconds)),
        prices,
        job.query.wait_milliseconds / 1000,
    )


def diagnosed_whole(whole: Application, log: str, prices: PriceList | None) -> Diagnosis | None:
    """What there is to say about an application as a whole; None where nothing is."""
    start, end = whole.submitted_at, whole.stopped_at
    if start is None or end is None or not whole.seconds > 0:
        return None
    cluster = whole.executors.whole(start, end)
    cores = 0 if cluster is None else cluster.cores
    found = outside_jobs(whole, cores)
    if found is None:
        return None
    seconds, findings = whole.seconds, (found,)
    return Diagnosis(log, whole.name, WHOLE, "", start, seconds, cores, cluster, findings, prices)


@dataclass(slots=True)
class Ranking:
    """The jobs with most at stake among all that were added, `most` of them."""

    most: int  # that are kept
    jobs: int = 0  # that were added, with findings or without
    without_tasks: int = 0  # of these, that ran no task, such as commands of the catalogue
    with_findings: int = 0  # how many have some
    applications: int = 0  # that have one as a whole
    first: list[Diagnosis] = field(default_factory=list)  # the kept ones, most at stake first

    def add(self, found: JobFacts | Application, log: str, prices: PriceList | None) -> None:
        """Diagnose a job, or a whole, and keep what was found if it is among the largest."""
        if isinstance(found, Application):
            diagnosis = diagnosed_whole(found, log, prices)
            self.applications += diagnosis is not None
        else:
            self.jobs += 1
            self.without_tasks += not (found.stages or found.lost)
            diagnosis = diagnosed(found, log, prices)
            self.with_findings += diagnosis is not None
        if diagnosis is not None:
            insort(self.first, diagnosis, key=Diagnosis.rank)
            del self.first[self.most :]


def lines_of(found: Diagnosis) -> Iterator[str]:
    """A job, or an application as a whole, and its findings, for people."""
    log, application, text = (
        shortened(each, LONGEST_TEXT) for each in (found.log, found.application, found.description)
    )
    described = f" {text!r}" if found.description else ""
    waited = found.waited_seconds
    after = f" after {duration_text(waited)} without an executor" if waited else ""
    yield (
        f"{found.label}{described}{' ' if found.label == WHOLE else ' of '}{application}, "
        f"{moment(found.started_at):%Y-%m-%d %H:%M}: {duration_text(found.seconds)} on "
        f"{found.cores} cores{after}, {cost_text(found.cost, found.prices)} ({log})"
    )
    for number, finding in enumerate(found.findings, 1):
        stake = cost_text(found.at_stake(finding), found.prices, largest=found.cost)
        at_most = (
            f": at most {duration_text(finding.seconds)} of "
            f"{duration_text(found.seconds + waited)}, {stake}"
        )
        yield f"  {number}. {finding.symptom}, {finding.place}{at_most if finding.seconds else ''}"
        yield f"     log: {visible(finding.evidence)}"
        yield f"     do: {visible(finding.advice)}"
        yield from (f"     --conf {each}" for each in finding.conf)


def row_of(found: Diagnosis) -> dict[str, object]:
    """The same for programs."""
    cluster = found.cluster
    return {
        "log": found.log,
        "application": found.application,
        "job": found.label,
        "description": found.description,
        "started_at": moment(found.started_at).isoformat(),
        "seconds": found.seconds,
        "waited_seconds": found.waited_seconds,
        "cores": found.cores,
        "nodes": None if cluster is None else cluster.nodes,
        "memory_bytes": None if cluster is None else cluster.memory_bytes,
        "core_seconds": found.cores * found.seconds,
        "cost": None if found.prices is None else found.cost,
        "findings": [_finding_row(found, each) for each in found.findings],
    }


def _finding_row(found: Diagnosis, finding: JobFinding) -> dict[str, object]:
    return {
        "symptom": finding.symptom.value,
        "place": finding.place,
        "seconds_at_most": finding.seconds,
        "core_seconds_at_most": found.share_of(finding) * found.seconds * found.cores,
        "cost_at_most": None if found.prices is None else found.at_stake(finding),
        "evidence": finding.evidence,
        "figures": dict(finding.figures),
        "advice": finding.advice,
        "conf": list(finding.conf),
    }
