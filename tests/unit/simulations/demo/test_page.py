import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fedperf_simulations.demo.page import page, sentences, write_report
from fedperf_simulations.demo.summary import LeftOut
from fedperf_simulations.demo.tables import show_summary
from tests.unit.simulations.findings import ALDER, CEDAR, CHOICE, SUMMARY

EVIL = "<script>alert('&')</script>$x_1$"


def test_the_page_has_every_figure_that_the_summary_promises() -> None:
    text = page(SUMMARY)
    for figure in ("2,101", "0.988 of 1", "4,640", "1.51", "2.22", "2.03", "1.33", "120"):
        assert figure in text
    for figure in ("2.111", "1.999", "0.444", "0.250 to 0.680", "ml_train@sklearn", "AB12 CD34"):
        assert figure.replace(" to ", " to\n") in text or figure in text
    assert "signal-to-noise: too few" in text
    assert text.count("<svg") == 4


def test_the_story_is_five_sentences_with_figures() -> None:
    told = sentences(SUMMARY)
    assert len(told) == 5
    assert "fell: 2.111 at the start, 1.999 at the end" in told[2]
    assert "fetched version 1" in told[2]
    assert "fastest single platform, duckdb, took 0.777 s" in told[4]


def test_an_error_that_rose_is_not_called_better() -> None:
    worse = replace(SUMMARY, start_error=1.5)
    assert "did not fall" in sentences(worse)[2]
    nothing = replace(SUMMARY, rounds=SUMMARY.rounds[1:])
    assert sentences(nothing)[2] == "No round made a new version of the shared model."


def test_what_waits_for_reports_is_called_so() -> None:
    assert "candidate: waits for the next window&#x27;s reports" in page(SUMMARY)


def test_everything_that_comes_from_elsewhere_is_escaped() -> None:
    organization = replace(
        ALDER, name=EVIL, unit=EVIL, fingerprint=EVIL, slots_not_planned=(LeftOut(EVIL, EVIL),)
    )
    rounds = (replace(SUMMARY.rounds[0], outcome=EVIL, refused={EVIL: 1}),)
    choice = replace(CHOICE, organization=EVIL, family=EVIL, operators=(EVIL, EVIL, EVIL))
    summary = replace(
        SUMMARY,
        organizations=(organization,),
        rounds=rounds,
        choice=replace(choice, single={EVIL: CHOICE.single["duckdb"]}),
        provenance={"versions": {EVIL: EVIL}},
    )
    text = page(summary)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 8


def test_the_page_fetches_nothing() -> None:
    text = page(SUMMARY)
    # Names of XML vocabularies and of licences are no addresses to fetch from.
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)|url\((?!#)|@import", text)


def test_failed_runs_are_shown_as_failed_not_as_fast() -> None:
    failed = replace(CHOICE, measured_seconds=None)
    assert "it failed" in sentences(replace(SUMMARY, choice=failed))[4]
    assert page(replace(SUMMARY, choice=failed)).count(">failed<") == 2


def test_the_page_is_the_same_for_the_same_summary(tmp_path: Path) -> None:
    write_report(tmp_path / "a.html", SUMMARY)
    write_report(tmp_path / "b.html", SUMMARY)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_shows_a_table_per_organization(width: int) -> None:
    written = StringIO()
    show_summary(SUMMARY, Console(file=written, width=width))
    text = written.getvalue()
    assert f"{ALDER.name} (large)" in text
    assert f"{CEDAR.name} (small)" in text
    assert "too few" in text
    assert "ml_train@sklearn" in text
