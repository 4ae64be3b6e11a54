"""Local keys of DuckDB queries and operators, by which earlier runs of the same work are found.

A plan's fingerprint is a shape: queries on different tables share it. The keys here also stand for
tables, columns and conditions. They are digests of private texts, are stored with an execution, and
never leave.

* The key of a statement, "TEMPLATE/EXACT", is made from its text without case, spaces and comments,
  and from the tables and files that it reads. TEMPLATE is equal for the same text with other
  constants, EXACT for equal constants too.
* The key of an operator is made from its conditions and from the keys of its inputs. It is equal in
  different queries wherever they return the same rows. Scans of a table with the same filters share
  it whatever columns they read, and so do joins of these.

Unknown is an empty key: the profile does not name what a scan reads, or an input is unknown. The
key of a scan is not stored where a join filtered it while it ran, as then it returned fewer rows.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedperf_client.sources.duckdb.operators import ProfileNode, is_join
from fedperf_shared.workflow.vocabulary import OperatorKind

DIGITS = 16  # of a digest
MAX_TEXT = 2**18  # characters of a statement; longer ones have no key

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>'[^']*(?:''[^']*)*(?:'|\Z)|\$(?P<tag>[a-z_]*)\$.*?(?:\$(?P=tag)\$|\Z))
    |(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)
    |(?P<quoted>"[^"]*(?:""[^"]*)*(?:"|\Z))
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>.)
    """,
    re.DOTALL | re.VERBOSE | re.IGNORECASE,
)
_EXPLAIN = re.compile(r"\A\s*explain\s+(?:analyze\s+)?(?:\([^)]*\)\s*)?", re.IGNORECASE)
_FILE = re.compile(r"[./*]")  # in a quoted name, as DuckDB writes files of views
_READER = re.compile(r"(?:read_\w+|\w+_scan)")
_CONSTANT = "?"
_OPTIONAL = "optional:"
_EQUALITY = " = "
_CONDITIONS = (
    *("Join Type", "Conditions", "Filters", "Expression", "Groups", "Aggregates"),
    *("Limit", "Top", "Offset"),
)
_COLUMNS = ("Projections", "Order By")
_RIGHT = "RIGHT"

# Operators with the rows of their only input.
_TRANSPARENT = frozenset(
    {OperatorKind.MAP, OperatorKind.SORT, OperatorKind.WINDOW, OperatorKind.SINK}
)


@dataclass(frozen=True, slots=True)
class OperatorKey:
    """The key of an operator; both are empty if unknown."""

    rows: str = ""  # equal where the same rows are returned
    columns: str = ""  # equal where the columns are the same as well

    @classmethod
    def of_source(cls, node: ProfileNode, place: str) -> "OperatorKey":
        """Return the key of all rows of a table or of files; `place` is empty if unknown."""
        if not place:
            return cls()
        rows = _digest([place])
        return cls(rows, _digest([rows, *_texts(node.notes.get("Projections"))]))

    @classmethod
    def of(cls, node: ProfileNode, inputs: Sequence["OperatorKey"]) -> "OperatorKey":
        """Return the key of an operator with inputs, or of the filter of a scan."""
        if not inputs or not all(each.rows for each in inputs):
            return cls()
        conditions = [f"{each} {_conditions(node, each)}" for each in _CONDITIONS]
        whole = [*conditions, *(f"{each} {_texts(node.notes.get(each))}" for each in _COLUMNS)]
        columns = _digest([node.kind.name, *whole, *(each.columns for each in inputs)])
        if len(inputs) == 1 and node.kind in _TRANSPARENT:
            return cls(inputs[0].rows, columns)
        if "#" in "".join(conditions):  # a position among the columns of the inputs
            return cls(columns, columns)
        sides = [each.rows for each in inputs]
        if is_join(node):
            sides = _sides(node, sides)
            conditions[0] = conditions[0].replace(f"{_RIGHT}_", "").replace(_RIGHT, "LEFT")
        return cls(_digest([node.kind.name, *conditions, *sides]), columns)


def statement_key(text: str, places: Collection[str]) -> str:
    """Return the key of a statement that reads these tables and files; empty if unknown."""
    text = _EXPLAIN.sub("", text, count=1)
    if not text or len(text) > MAX_TEXT:
        return ""
    template, exact = list[str](), list[str]()
    for kind, token in _tokens(text):
        exact.append(token)
        if kind not in ("text", "number"):
            template.append(token)
        elif template[-2:] == [_CONSTANT, ","]:  # one constant for a list of them
            template.pop()
        else:
            template.append(_CONSTANT)
    if not template:
        return ""
    read = sorted(set(places))
    return f"{_digest([*template, '', *read])}/{_digest([*exact, '', *read])}"


def files_in(text: str) -> set[str]:
    """Return the names of files, or patterns of them, that a statement reads, in lower case."""
    files, reading, before = set[str](), 0, ""
    for kind, token in _tokens(text):
        if reading or (token == "(" and _READER.fullmatch(before)):
            reading += (token == "(") - (token == ")")
        is_read = before in ("from", "join") or (reading and before not in ("=", ">"))
        if is_read and kind == "text" and token.startswith("'"):
            files.add(token[1:-1].replace("''", "'").lower())
        elif is_read and not reading and kind == "name" and _FILE.search(token):
            files.add(token)
        before = token
    return files


def names_in(text: str) -> set[str]:
    """Return the identifiers of a statement in lower case, key words among them."""
    return {token for kind, token in _tokens(text) if kind == "name"}


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and normal form of each token, without the semicolons at the end."""
    pending = list[tuple[str, str]]()
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup or "sign", match[0]
        if match["text"] is not None:
            kind = "text"
        if kind == "space":
            continue
        if kind == "quoted":
            kind, token = "name", token[1:-1].replace('""', '"')
        if kind == "name":
            token = token.lower()
        pending.append((kind, token))
        if token != ";":
            yield from pending
            pending.clear()


def _sides(node: ProfileNode, sides: list[str]) -> list[str]:
    """Return the inputs of a join in an order that does not depend on which side was hashed."""
    kind = node.note("Join Type").upper()
    if kind.startswith(_RIGHT):
        return sides[::-1]
    return sorted(sides) if kind in ("", "INNER") else sides


def _conditions(node: ProfileNode, note: str) -> list[str]:
    """Return the conditions under a note, in one order."""
    plain = [each for each in _texts(node.notes.get(note)) if _OPTIONAL not in each]
    if note != "Conditions":
        return sorted(plain) if note == "Filters" else plain
    return sorted(
        _EQUALITY.join(sorted(each.split(_EQUALITY))) if each.count(_EQUALITY) == 1 else each
        for each in plain
    )


def _texts(note: object) -> list[str]:
    if isinstance(note, list):
        return [str(each) for each in note]
    return [] if note is None else [str(note)]


def _digest(parts: Iterable[str]) -> str:
    whole = "\0".join(parts).encode(errors="replace")
    return hashlib.sha256(whole).hexdigest()[:DIGITS]


def place_of(notes: Mapping[str, object]) -> set[str]:
    """Return the names of the table or files that a scan reads; empty if it does not name them."""
    for key in ("Table", "Text"):
        if isinstance(name := notes.get(key), str) and name:
            return {name.lower()}
    names = notes.get("Filename(s)")
    files = names.split(", ") if isinstance(names, str) else []
    return {each.lower() for each in files if each and each != "..."}
