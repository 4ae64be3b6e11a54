"""Finds words that the glossary replaced: in names, docstrings, texts for users and pages.

    python -m tests.shape.words [--counts] [PATH...]

`PARTS` may not be part of an identifier (`felt`, `_felt_at`, `FeltSums`). `NAMES` may not be an
identifier: a participle says what happened to a thing, and not what it is. `PHRASES` may not stand
on a page, in a docstring or in a message. A docstring does not begin with a word of `OPENINGS`.
A test is named by its unit: its name does not begin with an article or a pronoun.
Beside each is the term to use. `--counts` prints how often each occurs. The program ends with 1
if any does.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("client", "server", "shared", "simulations")
EXEMPT = {"CHANGELOG.md"}
"""Pages of what was."""

STORED = {"simulations/fedperf_simulations/demo/summary.py": {"asked", "newcomer"}}
"""Names that are keys of stored results."""

PARTS = {
    "belief": "posterior",
    "brake": "withhold",
    "dealt": "partition",
    "desk": "controller",
    "disbelief": "shrinkage",
    "felt": "directional derivatives",
    "hull": "training support",
    "judged": "held out",
    "judgement": "decision",
    "kinship": "error correlation",
    "lesson": "training plan",
    "lessons": "training set",
    "likeness": "similarity",
    "mimic": "matched folds",
    "mimicry": "matched folds",
    "newcomer": "new participant",
    "newcomers": "new participants",
    "outlook": "schedule forecast",
    "rhythm": "polling policy",
    "ruling": "decision",
    "surroundings": "environment",
    "timetable": "calendar",
    "troubles": "failures",
    "unheard": "constant inputs",
    "wishes": "constraints",
}
NAMES = dict.fromkeys(
    (
        "asked",
        "chosen",
        "drawn",
        "found",
        "given",
        "kept",
        "known",
        "moved",
        "said",
        "seen",
        "shown",
        "told",
        "wanted",
        "written",
    ),
    "the name of the thing",
)
PHRASES = {
    "at stake": "potential saving",
    "foreign load": "interference",
    "in turns": "interleaved",
    "known before it": "estimated cardinalities",
    "left open": "inconclusive",
    "newcomer": "new participant",
    "no difference that can be told": "not distinguishable",
    "of nobody": "held out",
    "own executions speak": "training support",
    "stand-in": "simulated peer",
    "sums at the tangent": "linearized updates",
    "the start that ships": "the pretrained model",
    "told apart": "distinguishable",
    "true rows": "actual cardinalities",
    "who may": "which",
    "whoever": "the person, or the thing",
}
OPENINGS = ("As", "Of", "That", "What", "Who", "Whose", "The same")

_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_MISNAMED = re.compile(r"test_(?:a|an|the|what|whatever|who|whoever|nobody|nothing|of|it)_")


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that a module defines, binds or takes as a parameter."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.Name(ctx=ast.Store()) | ast.Name(ctx=ast.Del()):
                yield node.lineno, node.id
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield node.lineno, name


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring."""
    for node in ast.walk(tree):
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def replaced_in_module(source: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield line, text, replaced word and its term for names and openings of docstrings."""
    tree = ast.parse(source)
    for line, name in identifiers(tree):
        if name in NAMES:
            yield line, name, name, NAMES[name]
        for part in _PART.findall(name):
            if part.lower() in PARTS:
                yield line, name, part.lower(), PARTS[part.lower()]
    for line, text in docstrings(tree):
        for opening in OPENINGS:
            if re.match(rf"{opening}\b", text):
                first = text.partition("\n")[0]
                yield line, first, f'docstring "{opening} ..."', "a subject and a verb"


def misnamed_tests(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every test that does not begin with its unit."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and _MISNAMED.match(node.name):
            yield node.lineno, node.name


def replaced_phrases(text: str, *, is_page: bool) -> Iterator[tuple[int, str]]:
    """Yield line and phrase of a text; a line break counts as a space.

    Single words are looked for on pages only, as keys of stored rows are words too.
    """
    one_line = re.sub(r"\s", " ", text).lower()
    phrases = [each for each in PHRASES if is_page or not each.isalpha()]
    for phrase in phrases:
        for match in re.finditer(rf"\b{re.escape(phrase)}\b", one_line):
            yield text.count("\n", 0, match.start()) + 1, phrase


def modules() -> Iterator[Path]:
    """Yield the modules of the product and the experiments, but for generated ones."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "_pb2" not in path.name:
                yield path


def pages() -> Iterator[Path]:
    """Yield the pages of the repository."""
    for pattern in ("*.md", "*/README.md", "docs/**/*.md"):
        yield from (page for page in sorted(ROOT.glob(pattern)) if page.name not in EXEMPT)


def main() -> int:
    """Print what is replaced but still occurs; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", action="store_true", help="how often each word occurs")
    parser.add_argument("paths", nargs="*", type=Path, help="folders or files; all by default")
    options = parser.parse_args()
    folders = [path.resolve() for path in options.paths] or [ROOT]
    counts: Counter[str] = Counter()
    lines = []
    for path in (*modules(), *pages()):
        if not any(path.is_relative_to(folder) for folder in folders):
            continue
        place, source = path.relative_to(ROOT), path.read_text(encoding="utf-8")
        is_page = path.suffix != ".py"
        if not is_page:
            for line, text, word, term in replaced_in_module(source):
                if text in STORED.get(str(place), ()):
                    continue
                counts[word] += 1
                lines.append(f"{place}:{line}: {text}: {word} -> {term}")
        for line, phrase in replaced_phrases(source, is_page=is_page):
            counts[phrase] += 1
            lines.append(f"{place}:{line}: {phrase} -> {PHRASES[phrase]}")
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if any(path.is_relative_to(folder) for folder in folders):
            for line, name in misnamed_tests(path.read_text(encoding="utf-8")):
                counts["test name"] += 1
                place = path.relative_to(ROOT)
                lines.append(f"{place}:{line}: {name} -> test_<unit>_<condition>_<outcome>")
    if options.counts:
        lines = [f"{count:5} {word}" for word, count in counts.most_common()]
    print(*lines, sep="\n", end="\n" if lines else "")
    return int(bool(counts))


if __name__ == "__main__":
    sys.exit(main())
