"""Every room and module stands on its package's page; rooms are small, and modules say why."""

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


ROW = re.compile(r"^\| (?:`([\w/]+)/`|beside the rooms) \| (.*?) \| (.*?) \|$", re.MULTILINE)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_of_a_package_has_every_room_with_its_modules(package: str) -> None:
    inside = ROOT / package / f"fedperf_{package}"
    there = {
        room.relative_to(inside).as_posix(): sorted(each.stem for each in modules(room))
        for room in [inside, *rooms(package)]
    }
    rows = ROW.findall((ROOT / package / "README.md").read_text(encoding="utf-8"))
    assert {room or ".": re.findall(r"`(\w+)`", listed) for room, _, listed in rows} == there
    assert all(what for _, what, _ in rows)


def test_the_page_of_the_tests_names_every_folder() -> None:
    there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+)/`", page)) == there


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


def classes(package: str) -> list[tuple[str, Path]]:
    """Every class of a package, with its module."""
    return [
        (node.name, module)
        for room in [*rooms(package), ROOT / package / f"fedperf_{package}"]
        for module in [*modules(room), room / "__init__.py"]
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]


SAME_IDEA = frozenset[str]()
"""Names that two modules share on purpose, such as one idea on both sides of a wire."""


def test_no_class_name_stands_for_two_things() -> None:
    places: dict[str, list[str]] = {}
    for package in PACKAGES:
        for name, module in classes(package):
            if not name.startswith("_"):
                places.setdefault(name, []).append(str(module.relative_to(ROOT)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice.keys() == SAME_IDEA, twice


PARTICIPLE = re.compile(
    r"_?([A-Z][a-z]*(ed|en|ing)|Bound|Built|Dealt|Done|Found|Gone|Held|Hung|Kept|Known|Learnt|Left"
    r"|Lost|Made|Meant|Met|Paid|Ran|Said|Sent|Shown|Sold|Spent|Taught|Told|Understood|Unread)"
)
NOUN = re.compile(
    r"Boosting|Closing|Embed|Everything|Finding|Forgetting|Ranking|_Reading|Ruling|Scaling|Spacing"
    r"|Spending|Standing|Weighing"
)
"""Words that end as participles do, and name a thing or an operation."""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_is_named_by_a_bare_participle(package: str) -> None:
    assert [each for each in classes(package) if is_participle(each[0])] == []


def is_participle(name: str) -> bool:
    return bool(PARTICIPLE.fullmatch(name)) and not NOUN.fullmatch(name)


@pytest.mark.parametrize("name", ["Stopped", "Taken", "_Shown", "Kept", "Told", "Running"])
def test_participles_are_known_as_such(name: str) -> None:
    assert is_participle(name)
    assert not is_participle(f"{name}Plan")
