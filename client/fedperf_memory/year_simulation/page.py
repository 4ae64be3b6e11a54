"""A rehearsed year as a page for the own house: nothing fetched, no scripts, fit for a phone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedperf_client.charts.kit import render
from fedperf_memory.year_simulation.presentation import YearView
from fedperf_shared.errors import StorageError

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
    """The page as text."""
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
