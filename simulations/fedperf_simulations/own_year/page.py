"""A rehearsed year as a page for the own house: nothing fetched, no scripts, fit for a phone."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from fedperf_client.pictures.page import STYLE, table_of
from fedperf_shared.errors import StorageError
from fedperf_simulations.own_year.presentation import YearView

_NARROW = """
@media (max-width:860px) {
  main { padding:20px 12px 40px; } .card { padding:14px 12px; }
  th, td { padding:6px 4px; font-size:12px; white-space:normal; }
}
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
    first, *beginning = view.beginning()
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fedperf: a rehearsed year</title><style>{STYLE}{_NARROW}</style></head><body><main>
<h1>Your year before you join</h1>
<p class="sub">{escape(_sentence(first))}</p>
<section class="card story">{_paragraphs(beginning)}</section>
<section class="card"><h2>What leaves</h2>{_table(view.release_rows())}
{_paragraphs(view.costs(), css="note")}</section>
<section class="card"><h2>What it would bring</h2><p>{escape(_sentence(view.brought()))}</p>
{_table(view.gain_rows())}
<p class="note">These are figures of your own executions, without noise: keep the page inside.</p>
</section>
</main></body></html>
"""


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    return table_of(rows[0] if rows else (), (map(str, row.values()) for row in rows))


def _paragraphs(lines: Iterable[str], css: str = "") -> str:
    return "".join(f'<p class="{css}">{escape(_sentence(each))}</p>' for each in lines)


def _sentence(line: str) -> str:
    """As it begins on a page, with an end."""
    return f"{line[0].upper()}{line[1:]}" + ("" if line.endswith(":") else ".")
