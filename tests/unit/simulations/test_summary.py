import orjson

from fedperf_simulations.experiment import write_json
from fedperf_simulations.summary import LeftOut, left_out
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


def test_slots_left_out_for_one_reason_are_named_together() -> None:
    reasons = [
        ("residual_report", 0, "noise"),
        ("residual_report", 3, "noise"),
        ("model_update", None, "small"),
        ("residual_report", 4, "policy"),
    ]
    assert left_out(reasons) == (
        LeftOut("residual_report, windows 0, 3", "noise"),
        LeftOut("every model_update", "small"),
        LeftOut("residual_report, window 4", "policy"),
    )
