"""Tests of `tests/frozen`: compared values, and values that it ignores."""

import copy
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.frozen.adapter import find
from tests.frozen.freeze import SECTIONS, Home, Normalization, Product, main

TREE: dict[str, Any] = {
    "predict": {"exit": 0, "json": {"p50_seconds": 1.5, "kind": "inside", "why": "two own runs"}},
    "release": [{"payload": "00ff"}, {"payload": "01"}],
    "empty": [],
    "flag": True,
}


def written(place: Path, tree: object) -> str:
    place.mkdir()
    (place / "section.json").write_text(json.dumps(tree), encoding="utf-8")
    return str(place)


def changed(*path: str | int, value: object) -> object:
    tree = copy.deepcopy(TREE)
    inner: Any = tree
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return tree


@pytest.mark.parametrize(
    "after",
    [
        changed("predict", "json", "p50_seconds", value=1.5000000001),
        changed("predict", "json", "kind", value="beyond"),
        changed("predict", "exit", value=7),
        changed("predict", "json", value=None),
        changed("release", 1, "payload", value="02"),
        changed("release", value=TREE["release"][:1]),
        changed("empty", value=[1]),
        changed("flag", value=1),
        changed("new", value=0),
    ],
)
def test_frozen_compare_with_changed_value_exits_with_1(tmp_path: Path, after: object) -> None:
    sides = written(tmp_path / "before", TREE), written(tmp_path / "after", after)
    assert main(["compare", *sides]) == 1
    assert main(["compare", *reversed(sides)]) == 1


def test_frozen_compare_with_changed_prose_exits_with_0(tmp_path: Path) -> None:
    after = changed("predict", "json", "why", value="two runs of its own")
    sides = written(tmp_path / "before", TREE), written(tmp_path / "after", after)
    assert main(["compare", *sides]) == 0


def test_frozen_compare_with_renamed_key_exits_with_0_if_declared(tmp_path: Path) -> None:
    after = {("answer" if key == "predict" else key): value for key, value in TREE.items()}
    sides = written(tmp_path / "before", TREE), written(tmp_path / "after", after)
    assert main(["compare", *sides]) == 1
    assert main(["compare", *sides, "--renamed", "predict=answer"]) == 0


def test_frozen_compare_accepts_numbers_within_the_tolerance(tmp_path: Path) -> None:
    after = changed("predict", "json", "p50_seconds", value=1.5 * (1 + 1e-10))
    sides = written(tmp_path / "before", TREE), written(tmp_path / "after", after)
    assert main(["compare", *sides, "--within", "1e-9"]) == 0
    assert main(["compare", *sides, "--within", "1e-11"]) == 1


def test_frozen_compare_of_empty_directories_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["compare", str(tmp_path), str(tmp_path)])


def test_frozen_normalization_removes_values_that_vary_between_runs() -> None:
    normalized = Normalization({"/tmp/x1": "SCRATCH"}, datetime(2026, 3, 1, tzinfo=UTC))
    found = normalized(
        {
            "place of /tmp/x1/home": "/tmp/x1/home",
            "fingerprint": "ab-cd",
            "next": "2026-03-06T00:00:00+00:00",
            "logged": "2021-03-06T00:00:00+00:00",
            "seconds": [1.0],
        }
    )
    assert found == {
        "place of SCRATCH/home": "SCRATCH/home",
        "next": "today+5d",
        "logged": "2021-03-06T00:00:00+00:00",
        "seconds": [1.0],
    }


def test_frozen_section_names_are_valid_file_names() -> None:
    assert all(name.isidentifier() for name in SECTIONS)


PROGRAM = """\
import sys
def main():
    if "gain" in sys.argv:
        sys.exit(2)
    print('{"words": "of people", "value": 3}')
    sys.exit(7)
"""


def test_frozen_command_call_falls_back_to_the_later_command_name(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / "own_cli.py").write_text(PROGRAM)
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nfedperf = "own_cli:main"\n')
    home = Home(Product(tmp_path, sys.executable, tmp_path, tmp_path), tmp_path)
    assert home.ask("gain") == {"exit": 2, "json": None}
    answer = {"exit": 7, "json": {"words": "of people", "value": 3}}
    assert home.ask("gain", otherwise=["evaluate"]) == answer


def test_frozen_adapter_finds_its_functions_in_this_checkout() -> None:
    code = Path(__file__).parents[2]
    for name in ("parse_policy", "plan_schedule", "load_calendar"):
        assert callable(find(code, name))
    with pytest.raises(LookupError):
        find(code, "no_function_has_this_name")
