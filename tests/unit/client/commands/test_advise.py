"""`fedperf advise` on workflows and programs: plan, size, reasons, runs and error messages."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_engines.advice import constraints
from fedperf_engines.optimizer import surrogate_store
from fedperf_engines.platforms.program import to_json
from fedperf_shared.model.checkpoint import encode_checkpoint
from fedperf_shared.runtime.command_line import EXIT_CODES, NO_FEASIBLE_SIZE
from fedperf_shared.runtime.quantities import duration_text
from fedperf_shared.workflow.vocabulary import Platform
from tests.pages import REFERENCE
from tests.unit.client.data_directories import empty_home, fedperf, with_history
from tests.unit.client.prediction.synthetic_executions import executions_of_world
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.unit.client.profiling.trials.test_profiler import program
from tests.unit.client.workflow_files import GOOD
from tests.unit.shared.console_programs import contents, nothing_lost


def advice(home: Home, *arguments: object, code: int = 0) -> dict[str, object]:
    ended = fedperf(home, "advise", *arguments, "--json")
    assert ended.code == code, ended.err
    found = ended.json()
    assert isinstance(found, dict)
    return found


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COLUMNS", "120")
    return empty_home(tmp_path, monkeypatch)


@pytest.fixture
def home(empty: Home) -> Home:
    return with_history(empty)


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    operators = [{k: v for k, v in each.items() if k != "platform"} for each in GOOD["operators"]]  # type: ignore[attr-defined]
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps({"operators": operators, "cluster": {"cores": 8}}))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    table = pa.table({"key": [n % 4 for n in range(100)], "value": [n / 8 for n in range(100)]})
    parquet.write_table(table, tmp_path / "data" / "numbers.parquet")
    (tmp_path / "totals.json").write_bytes(to_json(program()))
    return tmp_path / "data"


EMBEDDED = ("--platforms", "duckdb,polars,pandas")


def test_advise_workflow_chooses_platform_per_operator_and_cheapest_size(
    home: Home, workflow: Path
) -> None:
    found = advice(home, workflow, *EMBEDDED, "--deadline", "100h")
    choice, sizes, plans = found["choice"], found["sizes"], found["plans"]
    assert isinstance(choice, dict)
    assert isinstance(sizes, list)
    assert isinstance(plans, list)
    assert len(choice["platforms"]) == 3
    assert set(choice["platforms"]) <= {"duckdb", "polars", "pandas"}
    assert [each["cores"] for each in sizes] == [1, 2, 4, 8]
    assert found["meets_deadline"] is True
    best = min(sizes, key=lambda each: each["core_seconds"])
    assert choice["cores"] == best["cores"]
    assert choice["lower_seconds"] <= choice["seconds"] <= choice["upper_seconds"]
    for platform in ("duckdb", "polars", "pandas"):
        assert [platform] * 3 in [choice["platforms"], *(each["platforms"] for each in plans)]
    assert all(each["relative_to_choice"] >= 1 for each in plans)
    assert found["method"] == "frontier"
    assert found["is_exact"] is True


def test_advise_text_output_contains_all_parts_within_fifty_lines(
    home: Home, workflow: Path
) -> None:
    ended = fedperf(home, "advise", workflow, *EMBEDDED, "--deadline", "100h")
    assert ended.code == 0
    assert ended.out.startswith("recommended: ")
    for words in (
        "meets 4.2 d at the fewest core-seconds, with a probability of ",
        "#2 aggregate, on ",
        " in all instead of ",
        "chosen",
        "core s",
        "on time, 9",
        "searched 4 sizes in ",
    ):
        assert words in ended.out
    assert len(ended.out.splitlines()) < 50


def test_advise_with_unmeetable_deadline_exits_with_documented_code(
    home: Home, workflow: Path
) -> None:
    asked = ["advise", workflow, *EMBEDDED, "--deadline", "1ms", "--cores", "1,2"]
    ended = fedperf(home, *asked)
    assert ended.code == NO_FEASIBLE_SIZE
    assert NO_FEASIBLE_SIZE in EXIT_CODES
    assert (
        "no size of the query meets 1 ms with a probability of 90%; the most probable is shown"
        in ended.out
    )
    found = advice(home, *asked[1:], code=NO_FEASIBLE_SIZE)
    sizes, choice = found["sizes"], found["choice"]
    assert isinstance(sizes, list)
    assert isinstance(choice, dict)
    assert choice["seconds"] == min(each["seconds"] for each in sizes)
    assert f"7 {EXIT_CODES[NO_FEASIBLE_SIZE]}" in REFERENCE.read_text()


def test_advise_stored_execution_by_id_includes_its_current_plan(home: Home) -> None:
    found = advice(home, "--execution", "own-3", "--warm", "duckdb,polars,pandas,sklearn,spark")
    [own] = [each for each in executions_of_world(0, 12, "own") if each.execution_id == "own-3"]
    choice, plans = found["choice"], found["plans"]
    assert isinstance(choice, dict)
    assert isinstance(plans, list)
    today = [each for each in [choice, *plans] if each["is_current"]]
    assert [each["platforms"] for each in today] == [
        [platform.name.lower() for platform in own.plan.platforms]
    ]
    assert max(size["cores"] for size in found["sizes"]) == own.cluster.cores  # type: ignore[attr-defined]


def test_advise_respects_pins_and_warm_platforms(home: Home, workflow: Path) -> None:
    found = advice(home, workflow, *EMBEDDED, "--pin", "aggregate=pandas", "--pin", "0=polars")
    choice = found["choice"]
    assert isinstance(choice, dict)
    assert (choice["platforms"][0], choice["platforms"][2]) == ("polars", "pandas")
    assert choice["startup_seconds"] > 0
    warm = advice(home, workflow, *EMBEDDED, "--warm", "duckdb,polars,pandas")["choice"]
    assert isinstance(warm, dict)
    assert warm["startup_seconds"] == 0


def test_advise_with_removed_option_method_fails_with_hint(home: Home, workflow: Path) -> None:
    ended = fedperf(home, "advise", workflow, "--method", "greedy")
    assert (ended.code, ended.out) == (2, "")
    assert "--method was removed: leave it out" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".html", b"<!doctype html>")])
def test_advise_plot_writes_png_or_html(
    suffix: str, start: bytes, home: Home, workflow: Path, tmp_path: Path
) -> None:
    picture = tmp_path / f"advice{suffix}"
    asked = [workflow, *EMBEDDED, "--deadline", "100h", "--plot", picture]
    ended = fedperf(home, "advise", *asked)
    assert ended.code == 0
    assert ended.out.endswith(f"picture: {picture}\n")
    assert picture.read_bytes().startswith(start)
    if suffix == ".html":
        for words in ("#2 aggregate", "deadline", "8 cores", "chosen", "duckdb"):
            assert words in picture.read_text()


@pytest.mark.slow
def test_advise_program_without_execute_stores_no_execution(home: Home, data: Path) -> None:
    before = stored(home)
    found = advice(home, data.parent / "totals.json", "--data", data, *EMBEDDED, "--cores", "1")
    choice = found["choice"]
    assert isinstance(choice, dict)
    assert len(choice["platforms"]) == 4
    assert "measured" not in found
    assert stored(home) == before


@pytest.mark.slow
def test_advise_execute_runs_choice_and_rivals_and_stores_their_executions(
    home: Home, data: Path
) -> None:
    before = stored(home)
    asked = [data.parent / "totals.json", "--data", data, "--cores", "1", "--execute"]
    began = time.perf_counter()
    found = advice(home, *asked, "--platforms", "duckdb,polars", "--repeats", "2")
    whole_seconds = time.perf_counter() - began
    measured, choice = found["measured"], found["choice"]
    assert isinstance(measured, list)
    assert isinstance(choice, dict)
    ran = [each["platforms"] for each in measured]
    assert ran[0] == choice["platforms"]
    assert ["duckdb"] * 4 in ran
    assert ["polars"] * 4 in ran
    seconds = [each["measured_runtime_seconds"] for each in measured]
    assert min(seconds) > 0
    assert sum(seconds) < whole_seconds
    assert stored(home) == before + 2 * len(measured)
    with ExecutionStore.open(home.store) as store:
        newest = store.newest(1)[0]
    assert newest.workload.startswith("own-")
    assert [o.output_rows for o in newest.plan.workflow.operators] == [100, 60, 4, 4]


@pytest.mark.slow
def test_advise_execute_text_output_shows_predictions_and_outcome(home: Home, data: Path) -> None:
    asked = [data.parent / "totals.json", "--data", data, "--cores", "1", "--execute"]
    ended = fedperf(home, "advise", *asked, "--platforms", "duckdb", "--repeats", "1")
    assert ended.code == 0
    table, told = ended.out.splitlines()[-6:-1], ended.out.splitlines()[-1]
    assert told == "the advised plan ran alone"
    with ExecutionStore.open(home.store) as store:
        measured = store.newest(1)[0].measurement
    assert measured is not None
    headings, values = ([each.strip() for each in row.split(row[0])] for row in table[1::2])
    row = dict(zip(headings, values, strict=True))
    assert row["plan"] == "chosen"
    assert row["measured"] == duration_text(measured.runtime_seconds)
    assert re.fullmatch(r"[\d.]+ m?s", row["predicted"])


@pytest.mark.slow
def test_advise_with_fetched_model_stores_one_additive_surrogate(
    home: Home, workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surrogate_store, "load_public_plans", lambda: ())
    FetchedModels(home.models).keep_shared(encode_checkpoint(seeded_checkpoint(1, version=3)))
    for _ in range(2):
        advice(home, workflow, *EMBEDDED)
        assert len(list(home.models.glob("head-*"))) == 1


def test_advise_without_executions_suggests_ingest_and_marks_extrapolation(
    empty: Home, workflow: Path
) -> None:
    ended = fedperf(empty, "advise", workflow, *EMBEDDED)
    assert ended.code == 0
    assert "fedperf ingest FILE" in ended.err
    assert "* extrapolating" in ended.out


def stored(home: Home) -> int:
    with ExecutionStore.open(home.store) as store:
        return store.counts().executions


BAD: dict[str, tuple[list[str], int, str]] = {
    "no file": (["missing.json"], 3, "missing.json does not exist"),
    "no job": (["text.log"], 3, "text.log is no Spark log, and neither a workflow nor a program"),
    "broken JSON": (["cut.json"], 3, "cut.json is not JSON: "),
    "unknown id": (["--execution", "nobody"], 3, "fedperf runs lists them"),
    "program without data": (["totals.json"], 3, "name its data sets' directory with --data"),
    "data without program": (["workflow.json", "--data", "data"], 3, "this is none"),
    "no data set": (["totals.json", "--data", "."], 3, "data set 'numbers' is missing"),
    "no program": (
        ["broken.json", "--data", "data"],
        3,
        "broken.json: not a program: step 0: operation: is missing",
    ),
    "execute a workflow": (["workflow.json", "--execute"], 3, "--execute needs a program"),
    "execute elsewhere": (
        ["totals.json", "--data", "data", "--execute", "--nodes", "2"],
        3,
        "--execute runs on this machine alone",
    ),
    "execute on more": (
        ["totals.json", "--data", "data", "--execute", "--cores", "4096"],
        3,
        "not 4096",
    ),
    "cores": (["workflow.json", "--cores", "many"], 3, "--cores must be whole numbers"),
    "nodes": (["workflow.json", "--nodes", "0"], 3, "--nodes must be up to"),
    "cores for nodes": (["workflow.json", "--cores", "2", "--nodes", "4"], 3, "needs a core"),
    "too many sizes": (
        ["workflow.json", "--cores", ",".join(map(str, range(1, 50)))],
        3,
        "49 sizes are too many",
    ),
    "deadline": (["workflow.json", "--deadline", "soon"], 3, "20m"),
    "platform": (["workflow.json", "--platforms", "abacus"], 3, "unknown platform 'abacus'"),
    "not installed": (
        ["workflow.json", "--platforms", "spark"],
        3,
        "spark is not installed: pip install 'fedperf[spark]' and Java 17",
    ),
    "pin": (["workflow.json", "--pin", "join"], 3, "--pin is like 3=spark or join=spark"),
    "pin beyond": (["workflow.json", "--pin", "9=duckdb"], 3, "operators 0 to 2"),
    "pin elsewhere": (
        ["workflow.json", "--platforms", "duckdb", "--pin", "2=polars"],
        3,
        "operator 2 (AGGREGATE) is to stay on polars, which is not installed or not a candidate",
    ),
    "pin to what cannot": (
        ["workflow.json", "--pin", "2=sklearn"],
        3,
        "operator 2 (AGGREGATE) is to stay on sklearn, which cannot run it",
    ),
    "no platform": (
        ["workflow.json", "--platforms", "sklearn"],
        3,
        "operator 0 (TABLE_SOURCE) runs on none of the candidate platforms (sklearn)",
    ),
    "memory": (["workflow.json", "--memory", "much"], 3, "--memory is like 8GB or pandas=4GB"),
    "memory too small": (["workflow.json", "--memory", "1MB"], 3, "fits the memory cap of no"),
    "chart": (["workflow.json", "--plot", "chart.pdf"], 3, ".html"),
    "neither": ([], 2, ""),
    "both": (["workflow.json", "--execution", "own-1"], 2, ""),
}


@pytest.mark.slow
@pytest.mark.usefixtures("workflow", "data")
@pytest.mark.parametrize("case", BAD)
def test_advise_with_bad_input_fails_in_one_line_and_preserves_all_files(
    case: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    embedded = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS, Platform.SKLEARN)
    monkeypatch.setattr(constraints, "installed_platforms", lambda: embedded)
    Path("text.log").write_text("hello world\n")
    Path("cut.json").write_text('{"operators": [{}')
    Path("broken.json").write_text('{"steps": [{}]}')
    command, code, says = BAD[case]
    before = contents(home.directory)
    ended = fedperf(home, "advise", *command)
    assert (ended.code, ended.out) == (code, "")
    assert code == 2 or says in ended.complaint()
    assert nothing_lost(before, home.directory)


def test_advise_considers_uninstalled_platforms_of_local_executions(
    home: Home, workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraints, "installed_platforms", lambda: (Platform.DUCKDB,))
    found = advice(home, workflow)["plans"]
    assert isinstance(found, list)
    assert {name for each in found for name in each["platforms"]} == {"duckdb", "polars", "pandas"}


@pytest.mark.slow
def test_advise_program_on_uninstalled_platform_is_refused(
    home: Home, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraints, "installed_platforms", lambda: (Platform.DUCKDB,))
    asked = [data.parent / "totals.json", "--data", data, "--platforms", "polars"]
    ended = fedperf(home, "advise", *asked)
    assert ended.code == 3
    assert "polars is not installed: pip install polars" in ended.complaint()


@pytest.mark.slow
def test_advise_imports_no_torch(home: Home, workflow: Path) -> None:
    program = (
        "import sys\n"
        "from fedperf_client import cli\n"
        "try:\n    cli.main()\n"
        "finally:\n    print('torch' in sys.modules, file=sys.stderr)\n"
    )
    asked = ["--home", str(home.directory), "advise", str(workflow), "--json"]
    ended = subprocess.run(
        [sys.executable, "-c", program, *asked], capture_output=True, text=True, check=True
    )
    assert ended.stderr.splitlines()[-1] == "False"
