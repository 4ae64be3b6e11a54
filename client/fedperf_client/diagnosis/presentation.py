"""Diagnoses as people and programs read them.

Names and descriptions come from logs of others: they are printed so that they command
neither terminal nor markup, and cut where they are long.
"""

from collections.abc import Iterator

from fedperf_client.diagnosis.diagnosis import WHOLE, Diagnosis
from fedperf_client.diagnosis.finding import JobFinding
from fedperf_client.home.prices import PriceList, cost_text
from fedperf_client.sources.spark.fields import moment
from fedperf_client.text.durations import duration_text
from fedperf_shared.programs.command_line import shortened, visible

LONGEST_TEXT = 60


def lines_of(found: Diagnosis, prices: PriceList | None) -> Iterator[str]:
    """A job, or an application as a whole, and its findings, for people."""
    described = f" {_cut(found.description)!r}" if found.description else ""
    waited = found.waited_seconds
    after = f" after {duration_text(waited)} without an executor" if waited else ""
    yield (
        f"{found.label}{described}{' ' if found.label == WHOLE else ' of '}"
        f"{_cut(found.application)}, "
        f"{moment(found.started_at):%Y-%m-%d %H:%M}: {duration_text(found.seconds)} on "
        f"{found.cores} cores{after}, {cost_text(found.cost, prices)} ({_cut(found.log)})"
    )
    for number, finding in enumerate(found.findings, 1):
        stake = cost_text(found.at_stake(finding), prices, largest=found.cost)
        at_most = (
            f": at most {duration_text(finding.seconds)} of "
            f"{duration_text(found.seconds + waited)}, {stake}"
        )
        yield f"  {number}. {finding.symptom}, {finding.place}{at_most if finding.seconds else ''}"
        yield f"     log: {visible(finding.evidence)}"
        yield f"     do: {visible(finding.advice)}"
        yield from (f"     --conf {each}" for each in finding.conf)


def row_of(found: Diagnosis, prices: PriceList | None) -> dict[str, object]:
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
        "cost": None if prices is None else found.cost,
        "findings": [_finding_row(found, each, prices) for each in found.findings],
    }


def _finding_row(
    found: Diagnosis, finding: JobFinding, prices: PriceList | None
) -> dict[str, object]:
    return {
        "symptom": finding.symptom.value,
        "place": finding.place,
        "seconds_at_most": finding.seconds,
        "core_seconds_at_most": found.share_of(finding) * found.seconds * found.cores,
        "cost_at_most": None if prices is None else found.at_stake(finding),
        "evidence": finding.evidence,
        "figures": dict(finding.figures),
        "advice": finding.advice,
        "conf": list(finding.conf),
    }


def _cut(name: str) -> str:
    return shortened(name, LONGEST_TEXT)
