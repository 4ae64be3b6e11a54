import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fedperf_simulations.demo.page import page, write_report
from fedperf_simulations.demo.summary import (
    ReleaseSummary,
    UnscheduledSlots,
    of_five_seeds,
    show_summary,
)
from tests.unit.simulations.findings import ALDER, NOTICED, SUMMARY, YEAR

EVIL = "<script>alert('&')</script>$x_1$"


def test_the_page_has_every_verdict_with_its_spread_and_every_figure_behind_it() -> None:
    text = page(SUMMARY)
    for figure in ("x1.95", "x1.61", "x1.21", "x3.12", "no answer", "x1.51", "x1.37", "x1.26"):
        assert figure in text
    assert text.count("31 % less error (25 to 36 %)") >= 4
    assert text.count("no difference (-3 to +5 %)") >= 4
    for figure in ("0.988 of 1", "4,640", "1 residual report", "2,101", "AB12 CD34", "512"):
        assert figure in text
    assert "signal-to-noise: too few" in text
    assert text.count("<svg") == 1
    for each in YEAR.newcomer:
        assert of_five_seeds(each.own_runs) in text


def test_what_got_worse_is_not_coloured_as_better() -> None:
    assert page(SUMMARY).count('class="told better"') == 2
    old, new = YEAR.machines
    worse = replace(old, change=replace(old.change, percent=9.0, low=4.0, high=14.0))
    text = page(replace(SUMMARY, year=replace(YEAR, machines=(worse, new))))
    assert text.count('class="told worse"') == 1


def test_everything_that_comes_from_elsewhere_is_escaped() -> None:
    organization = replace(
        ALDER,
        name=EVIL,
        unit=EVIL,
        fingerprint=EVIL,
        left=(ReleaseSummary(EVIL, 1, 2),),
        slots_not_planned=(UnscheduledSlots(EVIL, EVIL),),
    )
    year = replace(
        YEAR,
        family=EVIL,
        platform=EVIL,
        machines=tuple(replace(each, name=EVIL) for each in YEAR.machines),
        noticed=replace(NOTICED, platforms=(EVIL,)),
    )
    provenance = {"versions": {EVIL: EVIL}}
    text = page(replace(SUMMARY, year=year, organizations=(organization,), provenance=provenance))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 8


def test_the_page_fetches_nothing() -> None:
    text = page(SUMMARY)
    # Names of XML vocabularies and of licences are no addresses to fetch from.
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)|url\((?!#)|@import", text)


def test_the_page_is_the_same_for_the_same_summary(tmp_path: Path) -> None:
    write_report(tmp_path / "a.html", SUMMARY)
    write_report(tmp_path / "b.html", SUMMARY)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_shows_a_line_for_each_finding(width: int) -> None:
    written = StringIO()
    show_summary(SUMMARY, Console(file=written, width=width))
    lines = written.getvalue().splitlines()
    told = [line for line in lines if "error (" in line or "difference (" in line]
    assert len(told) == 4
    assert sum("31 % less error (25 to 36 %)" in line for line in told) == 2
    assert any("alder (large)" in line and "0.988 of 1 for a workload" in line for line in lines)
