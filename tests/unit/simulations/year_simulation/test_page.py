"""The page of a rehearsal: all that the command says, for people who were not there."""

from pathlib import Path

import pytest

from fedperf_memory.year_simulation.presentation import page, write_page
from fedperf_shared.errors import StorageError
from tests.unit.simulations.year_simulation.test_presentation import VIEW


def test_it_says_what_leaves_and_what_it_would_bring() -> None:
    text = page(VIEW)
    for words in (
        "nothing left this machine",
        "release: 6 December 2026",
        "<td>report-0-3</td>",
        "<td>0.9000</td>",
        "<td>no difference</td>",
        "Not planned: model update: too small.",
    ):
        assert words in text
    assert "http" not in text


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_page(tmp_path / "year.html", VIEW)
    assert (tmp_path / "year.html").read_text() == page(VIEW)
    with pytest.raises(StorageError, match="nowhere"):
        write_page(tmp_path / "nowhere" / "year.html", VIEW)
