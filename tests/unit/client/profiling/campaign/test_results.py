"""Executions and report of a campaign, also with hostile names."""

import csv
import io
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import orjson
import pytest

from fedperf_campaigns.campaign import report
from fedperf_campaigns.campaign.campaign import is_execution, to_execution, to_plan
from fedperf_campaigns.campaign.grid import RESERVED_NAMES
from fedperf_campaigns.campaign.journal import (
    ComponentSpan,
    JournalTrial,
    ResourceUse,
    Session,
    TrialKey,
    TrialOutcome,
    TrialStatus,
)
from fedperf_campaigns.campaign.report import write_results
from fedperf_campaigns.campaign.summary import CampaignEnd, Summary, summarize
from fedperf_client.home.store import ExecutionStore
from fedperf_shared.errors import StorageError
from fedperf_shared.execution import ExecutionMetadata, ExecutionWarning
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from tests.unit.client.profiling.campaign.campaigns import GRID, MACHINE, make_campaign

NOW = datetime(2027, 3, 1, tzinfo=UTC)
HOSTILE = "</td><script>alert(1)</script>$\\\\frac{{"
COMPONENTS = (
    '[[component]]\nname = "read"\ncommand = ["x"]\nkind = "file_source"\n'
    '[[component]]\nname = "train"\ncommand = ["x"]\nkind = "ml_train"\nafter = ["read", "read"]\n'
    'platform = "sklearn"\n'
)


def trial(
    number: int, row: int = 0, component: str = "whole", seconds: float = 1.0
) -> JournalTrial:
    outcome = TrialOutcome(
        TrialStatus.OK,
        wall_seconds=seconds,
        resources=ResourceUse(0.5, 1 << 20, 3, 4, 5),
        spans=(
            ComponentSpan("read", 0.0, 0.4),
            ComponentSpan("train", 0.4, seconds, ResourceUse(), 0.1, 0.2),
        ),
        foreign_cores=0.0,
    )
    start = NOW + timedelta(seconds=10 * number)
    key = TrialKey(row, component, number)
    end = start + timedelta(seconds=seconds)
    return JournalTrial(number + 1, 1, key, 0, True, "t", start, "b", end, outcome)


def results(
    tmp_path: Path, summary: Summary
) -> tuple[str, list[dict[str, str]], dict[str, object]]:
    paths = write_results(tmp_path / "out", summary)
    rows = list(csv.DictReader(io.StringIO(paths["trials.csv"].read_text())))
    content = orjson.loads(paths["summary.json"].read_bytes())
    return paths["report.html"].read_text(), rows, content


def test_trial_of_whole_becomes_execution_and_is_stored_once(tmp_path: Path) -> None:
    campaign = make_campaign(
        tmp_path, components=COMPONENTS, grid=GRID + 'platform = ["duckdb", "ours"]\n'
    )
    first = to_execution(campaign, trial(0, row=2), MACHINE)
    assert first.workload == "nightly"
    assert (first.cluster.cores, first.cluster.memory_bytes) == (2, MACHINE.memory_bytes)
    assert [each.kind for each in first.plan.workflow.operators] == [
        OperatorKind.FILE_SOURCE,
        OperatorKind.ML_TRAIN,
    ]
    assert first.plan.workflow.operators[1].inputs == (0,)
    assert first.plan.workflow.operators[0].output_rows == 100
    assert first.plan.workflow.operators[0].partitions == 2
    assert first.plan.platforms == (Platform.DUCKDB, Platform.SKLEARN)
    assert first.measurement is not None
    assert first.measurement.runtime_seconds == 1.0
    assert to_plan(campaign, {"rows": 1, "workers": 1, "platform": "ours"}).platforms == (
        Platform.OTHER,
        Platform.SKLEARN,
    )
    origin = ExecutionMetadata("campaign", MACHINE.node_type, MACHINE.architecture)
    assert first.origin == origin
    noisy = trial(0, row=2)
    flagged = replace(
        noisy,
        outcome=replace(noisy.outcome or TrialOutcome(TrialStatus.OK), status=TrialStatus.NOISY),
    )
    remarks = to_execution(campaign, flagged, MACHINE).origin.remarks
    assert remarks == (ExecutionWarning.NOISY,)
    with ExecutionStore.open(tmp_path / "store.sqlite") as store:
        assert store.add([first]) == 1
        assert store.add([to_execution(campaign, trial(0, row=2), MACHINE)]) == 0
        assert store.add([to_execution(campaign, trial(1, row=2), MACHINE)]) == 1


@pytest.mark.parametrize("word", ["reserved_1", "unassigned", "", "DuckDB "])
def test_unknown_platform_word_becomes_other(tmp_path: Path, word: str) -> None:
    campaign = make_campaign(tmp_path)
    found = to_plan(campaign, {"rows": 1e15, "workers": 1e9, "platform": word})
    assert found.platforms == (Platform.OTHER,)
    assert found.workflow.operators[0].output_rows == 1e12


