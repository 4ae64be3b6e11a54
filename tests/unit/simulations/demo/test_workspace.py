from pathlib import Path

import pytest

from fedperf_simulations.demo.workspace import ForeignDirectoryError, free_ports, fresh_directory


def test_fresh_directory_empties_the_output_of_an_earlier_demo(tmp_path: Path) -> None:
    out = fresh_directory(tmp_path / "demo")
    (out / "alder").mkdir()
    assert [path.name for path in fresh_directory(out).iterdir()] == [".fedperf-demo"]


def test_fresh_directory_refuses_a_foreign_directory_and_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(ForeignDirectoryError, match="was not written by a demo"):
        fresh_directory(tmp_path)
    assert (tmp_path / "precious").read_text() == "mine"


def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(3))) == 3
