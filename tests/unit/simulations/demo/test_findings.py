"""Tests of demo findings: a difference is reported only if its interval excludes 0."""

from dataclasses import replace

import orjson
import pytest

from fedperf_simulations.demo.summary import (
    FIVE_SEEDS,
    Change,
    amount,
    describe_change,
    lines,
    noticed,
    of_five_seeds,
)
from tests.pages import DOCS
from tests.unit.simulations.demo_summary import BETTER, NOTICED, SAME, SUMMARY, WORSE, YEAR


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (BETTER, "31 % less error (25 to 36 %)"),
        (WORSE, "12 % more error (3 to 21 %)"),
        (SAME, "no difference (-3 to +5 %)"),
        (Change(-30.0, -60.0, 0.0, 200), "no difference (-60 to +0 %)"),
        (Change(3.0, -0.3, 7.0, 200), "no difference (+0 to +7 %)"),
        (Change(0.0, 0.0, 0.0, 200), "no difference (+0 to +0 %)"),
    ],
)
def test_demo_error_change_is_a_difference_only_if_interval_excludes_zero(
    change: Change, words: str
) -> None:
    assert describe_change(change) == words


def test_demo_findings_are_one_line_each_with_their_change() -> None:
    without, three, cap, half, whole, left = lines(SUMMARY)
    assert without == (
        "(a) A new participant with no own runs: off by x1.61 joined, x1.95 with the base model: "
        "31 % less error (25 to 36 %) over workloads, of this one training"
    )
    assert three.startswith("(a) A new participant with 3 own runs: ")
    assert three.endswith(": no difference (-3 to +5 %) over workloads, of this one training")
    assert cap == (
        "(b) Half a core from window 4 of 8 on, unannounced: the noisy reports of window 5 gave it "
        "away, as jobs on duckdb and pandas took x1.47 the time expected at 10 of 10 members; from "
        "window 6 on (a new regime) it is learned separately"
    )
    assert half == (
        "(b) On half a core: off by x1.51 before the cap, x1.37 at the end: "
        "31 % less error (25 to 36 %)"
    )
    assert whole.endswith("x1.25 before the cap, x1.26 at the end: no difference (-3 to +5 %)")
    assert left == (
        "(c) 3 releases left 2 organizations, 9 kB in all, nothing else; epsilon 0.988 at most "
        "for one workload"
    )


def test_demo_undetected_drift_and_false_alarms_are_reported() -> None:
    assert noticed(replace(YEAR, noticed=None)).endswith(": not noticed")
    late = replace(NOTICED, epoch_window=None)
    assert noticed(replace(YEAR, noticed=late)).endswith("no window was left to learn it apart")
    assert noticed(replace(YEAR, false_alarms=1)).endswith("; 1 false alarms before")


def test_demo_five_seed_summary_shows_mean_and_range() -> None:
    assert of_five_seeds(0) == (
        "mean and range of seeds 0 to 4: x1.75 (x1.57 to x2.01) joined, "
        "x2.07 (x1.60 to x2.58) with the base model, -18 % (-33 % to +4 %) error"
    )


def test_demo_five_seed_results_match_the_results_page() -> None:
    table = (DOCS / "results.md").read_text(encoding="utf-8").partition("## The demo")[2]
    rows = [
        [cell.strip() for cell in line.split("|")] for line in table.splitlines() if "|" in line
    ]
    said = {
        (runs, row[2]): row[3:7] for runs, row in zip((0,) * 5 + (3,) * 5, rows[2:12], strict=True)
    }
    found = orjson.loads(FIVE_SEEDS.read_bytes())["newcomers"]
    assert len(found) == 10
    for each in found:
        figures = (each[name] for name in ("alone", "start", "joined", "shipped"))
        told = ["" if figure is None else f"{figure:.2f}" for figure in figures]
        assert said[each["own_runs"], str(each["seed"])] == told


def test_byte_amounts_are_formatted_with_units() -> None:
    assert [amount(each) for each in (12, 12_345, 12_345_678)] == ["12 bytes", "12 kB", "12.3 MB"]
