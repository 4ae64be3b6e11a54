"""What pages for engineers say of the code is there: files, names in them, links, imports."""

import ast
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.pages import ROOT

WALKS = ROOT / "ARCHITECTURE.md"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FILE_AND_NAMES = re.compile(r"\[`[^`]+`\]\(([^)]+\.py)\)((?:(?:,| and)? `[A-Za-z_][\w.]*`)*)")
REPOSITORY_PATH = re.compile(r"`((?:client|server|shared|simulations|tests|proto|docs)/[\w./-]*)`")
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
ANY_CODE = re.compile(r"```.*?```", re.DOTALL)

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def names_in(file: Path) -> frozenset[str]:
    """Functions, classes, constants of a module, and `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            members = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found |= {f"{node.name}.{each.name}" for each in members}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return frozenset(found)


def named(page: Path) -> list[tuple[Path, str]]:
    """Every name that stands behind a link to a module, with the module."""
    return [
        ((page.parent / link).resolve(), name)
        for link, names in FILE_AND_NAMES.findall(text_of(page))
        for name in re.findall(r"`([^`]+)`", names)
    ]


@by_page
def test_a_link_of_a_page_leads_to_a_file_that_is_there(page: Path) -> None:
    prose = ANY_CODE.sub("", text_of(page))
    local = [link for link in LINK.findall(prose) if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@by_page
def test_a_path_of_the_repository_on_a_page_is_there(page: Path) -> None:
    missing = []
    for path in REPOSITORY_PATH.findall(text_of(page)):
        package, _, inside = path.partition("/")
        in_package = ROOT / package / f"fedperf_{package}" / inside
        if not ((ROOT / path).exists() or in_package.exists()):
            missing.append(path)
    assert missing == []


@by_page
def test_a_name_beside_a_module_on_a_page_is_defined_in_it(page: Path) -> None:
    assert [(file.name, name) for file, name in named(page) if name not in names_in(file)] == []


def test_the_walks_name_their_steps() -> None:
    assert len(named(WALKS)) > 100


def test_the_page_of_the_architecture_has_every_room_of_the_first_floor() -> None:
    rows: dict[str, set[str]] = {}
    package = ""
    for bold, room in re.findall(r"^\| (?:\*\*(\w+)\*\* )?`(\w+)/` \|", text_of(WALKS), re.M):
        package = bold or package
        rows.setdefault(package, set()).add(room)
    there = {
        package.name.removeprefix("fedperf_"): {
            path.parent.name for path in package.glob("*/__init__.py")
        }
        for package in ROOT.glob("*/fedperf_*")
        if (package / "__init__.py").exists()
    }
    assert rows == there


@by_page
def test_code_on_a_page_imports_what_is_there(page: Path) -> None:
    for block in CODE.findall(text_of(page)):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fedperf_"):
                module = import_module(str(node.module))
                missing = [each.name for each in node.names if not hasattr(module, each.name)]
                assert missing == [], node.module


def test_the_changelog_has_dated_releases_up_to_the_version_of_the_project() -> None:
    text = text_of(ROOT / "CHANGELOG.md")
    first, *releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    found = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)", each) for each in releases]
    order = [(*map(int, each.groups()[:3]), each[4]) for each in found if each]
    assert first == "Unreleased"
    assert order == sorted(order, reverse=True)
    assert len(order) == len(releases)
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    assert releases[0].startswith(f"{project['version']} - ")
    parts = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert parts <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
