"""A campaign's results as files: `report.html`, `trials.csv`, `summary.json`.

The page stands alone: it loads nothing and holds no script. Everything that is not
written here is escaped, whatever a component, a column or an error is called.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import orjson

from fedperf_client.home.config import write_private
from fedperf_client.pictures.page import STYLE
from fedperf_client.profiling.campaign.record.outcome import TrialStatus
from fedperf_client.profiling.campaign.results.charts import (
    MOST_BARS,
    MOST_CHARTS,
    MOST_LINES,
    campaign_gantt,
    run_time_charts,
    trial_gantt,
)
from fedperf_client.profiling.campaign.results.summary import Summary, as_json, trial_rows
from fedperf_client.text.durations import duration_text
from fedperf_shared.errors import StorageError

MOST_ROWS = 500
_NAMES = ("report.html", "trials.csv", "summary.json")


def write_results(directory: Path, summary: Summary) -> dict[str, Path]:
    """Write all files; files that are there are replaced.

    Raises:
        StorageError: the directory cannot be written.
    """
    contents = (
        page(summary).encode(errors="replace"),
        _csv(trial_rows(summary)).encode(errors="replace"),
        orjson.dumps(as_json(summary), option=orjson.OPT_INDENT_2),
    )
    try:
        for name, content in zip(_NAMES, contents, strict=True):
            write_private(directory / name, content)
    except OSError as error:
        raise StorageError(f"cannot write {directory}: {error.strerror}") from error
    return {name: directory / name for name in _NAMES}


def holds_measurements(directory: Path) -> bool:
    """Whether results are there that measured something; what cannot be read counts as such."""
    try:
        content = orjson.loads((directory / "summary.json").read_bytes())
        return bool(content["configurations"]["measured"] > 0)
    except FileNotFoundError:
        return any((directory / name).exists() for name in _NAMES)
    except (OSError, ValueError, LookupError, TypeError):
        return True


def page(summary: Summary) -> str:
    """The report as HTML."""
    name = escape(summary.campaign.name)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Campaign {name}</title><style>{STYLE}</style></head><body><main>
<h1>Campaign {name}</h1>
<p class="sub">{escape(_lead(summary))}</p>
{_run_times(summary)}
{_gantts(summary)}
<section class="card"><h2>Configurations</h2>{_configurations(summary)}</section>
<section class="card"><h2>What the trials used</h2>{_resources(summary)}</section>
<section class="card"><h2>Flagged trials</h2>{_flagged(summary)}</section>
<div class="grid">
<section class="card"><h2>Trials</h2>{_counts(summary)}</section>
<section class="card"><h2>Budget</h2>{_budget(summary)}</section>
</div>
<section class="card"><h2>Machine</h2>{_machines(summary)}</section>
</main></body></html>
"""


def _lead(summary: Summary) -> str:
    grid = summary.campaign.grid
    state = "complete" if summary.is_complete else "not complete"
    return (
        f"{summary.measured} of {len(grid.configurations)} configurations measured, "
        f"{grid.ruled_out} ruled out by constraints; {summary.spent_trials} trials in "
        f"{duration_text(summary.spent_seconds)}; {state}: {summary.stopped.reason}. "
        f"Campaign {summary.campaign.campaign_id[:12]}."
    )


def _run_times(summary: Summary) -> str:
    charts = run_time_charts(summary)
    if not charts:
        return '<section class="card"><h2>Run time</h2><p>Nothing was measured.</p></section>'
    cards = "".join(
        f'<section class="card"><h2>{escape(title)}</h2>{drawing}</section>'
        for title, drawing in charts
    )
    grid = summary.campaign.grid
    parallelism, size = escape(grid.parallelism), escape(grid.size)
    note = f"Wall time over {parallelism}: lines join the medians, points are repeats."
    if len(grid.columns[grid.size]) > MOST_LINES:
        note += f" At most {MOST_LINES} values of {size} are drawn, evenly spread."
    if len(charts) == MOST_CHARTS:
        note += f" The first {MOST_CHARTS} cases are drawn; trials.csv has all."
    return f'<p class="note">{note}</p><div class="grid tight">{cards}</div>'


def _gantts(summary: Summary) -> str:
    cards = []
    if (found := trial_gantt(summary)) is not None:
        title, drawing = found
        cards.append(
            "<h2>A median trial, component by component</h2>"
            f'<p class="note">{escape(title)}. Pale: in the queue of a remote function.</p>'
            f"{drawing}"
        )
    if (whole := campaign_gantt(summary)) is not None:
        shown = f"The first {MOST_BARS} trials." if summary.spent_trials > MOST_BARS else ""
        note = f'<p class="note">{shown}</p>' if shown else ""
        cards.append(f"<h2>The campaign over its time</h2>{note}{whole}")
    return "".join(f'<section class="card">{card}</section>' for card in cards)


