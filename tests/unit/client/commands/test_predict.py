"""`fedperf predict`, `weights` and `evaluate`: tables, files and error messages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.formatting import progress
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.enrollment import load_or_create_key
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.policy import load_policy
from fedperf_client.release.schedule import plan_schedule
from fedperf_client.sources.history_file import write_history
from fedperf_engines.platforms.program import to_json
from fedperf_shared.execution import ClusterConfig, ExecutionMetadata, Measurement
from fedperf_shared.model.checkpoint import encode_checkpoint
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.coordinator import membership_with
from tests.unit.client.data_directories import empty_home, fedperf, with_history
from tests.unit.client.executions import chain_plan, make_execution
from tests.unit.client.prediction.synthetic_executions import executions_of_world
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.unit.client.profiling.trials.test_profiler import program
from tests.unit.client.release.periods import START, calendar
from tests.unit.client.terminals import on_a_terminal
from tests.unit.client.workflow_files import GOOD, changed
from tests.unit.shared.console_programs import contents, nothing_lost


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return empty_home(tmp_path, monkeypatch)


@pytest.fixture
def home(empty: Home) -> Home:
    return with_history(empty)


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps(GOOD))
    return path


def test_predict_json_has_ordered_quantiles_for_each_core_count(home: Home, workflow: Path) -> None:
    ended = fedperf(home, "predict", workflow, "--cores", "16,4,8", "--deadline", "20m", "--json")
    found = ended.json()
    assert isinstance(found, dict)
    assert [each["cores"] for each in found["predictions"]] == [4, 8, 16]
    for each in found["predictions"]:
        ends = [each[name] for name in ("lower_seconds", "p50_seconds", "p90_seconds")]
        assert ends == sorted(ends)
        assert each["p90_seconds"] <= each["upper_seconds"]
        assert each["meets_deadline"] == (each["probability"] >= 0.9)
    assert found["predictions"][2]["extrapolating"]
    assert found["timing_scope"] == "a plan on engines that run already"
    assert found["deadline_seconds"] == 1200
    held = [each["cores"] for each in found["predictions"] if each["meets_deadline"]]
    assert found["smallest_cores"] == min(held, default=None)


def test_predict_text_output_has_table_and_smallest_sufficient_resources(
    home: Home, workflow: Path
) -> None:
    ended = fedperf(home, "predict", workflow, "--cores", "2,4", "--deadline", "100h")
    assert ended.code == 0
    for word in (
        "P50",
        "P90",
        "interval",
        "deadline",
        "without queueing and start-up",
        "fewest cores that meet 4.2 d: 2",
    ):
        assert word in ended.out
    ended = fedperf(home, "predict", workflow, "--cores", "2,4", "--deadline", "0.001s")
    assert "none of these core counts meets 1 ms" in ended.out
    several = ("--nodes", "1,2", "--deadline", "0.001s", "--platform", "spark")
    ended = fedperf(home, "predict", workflow, *several)
    assert "none of these node counts meets 1 ms" in ended.out
    ended = fedperf(home, "predict", workflow, *several, "--cores", "4")
    assert "none of these node counts meets 1 ms" in ended.out


def test_predict_workflow_without_row_counts_reports_estimated_cardinalities(
    home: Home, workflow: Path
) -> None:
    said = "rows between operators are estimates"
    assert said not in fedperf(home, "predict", workflow).out
    workflow.write_text(json.dumps(changed(1, output_rows=None)))
    assert said in fedperf(home, "predict", workflow).out
    answered = fedperf(home, "predict", workflow, "--json").json()
    assert isinstance(answered, dict)
    assert answered["rows_are_estimates"]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_predict_with_unmeetable_deadline_exits_with_its_code(
    home: Home, workflow: Path, form: tuple[str, ...]
) -> None:
    def code(*deadline: str) -> int:
        return fedperf(home, "predict", workflow, "--cores", "2,4", *deadline, *form).code

    assert code("--deadline", "0.001s") == NO_FEASIBLE_SIZE
    assert code("--deadline", "100h") == 0
    assert code() == 0


def test_predict_shows_progress_bar_only_on_a_terminal(
    home: Home, workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*form: str) -> str:
        home.predictor.unlink(missing_ok=True)
        return fedperf(home, "predict", workflow, *form).err

    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    assert said() == ""
    with on_a_terminal():
        assert "weighing predictors" in said()
        assert said("--json") == ""


def test_predict_stored_execution_by_id_uses_its_cluster(home: Home) -> None:
    found = fedperf(home, "predict", "--execution", "own-3", "--json").json()
    assert isinstance(found, dict)
    [answer] = found["predictions"]
    [own] = [each for each in executions_of_world(0, 12, "own") if each.execution_id == "own-3"]
    assert answer["cores"] == own.cluster.cores
    moved = fedperf(home, "predict", "--execution", "own-3", "--platform", "spark", "--json").json()
    assert isinstance(moved, dict)
    assert moved["predictions"][0]["extrapolating"]


@pytest.mark.parametrize("command", ["predict", "advise"])
def test_run_with_unknown_rows_does_not_meet_a_deadline_it_missed(
    command: str, empty: Home
) -> None:
    ran = make_execution(
        60,
        plan=chain_plan(1, Platform.SPARK),
        cluster=ClusterConfig(1, 8, 2**30),
        measurement=Measurement(60.0),
        origin=ExecutionMetadata(rows_known=0.0, description="count at job.py:1"),
    )
    with ExecutionStore.open(empty.store) as store:
        store.add([ran])
    asked = (command, "--execution", ran.execution_id, "--cores", "8", "--deadline")
    ended = fedperf(empty, *asked, "5s", "--json")
    missed = ended.json()
    assert isinstance(missed, dict)
    assert ended.code == NO_FEASIBLE_SIZE
    if command == "predict":
        [answer] = missed["predictions"]
        assert answer["evidence"] == "own runs of it"
        assert answer["p50_seconds"] == pytest.approx(60.0, rel=0.1)
        assert answer["meets_deadline"] is False
        assert answer["probability"] < 0.01
    else:
        assert missed["evidence"] == "own runs of it"
        assert set(missed["choice"]["platforms"]) == {"spark"}
        assert missed["choice"]["seconds"] >= 60.0
    assert fedperf(empty, *asked, "10m").code == 0


def test_predict_on_single_node_engine_uses_one_node(home: Home, workflow: Path) -> None:
    workflow.write_text(json.dumps(GOOD | {"cluster": {"nodes": 4, "cores": 32}}))

    def resources(*options: str) -> list[tuple[int, int]]:
        found = fedperf(home, "predict", workflow, "--json", *options).json()
        assert isinstance(found, dict)
        return [(each["nodes"], each["cores"]) for each in found["predictions"]]

    assert resources() == [(1, 8)]
    assert resources("--cores", "2,16") == [(1, 2), (1, 16)]
    assert resources("--platform", "spark") == [(4, 32)]
    assert resources("--platform", "spark", "--nodes", "2,4") == [(2, 16), (4, 32)]


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".html", b"<!doctype html>")])
def test_predict_plot_writes_png_or_html(
    suffix: str, start: bytes, home: Home, tmp_path: Path
) -> None:
    chart = tmp_path / f"chart{suffix}"
    ask = ["--execution", "own-3", "--cores", "1,2,4,8", "--deadline", "1s", "--plot", chart]
    ended = fedperf(home, "predict", *ask)
    assert ended.code == NO_FEASIBLE_SIZE  # the plot is written all the same
    assert ended.out.endswith(f"picture: {chart}\n")
    assert chart.read_bytes().startswith(start)
    if suffix == ".html":
        assert "own runs" in chart.read_text()
        assert "<script" not in chart.read_text()


def test_weights_lists_ensemble_weights_by_regime_and_engine(home: Home, workflow: Path) -> None:
    rows = fedperf(home, "weights", "--json").rows()
    assert {row["regime"] for row in rows} == {"observed"}
    engines = {str(row["engines"]) for row in rows}
    assert engines == {"duckdb", "pandas", "polars"}
    for each in engines:
        of_engine = [row for row in rows if row["engines"] == each]
        assert sum(float(str(row["weight"])) for row in of_engine) == pytest.approx(1.0)
        assert len({row["folds"] for row in of_engine}) == 1
    assert all(float(str(row["error"])) >= 1 for row in rows)
    assert "least error" in {row["why"] for row in rows}
    assert "learners: " in fedperf(home, "weights").out


def test_evaluate_has_one_row_per_number_of_local_executions(home: Home, tmp_path: Path) -> None:
    chart = tmp_path / "gain.html"
    rows = fedperf(home, "evaluate", "--plot", chart, "--json").rows()
    assert [row["own"] for row in rows] == [0, 3, 5]
    assert set(rows[0]) == {
        "own",
        "asked",
        "local_only",
        "with_public_start",
        "shared_as_is",
        "personalized",
    }
    assert "with public start" in chart.read_text()


@pytest.mark.slow
def test_evaluate_before_joining_omits_shared_model_columns(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    chart = tmp_path / "gain.svg"
    row = fedperf(home, "evaluate", "--json").rows()[0]
    assert (row["shared_as_is"], row["personalized"]) == (None, None)
    out = fedperf(home, "evaluate", "--plot", chart).out
    assert "personalized" not in out + chart.read_text()
    assert "shared as is" not in out + chart.read_text()
    assert "not joined: no model was fetched from a coordinator; fedperf simulate" in out
    assert f"drawn into {chart}\n" in out
    FetchedModels(home.models).keep_shared(encode_checkpoint(seeded_checkpoint(1, version=3)))
    row = fedperf(home, "evaluate", "--json").rows()[0]
    assert None not in (row["shared_as_is"], row["personalized"])
    joined = fedperf(home, "evaluate").out
    assert "shared as is" in joined
    assert "not joined" not in joined


def test_evaluate_held_out_counts_queries_and_refuses_known_workloads(
    home: Home, tmp_path: Path
) -> None:
    others = tmp_path / "others.parquet"
    write_history(others, executions_of_world(5, 20, "other"))
    found = fedperf(home, "evaluate", "--held-out", others, "--json").json()
    assert isinstance(found, dict)
    assert (found["own"], found["asked"], found["shared_as_is"]) == (12, 20, None)
    assert isinstance(found["coverage"], float)
    out = fedperf(home, "evaluate", "--held-out", others).out
    assert "not joined" in out
    assert "shared as is" not in out
    write_history(others, executions_of_world(0, 12, "own"))
    said = fedperf(home, "evaluate", "--held-out", others).complaint()
    assert "held-out workloads ran here too, such as 'own-" in said


def test_predict_without_executions_succeeds_and_suggests_ingest(
    empty: Home, workflow: Path
) -> None:
    for command in (["predict", workflow], ["weights"]):
        ended = fedperf(empty, *command)
        assert ended.code == 0
        assert "fedperf ingest FILE" in ended.err
        assert len(ended.err.splitlines()) == 1


BAD: dict[str, tuple[list[str], int, str]] = {
    "no file": (["predict", "missing.json"], 3, "missing.json does not exist"),
    "cycle": (["predict", "cycle.json"], 3, "operator 1 (open) is part of, or behind, a cycle"),
    "program": (["predict", "totals.json"], 3, "fedperf advise totals.json --data DIRECTORY"),
    "unknown id": (["predict", "--execution", "nobody"], 3, "fedperf runs lists them"),
    "unclear id": (["predict", "--execution", "own-"], 3, "several executions"),
    "cores": (["predict", "--execution", "own-1", "--cores", "many"], 3, "--cores"),
    "deadline": (["predict", "--execution", "own-1", "--deadline", "soon"], 3, "20m"),
    "platform": (["predict", "--execution", "own-1", "--platform", "abacus"], 3, "abacus"),
    "deadline without unit": (["predict", "--execution", "own-1", "--deadline", "5"], 3, "unit"),
    "nodes below": (["predict", "--execution", "own-1", "--nodes", "-1"], 3, "from 1 on"),
    "nodes of one": (
        ["predict", "--execution", "own-1", "--platform", "polars", "--nodes", "3"],
        3,
        "one node is all that polars can use",
    ),
    "chart": (["predict", "--execution", "own-1", "--plot", "chart.pdf"], 3, ".html"),
    "evaluation chart": (["evaluate", "--plot", "chart.pdf"], 3, ".html"),
}


@pytest.mark.parametrize("case", BAD)
def test_predict_with_bad_input_fails_in_one_line_and_preserves_all_files(
    case: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cycle.json").write_text(json.dumps(changed(1, inputs=["totals"])))
    Path("totals.json").write_bytes(to_json(program()))
    command, code, says = BAD[case]
    before = contents(home.directory)
    ended = fedperf(home, *command)
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.complaint()
    assert nothing_lost(before, home.directory)


def test_predict_and_evaluate_on_empty_store_suggest_ingest(empty: Home) -> None:
    for command in (["predict", "--execution", "one"], ["evaluate"]):
        ended = fedperf(empty, *command)
        assert (ended.code, ended.out) == (3, "")
        assert "fedperf ingest FILE" in ended.complaint()


@pytest.mark.parametrize(
    "arguments", [[], ["workflow.json", "--execution", "own-1"]], ids=["neither", "both"]
)
def test_predict_requires_either_file_or_execution_id(arguments: list[str], home: Home) -> None:
    assert fedperf(home, "predict", *arguments).code == 2


GUARDED = """
import sys
seen = []
def hook(event, arguments):
    if event.startswith("socket."):
        seen.append(event)
        raise OSError("no traffic")
