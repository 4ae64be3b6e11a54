"""Tests of the reference page: query regimes, `--json` keys, Python example and operations."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, get_args

import duckdb
import pytest

from fedperf_client.commands.advise_logs import advice_facts
from fedperf_client.formatting.facts import values_of
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.prediction import QueryRegime
from fedperf_engines.platforms.engine import could_run
from fedperf_engines.platforms.operations import AnyOperation
from fedperf_shared.execution import ClusterConfig, ExecutionMetadata, Measurement
from tests.pages import REFERENCE
from tests.unit.client.advice.test_executor_sizes import GIB, ran
from tests.unit.client.advice.test_executor_sizes import advised as executors_advised
from tests.unit.client.data_directories import empty_home, fedperf, with_history
from tests.unit.client.executions import make_execution
from tests.unit.client.profiling.campaign.nightly import with_nightly
from tests.unit.client.workflow_files import GOOD

TEXT = REFERENCE.read_text(encoding="utf-8")
NAME = re.compile(r"`([a-z][a-z0-9_]*)`")


def section(heading: str) -> str:
    return TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def table(head: str) -> str:
    """Return the rows of the reference table with this head."""
    return section("Facts of `--json`").partition(f"| {head} |")[2].partition("\n\n")[0]


def named(head: str) -> set[str]:
    return set(NAME.findall(table(head)))


def keys_of(facts: object, *, without: str = "") -> Iterator[str]:
    """Yield every key at any depth, except those below `without`, which users name."""
    if isinstance(facts, Mapping):
        for key, value in facts.items():
            yield key
            if key not in without.split():
                yield from keys_of(value)
    elif isinstance(facts, list):
        for each in facts:
            yield from keys_of(each)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflow.json").write_text(json.dumps(GOOD | {"cluster": {"cores": 4}}))
    return with_history(empty_home(tmp_path, monkeypatch))


def asked(home: Home, *words: object) -> Any:
    return fedperf(home, *words, "--json").json()


def test_reference_lists_all_json_keys_of_predict(home: Home) -> None:
    times = enumerate((60, 61, 59, 62, 240, 238))
    with ExecutionStore.open(home.store) as store:
        for number, seconds in times:
            source = ExecutionMetadata(source="spark 3.4" if seconds < 100 else "spark 3.5")
            made = make_execution(number, workload="w", origin=source)
            store.add([replace(made, measurement=Measurement(seconds))])
    words = ("--cores", "2,4", "--at", "rows=2x", "--deadline", "1h")
    found = asked(home, "predict", "execution-5", *words)
    assert named("`fedperf predict`") == set(keys_of(found))


def test_reference_lists_all_json_keys_of_predict_for_sql(home: Home, tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "a.duckdb")).close()
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "one.sql").write_text("SELECT 1")
    options = ("--database", "a.duckdb", "--deadline", "1h")
    [row] = asked(home, "predict", "queries", *options)
    assert set(row) - named("`fedperf predict`") == named("`fedperf predict` of SQL also has")
    alone = set(asked(home, "predict", "queries/one.sql", *options)) - named("`fedperf predict`")
    assert alone == named("`fedperf predict` of SQL also has") - {"query"}


def test_reference_lists_all_json_keys_of_predict_for_a_campaign(home: Home) -> None:
    with_nightly(home)
    words = ("--at", "rows=200000,workers=1", "--deadline", "1h", "--cheapest")
    found = asked(home, "predict", "nightly", *words)
    own = set(keys_of(found)) - {"rows", "workers"} - set(found["ensemble"])
    assert named("`fedperf predict JOB`") == own


def test_reference_lists_all_json_keys_of_advise_for_a_job(home: Home) -> None:
    found = asked(home, "advise", "workflow.json", "--deadline", "1h")
    rival = {"chance_choice_is_faster", "no_difference"}
    ran_here = {"measured", "measured_runtime_seconds", "measured_seconds", "reason"}
    assert named("`fedperf advise` of a job") == set(keys_of(found)) | rival | ran_here


def test_reference_lists_all_json_keys_of_advise_for_logs() -> None:
    here = ClusterConfig(nodes=1, cores=2, memory_bytes=8 * GIB)
    advice = executors_advised(ran(), local_cluster=here, could_run=could_run)
    found = values_of(advice_facts(advice, None))
    assert named("`fedperf advise` of logs") == {"applications", *keys_of(found)}


def test_reference_lists_all_json_keys_of_compare(home: Home) -> None:
    with ExecutionStore.open(home.store) as store:
        for number, source in enumerate(("spark 3.4", "spark 3.5")):
            store.add(
                [make_execution(number, workload="w", origin=ExecutionMetadata(source=source))]
            )
    assert named("`fedperf compare`") == set(keys_of(asked(home, "compare")))


def test_reference_explains_every_query_regime_word() -> None:
    words = section("Query regimes")
    for each in (*QueryRegime, "unlike own jobs", "uncalibrated", "with its partitions"):
        assert re.search(rf"^\|[^|]*\b{each}\b", words, re.MULTILINE), each


def test_reference_python_example_prints_the_predictions_of_the_command(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = re.findall(r"```python\n(.*?)```", section("From Python"), re.DOTALL)
    exec(compile(program, str(REFERENCE), "exec", dont_inherit=True), {})
    printed = [eval(line) for line in capsys.readouterr().out.splitlines()]
    command = asked(home, "predict", "workflow.json", "--deadline", "20m")
    assert printed == command["predictions"]


def test_reference_lists_every_program_operation_with_its_keys() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*)\|", section("Operations of a program"), re.MULTILINE)
    listed = {
        name: [(key, bool(default)) for key, default in re.findall(r"`(\w+)`( \()?", keys)]
        for name, keys in rows
    }
    assert listed == {
        next(str(each.default) for each in fields(operation) if each.name == "type"): [
            (each.name, each.default is not MISSING)
            for each in fields(operation)
            if each.name != "type"
        ]
        for operation in get_args(get_args(AnyOperation)[0])
    }
