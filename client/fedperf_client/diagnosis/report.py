"""The findings of `fedperf diagnose` as one HTML page that people can mail.

The page needs no other file and no network. Its head lists the private names that it holds. A page
without names numbers applications and logs, drops descriptions, and keeps a sentence only if its
rule writes figures alone; of the others it keeps the figures that are numbers.
"""

from collections.abc import Sequence
from pathlib import Path

from fedperf_client.charts.kit import render
from fedperf_client.diagnosis.diagnosis import WHOLE, Diagnosis
from fedperf_client.diagnosis.job_facts import JobFinding, Symptom
from fedperf_client.home.config import write_private
from fedperf_client.home.node_prices import cost_text
from fedperf_client.sources.spark.fields import moment
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.runtime.command_line import visible
from fedperf_shared.runtime.quantities import duration_text

# Findings whose sentences name executors, hosts, messages of errors, or settings of the user.
NAMING = frozenset(
    {Symptom.FAILURES, Symptom.STRAGGLER, Symptom.SLOW_EXECUTOR, Symptom.SETTINGS}
)  # fmt: skip

_PAGE = """{% extends "page" %}
{% block title %}Diagnosis of Spark jobs{% endblock %}
{% block content %}
<h1>Diagnosis of Spark jobs</h1>
<p class="sub">{{ counts }}</p>
<section class="card"><h2>Private names on this page</h2><p>{{ names }}</p></section>
{% for head, sub, findings in jobs %}
<section class="card"><h2>{{ head }}</h2><p class="sub">{{ sub }}</p>
<div class="scroll"><table><thead><tr><th>finding</th><th class="wide">evidence</th>
<th>at most</th><th class="wide">what to do</th></tr></thead><tbody>
{% for title, stake, evidence, advice, conf in findings %}
<tr><td>{{ title }}</td><td class="wide">{{ evidence }}</td><td>{{ stake }}</td>
<td class="wide">{{ advice }}
{% for each in conf %}<br><code>--conf {{ each }}</code>{% endfor %}</td></tr>
{% endfor %}
</tbody></table></div></section>
{% else %}
<section class="card"><p>No findings.</p></section>
{% endfor %}
<p class="note">Figures are from the logs. A potential saving is an upper bound, and those of one
job overlap.</p>
{% for note in notes %}<p class="note">{{ note }}</p>{% endfor %}
{% endblock %}
"""


def require_page(path: Path) -> None:
    """Refuse a file that is no HTML page, before logs are read.

    Raises:
        InvalidInputError: its name does not end with `.html`.
        ModuleNotFoundError: the extra [plot] is not installed.
    """
    if path.suffix.lower() != ".html":
        raise InvalidInputError(f"{path}: a report is an HTML page. Use --out NAME.html")
    render("")


def write_report(
    path: Path, diagnoses: Sequence[Diagnosis], counts: str, notes: Sequence[str], *, names: bool
) -> None:
    """Write the page, readable by its owner alone; an existing file is replaced.

    Args:
        path: the file.
        diagnoses: in the order of the page.
        counts: a sentence about what was read.
        notes: about logs that were not read completely; they name files.
        names: whether private names may stand on the page.

    Raises:
        StorageError: the file cannot be written.
    """
    applications, logs = dict[str, str](), dict[str, str]()
    jobs = []
    for each in diagnoses:
        application = applications.setdefault(
            each.application, each.application if names else f"application {len(applications) + 1}"
        )
        log = logs.setdefault(each.log, each.log if names else f"log {len(logs) + 1}")
        described = f" '{each.description}'" if names and each.description else ""
        label = "" if each.label == WHOLE else f"{each.label}{described} of "
        sub = (
            f"{moment(each.started_at):%Y-%m-%d %H:%M}: {duration_text(each.seconds)} on "
            f"{each.cores} cores, {cost_text(each.cost, each.prices)} ({log})"
        )
        findings = [_row(each, finding, names=names) for finding in each.findings]
        jobs.append((visible(f"{label}{application}"), visible(sub), findings))
    page = render(
        _PAGE,
        counts=counts,
        jobs=jobs,
        names=_names(diagnoses, applications, logs) if names else "None: it was made without them.",
        notes=list(map(visible, notes)) if names else [],
    )
    try:
        write_private(path, page.encode(errors="replace"))
    except OSError as error:
        raise StorageError(f"cannot write the report {path}: {error.strerror}") from error


def _names(
    diagnoses: Sequence[Diagnosis], applications: dict[str, str], logs: dict[str, str]
) -> str:
    """Return a sentence about the private names of the page."""
    described = len({each.description for each in diagnoses if each.description})
    naming = sum(f.symptom in NAMING for each in diagnoses for f in each.findings)
    return visible(
        f"Applications: {', '.join(applications) or 'none'}. Files: {', '.join(logs) or 'none'}. "
        f"Descriptions of jobs: {described}. Findings that name executors, hosts, errors or "
        f"settings: {naming}. --no-names leaves them out."
    )


def _row(
    diagnosis: Diagnosis, finding: JobFinding, *, names: bool
) -> tuple[str, str, str, str, tuple[str, ...]]:
    stake = cost_text(diagnosis.at_stake(finding), diagnosis.prices, largest=diagnosis.cost)
    at_most = f"{duration_text(finding.seconds)}, {stake}" if finding.seconds else ""
    title = f"{finding.symptom}, {finding.place}"
    if names or finding.symptom not in NAMING:
        return title, at_most, visible(finding.evidence), visible(finding.advice), finding.conf
    figures = {k: v for k, v in finding.figures.items() if isinstance(v, int | float)}
    evidence = ", ".join(f"{key.replace('_', ' ')} {each:,.4g}" for key, each in figures.items())
    return title, at_most, evidence, "see the report with names", ()
