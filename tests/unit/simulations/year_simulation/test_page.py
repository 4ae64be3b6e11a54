"""Tests of the page of a simulation: it contains the full output of the command."""

from pathlib import Path

import pytest

from fedperf_memory.year_simulation.presentation import page, write_page
from fedperf_shared.errors import StorageError
from tests.unit.simulations.year_simulation.test_presentation import VIEW


def test_simulation_page_shows_releases_gain_and_unplanned_slots_without_links() -> None:
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


def test_simulation_page_is_written_or_names_an_unwritable_path(tmp_path: Path) -> None:
    write_page(tmp_path / "year.html", VIEW)
    assert (tmp_path / "year.html").read_text() == page(VIEW)
    with pytest.raises(StorageError, match="nowhere"):
        write_page(tmp_path / "nowhere" / "year.html", VIEW)