def test_only_successful_trials_of_whole_are_executions() -> None:
    assert is_execution(trial(0))
    assert not is_execution(trial(0, component="read"))
    assert not is_execution(replace(trial(0), outcome=TrialOutcome(TrialStatus.WARMUP)))
    assert not is_execution(replace(trial(0), outcome=TrialOutcome(TrialStatus.FAILED)))
    assert not is_execution(replace(trial(0), outcome=None))


def hostile_summary(tmp_path: Path) -> Summary:
    grid = GRID + f'platform = ["duckdb", "{HOSTILE}"]\n'
    campaign = make_campaign(tmp_path, components=COMPONENTS, grid=grid, run="repetitions = 3")
    remote = replace(
        trial(3, row=1).outcome or TrialOutcome(TrialStatus.OK), resources=ResourceUse()
    )
    failed = TrialOutcome(TrialStatus.FAILED, HOSTILE, wall_seconds=0.1)
    trials = [trial(n, row=0, seconds=1 + n / 10) for n in range(3)]
    trials += [replace(trial(3, row=1), key=TrialKey(1, "whole", 0), outcome=remote)]
    trials += [replace(trial(4, row=5), key=TrialKey(5, "whole", 0), outcome=failed)]
    machine = replace(MACHINE, node_type=HOSTILE)
    sessions = [Session(1, NOW, "b", machine)]
    return summarize(campaign, trials, sessions, CampaignEnd(HOSTILE, False, (0,)))


def test_campaign_report_escapes_hostile_names(tmp_path: Path) -> None:
    page, rows, content = results(tmp_path, hostile_summary(tmp_path))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(src|href)\s*=\s*[\"']?(?!#)\w", page.replace("xlink:href", "x"))
    assert 'xlink:href="#' in page or "xlink:href" not in page
    ET.fromstring(
        page.removeprefix("<!doctype html>\n")
        .replace('<meta charset="utf-8">', "")
        .replace('<meta name="viewport" content="width=device-width, initial-scale=1">', "")
    )
    assert HOSTILE.replace("\\\\", "\\") in {row["platform"] for row in rows}
    assert content["stopped"] == HOSTILE


def test_campaign_report_shows_unmeasured_resources_as_dash_not_zero(tmp_path: Path) -> None:
    page, rows, _ = results(tmp_path, hostile_summary(tmp_path))
    assert rows[3]["cpu_seconds"] == ""
    assert rows[0]["cpu_seconds"] == "0.5"
    resources = page.partition("What the trials used")[2].partition("Flagged")[0]
    assert "<td>1 s</td><td>-</td><td>-</td><td>-</td><td>-</td>" in resources


def test_campaign_summary_contains_status_counts_medians_and_variation(tmp_path: Path) -> None:
    _, rows, content = results(tmp_path, hostile_summary(tmp_path))
    status = content["status"]
    assert isinstance(status, dict)
    assert (status["ok"], status["failed"]) == (4, 1)
    assert status["skipped"] == len([row for row in rows if row["status"] == "skipped"])
    found = content["rows"]
    assert isinstance(found, list)
    assert found[0]["median_seconds"] == pytest.approx(1.1)
    assert found[0]["noise"] == pytest.approx(0.2 / 3 / 1.1)
    assert found[7]["median_seconds"] is None
    assert set(rows[0]) - {"rows", "workers", "platform"} <= RESERVED_NAMES
    assert set(found[0]) - {"rows", "workers", "platform"} <= RESERVED_NAMES


@pytest.mark.slow
def test_campaign_report_states_what_charts_omit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = hostile_summary(tmp_path)
    page, _, _ = results(tmp_path, summary)
    assert "The first" not in page
    assert "At most" not in page
    monkeypatch.setattr(report, "MOST_BARS", 2)
    monkeypatch.setattr(report, "MOST_LINES", 1)
    page, _, _ = results(tmp_path, summary)
    assert "The first 2 trials." in page
    assert "At most 1 values of rows are drawn" in page


@pytest.mark.parametrize(("noisy", "said"), [(0, (0, 0)), (1, (1, 0)), (4, (1, 1))])
def test_campaign_report_explains_trials_with_interference(
    tmp_path: Path, noisy: int, said: tuple[int, int]
) -> None:
    found = hostile_summary(tmp_path)
    trials = list(found.trials)
    for place in range(noisy):
        outcome = trials[place].outcome
        assert outcome is not None
        trials[place] = replace(
            trials[place], outcome=replace(outcome, status=TrialStatus.NOISY, reason="others")
        )
    page, _, _ = results(tmp_path, replace(found, trials=tuple(trials)))
    assert (page.count("may be too long"), page.count("on a quiet machine")) == said


def test_campaign_report_without_trials_is_written(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    summary = summarize(campaign, [], [], CampaignEnd("it was stopped", True, ()))
    page, rows, content = results(tmp_path, summary)
    assert "Nothing was measured" in page
    assert rows == []
    assert content["complete"] is False


def test_results_in_unwritable_directory_raise_storage_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StorageError, match="cannot write"):
        results(tmp_path, hostile_summary(tmp_path))
