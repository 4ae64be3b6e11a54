"""Tests of extras: their packages, the message for a missing one, and use without any."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from fedperf_shared.runtime import command_line
from fedperf_shared.runtime.extras import extra_with, extras, missing_packages
from tests.fakes.spark_logs import SparkLog, node, read_log

WITHOUT_EXTRAS = """
import json, sys
from fedperf_shared.runtime.extras import extras, module_of

needed = {each.partition(".")[0] for each in sys.modules}
packages = {module_of(each) for packages in extras().values() for each in packages}
sys.modules.update(dict.fromkeys(packages - needed))
from fedperf_client.cli import main

codes = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["fedperf", *words]
    try:
        main()
    except SystemExit as ended:
        codes.append(ended.code or 0)
print(json.dumps(codes))
"""


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("grpc.aio", "join"),
        ("torch.nn", "train"),
        ("dp_accounting", "join"),
        ("sqlalchemy", "simulate"),
        ("sdv", "server"),
        ("matplotlib.pyplot", "plot"),
        ("duckdb", "engines"),
        ("pyspark", "spark"),
        ("numpy", None),
        ("nobody_has_this", None),
    ],
)
def test_extra_with_module_returns_the_smallest_extra_that_provides_it(
    module: str, extra: str | None
) -> None:
    assert extra_with(module) == extra


def test_extra_with_preferred_extra_returns_it_if_it_provides_the_module() -> None:
    assert extra_with("sqlalchemy", "server") == "server"
    assert extra_with("duckdb", "server") == "engines"


def test_missing_packages_lists_packages_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert set(missing_packages("join")) == set()
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert set(missing_packages("join")) == {"grpcio"}


def test_extra_packages_are_importable_by_their_expected_module_names() -> None:
    missing = {each for extra in extras() for each in missing_packages(extra)}
    assert missing <= {"pyspark", "ray"}


def test_run_with_missing_extra_names_it_in_one_line_and_exits_with_3(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def program() -> None:
        raise ModuleNotFoundError(name="grpc.aio")

    with pytest.raises(SystemExit) as ended:
        command_line.run(program)
    assert ended.value.code == 3
    [line] = capsys.readouterr().err.splitlines()
    assert "'fedperf[join]'" in line


def test_run_with_missing_module_outside_extras_raises_the_error() -> None:
    def program() -> None:
        raise ModuleNotFoundError(name="nobody_has_this")

    with pytest.raises(ModuleNotFoundError):
        command_line.run(program)


@pytest.mark.slow
def test_base_installation_without_extras_diagnoses_ingests_and_predicts(tmp_path: Path) -> None:
    home, log = ["--home", str(tmp_path / "home")], str(tmp_path / "log")
    plan = node("HashAggregate", node("Scan parquet", rows=1))
    SparkLog().begin().query(0, plan, {1: 1000}).write(Path(log))
    [execution] = read_log(Path(log))[0]
    commands = [
        ["diagnose", log],
        [*home, "init"],
        [*home, "ingest", log, "--jobs", "1"],
        [*home, "predict", "--execution", execution.execution_id],
        [*home, "advise", log],
        [*home, "compare"],
        [*home, "drift"],
        [*home, "doctor"],
        [*home, "daemon"],
    ]
    called = [sys.executable, "-c", WITHOUT_EXTRAS, orjson.dumps(commands).decode()]
    answer = subprocess.run(called, capture_output=True, text=True, check=True)
    assert orjson.loads(answer.stdout.splitlines()[-1]) == [0, 0, 0, 0, 0, 0, 0, 0, 3], (
        answer.stderr
    )
    assert "'fedperf[join]'" in answer.stderr.splitlines()[-1]
