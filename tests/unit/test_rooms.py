"""Every room has a place in its package's page, is small enough to look through, and says why."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_MODULES, MOST_LINES = 15, 400
PACKAGES = ("client", "server", "shared", "simulations")


def rooms(package: str) -> list[Path]:
    inside = ROOT / package / f"fedperf_{package}"
    return [path.parent for path in inside.rglob("__init__.py") if path.parent != inside]


def modules(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.glob("*.py")
        if path.name != "__init__.py" and "_pb2" not in path.name
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_of_a_package_names_every_room(package: str) -> None:
    named = set(re.findall(r"`(\w+)/`", (ROOT / package / "README.md").read_text(encoding="utf-8")))
    below = {"experiments", "checks"}
    wanted = {room.name for room in rooms(package) if not below & {room.parent.name}}
    assert wanted - named == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_room_has_at_most_fifteen_modules_of_at_most_four_hundred_lines(package: str) -> None:
    for room in [*rooms(package), ROOT / package / f"fedperf_{package}"]:
        assert len(modules(room)) <= MOST_MODULES, room
        for module in modules(room):
            lines = len(module.read_text(encoding="utf-8").splitlines())
            assert lines <= MOST_LINES, module


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is(package: str) -> None:
    for room in [*rooms(package), ROOT / package / f"fedperf_{package}"]:
        for module in [*modules(room), room / "__init__.py"]:
            assert ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))), module


SAME_IDEA = frozenset[str]()
"""Names that two modules share on purpose, such as one idea on both sides of a wire."""


def test_no_class_name_stands_for_two_things() -> None:
    places: dict[str, list[str]] = {}
    for package in PACKAGES:
        for room in [*rooms(package), ROOT / package / f"fedperf_{package}"]:
            for module in modules(room):
                for node in ast.parse(module.read_text(encoding="utf-8")).body:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        places.setdefault(node.name, []).append(str(module.relative_to(ROOT)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice.keys() == SAME_IDEA, twice
