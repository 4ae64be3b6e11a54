"""Findings about jobs and whole applications, ranked by potential saving.

A finding below `LEAST_SHARE` of its job's time, or below `LEAST_SECONDS`, is left out, unless it
explains why there are no others. Only the jobs that are shown are kept, so that memory does not
grow with a log.

Names and descriptions come from foreign logs. They are printed so that they control neither
terminal nor markup, and cut where they are long.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fedperf_client.diagnosis.application_rules import ApplicationFacts
from fedperf_client.diagnosis.job_facts import JobFacts, JobFinding, Symptom
from fedperf_client.diagnosis.rules import RULES
from fedperf_client.home.node_prices import PriceList, cost_text
from fedperf_client.sources.spark.fields import moment
from fedperf_client.sources.spark.reader import Application
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.runtime.command_line import shortened, visible
from fedperf_shared.runtime.quantities import duration_text

LEAST_SHARE = 0.05  # of a job's time, by which two runs of one job differ
LEAST_SECONDS = 0.2  # a saving below is not noticed

LONGEST_TEXT = 60  # of a shown name or description

WHOLE = "application"  # label of a finding about a whole application


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One job, or an application as a whole, with its findings."""

    log: str  # name of the file or directory; local text
    application: str  # application, label, description: of the job; local text
    label: str
    description: str
    started_at: int  # milliseconds since 1970
    seconds: float  # run time, without the wait for its first executor
    cores: int  # of the cluster
    cluster: ClusterConfig | None  # its executors; None where none is known
    findings: tuple[JobFinding, ...]  # largest potential saving first; at least one
    prices: PriceList | None  # None if unknown
    waited_seconds: float = 0.0  # for its first executor

    @property
    def cost(self) -> float:
        """The cost, in money if prices are known, otherwise in core-seconds."""
        if self.prices is None:
            return self.cores * self.seconds
        return 0.0 if self.cluster is None else self.prices.cost(self.cluster, self.seconds)

    def rank(self) -> tuple[float, float]:
        """Return the sort key: largest potential saving of cost first, then of time."""
        return -max(map(self.at_stake, self.findings)), -self.findings[0].seconds

    def at_stake(self, finding: JobFinding) -> float:
        """Return the potential saving of a finding, as cost."""
        return self.cost * self.share_of(finding)

    def share_of(self, finding: JobFinding) -> float:
        """Return the same as a share of its cost."""
        return finding.seconds / self.seconds if finding.share is None else finding.share


def diagnose_job(job: JobFacts, log: str, prices: PriceList | None) -> Diagnosis | None:
    """Apply all rules to a job; return None if nothing is worth a look."""
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


def diagnose_application(
    whole: Application, facts: ApplicationFacts, log: str, prices: PriceList | None
) -> Diagnosis | None:
    """Apply the rules about a whole application; return None if nothing is worth a look."""
    start, end = whole.submitted_at, whole.stopped_at
    if start is None or end is None or not whole.seconds > 0:
        return None
    cluster, seconds = whole.executors.whole(start, end), whole.seconds
    cores = 0 if cluster is None else cluster.cores
    least = max(LEAST_SECONDS, LEAST_SHARE * seconds)
    bounded = (
        replace(each, seconds=min(each.seconds, seconds)) for each in facts.findings(whole, cores)
    )
    worthwhile = (e for e in bounded if e.seconds >= least or e.symptom is Symptom.NO_END)
    findings = tuple(sorted(worthwhile, key=lambda each: -each.seconds))
    if not findings:
        return None
    return Diagnosis(log, whole.name, WHOLE, "", start, seconds, cores, cluster, findings, prices)


@dataclass(slots=True)
class Ranking:
    """The jobs with the largest potential saving among all that were added."""

    most: int  # diagnoses that are kept
    jobs: int = 0  # that were added
    without_tasks: int = 0  # jobs that ran no task, such as commands of the catalogue
    with_findings: int = 0  # jobs with findings
    applications: int = 0  # applications with a finding
    first: list[Diagnosis] = field(default_factory=list)  # largest potential saving first
    _facts: ApplicationFacts = field(default_factory=ApplicationFacts)  # of the jobs of one log

    def add(self, item: JobFacts | Application, log: str, prices: PriceList | None) -> None:
        """Diagnose a job or an application, and keep the result if it is among the largest.

        The jobs of one application are added in a row, then the application.
        """
        if isinstance(item, Application):
            facts, self._facts = self._facts, ApplicationFacts()
            diagnosis = diagnose_application(item, facts, log, prices)
            self.applications += diagnosis is not None
        else:
            self.jobs += 1
            self._facts.add(item)
            self.without_tasks += not (item.stages or item.lost)
            diagnosis = diagnose_job(item, log, prices)
            self.with_findings += diagnosis is not None
        if diagnosis is not None:
            insort(self.first, diagnosis, key=Diagnosis.rank)
            del self.first[self.most :]


def lines_of(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield a diagnosis as lines for people."""
    log, application, text = (
        shortened(each, LONGEST_TEXT)
        for each in (diagnosis.log, diagnosis.application, diagnosis.description)
    )
    described = f" {text!r}" if diagnosis.description else ""
    waited = diagnosis.waited_seconds
    after = f" after {duration_text(waited)} without an executor" if waited else ""
    yield (
        f"{diagnosis.label}{described}{' ' if diagnosis.label == WHOLE else ' of '}{application}, "
        f"{moment(diagnosis.started_at):%Y-%m-%d %H:%M}: {duration_text(diagnosis.seconds)} on "
        f"{diagnosis.cores} cores{after}, {cost_text(diagnosis.cost, diagnosis.prices)} ({log})"
    )
    for number, finding in enumerate(diagnosis.findings, 1):
        stake = cost_text(diagnosis.at_stake(finding), diagnosis.prices, largest=diagnosis.cost)
        at_most = (
            f": at most {duration_text(finding.seconds)} of "
            f"{duration_text(diagnosis.seconds + waited)}, {stake}"
        )
        yield f"  {number}. {finding.symptom}, {finding.place}{at_most if finding.seconds else ''}"
        yield f"     log: {visible(finding.evidence)}"
        yield f"     do: {visible(finding.advice)}"
        yield from (f"     --conf {each}" for each in finding.conf)


def row_of(diagnosis: Diagnosis) -> dict[str, object]:
    """Return a diagnosis for programs."""
    cluster, seconds = diagnosis.cluster, diagnosis.seconds
    return {
        "log": diagnosis.log,
        "application": diagnosis.application,
        "job": diagnosis.label,
        "description": diagnosis.description,
        "started_at": moment(diagnosis.started_at).isoformat(),
        "seconds": seconds,
        "waited_seconds": diagnosis.waited_seconds,
        "cores": diagnosis.cores,
        "nodes": None if cluster is None else cluster.nodes,
        "memory_bytes": None if cluster is None else cluster.memory_bytes,
        "core_seconds": diagnosis.cores * seconds,
        "cost": None if diagnosis.prices is None else diagnosis.cost,
        "findings": [
            {
                "symptom": each.symptom.value,
                "place": each.place,
                "seconds_at_most": each.seconds,
                "core_seconds_at_most": diagnosis.share_of(each) * seconds * diagnosis.cores,
                "cost_at_most": None if diagnosis.prices is None else diagnosis.at_stake(each),
                "evidence": each.evidence,
                "figures": dict(each.figures),
                "advice": each.advice,
                "conf": list(each.conf),
            }
            for each in diagnosis.findings
        ],
    }
