"""Tests of the experiment on intervals: counted access to held-out data, and missing parts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedperf_shared.errors import ConfigurationError
from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.intervals import experiment
from fedperf_simulations.experiments.intervals.experiment import EXPERIMENT, LOOKS, PARTS
from fedperf_simulations.experiments.intervals.figures import (
    Cases,
    EvaluationPart,
    PredictionLabel,
    least_target,
    tables,
)
from fedperf_simulations.harness.experiment import Row, Settings, Target, conduct
from tests.unit.simulations.public_files import with_c3o


def cases(settings: Settings) -> Cases:
    return settings.cases("made-up", lambda: [made_up(number) for number in range(6)])


def made_up(number: int) -> Row:
    told = PredictionLabel("made up", "fedperf", str(number % 3)).labelled_row(1.0, 1.1)
    return {**told, "lower": 0.5, "upper": 2.0 if number else 0.9}


def targets(of: Cases, rows: Sequence[Row]) -> list[Target]:
    assert len(of) == 6
    return [least_target("covered", rows[0], "covered", 0.8)]


def missing(_: Path | None) -> Sequence[Path]:
    raise MissingDataError("there are no such logs")


def never(_: Settings) -> Cases:
    raise AssertionError("a set was read at which no look is counted")


MADE_UP = EvaluationPart("made up", lambda _: [], cases, tables, targets, ("made up: a note",))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(MADE_UP, name="gone", files=missing)
    unread = replace(MADE_UP, name="unread", cases=never)
    monkeypatch.setattr(experiment, "PARTS", (MADE_UP, gone, unread))
    monkeypatch.setattr(experiment, "FROZEN_AT", "1234567")
    monkeypatch.setattr(experiment, "LOOKS", {"made up": 2, "gone": 1, "unread": 0})


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_interval_rows_show_held_out_access_count_and_notes_list_missing_parts(
    tmp_path: Path,
) -> None:
    summary: dict[str, Any] = dict(conduct(EXPERIMENT, Settings(seed=0, out=tmp_path)))
    [row] = summary["rows"]
    assert (row["part"], row["looks"], row["covered"]) == ("made up", 2, pytest.approx(5 / 6))
    assert len(summary["cases"]) == 6
    assert summary["notes"] == [
        "coefficients and features were fixed at commit: 1234567",
        experiment.BEFORE,
        "made up: looks since then, this run included: 2",
        "gone: looks since then, this run included: 1",
        "unread: looks since then, this run included: 0",
        "made up: a note",
        "gone: left out, as there are no such logs",
        "unread: left out, as no look at it is counted",
    ]
    assert summary["plots"] == ["coverage.svg"]
    chart = (tmp_path / "coverage.svg").read_text()
    assert "made up" in chart
    assert "90 % intervals" in chart


def test_interval_parts_on_held_out_sets_all_have_an_access_count() -> None:
    names = [part.name for part in PARTS]
    assert len(names) == len(set(names)) == 10
    assert set(names) - set(LOOKS) == {"at home", "repeats of our own", "unrelated work"}


@pytest.mark.usefixtures("few")
def test_interval_experiment_before_freeze_refuses_to_read_held_out_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(experiment, "FROZEN_AT", experiment.NOT_FROZEN)
    with pytest.raises(ConfigurationError, match="made up is to be read before"):
        EXPERIMENT.run(Settings(seed=0, out=tmp_path))


def test_interval_experiment_public_files_are_shipped_files_plus_public_data(
    tmp_path: Path,
) -> None:
    shipped = set(EXPERIMENT.public_files(None))
    assert any(path.parent.name == "year_simulation" for path in shipped)
    public = set(EXPERIMENT.public_files(with_c3o(tmp_path))) - shipped
    assert {path.parent.name for path in public} == {"c3o-experiments"}
