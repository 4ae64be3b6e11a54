"""Tests of the Python API, which people import as `fedperf`."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedperf
from fedperf_client import cli
from tests.fakes.spark_logs import SparkLog, grouped, node
from tests.pages import DOCS
from tests.unit.shared.console_programs import contents, run

PYTHON = DOCS / "python.md"
# Changes break the scripts of users: name them in the changelog.
PUBLIC = """\
DataDirectory(path: pathlib.Path) -> None
DataDirectory.advise(self, *logs: str | os.PathLike[str], deadline: str | None = None, \
by: str | None = None, prices: str | os.PathLike[str] | None = None) -> fedperf.Table
DataDirectory.compare(self, *, since: str | None = None, \
before: str | os.PathLike[str] | None = None, \
after: str | os.PathLike[str] | None = None) -> fedperf.Table
DataDirectory.drift(self) -> fedperf.Table
DataDirectory.ingest(self, *logs: str | os.PathLike[str], dry_run: bool = False, \
jobs: int = 1, job: str | None = None, job_name: str | None = None, time: str | None = None, \
cores: str | None = None, nodes: str | None = None, input_size: str | None = None, \
columns: collections.abc.Sequence[str] | None = None, \
mapping: str | os.PathLike[str] | None = None) -> fedperf.Table
DataDirectory.jobs(self) -> fedperf.Table
DataDirectory.predict(self, job: str | os.PathLike[str], *, \
cores: collections.abc.Sequence[int] | None = None, \
nodes: collections.abc.Sequence[int] | None = None, \
at: collections.abc.Mapping[str, object] | None = None, deadline: str | None = None, \
platform: str | None = None, database: str | os.PathLike[str] | None = None) -> fedperf.Table
DataDirectory.runs(self, *, workload: str | None = None, search: str | None = None, \
status: str | None = None, platform: str | None = None, since: str | None = None, \
until: str | None = None, last: int | None = None) -> fedperf.Table
Table.to_dicts(self) -> list[dict[str, typing.Any]]
Table.to_frame(self) -> 'pandas.DataFrame'
diagnose(*logs: str | os.PathLike[str], prices: str | os.PathLike[str] | None = None, \
top: int | None = None) -> fedperf.Table
open(path: str | os.PathLike[str] | None = None, *, create: bool = False) -> fedperf.DataDirectory
"""

SCRIPT = """\
import fedperf

data = fedperf.open("home", create=True)
first = data.ingest("log", dry_run=True)[0]
seconds: list[float] = [row["p50_seconds"] for row in data.predict("a", cores=[1, 2])]
columns: int = data.runs(last=3).to_frame().shape[1]
found: fedperf.Table = fedperf.diagnose("log")[:3]
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A Spark log of three runs of a query."""
    log = SparkLog(app_name="report <b>").begin()
    scan = node("Scan parquet sales", rows=1)
    for number in range(3):
        log.query(number, grouped(scan), {1: 1000, 2: 90, 3: 30}, at=1000 + 5000 * number)
    return log.write(tmp_path / "log")


@pytest.fixture
def data(tmp_path: Path, log: Path) -> fedperf.DataDirectory:
    """A data directory with these runs."""
    data = fedperf.open(tmp_path / "home", create=True)
    data.ingest(log)
    return data


def test_public_names_and_signatures_are_those_of_the_last_release() -> None:
    lines = []
    for name in sorted({*fedperf.__all__} - {"Error"}):
        thing = getattr(fedperf, name)
        if name != "Table":
            lines.append(f"{name}{inspect.signature(thing)}")
        lines += [
            f"{name}.{member}{inspect.signature(each)}"
            for member, each in sorted(vars(thing).items())
            if inspect.isclass(thing) and inspect.isfunction(each) and not member.startswith("_")
        ]
    assert "\n".join(lines) == PUBLIC.rstrip("\n")


@pytest.mark.parametrize("command", ["runs", "drift"])
def test_api_result_equals_json_of_the_command(data: fedperf.DataDirectory, command: str) -> None:
    printed = json.loads(run(cli.main, "--home", data.path, command, "--json").out)
    table = getattr(data, command)()
    assert len(table) > 0
    assert {"schema": 1, "rows": table.to_dicts(), **table.facts} == printed


def test_api_calls_print_nothing(
    data: fedperf.DataDirectory, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = data.runs()[0]["id"]
    predicted = data.predict(run_id, cores=[8, 16], at={"rows": ["1x", "2x"]}, deadline="20m")
    advised = data.advise(log)
    found = fedperf.diagnose(log)
    assert capsys.readouterr().out == ""
    assert [row["cores"] for row in predicted] == [8, 16, 8, 16]
    assert predicted.facts["deadline_seconds"] == 1200
    assert len(advised) == 1
    assert found.facts["jobs"] == 3


def test_api_call_with_bad_input_raises_one_line_and_changes_no_file(
    data: fedperf.DataDirectory, tmp_path: Path
) -> None:
    before = contents(data.path)
    for fail in (
        lambda: data.predict("nothing"),
        lambda: data.predict(data.runs()[0]["id"], cores=[-1]),
        lambda: data.ingest(tmp_path / "none"),
        data.ingest,
        lambda: data.compare(since="yesterday"),
        lambda: fedperf.open(tmp_path / "none"),
        lambda: fedperf.diagnose(tmp_path / "none"),
    ):
        with pytest.raises(fedperf.Error) as raised:
            fail()
        assert str(raised.value)
        assert "\n" not in str(raised.value)
    assert contents(data.path) == before


def test_job_of_a_table_is_predicted_by_its_name(tmp_path: Path) -> None:
    rows = "".join(f"nightly,{2 * n},{600 / n}\n" for n in (1, 2, 4, 8))
    (tmp_path / "runs.csv").write_text("name,workers,took\n" + rows)
    data = fedperf.open(tmp_path / "home", create=True)
    data.ingest(tmp_path / "runs.csv", job="name", time="took", nodes="workers")
    assert [row["job"] for row in data.jobs()] == ["nightly"]
    predicted = data.predict("nightly", at={"workers": [2, 4]})
    assert [row["p50_seconds"] for row in predicted] == pytest.approx([600, 300], rel=0.2)


def test_example_of_the_python_page_runs(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PYTHON.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(example.replace("/var/log/spark-events", str(log)), names)
    assert isinstance(names["times"], fedperf.Table)
    assert [row["cores"] for row in names["times"]] == [16, 32, 64]


def test_open_with_create_keeps_an_existing_configuration(data: fedperf.DataDirectory) -> None:
    before = contents(data.path)
    assert fedperf.open(data.path, create=True) == data
    assert contents(data.path) == before


def test_table_is_shown_as_escaped_html_without_empty_columns(data: fedperf.DataDirectory) -> None:
    shown = data.runs(last=1)._repr_html_()
    assert "report &lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "<th>failure</th>" not in shown


def test_table_slice_and_frame_hold_the_same_rows(data: fedperf.DataDirectory) -> None:
    table = data.runs()
    assert table[:2].to_dicts() == table.to_dicts()[:2]
    assert [*table.to_frame()["id"]] == [row["id"] for row in table]


def test_import_of_fedperf_loads_no_command_or_heavy_library() -> None:
    program = "import fedperf, sys; print([m for m in sys.modules if m in ('typer', 'numpy')])"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]"


@pytest.mark.slow
def test_script_of_a_user_passes_mypy_strict(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    ended = subprocess.run(
        [*command, str(tmp_path / "script.py")], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
