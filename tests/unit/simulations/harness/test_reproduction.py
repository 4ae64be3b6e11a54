"""Tests of the page of all claims: a claim that fails or lacks its data stops no other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.harness import reproduction
from fedperf_simulations.harness.cells import write_json
from fedperf_simulations.harness.experiment import ExperimentOutcome, Settings, Target
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.harness.reproduction import Claim, page, reproduced, write_claims

CARRIED = PairedComparison.percent([42.0] * 17 + [50.0], [40.0] * 17 + [1000.0])
TARGETS = [Target("gain <b>", -30.0, CARRIED.mean, paired=CARRIED), Target("speed", 2.0, 3.0)]
SUMMARY = {
    "targets": [each.as_row() for each in TARGETS],
    "notes": ["a constant was chosen while looking at <i>them</i>"],
    "provenance": {"cells": {}, "commit": "abc", "dirty": True, "seed": 4, "quick": True},
}


@dataclass(frozen=True)
class Named:
    """Experiment that is never run."""

    name: str
    claim: str = "it is so"

    def run(self, settings: Settings) -> ExperimentOutcome:
        raise NotImplementedError


class OnMissingData(Named):
    def public_files(self, data: Path | None) -> Sequence[Path]:
        raise MissingDataError("no folder of public data sets: set FEDPERF_DATA")


@dataclass
class Program:
    """Program that exits with the code of its first two arguments.

    A run writes a summary and a last line.
    """

    codes: Mapping[tuple[str, str], int]

    def __post_init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    def __call__(self, arguments: Sequence[str], log: Path) -> int:
        self.asked.append(arguments)
        log.write_text("progress\nerror: it broke\n")
        if arguments[0] != "verify":
            write_json(log.parent / "summary.json", SUMMARY)
        return self.codes.get((arguments[0], Path(arguments[1]).name), 0)


def claims(tmp_path: Path, program: Program, *experiments: Named) -> list[Claim]:
    settings = Settings(seed=4, out=tmp_path, quick=True)
    pairs = [("run", each) for each in experiments]
    return list(reproduced(pairs, settings, announce=lambda line: None, process=program))


def test_reproduction_continues_after_failed_skipped_or_differing_claims(tmp_path: Path) -> None:
    program = Program({("run", "broken"): 1, ("verify", "drifted"): 10})
    broken, missing, drifted, fine = claims(
        tmp_path,
        program,
        Named("broken"),
        OnMissingData("missing"),
        Named("drifted"),
        Named("fine"),
    )
    assert [each.standing for each in (broken, missing, drifted, fine)] == [
        "failed", "skipped", "differs", "verified",
    ]  # fmt: skip
    assert broken.reason == "exit code 1: error: it broke"
    assert "FEDPERF_DATA" in missing.reason
    assert drifted.reason == "error: it broke"
    assert [each.is_wrong for each in (broken, missing, drifted, fine)] == [
        True,
        False,
        True,
        False,
    ]
    runs = [asked for asked in program.asked if asked[0] == "run"]
    assert runs[-1] == [
        "run", "fine", "--out", str(tmp_path / "fine"), "--seed", "4", "--jobs", "1", "--quick",
    ]  # fmt: skip


def test_reproduction_page_shows_targets_outlier_influence_and_provenance(tmp_path: Path) -> None:
    found = claims(tmp_path, Program({}), Named("fine"), OnMissingData("missing"))
    text = page(found)
    assert "1 of 2 targets hold" in text
    assert "gain &lt;b&gt;" in text
    assert "<i>" not in text
    assert "commit abc, with changes that are in no commit" in text
    assert "quick run" in text
    assert "set FEDPERF_DATA" in text
    assert "1 of 18" in text
    write_claims(tmp_path, found)
    [fine, missing] = orjson.loads((tmp_path / "claims.json").read_bytes())["claims"]
    assert (fine["commit"], fine["dirty"], fine["standing"]) == ("abc", True, "verified")
    gain = fine["targets"][0]
    assert (gain["holds"], gain["median holds"]) == (True, False)
    assert gain["one left out"] == pytest.approx(5.0)
    assert missing["targets"] == []
    assert (tmp_path / "claims.html").read_text() == text


def test_reproduction_process_with_unknown_experiment_returns_its_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert reproduction._process(["run", "nothing of that name"], log) == 3
    assert reproduction._last_line(log).startswith("error: no experiment")
