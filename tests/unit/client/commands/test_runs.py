"""`fedperf runs`: stored executions as a list and as operator trees."""

import csv
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from fedperf_client.formatting.operator_tree import operator_tree
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources.history_file import HistoryFile
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    Measurement,
)
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import MAX_OPERATORS, OperatorClass, OperatorKind, Platform
from tests.unit.client.data_directories import fedperf, made_home
from tests.unit.client.executions import START, chain_plan, make_execution

K = OperatorKind


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COLUMNS", "200")
    home = made_home(tmp_path / "home")
    return home


def keep(home: Home, *executions: Execution) -> None:
    with ExecutionStore.open(home.store) as store:
        store.add(executions)


def shared_input_plan() -> Plan:
    """Return a plan on two platforms: a filtered table joined with its own totals."""

    def operator(kind: OperatorKind, *inputs: int, rows: float) -> Operator:
        return Operator(
            kind, OperatorClass.RELATIONAL, inputs, rows, 10.0, partitions=int(rows == 5)
        )

    operators = (
        operator(K.TABLE_SOURCE, rows=12_345),
        operator(K.FILTER, 0, rows=1000),
        operator(K.AGGREGATE, 1, rows=5),
        operator(K.JOIN, 1, 2, rows=1000),
        operator(K.SINK, 3, rows=1000),
    )
    platforms = (Platform.DUCKDB,) * 2 + (Platform.POLARS,) * 3
    return Plan(Workflow(operators), platforms)


def lines_of(plan: Plan) -> list[str]:
    tree, _ = operator_tree(plan)
    console = Console(width=500)
    with console.capture() as captured:
        console.print(tree)
    return captured.get().splitlines()


def test_runs_are_listed_newest_first_with_limit(home: Home) -> None:
    keep(home, *(make_execution(n, execution_id=f"{n}-long-identifier") for n in range(30)))
    rows = fedperf(home, "runs", "--json").rows()
    assert [row["id"] for row in rows] == [f"{n}-long-identifier" for n in range(29, 9, -1)]
    assert len(fedperf(home, "runs", "--last", "3", "--json").rows()) == 3
    table = fedperf(home, "runs", "--last", "2").out
    assert "29-long-" in table
    assert "29-long-i" not in table
    assert table.index("29-long-") < table.index("28-long-")
    assert "2 of 30 shown, newest first; --last 30 shows all\n" in table
    assert "3 of 3 shown, newest first\n" in fedperf(home, "runs", "--search", "9-").out
    assert "27-long-" not in table
    for shown in ("workload-29", "2026-03-01 00:00", "ok", "29.5 s", "100%"):
        assert shown in table


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("nds-power/c3a812", ["c3", "c3"]),
        ("nds-power", ["4f", "c3", "c3"]),
        ("NDS", ["4f", "c3", "c3"]),
        ("power/4f", ["4f"]),
        ("etl", ["etl"]),
        ("nds%", []),
    ],
)
def test_runs_workload_filter_matches_name_or_part_of_its_path(
    home: Home, asked: str, found: list[str]
) -> None:
    names = ("nds-power/c3a812", "nds-power/c3a812", "nds-power/4f11", "etl", "etl-late")
    keep(home, *(make_execution(n, workload=name) for n, name in enumerate(names)))
    rows = fedperf(home, "runs", "--workload", asked, "--json").rows()
    assert [str(row["workload"]).removeprefix("nds-power/")[:2] for row in rows] == [
        each[:2] for each in found
    ]
    assert "etl-late" not in {row["workload"] for row in rows}


def test_runs_of_unknown_workload_names_it(home: Home) -> None:
    keep(home, make_execution(0, workload="etl"))
    said = fedperf(home, "runs", "--workload", "nds").out
    assert "no such run of a workload named 'nds'; " in said


def test_runs_can_be_filtered_by_workload_or_status(home: Home) -> None:
    keep(
        home,
        make_execution(0, workload="a"),
        make_execution(1, workload="b", status=ExecutionStatus.OUT_OF_MEMORY, measurement=None),
        make_execution(2, workload="b"),
    )
    [row] = fedperf(home, "runs", "--workload", "a", "--json").rows()
    assert row["workload"] == "a"
    [row] = fedperf(home, "runs", "--status", "out_of_memory", "--json").rows()
    assert (row["id"], row["runtime_seconds"]) == ("execution-1", None)
    assert fedperf(home, "runs", "--status", "great").code == 3
    assert "fedperf ingest" in fedperf(home, "runs", "--workload", "none").out


def test_runs_on_empty_store_prints_one_line(home: Home) -> None:
    assert fedperf(home, "runs", "--json").json() == []
    assert fedperf(home, "runs").out.count("\n") == 1


