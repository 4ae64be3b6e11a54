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
from tests.unit.simulations.demo_summary import ALDER, NOTICED, SUMMARY, YEAR

EVIL = "<script>alert('&')</script>$x_1$"


def test_demo_report_shows_every_finding_with_its_interval_and_figures() -> None:
    text = page(SUMMARY)
    for figure in ("x1.95", "x1.61", "x1.21", "x3.12", "none", "x1.51", "x1.37", "x1.26"):
        assert figure in text
    assert text.count("31 % less error (25 to 36 %)") >= 4
    assert text.count("no difference (-3 to +5 %)") >= 4
    for figure in ("0.988 of 1", "4,640", "1 residual report", "2,101", "AB12 CD34", "512"):
        assert figure in text
    assert "signal-to-noise: too few" in text
    assert text.count("<svg") == 1
    for each in YEAR.newcomer:
        assert of_five_seeds(each.own_runs) in text


def test_demo_report_marks_higher_error_as_worse() -> None:
    assert page(SUMMARY).count('class="told better"') == 2
    old, new = YEAR.machines
    worse = replace(old, change=replace(old.change, percent=9.0, low=4.0, high=14.0))
    text = page(replace(SUMMARY, year=replace(YEAR, machines=(worse, new))))
    assert text.count('class="told worse"') == 1


def test_demo_report_escapes_untrusted_text() -> None:
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


def test_demo_report_loads_no_external_resources() -> None:
    text = page(SUMMARY)
    # Names of XML vocabularies and of licences are not addresses to fetch from.
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)|url\((?!#)|@import", text)


def test_demo_report_is_deterministic_for_a_summary(tmp_path: Path) -> None:
    write_report(tmp_path / "a.html", SUMMARY)
    write_report(tmp_path / "b.html", SUMMARY)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize("width", [80, 200])
def test_demo_terminal_summary_has_one_line_per_finding(width: int) -> None:
    written = StringIO()
    show_summary(SUMMARY, Console(file=written, width=width))
    lines = written.getvalue().splitlines()
    told = [line for line in lines if "error (" in line or "difference (" in line]
    assert len(told) == 4
    assert sum("31 % less error (25 to 36 %)" in line for line in told) == 2
    assert any("alder (large)" in line and "0.988 of 1 for a workload" in line for line in lines)
