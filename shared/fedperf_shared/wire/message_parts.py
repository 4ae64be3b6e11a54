"""Counts the parts of an untrusted message in its bytes before it is parsed.

An empty part has two bytes on the wire and fifty to three hundred in memory. So only tags and
lengths are read first, by the fields of this version. A walk over megabytes of weights takes no
time; one over rows takes a fraction of the time that parsing them takes.

A message is refused for too many parts, more of one field than its public number, an unknown
field, and bytes that are not in protobuf's wire format
(https://protobuf.dev/programming-guides/encoding). The parser checks everything else, such as
UTF-8 and the range of numbers.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import MAX_ARRAYS, MAX_REHEARSAL_ROWS

MAX_MESSAGES = 80_000  # nested messages at any depth: 4,096 rows of 14 operators have 77,824
MAX_NUMBERS = 200_000  # numbers in all repeated fields: the same rows have 115,000

# Limits by the name of a field; all other messages share `MAX_MESSAGES`.
MOST: Mapping[str, int] = {
    "fedperf.v1.TrainRequest.arrays": MAX_ARRAYS,
    "fedperf.v1.SyntheticBatch.rows": MAX_REHEARSAL_ROWS,
}

# A field's encoding, in the last three bits of its tag
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

_FIXED = {
    FieldDescriptor.TYPE_DOUBLE: (8, _FIXED64),
    FieldDescriptor.TYPE_FIXED64: (8, _FIXED64),
    FieldDescriptor.TYPE_SFIXED64: (8, _FIXED64),
    FieldDescriptor.TYPE_FLOAT: (4, _FIXED32),
    FieldDescriptor.TYPE_FIXED32: (4, _FIXED32),
    FieldDescriptor.TYPE_SFIXED32: (4, _FIXED32),
}
_BYTES = frozenset({FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING})
_VARINT_BYTES = 10
_MORE = 0x80  # set in every byte of a varint but the last


class MalformedMessageError(InvalidInputError):
    """A message has too many parts, unknown parts or is cut off."""

    def __init__(self, kind: Descriptor, why: str) -> None:
        super().__init__(f"a {kind.name} that is not read: {why}")


class _Field(NamedTuple):
    """The encoding of a field with a given tag."""

    name: str  # of the field
    has_length: bool = False  # whether a length and bytes follow the tag
    width: int = 0  # bytes of a number of fixed size; 0 for a varint
    numbers: float = 0  # numbers per tag of a repeated field, or per byte after the length
    # Fields of the nested message in these bytes, by their tags.
    inside: "Mapping[int, _Field] | None" = None
    most: int = MAX_MESSAGES  # maximum number of such messages


def check_parts(kind: Descriptor, payload: bytes) -> None:
    """Check that `payload` may be parsed as a message of that kind.

    Raises:
        MalformedMessageError: it may not.
    """
    try:
        _Walk(kind, payload).read(_fields(kind), 0, len(payload))
    except IndexError:
        raise MalformedMessageError(kind, "it is cut off") from None


@dataclass(slots=True)
class _Walk:
    kind: Descriptor
    payload: bytes
    messages: Counter[str] = field(default_factory=Counter)
    numbers: float = 0.0

    def read(self, fields: Mapping[int, _Field], position: int, end: int) -> None:
        """Count the parts from `position` to `end`; the schema bounds the depth of recursion."""
        payload = self.payload
        while position < end:
            tag, position = payload[position], position + 1
            if tag >= _MORE:  # a call for every byte would take twice the time
                tag, position = self._varint(position - 1)
            each = fields.get(tag)
            if each is None:
                raise MalformedMessageError(self.kind, "a field in it is unknown here")
            length, size = each.width, 1
            if each.has_length:
                length, position = self._varint(position)
                size = length
            elif not each.width:
                _, position = self._varint(position)
            if length > end - position:
                raise MalformedMessageError(self.kind, "it is cut off")
            if each.inside is not None:
                self._count(each)
                self.read(each.inside, position, position + length)
            elif each.numbers:
                self.numbers += each.numbers * size
                if self.numbers > MAX_NUMBERS:
                    raise MalformedMessageError(self.kind, f"more than {MAX_NUMBERS} numbers in it")
            position += length
        if position > end:
            raise MalformedMessageError(self.kind, "it is cut off")

    def _count(self, each: _Field) -> None:
        self.messages[each.name] += 1
        if self.messages.total() > MAX_MESSAGES:
            raise MalformedMessageError(self.kind, f"more than {MAX_MESSAGES} messages in it")
        if self.messages[each.name] > each.most:
            raise MalformedMessageError(self.kind, f"more than {each.most} {each.name} in it")

    def _varint(self, start: int) -> tuple[int, int]:
        """Return the number at `start` and the position after it."""
        number = self.payload[start]
        if number < _MORE:
            return number, start + 1
        number &= ~_MORE
        for index in range(1, _VARINT_BYTES):
            byte = self.payload[start + index]
            number |= (byte & ~_MORE) << (7 * index)
            if byte < _MORE:
                return number, start + index + 1
        raise MalformedMessageError(self.kind, "a number in it is longer than any")


@cache
def _fields(kind: Descriptor) -> Mapping[int, _Field]:
    """Return the fields of a message by their tags: number and wire type."""
    by_tag: dict[int, _Field] = {}
    for each in kind.fields:
        name, tag = each.name, each.number << 3
        if each.type == FieldDescriptor.TYPE_MESSAGE:
            most, inside = MOST.get(each.full_name, MAX_MESSAGES), _fields(each.message_type)
            by_tag[tag | _LENGTH] = _Field(name, has_length=True, inside=inside, most=most)
        elif each.type in _BYTES:
            by_tag[tag | _LENGTH] = _Field(name, has_length=True)
        else:
            width, wire_type = _FIXED.get(each.type, (0, _VARINT))
            by_tag[tag | wire_type] = _Field(name, width=width, numbers=int(each.is_repeated))
            if each.is_repeated:  # packed: each number has at least one byte
                by_tag[tag | _LENGTH] = _Field(name, has_length=True, numbers=1 / (width or 1))
    return by_tag
