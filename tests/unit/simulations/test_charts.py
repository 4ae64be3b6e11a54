"""Charts that any experiment may draw."""

from fedperf_simulations.charts import Line, lines_chart


def test_lines_are_named_in_selectable_text() -> None:
    lines = [Line("one < two", [1, 2], [3.0, 4.0]), Line("start", [1, 2], [5.0, 5.0], dashed=True)]
    chart = lines_chart(lines, "rows", "error, %")
    assert chart.startswith("<svg")
    for text in ("one &lt; two", "start", "rows", "error, %"):
        assert text in chart
