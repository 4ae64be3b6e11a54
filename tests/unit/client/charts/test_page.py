"""HTML templates escape all inserted text."""

import pytest
from jinja2 import UndefinedError

from fedperf_client.charts.kit import render

_TEMPLATE = """{% extends "page" %}{% from "parts" import table %}
{% block title %}{{ name }}{% endblock %}{% block content %}{{ table(head, rows) }}{% endblock %}"""

HOSTILE = "<script>alert('x')</script>&\""


def test_render_hostile_text_escapes_it_everywhere() -> None:
    page = render(_TEMPLATE, name=HOSTILE, head=[HOSTILE], rows=[[HOSTILE]])
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&#34;") == 3


def test_render_table_without_rows_is_empty() -> None:
    assert "<table" not in render(_TEMPLATE, name="", head=["a"], rows=[])


def test_render_absent_value_raises() -> None:
    with pytest.raises(UndefinedError, match="rows"):
        render(_TEMPLATE, name="", head=["a"])
