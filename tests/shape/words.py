"""Finds words that the glossary replaced: in names of the code, and on pages.

    python -m tests.shape.words [--counts]

A word of `NAMES` may not be part of an identifier (`felt`, `_felt_at`, `FeltSums`); a phrase of
`PHRASES` may not stand on a page, in a docstring or in a message. Beside each is the term to use.
`--counts` prints how often each occurs. The program ends with 1 if any does.
"""

import argparse
import io
import keyword
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("client", "server", "shared", "simulations")
EXEMPT = {"CHANGELOG.md"}
"""Pages of what was."""

NAMES = {
    "brake": "withhold",
    "desk": "controller",
    "disbelief": "shrinkage",
    "felt": "directional derivatives",
    "judgement": "decision",
    "kinship": "error correlation",
    "likeness": "similarity",
    "mimic": "matched folds",
    "mimicry": "matched folds",
    "outlook": "schedule forecast",
    "rhythm": "polling policy",
    "ruling": "outcome",
    "troubles": "failure tracker",
    "unheard": "constant inputs",
}
PHRASES = {
    "no difference that can be told": "not distinguishable",
    "sums at the tangent": "linearized updates",
    "timetable of releases": "release calendar",
}

_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each identifier of a module."""
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield token.start[0], token.string


def replaced_names(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, identifier and replaced word of a module."""
    for line, name in names(path):
        for part in _PART.findall(name):
            if part.lower() in NAMES:
                yield line, name, part.lower()


def replaced_phrases(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and phrase of a text; a line break counts as a space."""
    text = path.read_text(encoding="utf-8")
    one_line = re.sub(r"\s", " ", text).lower()
    for phrase in PHRASES:
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
        yield from (each for each in sorted(ROOT.glob(pattern)) if each.name not in EXEMPT)


def main() -> int:
    """Print what is found; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", action="store_true", help="how often each word occurs")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    lines = []
    for path in modules():
        for line, name, word in replaced_names(path):
            counts[word] += 1
            lines.append(f"{path.relative_to(ROOT)}:{line}: {name}: {word} -> {NAMES[word]}")
    for path in (*modules(), *pages()):
        for line, phrase in replaced_phrases(path):
            counts[phrase] += 1
            lines.append(f"{path.relative_to(ROOT)}:{line}: {phrase} -> {PHRASES[phrase]}")
    if options.counts:
        lines = [f"{count:5} {word}" for word, count in counts.most_common()]
    print(*lines, sep="\n", end="\n" if lines else "")
    return int(bool(counts))


if __name__ == "__main__":
    sys.exit(main())
