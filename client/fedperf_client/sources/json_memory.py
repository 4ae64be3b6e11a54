"""A bound on the memory that foreign JSON takes once it is parsed, checked before parsing.

A few kilobytes of compressed text can hold millions of values, and a value of 3 bytes takes a
hundred times as much once it is parsed. So the characters that begin values are counted first.
Those inside of texts are counted too, since counting has to be fast. The estimate is never less
than what the parser takes. For what Spark and DuckDB write it is ten times the text, and for the
largest plan that is read some 22 MB.
"""

MAX_PARSED_BYTES = 32 * 2**20
"""An event log's line or a profile above this is not parsed."""

_VALUE_BYTES = 88
"""Of a value in a list, or of a list."""

_PAIR_BYTES = 128
"""Of a key, or of an object without its keys."""

_WIDE_CHARACTER_BYTES = 4
"""Of each character of a text that holds a single one beyond the first 65,536."""


def exceeds_json_memory(text: bytes) -> bool:
    """Whether parsing `text` could take more than `MAX_PARSED_BYTES`."""
    most_of_a_character = 1 + _WIDE_CHARACTER_BYTES + _PAIR_BYTES
    if len(text) * most_of_a_character <= MAX_PARSED_BYTES:  # nearly all are, whatever they hold
        return False
    return _most_bytes(text) > MAX_PARSED_BYTES


def _most_bytes(text: bytes) -> int:
    values = text.count(b",") + text.count(b"[")
    pairs = text.count(b":") + text.count(b"{")
    is_narrow = text.isascii() and b"\\u" not in text
    # The parser keeps a copy of the text beside the texts that it makes.
    characters = len(text) * (1 + (1 if is_narrow else _WIDE_CHARACTER_BYTES))
    return characters + values * _VALUE_BYTES + pairs * _PAIR_BYTES
