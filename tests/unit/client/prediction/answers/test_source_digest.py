"""Code is told apart by every source, wherever it lies, and that costs next to nothing."""

from pathlib import Path

import pytest

from fedperf_client.prediction.answers.source_digest import digest_of, source_digest


@pytest.fixture
def code(tmp_path: Path) -> Path:
    for name in ("a.py", "rooms/b.py", "rooms/deep/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"name = {name!r}")
    return tmp_path


@pytest.mark.parametrize("name", ["a.py", "rooms/b.py", "rooms/deep/c.py", "rooms/new.py"])
def test_a_changed_or_new_source_in_any_room_is_other_code(name: str, code: Path) -> None:
    before = digest_of([code])
    (code / name).write_text("name = 'other'")
    assert digest_of([code]) != before


def test_a_source_in_another_room_and_one_cut_elsewhere_are_other_code(code: Path) -> None:
    before = digest_of([code])
    (code / "a.py").rename(code / "rooms" / "a.py")
    assert digest_of([code]) != before
    assert digest_of([code, code / "rooms"]) != digest_of([code / "rooms", code])


def test_what_is_no_source_does_not_count(code: Path) -> None:
    before = digest_of([code])
    (code / "__pycache__").mkdir()
    (code / "__pycache__" / "a.pyc").write_bytes(b"x")
    (code / "notes.txt").write_text("x")
    assert digest_of([code]) == before


def test_it_is_computed_once() -> None:
    assert source_digest() is source_digest()
