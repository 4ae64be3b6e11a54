from dataclasses import replace
from datetime import UTC, datetime

import orjson

from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import plan_schedule
from fedperf_shared.releases.period import default_timetable
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.demo.results import left_out
from fedperf_simulations.harness.experiment import write_json
from tests.unit.simulations.findings import SUMMARY


def test_the_summary_has_the_promised_keys() -> None:
    content = orjson.loads(orjson.dumps(SUMMARY.as_json()))
    assert {"organizations", "rounds", "choice", "seconds", "provenance", "seed"} <= set(content)
    for organization in content["organizations"]:
        assert {
            "name",
            "size_class",
            "executions",
            "workloads",
            "unit",
            "epsilon_spent",
            "epsilon_budget",
            "bytes_out",
            "slots_made",
            "slots_not_planned",
            "q_error",
            "held_out",
        } <= set(organization)
        assert set(organization["q_error"]) == {"local", "base", "shared", "personalized"}
        assert set(organization["slots_not_planned"][0]) == {"what", "reason"}
    for row in content["rounds"]:
        assert {"round", "replies", "seconds", "public_error"} <= set(row)
    choice = content["choice"]
    assert choice["plan"] == ["file_source@duckdb", "join@duckdb", "ml_train@sklearn"]
    assert choice["interval"] == [0.25, 0.68]
    assert choice["single_platform_seconds"] == {"duckdb": 0.777, "pandas": None}
    assert {"predicted_seconds", "measured_seconds"} <= set(choice)
    assert content["total_seconds"] == 49.0


def test_the_summary_can_be_written(tmp_path) -> None:  # type: ignore[no-untyped-def]
    write_json(tmp_path / "summary.json", SUMMARY.as_json())
    assert orjson.loads((tmp_path / "summary.json").read_bytes())["name"] == "demo"


def test_what_a_schedule_leaves_out_is_every_slot_of_a_kind_or_some() -> None:
    start = datetime(2027, 1, 4, tzinfo=UTC)
    policy = Policy(size_class=SizeClass.SMALL, nominal_workloads=200)
    planned = plan_schedule(policy, default_timetable(start))
    found = {each.what: each.reason for each in left_out(planned)}
    assert set(found) == {"every model_update", "some residual_report"}
    assert all(found.values())


def test_a_demo_says_in_one_line_that_nothing_was_promoted_and_what_was_lost() -> None:
    assert not SUMMARY.promoted
    assert SUMMARY.shortfall == (
        "nothing was promoted (version 2: waits for the next window's reports); "
        "lost: round 2: 1 missing"
    )
    alder, cedar = SUMMARY.organizations
    kept = replace(cedar, lost=("report-0-0 (too_late)",))
    found = replace(SUMMARY, organizations=(alder, kept), rounds=SUMMARY.rounds[:1])
    assert found.shortfall.endswith("; lost: cedar: report-0-0 (too_late)")
    assert found.as_json()["shortfall"] == found.shortfall


def test_a_demo_that_promoted_a_version_and_lost_nothing_says_nothing() -> None:
    start, made = SUMMARY.versions
    promoted = (start, replace(made, standing="promoted"))
    found = replace(SUMMARY, versions=promoted, rounds=SUMMARY.rounds[:1])
    assert found.promoted
    assert found.shortfall == ""


def test_the_start_is_no_version_that_was_promoted() -> None:
    assert not replace(SUMMARY, versions=SUMMARY.versions[:1], rounds=()).promoted