sys.addaudithook(hook)
from fedperf_client import cli
sys.argv = ["fedperf", *sys.argv[1:]]
try:
    cli.main()
except SystemExit as ended:
    code = ended.code or 0
else:
    code = 0
print("sockets", seen, file=sys.stderr)
sys.exit(1 if seen else code)
"""


@pytest.mark.slow
def test_prediction_commands_open_no_socket_and_change_no_ledger(
    home: Home, tmp_path: Path
) -> None:
    """The data directory is joined and has a ledger. Every socket call raises."""
    load_or_create_key(home.identity)
    membership_with(ec.generate_private_key(ec.SECP256R1())).save(home.identity)
    planned = plan_schedule(load_policy(home.policy), calendar())
    PrivacyLedger.create(home.ledger(START), planned.budget, planned.schedule)
    before = contents(home.directory)
    workflow = tmp_path / "workflow.json"
    workflow.write_text(json.dumps(GOOD))
    for command in (
        ["predict", str(workflow), "--cores", "1,64", "--plot", str(tmp_path / "a.png")],
        ["predict", "--execution", "own-3", "--deadline", "5s"],
        ["advise", str(workflow), "--plot", str(tmp_path / "c.png")],
        ["weights"],
        ["drift", "--plot", str(tmp_path / "d.svg")],
        ["evaluate", "--plot", str(tmp_path / "b.html")],
    ):
        ended = subprocess.run(
            [sys.executable, "-c", GUARDED, "--home", str(home.directory), *command],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert "sockets []" in ended.stderr
    after = contents(home.directory)
    new = {path.name for path in set(after) - set(before)}
    assert new <= {"predictor.safetensors", "executions.sqlite-wal", "executions.sqlite-shm"}
    kept = [path for path in before if not path.name.startswith("executions.sqlite")]
    assert all(after[path] == before[path] for path in kept)


@pytest.mark.slow
def test_socket_guard_detects_traffic_of_join(home: Home) -> None:
    load_or_create_key(home.identity)
    membership_with(ec.generate_private_key(ec.SECP256R1())).save(home.identity)
    url = f"fedperf://127.0.0.1:9/#{'0' * 64}.{'0' * 48}"
    ended = subprocess.run(
        [sys.executable, "-c", GUARDED, "--home", str(home.directory), "join", url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "sockets ['socket" in ended.stderr
