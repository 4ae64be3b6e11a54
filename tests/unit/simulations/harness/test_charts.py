"""Charts that any experiment may draw."""

from fedperf_simulations.harness.charts import Line, lines_chart


def test_lines_are_named_in_selectable_text() -> None:
    lines = [Line("one < two", [1, 2], [3.0, 4.0]), Line("start", [1, 2], [5.0, 5.0], dashed=True)]
    chart = lines_chart(lines, "rows", "error, %")
    assert chart.startswith("<svg")
    for text in ("one &lt; two", "start", "rows", "error, %"):
        assert text in chart


def test_numbers_on_an_axis_of_ratios_are_words_not_formulas() -> None:
    chart = lines_chart([Line("one", [25, 400], [1, 2])], "rows", "error", is_log_across=True)
    assert "100</text>" in chart
    assert "mathdefault" not in chart
