"""`fedperf predict` for stored executions: level changes, interference, other input sizes."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.serving.reconfiguration import InputSize, scale_input
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    Measurement,
)
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.unit.client.data_directories import empty_home, fedperf
from tests.unit.client.executions import START, chain_plan, make_execution
from tests.unit.client.prediction.synthetic_executions import executions_of_world
from tests.unit.client.workflow_files import GOOD

OLD, NEW = ExecutionMetadata(source="spark 3.5.3"), ExecutionMetadata(source="spark 4.0.0")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COLUMNS", "240")
    return empty_home(tmp_path, monkeypatch)


def nights(
    home: Home, runs: Sequence[tuple[float, ExecutionMetadata]], cpu_seconds: float = 0.0
) -> list[Execution]:
    """Store one run per night on eight cores."""
    found = [
        make_execution(
            number,
            workload="nightly",
            plan=chain_plan(platform=Platform.SPARK),
            cluster=ClusterConfig(1, 8, 2**33),
            measurement=Measurement(seconds, cpu_seconds),
            origin=origin,
            finished_at=START + timedelta(days=number),
        )
        for number, (seconds, origin) in enumerate(runs)
    ]
    with ExecutionStore.open(home.store) as store:
        store.add(found)
    return found


def ask(home: Home, *words: object) -> tuple[int, dict[str, object], dict[str, object]]:
    """Return exit code, facts and the first prediction."""
    ended = fedperf(home, "predict", *words, "--json")
    facts = ended.json()
    assert isinstance(facts, dict)
    return ended.code, facts, facts["predictions"][0]


BEFORE = [(each, OLD) for each in (60, 62, 58, 61, 59)]


@pytest.mark.parametrize(("later", "deadline"), [((90, 93), "70s"), ((240, 236), "170s")])
def test_predict_after_engine_upgrade_uses_runs_since_the_upgrade(
    empty: Home, later: tuple[float, float], deadline: str
) -> None:
    nights(empty, [*BEFORE, *((each, NEW) for each in later)])
    code, facts, answer = ask(empty, "--execution", "execution-6", "--deadline", deadline)
    assert code == NO_FEASIBLE_SIZE
    assert answer["p50_seconds"] == pytest.approx(sum(later) / 2, rel=0.03)
    assert (answer["probability"] < 0.05, answer["meets_deadline"]) == (True, False)  # type: ignore[operator]
    compared = fedperf(empty, "compare", "--json").json()
    assert isinstance(compared, dict)
    change = facts["change"]
    assert isinstance(change, dict)
    assert change["ratio"] == pytest.approx(compared["workloads"][0]["ratio"])
    assert (change["source"], change["runs_before"], change["runs_since"]) == (NEW.source, 5, 2)
    assert NEW.source in fedperf(empty, "predict", "execution-6").out


def test_predict_detects_upgrade_for_runs_with_unknown_rows(empty: Home) -> None:
    unknown = [replace(origin, rows_known=0.0, tasks=8) for origin in (OLD, NEW)]
    made = nights(empty, [(60, unknown[0])] * 5)
    plan = made[0].plan
    sources = tuple(replace(each, output_rows=0.0) for each in plan.workflow.operators)
    blind = replace(plan, workflow=replace(plan.workflow, operators=sources))
    with ExecutionStore.open(empty.store) as store:
        store.delete([each.execution_id for each in made])
        times = ((60, 0), (62, 0), (58, 0), (61, 0), (59, 0), (180, 1), (183, 1))
        for number, (seconds, side) in enumerate(times):
            moment = START + timedelta(days=number)
            store.add(
                [
                    replace(
                        made[0],
                        execution_id=f"blind-{number}",
                        plan=blind,
                        origin=unknown[side],
                        measurement=Measurement(seconds),
                        finished_at=moment,
                    )
                ]
            )
    _, facts, answer = ask(empty, "blind-6")
    assert answer["p50_seconds"] == pytest.approx(181, rel=0.03)
    assert facts["change"]["ratio"] == pytest.approx(3.03, rel=0.01)  # type: ignore[index]
    assert answer["evidence"] == "own runs of it"


def test_predict_after_speedup_at_a_date_uses_runs_since_then(empty: Home) -> None:
    nights(empty, [(each, OLD) for each in (60, 62, 58, 61, 59, 60, 61, 20, 21, 20, 19)])
    code, facts, answer = ask(empty, "--execution", "execution-0", "--deadline", "35s")
    assert (code, answer["meets_deadline"]) == (0, True)
    assert answer["p50_seconds"] == pytest.approx(20, rel=0.05)
    change = facts["change"]
    assert isinstance(change, dict)
    assert change["source"] is None
    assert change["since"] == (START + timedelta(days=7)).isoformat()
    kept = ask(empty, "--execution", "execution-0")[1]
    assert kept["change"] == change  # from the file that caches the predictor


def test_predict_without_level_change_has_no_change_note(empty: Home) -> None:
    nights(empty, [*BEFORE, (61, NEW), (59, NEW)])
    assert ask(empty, "--execution", "execution-6")[1]["change"] is None


@pytest.mark.parametrize("noisy", [12, 8, 0])
def test_predict_from_runs_under_interference_widens_interval_and_notes_it(
    empty: Home, noisy: int
) -> None:
    disturbed = ExecutionMetadata(source="campaign", remarks=(ExecutionWarning.NOISY,))
    quiet = ExecutionMetadata(source="campaign")
    nights(empty, [(4.0, disturbed if n < noisy else quiet) for n in range(12)], cpu_seconds=1.0)
    _, facts, answer = ask(empty, "--execution", "execution-11")
    load = facts["load"]
    assert isinstance(load, dict)
    assert (load["runs"], load["disturbed"]) == (12, noisy)
    assert load["cpu_seconds"] == (1.0 if noisy else None)
    width = answer["upper_seconds"] / answer["lower_seconds"]  # type: ignore[operator]
    assert (width > 9) == bool(noisy)
    said = fedperf(empty, "predict", "execution-11").out
    assert ("while others kept" in said) == bool(noisy)


def test_predict_positional_id_works_unless_a_file_has_that_name(
    empty: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights(empty, BEFORE)
    assert ask(empty, "execution-1")[2] == ask(empty, "--execution", "execution-1")[2]
    ended = fedperf(empty, "predict", "f003b")
    assert ended.code == 3
    assert "f003b does not exist" in ended.complaint()
    monkeypatch.chdir(tmp_path)
    Path("execution-1").write_text(json.dumps(GOOD))
    assert ask(empty, "execution-1")[2]["observed_runs"] == 0


def test_workflow_printed_by_runs_show_predicts_like_its_execution(
    empty: Home, tmp_path: Path
) -> None:
    nights(empty, BEFORE)
    with ExecutionStore.open(empty.store) as store:
        store.add(executions_of_world(3, 12, "world"))
    for name in ("execution-2", "world-3", "world-7"):
        file = tmp_path / f"{name}.json"
        file.write_text(fedperf(empty, "runs", "show", name, "--json").out)
        assert ask(empty, file) == ask(empty, "--execution", name)
        content = json.loads(file.read_text())
        del content["id"]
        file.write_text(json.dumps(content))
        assert ask(empty, file)[2] == ask(empty, "--execution", name)[2]
        content["plan"][0]["output_rows"] *= 3
        file.write_text(json.dumps(content | {"id": name}))
        assert ask(empty, file)[2]["observed_runs"] == 0


def test_predict_reads_workflow_from_standard_input(
    empty: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights(empty, BEFORE)
    shown = fedperf(empty, "runs", "show", "execution-2", "--json").out.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(shown)))
    assert ask(empty, "-") == ask(empty, "execution-2")


def test_predict_larger_input_takes_longer_with_wider_interval(empty: Home) -> None:
    nights(empty, BEFORE)
    code, facts, _ = ask(empty, "execution-4", "--at", "rows=0.5x,1x,2x,4x", "--deadline", "80s")
    found = facts["predictions"]
    assert isinstance(found, list)
    assert [each["input_times"] for each in found] == [0.5, 1, 2, 4]
    assert [each["input_rows"] for each in found] == [500, 1000, 2000, 4000]
    medians = [each["p50_seconds"] for each in found]
    assert medians[1] == pytest.approx(60, rel=0.02)
    assert medians == sorted(medians)
    assert 1.3 < medians[2] / medians[1] <= 2.01
    kinds = ["extrapolated input", "observed", "extrapolated input", "extrapolated input"]
    assert [each["regime"] for each in found] == kinds
    assert [each["extrapolating"] for each in found] == [True, False, True, True]
    widths = [each["upper_seconds"] / each["lower_seconds"] for each in found]
    assert widths[1] < widths[2] < widths[3]
    assert code == 0
    assert facts["smallest_cores"] is None  # the condition fails at some sizes
    assert facts["assumed"]


@pytest.mark.parametrize(
    ("said", "rows"), [("rows=5e6", 5e6), ("rows=10k", 1e4), ("rows=3M", 3e6), ("bytes=1MB", 8e4)]
)
def test_predict_absolute_input_size_accepts_suffixes(empty: Home, said: str, rows: float) -> None:
    nights(empty, BEFORE)
    assert ask(empty, "execution-4", "--at", said)[2]["input_rows"] == pytest.approx(rows)


def test_predict_between_measured_input_sizes_interpolates(empty: Home) -> None:
    made = nights(empty, BEFORE)
    large = scale_input(made[0].plan, InputSize("rows", 8.0, is_factor=True)).plan
    larger = replace(
        made[0], execution_id="large", plan=large, measurement=Measurement(400.0), finished_at=START
    )
    with ExecutionStore.open(empty.store) as store:
        store.add([larger])
    _, facts, _ = ask(empty, "execution-4", "--at", "rows=7x,8x,9x")
    found = facts["predictions"]
    assert isinstance(found, list)
    assert [each["regime"] for each in found][::2] == ["interpolated input", "extrapolated input"]
    assert found[1]["p50_seconds"] == pytest.approx(400, rel=0.1)
    assert 300 < found[0]["p50_seconds"] < found[1]["p50_seconds"] < found[2]["p50_seconds"]
    assert not found[0]["extrapolating"]


@pytest.mark.parametrize(
    "said",
    [
        *("rows=0", "rows=-2x", "rows=many", "rows=nan", "rows=inf", "rows=1e15", "rows=10GB"),
        *("2x", "workers=2", "rows=2x,bytes=1GB", "rows="),
    ],
)
def test_predict_with_invalid_input_size_fails_in_one_line(empty: Home, said: str) -> None:
    nights(empty, BEFORE)
    ended = fedperf(empty, "predict", "execution-4", "--at", said)
    assert (ended.code, ended.out) == (3, "")
    assert "--at" in ended.complaint()


def test_scale_input_grows_large_groups_and_keeps_small_aggregates() -> None:
    def operator(kind: OperatorKind, rows: float, *inputs: int) -> Operator:
        return Operator(kind, OperatorClass.RELATIONAL, inputs, rows, 8.0)

    plan = Plan.on_one_platform(
        Workflow(
            (
                operator(OperatorKind.TABLE_SOURCE, 1e6),
                operator(OperatorKind.FILTER, 4e5, 0),
                operator(OperatorKind.AGGREGATE, 4e5, 1),
                operator(OperatorKind.AGGREGATE, 4, 1),
                operator(OperatorKind.JOIN, 4e5, 1, 3),
                operator(OperatorKind.GLOBAL_AGGREGATE, 1, 4),
                operator(OperatorKind.UNION, 4e5 + 4, 1, 3),
            )
        ),
        Platform.DUCKDB,
    )
    scaled = scale_input(plan, InputSize("rows", 2.0, is_factor=True)).plan
    rows = [each.output_rows for each in scaled.workflow.operators]
    assert rows == pytest.approx([2e6, 8e5, 8e5, 4, 8e5, 1, 8e5 + 4], rel=1e-4)
    assert scaled.workflow.operators[0].row_bytes == 8.0


@pytest.mark.slow
def test_cores_measured_only_on_another_engine_count_as_extrapolation(
    empty: Home, tmp_path: Path
) -> None:
    """DuckDB ran on two cores and Spark on eight, so DuckDB on eight is an extrapolation."""
    made = executions_of_world(0, 40, "world")
    on = {Platform.DUCKDB: ClusterConfig(1, 2, 2**33), Platform.SPARK: ClusterConfig(1, 8, 2**33)}
    platforms = list(on) * 20
    with ExecutionStore.open(empty.store) as store:
        store.add(
            replace(
                each,
                plan=Plan.on_one_platform(each.plan.workflow, platform),
                cluster=on[platform],
            )
            for each, platform in zip(made, platforms, strict=True)
        )
    file = tmp_path / "like.json"
    content = json.loads(fedperf(empty, "runs", "show", "world-0", "--json").out)
    del content["id"]
    for each in content["plan"]:
        each["output_rows"] *= 1.1
    file.write_text(json.dumps(content))
    found = {
        (engine, cores): ask(empty, file, "--platform", engine, "--cores", cores)[2]["regime"]
        for engine in ("duckdb", "spark")
        for cores in ("2", "8")
    }
    assert found["duckdb", "8"] == found["spark", "2"] == "extrapolated cluster"
    assert found["duckdb", "2"] == found["spark", "8"] == "observed"


def test_predict_far_beyond_measured_sizes_meets_no_deadline(empty: Home, tmp_path: Path) -> None:
    nights(empty, BEFORE)
    for cores, promised in (("64", True), ("65", False), ("1000000", False)):
        words = ("execution-4", "--cores", cores, "--deadline", "100h")
        code, _, answer = ask(empty, *words)
        assert (code, answer["meets_deadline"]) == (
            (0, True) if promised else (NO_FEASIBLE_SIZE, False)
        )
        assert (answer["no_promise"] is None) == promised
    file = tmp_path / "huge.json"
    source = {"kind": "table_source", "output_rows": 1e12, "platform": "duckdb"}
    file.write_text(json.dumps({"operators": [source]}))
    code, _, answer = ask(empty, file, "--deadline", "100h")
    assert (code, answer["meets_deadline"]) == (NO_FEASIBLE_SIZE, False)
    said = fedperf(empty, "predict", file, "--deadline", "100h").out
    assert "no promise" in said


def test_level_change_at_a_date_needs_only_two_runs_and_matches_compare(empty: Home) -> None:
    nights(empty, [(each, OLD) for each in (60, 62, 58, 61, 59, 60, 61, 90, 93)])
    code, facts, answer = ask(empty, "execution-0", "--deadline", "70s")
    assert (code, answer["meets_deadline"]) == (NO_FEASIBLE_SIZE, False)
    assert answer["p50_seconds"] == pytest.approx(91.5, rel=0.03)
    day = (START + timedelta(days=7)).date().isoformat()
    compared = fedperf(empty, "compare", "--since", day, "--json").json()
    assert isinstance(compared, dict)
    change = facts["change"]
    assert isinstance(change, dict)
    for name in ("ratio", "lower", "upper"):
        assert change[name] == pytest.approx(compared["workloads"][0][name])


@pytest.mark.parametrize("sizes", [(), ("--at", "rows=2x")])
def test_deleted_run_with_unknown_rows_meets_no_deadline(
    empty: Home, tmp_path: Path, sizes: tuple[str, ...]
) -> None:
    shown = _shown_unknown(empty)
    file = tmp_path / "shown.json"
    file.write_text(json.dumps(shown))
    own = ask(empty, file, "--deadline", "600s", *sizes)[2]
    assert own["observed_runs"] == 1
    with ExecutionStore.open(empty.store) as store:
        store.delete([shown["id"]])
    code, _, answer = ask(empty, file, "--deadline", "600s", *sizes)
    assert (code, answer["meets_deadline"], answer["observed_runs"]) == (NO_FEASIBLE_SIZE, False, 0)
    assert answer["evidence"] == "no own run of it there, and rows unknown"
    for each in shown["plan"]:
        each["output_rows"] = 1e5  # known rows allow predictions by the pretrained model
    file.write_text(json.dumps(shown))
    assert ask(empty, file, *sizes)[2]["evidence"] == "the pretrained model"


def test_failed_run_with_unknown_rows_meets_no_deadline_at_another_size(empty: Home) -> None:
    shown = _shown_unknown(empty, ExecutionStatus.FAILED)
    code, _, answer = ask(empty, shown["id"], "--at", "rows=2x", "--deadline", "600s")
    assert (code, answer["meets_deadline"]) == (NO_FEASIBLE_SIZE, False)


def _shown_unknown(home: Home, status: ExecutionStatus = ExecutionStatus.OK) -> dict[str, Any]:
    plan = chain_plan(platform=Platform.SPARK)
    blind = tuple(replace(each, output_rows=0.0) for each in plan.workflow.operators)
    made = make_execution(
        0,
        plan=replace(plan, workflow=replace(plan.workflow, operators=blind)),
        cluster=ClusterConfig(1, 8, 2**33),
        measurement=Measurement(60.0),
        origin=replace(OLD, rows_known=0.0, tasks=8),
        status=status,
    )
    with ExecutionStore.open(home.store) as store:
        store.add([made])
    shown = fedperf(home, "runs", "show", made.execution_id, "--json").json()
    assert isinstance(shown, dict)
    return shown


def test_predict_with_address_refuses_it_as_typed(empty: Home) -> None:
    ended = fedperf(empty, "predict", "s3://bucket/plan.json")
    assert ended.code == 3
    assert "s3://bucket/plan.json: only local files are read here" in ended.complaint()
