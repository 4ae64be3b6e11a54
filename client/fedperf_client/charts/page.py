"""The one way to make HTML: templates of Jinja2 that escape whatever is put into them.

A page fetches nothing and holds no script. On a phone a chart keeps its size, so that its words can
be read, and its card scrolls.
"""

from functools import cache
from typing import TYPE_CHECKING

from fedperf_client.charts.chart_style import FAINT, GRID, INK, LINE

if TYPE_CHECKING:
    from jinja2 import Environment

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{% block title %}{% endblock %}</title><style>
:root { --ink:{{ ink }}; --faint:{{ faint }}; --line:{{ line }}; --blue:{{ blue }}; }
* { box-sizing:border-box; }
body { margin:0; background:#f5f6f8; color:var(--ink);
  font:15px/1.55 Inter,"Segoe UI","Helvetica Neue",Arial,sans-serif; }
main { max-width:1080px; margin:0 auto; padding:40px 24px 64px; }
h1 { font-size:30px; line-height:1.2; margin:0 0 6px; letter-spacing:-.4px; }
h2 { font-size:18px; margin:0 0 4px; }
p { margin:0 0 10px; }
.sub, .note { color:var(--faint); }
.note { font-size:13px; }
.card { background:#fff; border:1px solid var(--line); border-radius:12px;
  padding:22px 24px; margin-top:20px; overflow-x:auto; }
.story { font-size:16px; line-height:1.65; }
.story ol { margin:0; padding-left:22px; }
.story li { margin-bottom:6px; }
.grid { display:grid; grid-template-columns:1fr 1fr; gap:20px; }
@media (max-width:860px) { .grid { grid-template-columns:1fr; } }
svg { max-width:100%; height:auto; display:block; margin:6px auto 0; }
table { border-collapse:collapse; width:100%; margin:10px 0 4px;
  font-variant-numeric:tabular-nums; }
th { text-align:right; font-weight:500; font-size:12.5px; color:var(--faint);
  border-bottom:1px solid var(--line); padding:6px 8px; vertical-align:bottom; }
td { text-align:right; padding:7px 8px; border-bottom:1px solid var(--line); }
tr:last-child td { border-bottom:0; }
th:first-child, td:first-child, .text { text-align:left; }
td { white-space:nowrap; }
td.best { color:var(--blue); font-weight:600; }
code { font:13px ui-monospace,Menlo,Consolas,monospace; background:#f2f4f7;
  border-radius:5px; padding:1px 5px; white-space:nowrap; }
.flow { line-height:2; }
.tight { margin-top:20px; }
.tight .card { margin-top:0; }
.scroll { max-height:480px; overflow:auto; }
.scroll th { position:sticky; top:0; background:#fff; }
th.wide { text-align:left; }
td.wide { white-space:normal; text-align:left; min-width:260px; }
.grid > .card { min-width:0; }
@media (max-width:480px) {
  main { padding:20px 12px 40px; }
  h1 { font-size:23px; }
  .card { padding:14px; }
  td, th { padding:6px 4px; }
  svg { max-width:none; }
}
{% block style %}{% endblock %}</style></head><body><main>
{% block content %}{% endblock %}
</main></body></html>
"""

_PARTS = """
{% macro table(head, rows) %}
{% for row in rows %}
{% if loop.first %}
<table><thead><tr>{% for cell in head %}<th>{{ cell }}</th>{% endfor %}</tr></thead><tbody>
{% endif %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% if loop.last %}
</tbody></table>
{% endif %}
{% endfor %}
{% endmacro %}
"""


def render(template: str, **values: object) -> str:
    """Fill in a template; `page` is there to be extended, and `parts` has a table.

    Args:
        template: in the language of Jinja2. A drawing of `svg` takes the filter `safe`, as
            matplotlib escapes its texts; nothing else does.
        values: by their names in the template. One that is absent is an error.
    """
    return _environment().from_string(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import DictLoader, Environment, StrictUndefined

    environment = Environment(
        loader=DictLoader({"page": _PAGE, "parts": _PARTS}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(ink=INK, faint=FAINT, line=GRID, blue=LINE)
    return environment
