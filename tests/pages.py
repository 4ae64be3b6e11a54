"""Pages of the documentation, and their command lines for tests against the programs."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
ENGINEER = DOCS / "data-engineer.md"
OFFICER = DOCS / "security-officer.md"
OPERATOR = DOCS / "operator.md"
RESEARCHER = DOCS / "researcher.md"
REFERENCE = DOCS / "reference.md"

PROGRAMS = frozenset(
    ("fedperf", "fedperf-server", "fedperf-sim", "make", "python", "mkdir", "export", "pip", "flwr")
)
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK_OR_CODE = re.compile(BLOCK.pattern + r"|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
REMARK = re.compile(r"\s{2,}# .*")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A shell line on a page, without its trailing comment.

    Attributes:
        page: page of the line.
        text: text of the line.
        in_prose: True for inline code in a sentence, which may only name a command.
    """

    page: Path
    text: str
    in_prose: bool = False

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text.partition(" | ")[0])

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text}"


def lines_of(page: Path) -> Iterator[CommandLine]:
    """Yield every line of a page that begins with the name of a program, in order."""
    for found in BLOCK_OR_CODE.finditer(page.read_text(encoding="utf-8")):
        block, code = found.groups()
        lines = [code] if block is None else block.splitlines()
        if any(line.startswith("$ ") for line in lines):  # the other lines are output
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in lines:
            text = REMARK.sub("", line)
            if text.split(" ")[0] in PROGRAMS and " " in text:
                yield CommandLine(page, text, in_prose=block is None)