def test_runs_show_source_machine_and_warnings(home: Home) -> None:
    origin = ExecutionMetadata(
        "spark 3.5.3",
        "m5.xlarge",
        "arm64",
        0.5,
        (ExecutionWarning.FAILED_TASKS, ExecutionWarning.NOISY),
    )
    keep(home, make_execution(0, origin=origin))
    table = fedperf(home, "runs").out
    for shown in ("spark 3.5.3", "50%", "failed tasks", "noisy"):
        assert shown in table
    one = fedperf(home, "runs", "show", "execution-0").out
    for shown in ("node type: m5.xlarge", "architecture: arm64", "rows known: 50%"):
        assert shown in one


NAMED = ExecutionMetadata(
    application="Payroll 2026-03-01",
    application_id="app-77",
    record="query 72",
    description="salaries by month",
    file="/logs/app-77.zstd",
    failure="no bytes left",
    operator_seconds=(1.5, None, 7260.0),
)


def test_runs_show_application_description_and_failure(home: Home) -> None:
    keep(home, make_execution(0, origin=NAMED))
    table = fedperf(home, "runs").out
    for shown in ("query 72", "salaries by month", "no bytes left"):
        assert shown in table
    one = fedperf(home, "runs", "show", "execution-0").out
    for shown in (
        "application: Payroll 2026-03-01\n",
        "application id: app-77\n",
        "record: query 72\n",
        "description: salaries by month\n",
        "file: /logs/app-77.zstd\n",
        "failure: no bytes left\n",
    ):
        assert shown in one
    facts = fedperf(home, "runs", "show", "execution-0", "--json").json()
    assert isinstance(facts, dict)
    assert (facts["application_id"], facts["description"]) == ("app-77", "salaries by month")


def test_runs_show_prints_operator_seconds_where_known(home: Home) -> None:
    keep(home, make_execution(0, origin=NAMED), make_execution(1))
    shown = fedperf(home, "runs", "show", "execution-0")
    assert [line.rpartition(", ")[2] for line in shown.out.splitlines()[-3:]] == [
        "2.0 h",
        "25.0 kB",
        "1.5 s",
    ]
    assert "Times of operators" in shown.out
    facts = fedperf(home, "runs", "show", "execution-0", "--json").json()
    assert isinstance(facts, dict)
    assert [each["seconds"] for each in facts["plan"]] == [1.5, None, 7260.0]
    assert "Times of operators" not in fedperf(home, "runs", "show", "execution-1").out


def test_runs_show_prints_units_and_omits_unknown_values(home: Home) -> None:
    measured = Measurement(5817.45, 5817.45, 0, 18_400_000_000, 0)
    cluster = ClusterConfig(4, 128, 429_496_729_600)
    keep(home, make_execution(0, measurement=measured, cluster=cluster))
    shown = fedperf(home, "runs", "show", "execution-0").out
    for line in ("runtime: 97.0 min\n", "cpu: 97.0 min\n", "read: 18.4 GB\n", "memory: 429.5 GB\n"):
        assert line in shown
    assert "peak" not in shown
    facts = fedperf(home, "runs", "show", "execution-0", "--json").json()
    assert isinstance(facts, dict)
    assert (facts["peak_memory_bytes"], facts["memory_bytes"]) == (None, 429_496_729_600)


def chosen(home: Home, *arguments: str) -> list[object]:
    return [row["id"] for row in fedperf(home, "runs", *arguments, "--json").rows()]


def test_runs_can_be_searched_and_filtered_by_platform_and_date(home: Home) -> None:
    keep(
        home,
        make_execution(0, origin=NAMED),
        make_execution(1, plan=chain_plan(platform=Platform.SPARK)),
        make_execution(2, finished_at=START + timedelta(days=3)),
    )
    for text in ("payroll", "APP-77", "query 72", "salaries", "/logs/", "bytes left", "tion-0"):
        assert chosen(home, "--search", text) == ["execution-0"]
    assert chosen(home, "--search", "query%") == []
    assert "with 'query%'; store" in fedperf(home, "runs", "--search", "query%").out
    assert chosen(home, "--platform", "spark") == ["execution-1"]
    assert chosen(home, "--since", "2026-03-02") == ["execution-2"]
    assert chosen(home, "--until", "2026-03-01T00:00:01") == ["execution-0"]
    assert chosen(home, "--platform", "duckdb", "--until", "2026-03-02") == ["execution-0"]


