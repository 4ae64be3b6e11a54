"""Tests of the demo summary: differences with their intervals, and missing results."""

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
from tests.unit.simulations.demo_summary import CEDAR, SUMMARY, YEAR

ERRORS = np.random.default_rng(3).gamma(2.0, 0.3, 200)


def test_demo_error_change_of_uniformly_scaled_errors_is_significant() -> None:
    found = Change.between(ERRORS, 0.7 * ERRORS)
    assert found.percent == pytest.approx(-30)
    assert found.low == pytest.approx(found.high) == pytest.approx(-30)
    assert found.is_distinguishable
    assert found.is_better
    worse = Change.between(0.7 * ERRORS, ERRORS)
    assert worse.is_distinguishable
    assert not worse.is_better


def test_demo_error_change_of_shuffled_errors_is_not_significant() -> None:
    shuffled = np.random.default_rng(4).permutation(ERRORS)
    found = Change.between(ERRORS, shuffled)
    assert found.low < 0 < found.high
    assert not found.is_distinguishable


def test_demo_error_change_of_one_workload_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="two are needed"):
        Change.between(ERRORS[:1], ERRORS[:1])


def test_error_factor_is_symmetric_for_over_and_underestimates() -> None:
    assert factor_of(np.abs(np.log([2.0, 0.5]))) == pytest.approx(2)


def test_year_result_round_trips_through_json() -> None:
    printed = orjson.loads(orjson.dumps(asdict(YEAR)))
    assert TypeAdapter(YearResult).validate_python(printed) == YEAR


def test_demo_summary_json_has_the_documented_keys(tmp_path: Path) -> None:
    write_json(tmp_path / "summary.json", SUMMARY.as_json())
    content = orjson.loads((tmp_path / "summary.json").read_bytes())
    assert content["name"] == "demo"
    assert {"year", "organizations", "rounds", "seconds", "provenance", "seed"} <= set(content)
    assert {"alone", "start", "joined", "shipped", "change"} <= set(content["year"]["newcomer"][0])
    assert {"percent", "low", "high"} <= set(content["year"]["machines"][1]["change"])
    assert {"epsilon_spent", "epsilon_budget", "left", "unit"} <= set(content["organizations"][0])


def test_unscheduled_slots_are_grouped_as_every_or_some_slots_of_a_kind() -> None:
    start = datetime(2027, 1, 4, tzinfo=UTC)
    policy = Policy(size_class=SizeClass.SMALL, nominal_workloads=200)
    planned = plan_schedule(policy, default_calendar(start))
    found = {each.what: each.reason for each in left_out(planned)}
    assert set(found) == {"every model_update", "some residual_report"}
    assert all(found.values())


def test_demo_shortfall_lists_missing_promotion_and_lost_releases() -> None:
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


def test_demo_shortfall_is_empty_after_a_complete_run() -> None:
    assert SUMMARY.shortfall == ""
