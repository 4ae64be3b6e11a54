"""Tests of the `fedperf` command line: documentation, light imports and clear messages."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer

from fedperf_client import cli
from fedperf_client.commands.compare import MOST_SHOWN
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.ledger_files import counter_path
from fedperf_client.release.lifetime import lifetime_path
from fedperf_client.release.policy import load_policy
from fedperf_client.release.schedule import plan_schedule
from fedperf_client.sources.history_file import write_history
from fedperf_shared.runtime.command_line import EXIT_CODES, RENAMED
from tests.fakes.spark_logs import SparkLog, grouped, node
from tests.pages import ENGINEER, README
from tests.unit.client.data_directories import made_home
from tests.unit.client.executions import make_execution
from tests.unit.client.release.periods import START, calendar
from tests.unit.shared.console_programs import Ended, commands, contents, nothing_lost, run

HEAVY = ("torch", "flwr", "sdv", "pandas", "polars", "duckdb", "scipy", "sklearn", "lightgbm")
COMMANDS = dict(commands(typer.main.get_command(cli.app)))
SHOWS_NOTHING = {"daemon", "leave", "mcp"}


def fedperf(home: Home, *arguments: object) -> Ended:
    return run(cli.main, "--home", home.directory, *arguments)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return made_home(tmp_path / "home")


@pytest.mark.slow
def test_fixture_data_directory_equals_the_one_of_init(home: Home, tmp_path: Path) -> None:
    made = Home(tmp_path / "made")
    assert fedperf(made, "init", "--workloads", 4000).code == 0
    larger = made_home(tmp_path / "larger", workloads=4000)
    for name, content in contents(made.directory).items():
        assert (larger.directory / name.relative_to(made.directory)).read_bytes() == content


def write_jobs(path: Path, count: int = 3) -> Path:
    write_history(path, [make_execution(number) for number in range(count)])
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_help_and_json_option(name: str) -> None:
    ended = run(cli.main, *name.split(), "--help")
    assert ended.code == 0
    assert COMMANDS[name].help
    assert ("--json" in ended.out) == (name not in SHOWS_NOTHING)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_documented_for_data_engineers(name: str) -> None:
    assert f"fedperf {name}" in ENGINEER.read_text(encoding="utf-8")


def test_leave_command_needs_no_data_directory_and_suggests_revoke(home: Home) -> None:
    before = contents(home.directory)
    for ended in (run(cli.main, "leave"), fedperf(home, "leave")):
        assert (ended.code, ended.out) == (2, "")
        assert "revoke" in ended.err
        assert "Did you mean" not in ended.err
    assert contents(home.directory) == before


@pytest.mark.parametrize(
    ("words", "completed"),
    [("fedperf pr", {"predict", "profile"}), ("fedperf compare --b", {"--before"})],
)
def test_shell_completes_commands_of_annexes_and_options(words: str, completed: set[str]) -> None:
    """The shell asks the program for completions in these variables."""
    asked = {
        "_FEDPERF_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    program = "import sys; sys.argv = ['fedperf']; from fedperf_client.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {*ended.stdout.split()} == completed


def test_help_lists_exit_code_130() -> None:
    said = " ".join(run(cli.main, "--help").out.split())
    assert [text for code, text in EXIT_CODES.items() if f"{code} {text}" not in said] == []


@pytest.mark.parametrize("arguments", [["--help"], ["ingest", "events"]], ids=" ".join)
def test_help_and_ingest_load_no_heavy_library(home: Home, arguments: list[str]) -> None:
    log = SparkLog().begin().query(7, grouped(node("Scan parquet", rows=1)), {1: 1000, 2: 9, 3: 9})
    log.write(home.directory / "events")
    program = (
        "import sys\n"
        "from fedperf_client import cli\n"
        f"sys.argv = ['fedperf', '--home', '.', *{arguments}]\n"
        "try:\n    cli.main()\n"
        f"finally:\n    print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=home.directory,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr.strip() == "[]"


def test_init_keeps_existing_configuration(home: Home) -> None:
    home.config.write_text("poll_seconds = 7.0\n")
    before = contents(home.directory)
    assert fedperf(home, "init", "--size", "large", "--json").code == 3
    assert fedperf(home, "init", "--json").code == 0
    assert contents(home.directory) == before


def test_init_prints_next_steps(tmp_path: Path) -> None:
    ended = fedperf(Home(tmp_path / "home"), "init")
    assert "Next: read the policy" in ended.out
    assert ended.err == ""
    assert fedperf(Home(tmp_path / "other"), "init", "--json").json()


def test_init_again_with_other_options_names_differences_and_changes_nothing(home: Home) -> None:
    before = contents(home.directory)
    ended = fedperf(home, "init", "--size", "large", "--workloads", 5000)
    assert ended.code == 3
    said = ended.complaint()
    assert f"{home.directory} already exists and was not changed" in said
    assert "size_class small, not large, nominal_workloads 200, not 5000" in said
    assert f"edit {home.policy}" in said
    assert "it counts at once, as no period has begun" in said
    assert contents(home.directory) == before
    said = fedperf(home, "init", "--size", "small", "--workloads", 4000).complaint()
    assert "size_class" not in said


def test_init_again_within_a_period_states_that_changes_apply_to_the_next(home: Home) -> None:
    planned = plan_schedule(load_policy(home.policy), calendar())
    PrivacyLedger.create(home.ledger(START), planned.budget, planned.schedule)
    said = fedperf(home, "init", "--workloads", 4000).complaint()
    assert "it counts with the next period" in said


@pytest.mark.parametrize("options", [(), ("--size", "small"), ("--workloads", 200)])
def test_init_again_with_same_options_states_that_data_directory_exists(
    home: Home, options: tuple[object, ...]
) -> None:
    before = contents(home.directory)
    ended = fedperf(home, "init", *options)
    assert ended.code == 0
    assert f"{home.directory} already exists" in ended.err
    assert "Next:" not in ended.out
    assert contents(home.directory) == before


def test_read_only_commands_write_nothing_in_unwritable_data_directory(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fedperf(home, "ingest", write_jobs(tmp_path / "jobs.parquet"))
    before = contents(home.directory)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write anywhere
    asked = ("predict", "--execution", "execution-1")
    for words in (("runs",), ("status",), ("weights",), ("drift",), ("compare",), asked):
        ended = fedperf(home, *words)
        assert ended.code == 0, ended.err
        assert contents(home.directory) == before, words


def test_ingest_again_adds_no_executions(home: Home, tmp_path: Path) -> None:
    jobs = write_jobs(tmp_path / "jobs.parquet")
    brought = {"read": 3, "failed": 0, "operators": 9, "rows_known": 1.0, "skipped": {}}
    first = {**brought, "new": 3}
    sources = [{**first, "source": str(jobs), "refused": ""}]
    found = fedperf(home, "ingest", jobs, "--json").json()
    assert found == {**first, "stored": True, "unchanged": 0, "sources": sources}
    again = fedperf(home, "ingest", jobs, "--json").json()
    assert isinstance(again, dict)
    assert again["new"] == 0
    status = fedperf(home, "status", "--json").json()
    assert isinstance(status, dict)
    assert (status["executions"], status["workloads"]) == (3, 3)


def test_ingest_prints_totals_and_dry_run_prints_the_same_totals(
    home: Home, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    jobs = write_jobs(tmp_path / "logs" / "jobs.parquet")
    (tmp_path / "logs" / "copy.parquet").write_bytes(jobs.read_bytes())
    log = SparkLog().begin().start(1, node("Execute CreateTable")).finish(1)
    log.write(tmp_path / "logs" / "log")
    dry = fedperf(home, "ingest", tmp_path / "logs", "--jobs", 1, "--dry-run").out
    out = fedperf(home, "ingest", tmp_path / "logs", "--jobs", 1).out
    assert dry == out + "--dry-run: nothing was stored\n"
    (total,) = [line for line in out.splitlines() if "all 3 sources" in line]
    assert [each.strip() for each in total.split("│")[2:6]] == ["6", "3", "0", "18"]
    assert fedperf(home, "ingest", jobs, "--jobs", -1).complaint() == (
        "error: Invalid value for '--jobs': -1 is not in the range x>=0."
    )


def test_ingest_of_many_sources_prints_a_limited_number_and_the_total(
    home: Home, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    for number in range(MOST_SHOWN + 2):
        write_jobs(tmp_path / "logs" / f"{number:02}.parquet", 1)
    out = fedperf(home, "ingest", tmp_path / "logs", "--jobs", 1).out
    assert f"{MOST_SHOWN} of {MOST_SHOWN + 2} sources shown; --json" in out


def test_release_list_and_reconcile_before_a_period_are_empty(home: Home) -> None:
    for command in (["release", "list"], ["reconcile"]):
        assert fedperf(home, *command, "--json").json() == []
        assert "\n" not in fedperf(home, *command).out.strip()


def test_status_and_budget_show_ledger_disagreement_and_remedy(home: Home) -> None:
    planned = plan_schedule(load_policy(home.policy), calendar())
    ledger = PrivacyLedger.create(home.ledger(START), planned.budget, planned.schedule)
    first = planned.schedule.slots[0].key
    ledger.reserve(first, planned.schedule.opens_at(first))
    assert "stopped" not in fedperf(home, "budget").out
    counter_path(ledger.path).unlink()
    status = fedperf(home, "status", "--json").json()
    assert isinstance(status, dict)
    assert "the counter file is missing" in str(status["stopped"])
    assert "until an operator calls fedperf reconcile" in fedperf(home, "budget").out
    assert "if the daemon runs and you resolve the stop" in fedperf(home, "status").out
    assert fedperf(home, "reconcile").code == 0
    assert "stopped" not in fedperf(home, "status").out


def test_budget_and_slots_commands_match_the_ledger(home: Home) -> None:
    planned = plan_schedule(load_policy(home.policy), calendar())
    PrivacyLedger.create(home.ledger(START), planned.budget, planned.schedule)
    lifetime, row = fedperf(home, "budget", "--json").rows()
    assert (row["epsilon"], row["delta"], row["unit"]) == (1.0, 1e-5, "workload")
    assert (row["spent"], row["spent_replace_one"], row["left"], row["released"]) == (0, 0, 1.0, 0)
    assert (row["scope"], row["period_start"]) == ("period", START.isoformat())
    assert (row["slots"], row["planned"]) == (len(planned.schedule.slots), planned.epsilon)
    assert (lifetime["scope"], lifetime["epsilon"], lifetime["left"]) == ("lifetime", 10.0, 10.0)
    assert lifetime["planned"] == planned.epsilon
    table = fedperf(home, "budget").out
    assert "lifetime" in table
    assert "workload" in table
    slots = fedperf(home, "release", "slots", "--json").rows()
    assert [slot["noise_multiplier"] for slot in slots] == [
        slot.parameters.noise_multiplier for slot in planned.schedule.slots
    ]
    assert fedperf(home, "release", "list", "--json").json() == []


def test_reconcile_restores_a_lost_lifetime_record(home: Home) -> None:
    planned = plan_schedule(load_policy(home.policy), calendar())
    PrivacyLedger.create(home.ledger(START), planned.budget, planned.schedule)
    before = fedperf(home, "budget", "--json").rows()
    lifetime_path(home.directory).unlink()
    ended = fedperf(home, "budget")
    assert (ended.code, ended.out) == (4, "")
    assert "fedperf reconcile" in ended.complaint()
    ledger, lifetime = fedperf(home, "reconcile", "--json").rows()
    assert (ledger["problem"], ledger["charged"]) == (None, 0)
    assert (lifetime["problem"], lifetime["charged"]) == ("it was missing", 1)
    assert fedperf(home, "budget", "--json").rows() == before
    assert fedperf(home, "reconcile", "--json").rows()[1]["problem"] is None


Spoil = Callable[[Home], None]


def write(path: str, content: str | bytes) -> Spoil:
    data = content.encode() if isinstance(content, str) else content

    def spoil(home: Home) -> None:
        (home.directory / path).write_bytes(data)

    return spoil


def policy_with(line: str) -> Spoil:
    def spoil(home: Home) -> None:
        text = home.policy.read_text().replace("epsilon = 1.0", line)
        assert line in text
        home.policy.write_text(text)

    return spoil


def nothing(home: Home) -> None:
    del home


BAD = {
    "broken TOML": (write("config.toml", "watch_paths = ["), ["status"], 3, "is not TOML"),
    "not text": (write("config.toml", b"\xff\xfe"), ["status"], 3, "is not TOML"),
    "unknown key": (write("config.toml", "histroy = []"), ["status"], 3, "histroy"),
    "all problems": (
        write("config.toml", "poll_seconds = -1\nwatch_paths = 3"),
        ["status"],
        3,
        "watch_paths",
    ),
    "poll 0": (write("config.toml", "poll_seconds = 0"), ["status"], 3, "poll_seconds"),
    "poll NaN": (write("config.toml", "poll_seconds = nan"), ["status"], 3, "poll_seconds"),
    "poll infinite": (write("config.toml", "poll_seconds = inf"), ["status"], 3, "poll_seconds"),
    "no such history": (nothing, ["ingest", "missing.parquet"], 3, "missing.parquet"),
    "no history file": (nothing, ["ingest", str(README)], 3, "not of a kind that can be read"),
    "no held-out file": (
        nothing,
        ["evaluate", "--held-out", "missing.parquet"],
        3,
        "missing.parquet",
    ),
    "store is text": (write("executions.sqlite", "hello" * 500), ["status"], 4, "not a store"),
    "store of another": (
        write("executions.sqlite", "hello" * 500),
        ["calibrate"],
        4,
        "not a store",
    ),
    "no ledger": (write("ledger-20270101T000000.sqlite", "x" * 5000), ["budget"], 4, "ledger"),
    "unknown family": (nothing, ["calibrate", "--family", "nonsense"], 3, "nonsense"),
    "too few rows": (nothing, ["calibrate", "--max-rows", "1"], 3, "at least"),
    "no join URL": (nothing, ["join", "https://example.org"], 3, "not a join URL"),
    "nobody there": (
        nothing,
        ["join", f"fedperf://127.0.0.1:9/#{'0' * 64}.{'0' * 48}"],
        6,
        "no coordinator answers",
    ),
    "not joined": (nothing, ["daemon"], 3, "fedperf join URL"),
    "budget 0": (policy_with("epsilon = 0"), ["daemon"], 3, "budget.epsilon"),
    "budget NaN": (policy_with("epsilon = nan"), ["daemon"], 3, "budget.epsilon"),
    "budget infinite": (policy_with("epsilon = inf"), ["daemon"], 3, "budget.epsilon"),
    "budget negative": (policy_with("epsilon = -1.0"), ["daemon"], 3, "budget.epsilon"),
    "budget off": (policy_with('epsilon = "off"'), ["daemon"], 3, "budget.epsilon"),
    "budget missing": (policy_with("# none"), ["daemon"], 3, "budget.epsilon: missing"),
    "lifetime 0": (policy_with("epsilon = 1.0\nlifetime_epsilon = 0"), ["daemon"], 3, "lifetime"),
    "lifetime NaN": (
        policy_with("epsilon = 1.0\nlifetime_epsilon = nan"),
        ["daemon"],
        3,
        "budget.lifetime_epsilon",
    ),
    "broken policy": (write("policy.toml", "size_class ="), ["daemon"], 3, "not TOML"),
    "unknown limit": (write("policy.toml", "epsilonn = 1"), ["daemon"], 3, "epsilonn"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_input_prints_one_line_and_changes_no_data(case: str, home: Home) -> None:
    spoil, command, code, says = BAD[case]
    with ExecutionStore.open(home.store) as store:
        store.add([make_execution()])
    spoil(home)
    before = contents(home.directory)
    ended = fedperf(home, *command)
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.complaint()
    assert nothing_lost(before, home.directory)


@pytest.mark.parametrize("command", ["status", "budget", "daemon", "release list", "reconcile"])
def test_command_without_data_directory_suggests_init_and_creates_none(
    command: str, tmp_path: Path
) -> None:
    home = Home(tmp_path / "missing")
    ended = fedperf(home, *command.split())
    assert ended.code == 3
    assert "fedperf init" in ended.complaint()
    assert not home.directory.exists()


@pytest.mark.parametrize("workloads", ["0", "-5"])
def test_init_with_invalid_policy_creates_no_data_directory(workloads: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    ended = fedperf(home, "init", "--workloads", workloads)
    assert ended.code == 3
    assert "nominal_workloads" in ended.complaint()
    assert not home.directory.exists()


def test_init_with_a_file_as_data_directory_keeps_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    ended = fedperf(Home(path), "init")
    assert ended.code == 4
    assert "--home" in ended.complaint()
    assert path.read_text() == "mine"


def test_ingest_of_history_with_invalid_rows_stores_others_and_counts_skipped(
    home: Home, tmp_path: Path
) -> None:
    from pyarrow import parquet

    from fedperf_client.sources.history_file import to_table, write_table

    path = tmp_path / "jobs.parquet"
    table = to_table([make_execution(number) for number in range(3)])
    seconds = np.array([0.5, -1.0, np.nan])
    column = table.schema.get_field_index("runtime_seconds")
    import pyarrow as pa

    write_table(path, table.set_column(column, "runtime_seconds", pa.array(seconds)))
    assert parquet.read_table(path).num_rows == 3
    found = fedperf(home, "ingest", path, "--json").json()
    assert isinstance(found, dict)
    assert (found["read"], found["new"], sum(found["skipped"].values())) == (1, 1, 2)


def test_ingest_escapes_control_characters_of_refused_names(home: Home, tmp_path: Path) -> None:
    (tmp_path / "found").mkdir()
    write_jobs(tmp_path / "found" / "jobs.parquet")
    (tmp_path / "found" / "\x1b[31mred").write_text("nothing that can be read")
    shown = fedperf(home, "ingest", tmp_path / "found", "--jobs", 1).out
    assert "refused: " in shown
    assert "\\x1b[31mred: not of a kind that can be read" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("old", [each for each in RENAMED if each.startswith("fedperf ")])
def test_renamed_command_or_option_names_the_new_one_and_exits_with_2(old: str) -> None:
    ended = run(cli.main, *old.split()[1:], "x")
    assert (ended.code, ended.out) == (2, "")
    assert RENAMED[old] in ended.complaint()
    new, *option = RENAMED[old].removeprefix("fedperf ").split()
    command = COMMANDS[new]
    assert set(option) <= {name for each in command.params for name in each.opts}
