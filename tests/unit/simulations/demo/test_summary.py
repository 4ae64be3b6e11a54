"""What a demo found: differences with their spread, and what it could not show."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import orjson
import pytest
from pydantic import TypeAdapter

from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import plan_schedule
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.period import default_calendar
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.demo.results import left_out
from fedperf_simulations.demo.summary import Change, RoundSummary, YearResult, factor_of
from fedperf_simulations.harness.experiment import write_json
from tests.unit.simulations.findings import CEDAR, SUMMARY, YEAR

ERRORS = np.random.default_rng(3).gamma(2.0, 0.3, 200)


def test_errors_that_are_smaller_everywhere_are_told_in_percent_with_an_interval() -> None:
    found = Change.between(ERRORS, 0.7 * ERRORS)
    assert found.percent == pytest.approx(-30)
    assert found.low == pytest.approx(found.high) == pytest.approx(-30)
    assert found.is_told
    assert found.is_better
    worse = Change.between(0.7 * ERRORS, ERRORS)
    assert worse.is_told
    assert not worse.is_better


def test_the_same_errors_on_other_workloads_are_no_difference() -> None:
    shuffled = np.random.default_rng(4).permutation(ERRORS)
    found = Change.between(ERRORS, shuffled)
    assert found.low < 0 < found.high
    assert not found.is_told


def test_a_single_workload_tells_nothing() -> None:
    with pytest.raises(InvalidInputError, match="two are needed"):
        Change.between(ERRORS[:1], ERRORS[:1])


def test_a_factor_is_the_same_for_twice_as_long_and_half_as_long() -> None:
    assert factor_of(np.abs(np.log([2.0, 0.5]))) == pytest.approx(2)


def test_what_the_process_of_the_year_prints_is_read_back() -> None:
    printed = orjson.loads(orjson.dumps(asdict(YEAR)))
    assert TypeAdapter(YearResult).validate_python(printed) == YEAR


def test_the_summary_has_the_promised_keys(tmp_path: Path) -> None:
    write_json(tmp_path / "summary.json", SUMMARY.as_json())
    content = orjson.loads((tmp_path / "summary.json").read_bytes())
    assert content["name"] == "demo"
    assert {"year", "organizations", "rounds", "seconds", "provenance", "seed"} <= set(content)
    assert {"alone", "start", "joined", "shipped", "change"} <= set(content["year"]["newcomer"][0])
    assert {"percent", "low", "high"} <= set(content["year"]["machines"][1]["change"])
    assert {"epsilon_spent", "epsilon_budget", "left", "unit"} <= set(content["organizations"][0])


def test_what_a_schedule_leaves_out_is_every_slot_of_a_kind_or_some() -> None:
    start = datetime(2027, 1, 4, tzinfo=UTC)
    policy = Policy(size_class=SizeClass.SMALL, nominal_workloads=200)
    planned = plan_schedule(policy, default_calendar(start))
    found = {each.what: each.reason for each in left_out(planned)}
    assert set(found) == {"every model_update", "some residual_report"}
    assert all(found.values())


def test_a_demo_says_in_one_line_that_nothing_was_promoted_and_what_was_lost() -> None:
    kept = replace(CEDAR, lost=("report-0-0 (too_late)",))
    found = replace(
        SUMMARY,
        year=replace(YEAR, promoted=0),
        organizations=(kept,),
        rounds=(RoundSummary(1, "no_quorum", 2, 1, {"missing": 1}),),
    )
    assert found.shortfall == (
        "nothing was promoted (no sure gain by reports yet); "
        "lost: cedar: report-0-0 (too_late), round 1: 1 missing"
    )
    assert found.as_json()["shortfall"] == found.shortfall


def test_a_demo_that_promoted_a_version_and_lost_nothing_says_nothing() -> None:
    assert SUMMARY.shortfall == ""