def test_runs_delete_by_id_or_filter_needs_yes_for_filters(home: Home) -> None:
    keep(home, *(make_execution(n, workload="ab"[n % 2]) for n in range(6)))
    home.predictor.write_text("made from all of them")
    assert fedperf(home, "runs", "delete", "execution-3", "--json").json() == {
        "chosen": 1,
        "deleted": 1,
    }
    assert not home.predictor.exists()
    counted = fedperf(home, "runs", "delete", "--workload", "a")
    assert (counted.code, "chosen: 3\ndeleted: 0\n" in counted.out) == (0, True)
    assert len(chosen(home)) == 5
    assert "deleted: 3" in fedperf(home, "runs", "delete", "--workload", "a", "--yes").out
    assert chosen(home) == ["execution-5", "execution-1"]


@pytest.mark.parametrize("arguments", [[], ["execution-0", "--workload", "a"], ["--yes"]])
def test_runs_delete_requires_either_ids_or_filters(home: Home, arguments: list[str]) -> None:
    keep(home, make_execution(0))
    ended = fedperf(home, "runs", "delete", *arguments)
    assert (ended.code, len(chosen(home))) == (3, 1)
    assert "select the runs either by ids or by filters" in ended.complaint()


def test_runs_delete_with_one_unknown_id_deletes_no_execution(home: Home) -> None:
    keep(home, make_execution(0))
    assert fedperf(home, "runs", "delete", "execution-0", "other").code == 3
    assert len(chosen(home)) == 1


def test_runs_export_writes_history_or_csv(home: Home, tmp_path: Path) -> None:
    stored = [make_execution(0, origin=NAMED), make_execution(1), make_execution(2, workload="x")]
    keep(home, *stored)
    history, table = tmp_path / "h.parquet", tmp_path / "t.csv"
    assert "written: 3" in fedperf(home, "runs", "export", history).out
    assert list(HistoryFile(history).read()) == stored
    assert fedperf(home, "runs", "export", table, "--workload", "workload-").code == 0
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["id"] for row in rows] == ["execution-0", "execution-1"]
    assert (rows[0]["description"], rows[1]["runtime_seconds"]) == ("salaries by month", "1.5")


def test_runs_export_escapes_csv_formulas(home: Home, tmp_path: Path) -> None:
    keep(home, make_execution(0, origin=replace(NAMED, description='=HYPERLINK("x")')))
    assert fedperf(home, "runs", "export", tmp_path / "t.csv").code == 0
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert row["description"] == '\'=HYPERLINK("x")'


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("h.json", 3, "must end in .parquet or .csv"), ("no/t.csv", 4, "cannot write")],
)
def test_runs_export_to_invalid_path_fails_in_one_line(
    home: Home, tmp_path: Path, name: str, code: int, *, said: str
) -> None:
    ended = fedperf(home, "runs", "export", tmp_path / name)
    assert (ended.code, said in ended.complaint()) == (code, True)


def test_operator_tree_has_result_at_top_and_shared_input_once() -> None:
    assert lines_of(shared_input_plan()) == [
        "#4 sink, on polars, 1,000 rows, 10.0 kB",
        "└── #3 join, on polars, 1,000 rows, 10.0 kB",
        "    ├── #1 filter, on duckdb, 1,000 rows, 10.0 kB",
        "    │   └── #0 table source, on duckdb, 12,345 rows, 123.5 kB",
        "    └── #2 aggregate, on polars, 5 rows, 50 bytes, 1 partition",
        "        └── #1 (above)",
    ]


def test_operator_tree_has_one_root_per_sink() -> None:
    plan = chain_plan(1)
    two = Plan(Workflow(plan.workflow.operators * 2), plan.platforms * 2)
    assert [line[:2] for line in lines_of(two)] == ["#0", "#1"]


def test_runs_show_prints_operator_tree_and_json_plan(home: Home) -> None:
    keep(home, make_execution(0, plan=shared_input_plan()), make_execution(1))
    shown = fedperf(home, "runs", "show", "execution-0")
    assert shown.code == 0
    assert "workload: workload-0\n" in shown.out
    assert "    ├── #1 filter, on duckdb, 1,000 rows, 10.0 kB" in shown.out
    found = fedperf(home, "runs", "show", "execution-0", "--json").json()
    assert isinstance(found, dict)
    assert found["cores"] == 2
    assert [each["inputs"] for each in found["plan"]] == [[], [0], [1], [1, 2], [3]]
    assert found["plan"][0] == {
        "operator": 0,
        "kind": "table_source",
        "class": "relational",
        "platform": "duckdb",
        "inputs": [],
        "output_rows": 12_345.0,
        "row_bytes": 10.0,
        "output_bytes": 123_450.0,
        "partitions": 0,
        "code_steps": 0,
        "complexity": "none",
        "iterations": 0,
        "key_distinct_ratio": 0.0,
        "seconds": None,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "2026-03-02", "--until", "2026-03-01"], "--since must come before --until"),
        (["--since", "2026-03-02", "--until", "2026-03-02"], "--since must come before --until"),
        (["--since", "yesterday"], "'yesterday' is not a date such as 2027-01-01"),
        (["--last", "0"], "0 is not in the range x>=1"),
    ],
)
def test_runs_with_invalid_option_value_fails_in_one_line(
    home: Home, options: list[str], said: str
) -> None:
    keep(home, make_execution(0))
    ended = fedperf(home, "runs", *options)
    assert (ended.code, ended.out) == (3, "")
    assert said in ended.complaint()


