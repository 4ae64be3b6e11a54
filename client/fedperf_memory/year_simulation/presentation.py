"""A simulated year as `fedperf simulate` shows it: sentences, facts for programs, and a page.

The page loads nothing, holds no script, and fits a phone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedperf_client.charts.kit import render
from fedperf_client.formatting.facts import Fact, texts_of, values_of
from fedperf_client.release.history import UNIT
from fedperf_memory.year_simulation.year import (
    ALONE,
    JOINED,
    WITH_PRETRAINED,
    ErrorChange,
    LocalHistory,
    SimulatedRelease,
    SimulatedYear,
    YearSettings,
)
from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.quantities import counted, day, minute, table_minute

_GAIN_KEYS = {"training": "known", "test": "asked"}

_WAYS = {ALONE: "local executions alone", WITH_PRETRAINED: "with the pretrained model"}

_PAGE = """{% extends "page" %}
{% from "parts" import table %}
{% block title %}fedperf: a simulated year{% endblock %}
{% block style %}
@media (max-width:860px) {
  main { padding:20px 12px 40px; } .card { padding:14px 12px; }
  th, td { padding:6px 4px; font-size:12px; white-space:normal; }
}
{% endblock %}
{% block content %}
<h1>Your year before you join</h1>
<p class="sub">{{ first }}</p>
<section class="card story">
{% for each in beginning %}<p class="">{{ each }}</p>{% endfor %}</section>
<section class="card"><h2>Releases</h2>{{ table(*releases) }}
{% for each in costs %}<p class="note">{{ each }}</p>{% endfor %}</section>
<section class="card"><h2>Gain by joining</h2><p>{{ brought }}</p>
{{ table(*gains) }}
<p class="note">These figures are of your own executions, without noise: do not share the page.</p>
</section>
{% endblock %}
"""


@dataclass(frozen=True, slots=True)
class YearView:
    """The simulation and its results, for people and for programs."""

    ahead: YearSettings  # calendar, policy, simulated peers
    origin: str  # source of the calendar, in words
    jobs: LocalHistory  # local executions
    year: SimulatedYear  # the results

    @property
    def peer_workloads(self) -> tuple[int, ...]:
        """Return the number of workloads of each simulated peer."""
        return tuple(len({each.workload for each in every}) for every in self.ahead.others)

    def as_json(self) -> dict[str, object]:
        """Return all facts for programs."""
        period, spending, gain = self.ahead.calendar.period, self.year.spending, self.year.gain
        return {
            "left_this_machine": False,
            "joins_at": self.ahead.joins.isoformat(),
            "calendar": self.origin,
            "period_start": period.start.isoformat(),
            "period_end": period.end.isoformat(),
            "simulated_peers": [{"workloads": each} for each in self.peer_workloads],
            "stored_workloads": self.jobs.stored,
            "unit": UNIT,
            "releases": [values_of(_release_facts(each)) for each in self.year.releases],
            "slots": spending.slots,
            "released": spending.made,
            "epsilon": spending.budget.epsilon,
            "delta": spending.budget.delta,
            "spent": spending.spent,
            "spent_replace_one": spending.spent_replace_one,
            "not_planned": [
                {"what": each.what.name.lower(), "reason": each.reason}
                for each in self.year.planned.not_planned
            ],
            "gain": None
            if gain is None
            else {_GAIN_KEYS.get(name, name): value for name, value in asdict(gain).items()}
            | {
                "changes": {
                    way: asdict(each) | {"verdict": each.verdict}
                    for way, each in gain.changes.items()
                }
            },
        }

    def beginning(self) -> Iterator[str]:
        """Yield lines on the joining day, the simulated peers and the first release."""
        ahead, releases, peers = self.ahead, self.year.releases, self.peer_workloads
        yield "simulated in memory: nothing left this machine, and the home is unchanged"
        yield f"you join on {minute(ahead.joins)}, by {self.origin}"
        if peers:
            yield (
                f"{counted(len(peers), 'simulated peer')} with {max(peers):,} workloads each of "
                "the shipped measured set declare what you declare; real organizations may "
                "contribute more, or less"
            )
        else:
            yield "no other organization takes part"
        if releases:
            yield (
                f"first release: {day(releases[0].leaves_at)}; it covers runs stored before "
                f"{minute(releases[0].charged_at)}, and requires a running daemon"
            )
        else:
            reasons = "; ".join(each.reason for each in self.year.planned.not_planned)
            yield f"no release until {day(ahead.calendar.period.end)}: {reasons}"

    def release_rows(self) -> list[dict[str, object]]:
        """Return a row per release, for a table."""
        return [texts_of(_release_facts(each)) for each in self.year.releases]

    def costs(self) -> Iterator[str]:
        """Yield lines on the privacy cost of all releases together, and on what is not planned."""
        spending = self.year.spending
        yield (
            f"together: epsilon {spending.spent:.4f} of {spending.budget.epsilon:g} at delta "
            f"{spending.budget.delta:g} for one {UNIT} added or removed, which is what your "
            f"policy promises; {spending.spent_replace_one:.4f} for one replaced"
        )
        unused = spending.slots - spending.made
        if unused > 0:
            yield f"{unused} more slots are charged, and are used where a drift regime begins"
        if self.year.needs_approval:
            yield 'your policy says "ask": a release without approval is charged and not sent'
        for each in self.year.planned.not_planned:
            yield f"not planned: {each.what.name.lower().replace('_', ' ')}: {each.reason}"

    def gain_rows(self) -> list[dict[str, object]]:
        """Return a row per way to predict, for a table."""
        gain = self.year.gain
        if gain is None:
            return []
        names = _WAYS | ({} if self.ahead.others else {JOINED: "joined, without others"})
        return [
            {
                "predicts from": names.get(way, way),
                "median q-error": f"{error:.3f}",
                "geometric mean": f"{gain.means[way]:.3f}",
                "change by joining": _change_text(gain.changes.get(way)),
                "verdict": gain.changes[way].verdict if way in gain.changes else "",
            }
            for way, error in gain.errors.items()
        ]

    def brought(self) -> str:
        """Return the line that explains the table of gains."""
        gain = self.year.gain
        if gain is None:
            return (
                f"the gain is measured on local workloads, and {self.jobs.stored} are too few; "
                "store more with: fedperf ingest FILE"
            )
        return (
            f"gain by {day(self.ahead.calendar.period.end)} on {gain.workloads} of your workloads "
            f"that were held out ({counted(gain.test, 'execution')}), with "
            f"{counted(gain.training, 'execution')} of your other workloads:"
        )


def write_page(path: Path, view: YearView) -> None:
    """Write the page.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        path.write_text(page(view), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def page(view: YearView) -> str:
    """Return the page as text."""
    first, *beginning = map(_sentence, view.beginning())
    return render(
        _PAGE,
        first=first,
        beginning=beginning,
        releases=_table(view.release_rows()),
        costs=[_sentence(each) for each in view.costs()],
        brought=_sentence(view.brought()),
        gains=_table(view.gain_rows()),
    )


def _release_facts(release: SimulatedRelease) -> list[Fact]:
    charged, sent = release.charged_at, release.leaves_at
    return [
        Fact("slot", release.slot, "slot"),
        Fact("kind", release.kind, "kind", release.kind.replace("_", " ")),
        Fact("charged_at", charged.isoformat(), "charged", table_minute(charged)),
        Fact("send_at", sent.isoformat(), "sent", table_minute(sent)),
        Fact("bytes", release.payload_bytes, "bytes", release.payload_bytes),
        Fact("epsilon", release.epsilon, "epsilon", f"{release.epsilon:.4f}"),
        Fact("epsilon_replace_one", release.replace_one_epsilon),
        Fact("spent", release.spent, "sum", f"{release.spent:.4f}"),
        Fact("sent", release.has_left),
    ]


def _table(rows: Sequence[Mapping[str, object]]) -> tuple[Sequence[str], list[list[str]]]:
    return list(rows[0] if rows else ()), [[str(value) for value in row.values()] for row in rows]


def _change_text(change: ErrorChange | None) -> str:
    if change is None:
        return ""
    interval = "" if change.interval is None else " ({:+.1f} to {:+.1f})".format(*change.interval)
    return f"{change.percent:+.1f} %{interval}"


def _sentence(line: str) -> str:
    """Return a line with a capital letter and a full stop."""
    return f"{line[0].upper()}{line[1:]}" + ("" if line.endswith(":") else ".")
