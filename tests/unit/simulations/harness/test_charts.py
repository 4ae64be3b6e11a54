"""Tests of charts that any experiment may draw."""

from fedperf_simulations.harness.charts import Line, lines_chart


def test_line_chart_contains_escaped_names_as_selectable_text() -> None:
    lines = [Line("one < two", [1, 2], [3.0, 4.0]), Line("start", [1, 2], [5.0, 5.0], dashed=True)]
    chart = lines_chart(lines, "rows", "error, %")
    assert chart.startswith("<svg")
    for text in ("one &lt; two", "start", "rows", "error, %"):
        assert text in chart


def test_line_chart_log_axis_labels_are_plain_numbers() -> None:
    chart = lines_chart([Line("one", [25, 400], [1, 2])], "rows", "error", is_log_across=True)
    assert "100</text>" in chart
    assert "mathdefault" not in chart
