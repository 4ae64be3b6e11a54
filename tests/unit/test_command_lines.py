"""Every command line of README and docs has a runner, and the programs know what it says."""

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
OF_ALL = {"--help", "--home", "--version"}
OURS = [line for line in LINES if line.words[0] in APPS]


def test_the_pages_have_lines() -> None:
    assert len(LINES) > 150


def test_every_line_has_a_runner_and_every_runner_a_line() -> None:
    assert {entry_of(line) for line in LINES} == {*RUNNERS}


def test_a_line_that_a_walk_is_to_run_stands_on_a_page_that_is_walked() -> None:
    walked = {*walk(*WALKED)}
    assert [str(line) for line in LINES if (text := to_be_run(line)) and text not in walked] == []


@pytest.mark.parametrize("line", OURS, ids=str)
def test_a_line_names_a_command_and_options_that_there_are(line: CommandLine) -> None:
    command, words = called(line)
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    assert {*re.findall(r"(?<!\S)\[?(--[\w-]+)", " ".join(words))} <= known
    if not (line.in_prose or isinstance(runner_of(line), Elsewhere)):
        assert is_whole(line)


def test_an_option_that_a_page_names_alone_is_one_of_a_program() -> None:
    every = [each for app in APPS.values() for _, each in commands(typer.main.get_command(app))]
    known = {name for command in every for each in command.params for name in each.opts}
    named = {name for page in PAGES for name in re.findall(r"`(--[\w-]+)", page.read_text("utf-8"))}
    assert named <= known | OF_ALL


def test_what_a_line_makes_up_has_something_that_stands_for_it() -> None:
    texts = [text for line in OURS if (text := to_be_run(line))]
    assert [text for text in texts if PLACEHOLDER.search(text)] == []
    every = "\n".join(line.text for line in LINES)
    assert [made_up for made_up, _ in STAND_INS if made_up not in every] == []


def test_tests_that_run_a_line_exist() -> None:
    named = [
        name for each in RUNNERS.values() if isinstance(each, Elsewhere) for name in each.tests
    ]
    for file, _, begins in (each.partition("::") for each in named):
        assert f"def {begins}" in (ROOT / file).read_text(encoding="utf-8"), (file, begins)


def test_what_ci_runs_is_a_target_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in LINES:
        if isinstance(runner_of(line), ByCi) and line.words[0] == "make":
            assert re.search(rf"^{line.words[1]}:", makefile, re.MULTILINE)
