"""Tests of verification: cells match their code and data, and a summary matches its cells."""

from pathlib import Path

import orjson
import pytest

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.harness.cells import KeptCell, UnfitCellError, write_json
from fedperf_simulations.harness.experiment import (
    Settings,
    UndeclaredFileError,
    conduct,
)
from fedperf_simulations.harness.verification import differences
from tests.unit.simulations.harness.synthetic_experiment import MadeUpPackage, made_up_package


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpPackage:
    place = tmp_path / "place"
    place.mkdir()
    return made_up_package(place, monkeypatch)


@pytest.fixture
def out(made_up: MadeUpPackage, tmp_path: Path) -> Path:
    """Return the directory of the experiment's results."""
    again(made_up, tmp_path / "out")
    return tmp_path / "out"


def again(made_up: MadeUpPackage, out: Path) -> None:
    conduct(made_up.experiment, Settings(seed=3, out=out, data=made_up.data))


def found(made_up: MadeUpPackage, out: Path) -> list[str]:
    return list(differences(made_up.experiment, out, data=made_up.data))


def cell_of(out: Path) -> Path:
    return out / "cells" / "errors-seed3.json"


def edit(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def test_verification_accepts_a_summary_computed_from_its_cells(
    made_up: MadeUpPackage, out: Path
) -> None:
    assert found(made_up, out) == []
    assert made_up.computed == 1
    summary = orjson.loads((out / "summary.json").read_bytes())
    assert summary["cases"] == [{"case": n, "error": 10.0 * n + 5} for n in range(3)]
    stamp = summary["provenance"]
    assert stamp["cells"] == {"errors-seed3": KeptCell.read(cell_of(out)).digest}
    assert stamp["dirty"] in {True, False}
    assert "place/runs.csv" in stamp["dependencies"]["files"]


def test_verification_detects_an_edited_number_in_a_stored_cell(
    made_up: MadeUpPackage, out: Path
) -> None:
    edit(cell_of(out), b"25.0", b"12.3")
    assert found(made_up, out) == ["cell errors-seed3: edited: its content is not what was written"]


def test_verification_detects_an_edited_cell_with_matching_digest(
    made_up: MadeUpPackage, out: Path
) -> None:
    cell = KeptCell.read(cell_of(out))
    KeptCell.of([{**row, "error": 1.0} for row in cell.rows], cell.dependencies).write(cell_of(out))
    assert found(made_up, out) == ["cell errors-seed3: not the one that the summary rests on"]


def test_experiment_run_recomputes_an_edited_cell(
    made_up: MadeUpPackage, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(cell_of(out), b"25.0", b"12.3")
    again(made_up, out)
    assert made_up.computed == 2
    assert found(made_up, out) == []
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("cell errors-seed3: edited")
    assert line.endswith("computed again")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"mean": 15.0', b'"mean": 9.0', "rows 0, mean: the summary has 9.0, the cells give 15.0"),
        (b'"holds": true', b'"holds": false', "targets 0, holds: the summary has False"),
        (b'"error": 15.0', b'"error": 14.0', "cases 1, error: the summary has 14.0"),
    ],
)
def test_verification_detects_an_edited_summary(
    made_up: MadeUpPackage, out: Path, old: bytes, new: bytes, said: str
) -> None:
    edit(out / "summary.json", old, new)
    [line] = found(made_up, out)
    assert line.startswith(said)


def test_verification_reports_a_missing_cell_without_computing_it(
    made_up: MadeUpPackage, out: Path
) -> None:
    cell_of(out).unlink()
    assert found(made_up, out) == ["cell errors-seed3: missing"]
    assert made_up.computed == 1


def test_verification_detects_changed_code_and_a_run_recomputes_its_cells(
    made_up: MadeUpPackage, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up.change("law", "10.0 * case", "11.0 * case")
    assert found(made_up, out) == ["the code is another one"]
    again(made_up, out)
    assert made_up.computed == 2
    assert "cell errors-seed3: of other code" in capsys.readouterr().err


def test_verification_detects_changed_data_and_a_run_recomputes_its_cells(
    made_up: MadeUpPackage, out: Path
) -> None:
    (made_up.data / "runs.csv").write_text("1,3\n")
    assert found(made_up, out) == ["the data file place/runs.csv is another one"]
    again(made_up, out)
    assert made_up.computed == 2


def test_verification_ignores_changed_docstrings_and_comments(
    made_up: MadeUpPackage, out: Path
) -> None:
    made_up.change("law", "How errors fall.", "How errors rise, some say.\n")
    made_up.change("law", "    return", "    # here it is\n    return")
    assert found(made_up, out) == []
    again(made_up, out)
    assert made_up.computed == 1


def test_experiment_with_a_cell_that_changes_its_key_writes_no_summary(
    made_up: MadeUpPackage, tmp_path: Path
) -> None:
    made_up.change("claim", '"errors"', 'f"errors-{len(COMPUTED)}"')
    with pytest.raises(UnfitCellError, match="missing"):
        conduct(made_up.experiment, Settings(seed=3, out=tmp_path / "out", data=made_up.data))
    assert not (tmp_path / "out" / "summary.json").exists()


def test_experiment_that_declares_another_file_later_is_refused(
    made_up: MadeUpPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = made_up.experiment
    answers = iter(
        [[made_up.data / "runs.csv"], [tmp_path / "other.csv"], [tmp_path / "other.csv"]]
    )
    (tmp_path / "other.csv").write_text("secret")
    monkeypatch.setattr(type(experiment), "public_files", lambda self, data: next(answers))
    with pytest.raises(UndeclaredFileError, match=r"other\.csv"):
        conduct(experiment, Settings(seed=3, out=tmp_path / "out", data=made_up.data))


@pytest.mark.parametrize("content", [None, {"name": "demo"}, {"provenance": {"commit": "1"}}])
def test_verification_of_invalid_summary_is_refused(
    made_up: MadeUpPackage, tmp_path: Path, content: object
) -> None:
    if content is not None:
        write_json(tmp_path / "summary.json", content)
    with pytest.raises(InvalidInputError, match=r"summary\.json"):
        list(differences(made_up.experiment, tmp_path, data=made_up.data))
