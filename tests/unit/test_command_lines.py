"""Tests of command lines in README and docs: each has a runner, and programs accept it."""

import re

import pytest
import typer

from tests.integration.pages.runners import (
    PLACEHOLDER,
    RUNNERS,
    STAND_INS,
    WALKED,
    ByCi,
    Elsewhere,
    entry_of,
    runner_of,
    to_be_run,
    walk,
)
from tests.integration.pages.usage import APPS, called, is_whole
from tests.pages import DOCS, README, ROOT, CommandLine, lines_of
from tests.unit.shared.console_programs import commands

PAGES = [README, *sorted(DOCS.rglob("*.md"))]
LINES = [line for page in PAGES for line in lines_of(page)]
OF_ALL = {"--help", "--home", "--version", "--install-completion"}
OURS = [line for line in LINES if line.words[0] in APPS]


def test_documentation_pages_contain_over_150_command_lines() -> None:
    assert len(LINES) > 150


def test_documented_command_line_has_a_runner_and_every_runner_is_used() -> None:
    assert {entry_of(line) for line in LINES} == {*RUNNERS}


def test_documented_command_line_for_a_walk_is_on_a_walked_page() -> None:
    walked = {*walk(*WALKED)}
    assert [str(line) for line in LINES if (text := to_be_run(line)) and text not in walked] == []


@pytest.mark.parametrize("line", OURS, ids=str)
def test_documented_command_line_uses_existing_commands_and_options(line: CommandLine) -> None:
    command, words = called(line)
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    assert {*re.findall(r"(?<!\S)\[?(--[\w-]+)", " ".join(words))} <= known
    if not (line.in_prose or isinstance(runner_of(line), Elsewhere)):
        assert is_whole(line)


def test_documented_option_exists_in_a_program() -> None:
    every = [each for app in APPS.values() for _, each in commands(typer.main.get_command(app))]
    known = {name for command in every for each in command.params for name in each.opts}
    named = {name for page in PAGES for name in re.findall(r"`(--[\w-]+)", page.read_text("utf-8"))}
    assert named <= known | OF_ALL


def test_documented_placeholders_all_have_a_replacement() -> None:
    texts = [text for line in OURS if (text := to_be_run(line))]
    assert [text for text in texts if PLACEHOLDER.search(text)] == []
    every = "\n".join(line.text for line in LINES)
    assert [made_up for made_up, _ in STAND_INS if made_up not in every] == []


def test_tests_named_as_runners_of_command_lines_exist() -> None:
    named = [
        name for each in RUNNERS.values() if isinstance(each, Elsewhere) for name in each.tests
    ]
    for file, _, begins in (each.partition("::") for each in named):
        assert f"def {begins}" in (ROOT / file).read_text(encoding="utf-8"), (file, begins)


def test_documented_make_target_run_by_ci_exists_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in LINES:
        if isinstance(runner_of(line), ByCi) and line.words[0] == "make":
            assert re.search(rf"^{line.words[1]}:", makefile, re.MULTILINE)