def test_runs_show_with_ambiguous_id_lists_first_matches(home: Home) -> None:
    keep(home, *(make_execution(n, execution_id=f"{n:02}-long-identifier") for n in range(8)))
    said = fedperf(home, "runs", "show", "0").complaint()
    assert "several executions, 8, have an id that begins with '0'" in said
    assert "00-long- (workload-0), 01-long- (workload-1), " in said
    assert "04-long- (workload-4), 3 more; name one, or list them with: fedperf runs" in said


def test_runs_show_of_deep_plan_indents_only_at_branches(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree is indented only where several inputs meet."""
    long, joined = chain_plan(30).workflow.operators, shared_input_plan().workflow.operators[3]
    plan = Plan.on_one_platform(
        Workflow((*long, long[0], replace(joined, inputs=(29, 30)))), Platform.SPARK
    )
    keep(home, make_execution(0, plan=plan))
    monkeypatch.setenv("COLUMNS", "100")
    lines = fedperf(home, "runs", "show", "execution-0").out.splitlines()[-33:]
    assert (
        lines[0] == "An operator reads from the one below it, or from those that branch off below."
    )
    assert [line.partition(",")[0] for line in (lines[1], lines[2], lines[31], lines[32])] == [
        "#31 join",
        "├── #29 map",
        "│   #0 table source",
        "└── #30 table source",
    ]
    monkeypatch.delenv("COLUMNS")  # files are not folded
    assert (
        "An operator reads from the one below"
        not in fedperf(home, "runs", "show", "execution-0").out
    )


def test_runs_show_accepts_unique_id_prefix_and_refuses_others(home: Home) -> None:
    keep(home, make_execution(0, execution_id="abcd1"), make_execution(1, execution_id="abcd2"))
    assert "id: abcd1\n" in fedperf(home, "runs", "show", "abcd1").out
    for unclear, said in (("abcd", "several executions"), ("x", "no execution 'x'"), ("", "''")):
        ended = fedperf(home, "runs", "show", unclear)
        assert ended.code == 3
        assert said in ended.complaint()


def test_runs_escape_hostile_names(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    hostile = "\x1b[2J[bold red]x[/] :smile:\n\u202e" + "y" * 1000
    origin = ExecutionMetadata(
        hostile,
        hostile,
        hostile,
        application=hostile,
        application_id=hostile,
        record=hostile,
        description=hostile,
        file=hostile,
        failure=hostile,
    )
    keep(home, make_execution(0, workload=hostile, execution_id="id" + hostile, origin=origin))
    for ended in (fedperf(home, "runs"), fedperf(home, "runs", "show", "id")):
        assert ended.code == 0
        assert "\x1b" not in ended.out
        assert "\u202e" not in ended.out
        assert "[bold red]x[/] :smile:\\n" in ended.out.replace("\n", "")
    assert "y" * 50 not in fedperf(home, "runs").out
    assert fedperf(home, "runs", "--json").rows()[0]["workload"] == hostile


def test_runs_show_prints_one_line_per_operator_of_longest_chain(home: Home) -> None:
    keep(home, make_execution(0, plan=chain_plan(MAX_OPERATORS)))
    lines = fedperf(home, "runs", "show", "execution-0").out.splitlines()
    assert sum(" rows, " in line for line in lines) == MAX_OPERATORS
    assert lines[-1].strip(" └─").startswith("#0 table source")


def test_operator_tree_of_repeatedly_shared_inputs_has_linear_size() -> None:
    source = Operator(K.TABLE_SOURCE, OperatorClass.RELATIONAL, (), 1.0, 1.0)
    layers = [replace(source, kind=K.JOIN, inputs=(n, n)) for n in range(60)]
    lines = lines_of(Plan.on_one_platform(Workflow((source, *layers)), Platform.DUCKDB))
    assert len(lines) == 61 + 60
