"""`fedperf drift`, and notes about local drift in `doctor` and `predict`."""

import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fedperf_client.commands import predict
from fedperf_client.commands.checks import Environment, Finding, Severity, examine
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from tests.pages import ENGINEER
from tests.unit.client.data_directories import empty_home, fedperf
from tests.unit.client.executions import START
from tests.unit.client.prediction.drifting_jobs import BEFORE, executions
from tests.unit.shared.console_programs import contents, nothing_lost

SINCE = START + timedelta(hours=BEFORE)
SOON = SINCE + timedelta(days=20)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Yield a data directory whose DuckDB jobs take 1.5 times as long from one day on."""
    with pytest.MonkeyPatch.context() as patch:
        home = empty_home(tmp_path_factory.mktemp("drifting"), patch)
        with ExecutionStore.open(home.store) as store:
            store.add(executions())
        yield home


@pytest.fixture
def home(template: Home, tmp_path: Path) -> Home:
    shutil.copytree(template.directory, tmp_path / "home")
    return Home(tmp_path / "home")


def plan_on(home: Home, platform: str) -> str:
    """Return the id of an execution on the platform, long before the drift."""
    with ExecutionStore.open(home.store) as store:
        return next(
            each.execution_id
            for each in store.executions()
            if each.plan.platforms[0].name.lower() == platform
        )


def of_doctor(home: Home, now: datetime) -> list[Finding]:
    found = examine(home, Environment(lambda: now))
    return [each for each in found if each.check == "drift"]


@pytest.mark.slow
def test_drift_json_contains_every_stream_with_its_drifts(home: Home) -> None:
    rows = json.loads(fedperf(home, "drift", "--json").out)["rows"]
    assert [(row["platform"], row["class"]) for row in rows] == [
        (each, "relational") for each in ("duckdb", "polars", "pandas")
    ]
    assert sum(row["executions"] for row in rows) == len(executions())
    assert [len(row["drifts"]) for row in rows] == [1, 0, 0]
    assert [row["verdict"] for row in rows] == ["drift", "no drift", "no drift"]
    [drift] = rows[0]["drifts"]
    assert drift["sentence"] == "1.5x slower since 2026-03-13"
    assert drift["kinds"] == ["concept"]
    assert 1.35 < drift["factor"] < 1.65
    since = datetime.fromisoformat(drift["since"])
    assert abs(since - SINCE) < timedelta(days=1)
    assert datetime.fromisoformat(drift["noticed_at"]) > since


def test_drift_text_output_matches_the_engineer_page(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = fedperf(home, "drift").out
    assert "1.5x slower since 2026-03-13" in shown
    assert shown in ENGINEER.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "start"), [(".svg", "<svg"), (".html", "<!doctype html>")])
def test_drift_plot_draws_timeline_as_svg_or_html(
    suffix: str, start: str, home: Home, tmp_path: Path
) -> None:
    chart = tmp_path / f"chart{suffix}"
    ended = fedperf(home, "drift", "--plot", chart)
    assert (ended.code, f"drawn into {chart}\n" in ended.out) == (0, True)
    assert fedperf(home, "drift", "--plot", chart, "--json").json()
    text = chart.read_text()
    assert text.startswith(start)
    for words in ("1.5x slower since 2026-03-13", "relational work on polars"):
        assert words in text
    assert "<script" not in text


def test_drift_with_few_or_no_executions_reports_too_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = empty_home(tmp_path, monkeypatch)
    chart = tmp_path / "chart.png"
    assert "fedperf ingest FILE" in fedperf(home, "drift", "--plot", chart).out
    assert fedperf(home, "drift", "--json").rows() == []
    assert chart.read_bytes().startswith(b"\x89PNG")
    with ExecutionStore.open(home.store) as store:
        store.add(executions()[:12])
    verdicts = {row["verdict"] for row in fedperf(home, "drift", "--json").rows()}
    assert verdicts == {"too few to tell"}
    assert "too few to tell" in fedperf(home, "drift", "--plot", chart).out


def test_drift_plot_with_unsupported_suffix_is_refused_and_preserves_files(home: Home) -> None:
    before = contents(home.directory)
    ended = fedperf(home, "drift", "--plot", "chart.pdf")
    assert (ended.code, ended.out) == (3, "")
    assert ".svg" in ended.complaint()
    assert nothing_lost(before, home.directory)


@pytest.mark.slow
def test_predict_notes_recent_drift_of_its_stream_only(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note also appears with a cached predictor, and not for other platforms."""
    monkeypatch.setattr(predict, "now", lambda: SOON)
    here, elsewhere = plan_on(home, "duckdb"), plan_on(home, "polars")
    note = (
        "note: relational work on duckdb is 1.5x slower since 2026-03-13, which predictions include"
    )
    anew, kept = (fedperf(home, "predict", "--execution", here).out for _ in range(2))
    assert note in anew
    assert kept == anew
    assert "note" not in fedperf(home, "predict", "--execution", elsewhere).out
    for asked, platform in ((here, "duckdb"), (elsewhere, None)):
        found = fedperf(home, "predict", "--execution", asked, "--json").json()
        assert isinstance(found, dict)
        assert (found["drift"] or {}).get("platform") == platform
    monkeypatch.setattr(predict, "now", lambda: SOON + timedelta(days=90))
    assert "note" not in fedperf(home, "predict", "--execution", here).out


@pytest.mark.slow
def test_doctor_warns_of_recent_drift_and_stops_after_90_days(home: Home) -> None:
    before = {path.name for path in contents(home.directory)}
    [warning] = of_doctor(home, SOON)
    assert warning.verdict is Severity.WARNING
    assert warning.what == "relational work on duckdb: 1.5x slower since 2026-03-13"
    assert "fedperf drift" in warning.advice
    [later] = of_doctor(home, SOON + timedelta(days=90))
    assert (later.verdict, later.what) == (
        Severity.OK,
        "no recent change in 3 kinds of work",
    )
    assert {path.name for path in contents(home.directory)} == before


def test_doctor_without_executions_reports_no_drift(home: Home) -> None:
    with ExecutionStore.open(home.store) as store:
        store.delete(store.ids())
    [said] = of_doctor(home, SOON)
    assert (said.verdict, said.what) == (Severity.OK, "no successful runs are stored")
