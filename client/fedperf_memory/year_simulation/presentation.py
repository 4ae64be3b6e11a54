"""A simulated year as `fedperf simulate` shows it: sentences, facts for programs, and a page.

The page loads nothing, holds no script, and fits a phone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedperf_client.charts.kit import render
from fedperf_client.release.ledger.spent_budget import UNIT
from fedperf_memory.year_simulation.year import (
    JOINED,
    ErrorChange,
    LocalHistory,
    OwnGain,
    RehearsedYear,
    YearAhead,
)
from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.quantities import day, minute, table_minute


@dataclass(frozen=True, slots=True)
class YearView:
    """The simulation and its results, for people and for programs.

    Attributes:
        ahead: calendar, policy, stand-ins.
        origin: whose calendar it is, in words.
        jobs: own executions.
        year: what came of them.
    """

    ahead: YearAhead
    origin: str
    jobs: LocalHistory
    year: RehearsedYear

    @property
    def stand_in_workloads(self) -> tuple[int, ...]:
        """Return the number of workloads of each simulated peer."""
        return tuple(len({each.workload for each in every}) for every in self.ahead.others)

    def as_json(self) -> dict[str, object]:
        """Return all facts for programs."""
        ahead, year, period = self.ahead, self.year, self.ahead.calendar.period
        gain = year.gain
        return {
            "left_this_machine": False,
            "joins_at": ahead.joins.isoformat(),
            "calendar": self.origin,
            "period_start": period.start.isoformat(),
            "period_end": period.end.isoformat(),
            "simulated_peers": [{"workloads": each} for each in self.stand_in_workloads],
            "stored_workloads": self.jobs.stored,
            "unit": UNIT,
            "releases": [
                {
                    "slot": each.slot,
                    "kind": each.kind,
                    "charged_at": each.charged_at.isoformat(),
                    "send_at": each.leaves_at.isoformat(),
                    "bytes": each.payload_bytes,
                    "epsilon": each.epsilon,
                    "epsilon_replace_one": each.replace_one_epsilon,
                    "spent": each.spent,
                    "sent": each.has_left,
                }
                for each in year.releases
            ],
            "slots": year.spending.slots,
            "released": year.spending.made,
            "epsilon": year.spending.budget.epsilon,
            "delta": year.spending.budget.delta,
            "spent": year.spending.spent,
            "spent_replace_one": year.spending.spent_replace_one,
            "not_planned": [
                {"what": each.what.name.lower(), "reason": each.reason}
                for each in year.planned.not_planned
            ],
            "gain": None if gain is None else _gain_facts(gain),
        }

    def beginning(self) -> Iterator[str]:
        """Yield lines on the day of joining, the stand-ins and the first release."""
        ahead, year = self.ahead, self.year
        yield "nothing left this machine, nothing was written into the home: a rehearsal in memory"
        yield f"you would join on {minute(ahead.joins)}, by {self.origin}"
        yield _stand_ins_in_words(self.stand_in_workloads)
        if not year.releases:
            reasons = "; ".join(each.reason for each in year.planned.not_planned)
            yield f"nothing would leave until {day(ahead.calendar.period.end)}: {reasons}"
            return
        first = year.releases[0]
        yield (
            f"your first release would leave on {day(first.leaves_at)}, about what is stored by "
            f"{minute(first.charged_at)}, if the daemon runs by then"
        )

    def release_rows(self) -> list[dict[str, object]]:
        """Return a row per release, for a table."""
        return [
            {
                "slot": each.slot,
                "kind": each.kind.replace("_", " "),
                "drawn": table_minute(each.charged_at),
                "leaves": table_minute(each.leaves_at),
                "bytes": each.payload_bytes,
                "epsilon": f"{each.epsilon:.4f}",
                "sum": f"{each.spent:.4f}",
            }
            for each in self.year.releases
        ]

    def costs(self) -> Iterator[str]:
        """Yield lines on the cost of all releases together, and on what is left out."""
        spending = self.year.spending
        yield (
            f"together: epsilon {spending.spent:.4f} of {spending.budget.epsilon:g} at delta "
            f"{spending.budget.delta:g} for one {UNIT} added or removed, which is what your "
            f"policy promises; {spending.spent_replace_one:.4f} for one replaced"
        )
        unused = spending.slots - spending.made
        if unused > 0:
            yield f"{unused} more slots are paid for and would be used where an epoch begins"
        if self.year.needs_approval:
            yield 'your policy says "ask": what was not approved is charged and stays here'
        for each in self.year.planned.not_planned:
            yield f"not planned: {each.what.name.lower().replace('_', ' ')}: {each.reason}"

    def gain_rows(self) -> list[dict[str, object]]:
        """Return a row per way to predict, for a table."""
        gain = self.year.gain
        if gain is None:
            return []
        return [
            {
                "predicts from": self._way(way),
                "median q-error": f"{error:.3f}",
                "geometric mean": f"{gain.means[way]:.3f}",
                "its change by joining": _change_in_words(gain.changes.get(way)),
                "verdict": gain.changes[way].verdict if way in gain.changes else "",
            }
            for way, error in gain.errors.items()
        ]

    def _way(self, way: str) -> str:
        if way == JOINED and not self.ahead.others:
            return "joined, with nobody else"
        return _WAYS.get(way, way)

    def brought(self) -> str:
        """Return the line that explains the table of gains."""
        gain = self.year.gain
        if gain is None:
            return (
                f"what it would bring is judged on own workloads, and {self.jobs.stored} are too "
                "few; take more in with: fedperf ingest FILE"
            )
        return (
            f"what it would bring by {day(self.ahead.calendar.period.end)}, asked about "
            f"{gain.workloads} of your workloads that were kept away ({gain.asked} executions), "
            f"knowing {gain.known} executions of your other workloads:"
        )


_WAYS = {"alone": "own executions alone", "with the start that ships": "and the start that ships"}


def _gain_facts(gain: OwnGain) -> dict[str, object]:
    changes = {way: {**asdict(each), "verdict": each.verdict} for way, each in gain.changes.items()}
    return {**asdict(gain), "changes": changes}


def _change_in_words(change: ErrorChange | None) -> str:
    if change is None:
        return ""
    if change.interval is None:
        return f"{change.percent:+.1f} %"
    low, high = change.interval
    return f"{change.percent:+.1f} % ({low:+.1f} to {high:+.1f})"


def _stand_ins_in_words(workloads: tuple[int, ...]) -> str:
    if not workloads:
        return "nobody else takes part"
    count = f"{len(workloads)} stand-in" + ("s" if len(workloads) > 1 else "")
    return (
        f"{count} with {max(workloads):,} workloads each, of the measured set that ships, declare "
        "what you declare; other members may bring more, or less"
    )


_PAGE = """{% extends "page" %}
{% from "parts" import table %}
{% block title %}fedperf: a rehearsed year{% endblock %}
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
<section class="card"><h2>What leaves</h2>{{ table(*releases) }}
{% for each in costs %}<p class="note">{{ each }}</p>{% endfor %}</section>
<section class="card"><h2>What it would bring</h2><p>{{ brought }}</p>
{{ table(*gains) }}
<p class="note">These are figures of your own executions, without noise: keep the page inside.</p>
</section>
{% endblock %}
"""


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


def _table(rows: Sequence[Mapping[str, object]]) -> tuple[Sequence[str], list[list[str]]]:
    return list(rows[0] if rows else ()), [[str(value) for value in row.values()] for row in rows]


def _sentence(line: str) -> str:
    """As it begins on a page, with an end."""
    return f"{line[0].upper()}{line[1:]}" + ("" if line.endswith(":") else ".")