def _configurations(summary: Summary) -> str:
    names = list(summary.campaign.grid.columns)
    head = [*names, "component", "repeats", "median", "fastest", "slowest", "noise"]
    rows = [
        [
            *(_text(summary.values(each.configuration)[name]) for name in names),
            each.component,
            str(len(each.seconds)),
            _seconds(each.median_seconds),
            _seconds(min(each.seconds, default=None)),
            _seconds(max(each.seconds, default=None)),
            _share(each.noise),
        ]
        for each in summary.repeats
    ]
    note = (
        '<p class="note">Noise: mean distance of the repeats from their median, '
        "as a share of it.</p>"
    )
    return note + _table(head, rows)


def _resources(summary: Summary) -> str:
    names = list(summary.campaign.grid.columns)
    head = [*names, "component", "wall", "CPU", "peak memory", "read", "written", "others"]
    rows = []
    for each in summary.trials:
        outcome = each.outcome
        if outcome is None or not outcome.status.is_data:
            continue
        used = outcome.resources
        rows.append(
            [
                *(_text(summary.values(each.key.configuration)[name]) for name in names),
                each.key.component,
                _seconds(outcome.wall_seconds),
                _seconds(used.cpu_seconds),
                _bytes(used.peak_bytes),
                _bytes(used.read_bytes),
                _bytes(used.written_bytes),
                "-" if outcome.foreign_cores is None else f"{outcome.foreign_cores:.2f} cores",
            ]
        )
    note = (
        '<p class="note">A dash: cannot be seen from here, as for functions on other machines. '
        "Others: cores that the rest of the machine kept busy.</p>"
    )
    return note + _table(head, rows)


def _flagged(summary: Summary) -> str:
    names = list(summary.campaign.grid.columns)
    head = [*names, "component", "repetition", "attempt", "status", "reason"]
    rows = [
        [
            *(_text(summary.values(each.key.configuration)[name]) for name in names),
            each.key.component,
            str(each.key.repetition),
            str(each.attempt),
            each.outcome.status.value,
            each.outcome.reason,
        ]
        for each in summary.flagged
        if each.outcome is not None
    ]
    return _table(head, rows, wide="reason") if rows else "<p>None.</p>"


def _counts(summary: Summary) -> str:
    rows = [[status, str(count)] for status, count in summary.statuses.items()]
    skipped: dict[str, int] = {}
    for each in summary.skipped:
        skipped[each.reason] = skipped.get(each.reason, 0) + 1
    if summary.ruled_out_trials:
        skipped["a constraint rules the configuration out"] = summary.ruled_out_trials
    reasons = "".join(
        f'<p class="note">{TrialStatus.SKIPPED.value}: {count}, {escape(reason)}</p>'
        for reason, count in skipped.items()
    )
    return _table(["status", "trials"], rows) + _noise_note(summary) + reasons


def _noise_note(summary: Summary) -> str:
    """What noisy trials are, and what it means where nothing else was measured."""
    count = summary.statuses[TrialStatus.NOISY.value]
    if not count:
        return ""
    what = "Noisy: other programs kept the machine busy; these trials count, but may be too long."
    if summary.statuses[TrialStatus.OK.value]:
        return f'<p class="note">{what}</p>'
    return f'<p class="note">{what} All of them were: measure again on a quiet machine.</p>'


def _budget(summary: Summary) -> str:
    run = summary.campaign.settings.run
    rows = [
        ["trials", str(summary.spent_trials), _text(run.max_trials)],
        ["time", _seconds(summary.spent_seconds), _seconds(run.max_wall_seconds)],
    ]
    return _table(["", "spent", "of"], rows)


def _machines(summary: Summary) -> str:
    head = ["run", "began", "node type", "architecture", "processor", "cores", "memory", "speed"]
    rows = [
        [
            str(each.session),
            f"{each.began:%Y-%m-%d %H:%M} UTC",
            each.machine.node_type or "-",
            each.machine.architecture,
            each.machine.processor,
            str(each.machine.cores),
            _bytes(each.machine.memory_bytes),
            f"{each.machine.machine_speed:.2f}",
        ]
        for each in summary.sessions
    ]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, wide: str = "") -> str:
    kinds = [' class="wide"' if name == wide else "" for name in head]
    titles = "".join(
        f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, head, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    more = len(rows) - MOST_ROWS
    rest = f'<p class="note">and {more} more, in trials.csv</p>' if more > 0 else ""
    return f'<div class="scroll"><table><tr>{titles}</tr>{body}</table></div>{rest}'


def _csv(rows: Iterable[Mapping[str, object]]) -> str:
    listed = list(rows)
    names = list(dict.fromkeys(name for row in listed for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return buffer.getvalue()


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _seconds(value: float | None) -> str:
    return "-" if value is None else duration_text(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _bytes(value: int | None) -> str:
    if value is None:
        return "-"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:  # noqa: PLR2004 (bytes in the next unit)
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"  # noqa: PLR2004
        amount /= 1024
    return f"{amount:.3g} TiB"
