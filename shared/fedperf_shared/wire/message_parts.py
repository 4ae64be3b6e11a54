"""The parts of a message, counted in its bytes before anything is made of them.

An empty part is two bytes on the wire, and fifty to three hundred once it is read. So a
message of somebody else is walked first: tags and lengths alone, by the fields that this
version knows, without recursion. A walk of megabytes of weights takes no time, one of rows
a fifth of what it takes to read them.

Refused, always by a `MalformedMessageError`: too many parts, more of one field than its
public number, a field that nobody knows, and bytes that are not of protobuf's wire format
(https://protobuf.dev/programming-guides/encoding). What passes may still be no message: whether
texts are UTF-8 and numbers fit is the parser's to say.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import MAX_ARRAYS, MAX_REHEARSAL_ROWS

MAX_MESSAGES = 80_000
"""Nested in one, at any depth: 4,096 rows of 14 operators have 77,824."""

MAX_NUMBERS = 200_000
"""In all repeated fields of one: the same rows have 115,000."""

MOST: Mapping[str, int] = {
    "fedperf.v1.TrainRequest.arrays": MAX_ARRAYS,
    "fedperf.v1.SyntheticBatch.rows": MAX_REHEARSAL_ROWS,
}
"""By the name of a field; of all others `MAX_MESSAGES` together."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
"""A field's encoding, in the last three bits of its tag."""

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
_MORE = 0x80
"""Set in every byte of a varint but the last."""


class MalformedMessageError(InvalidInputError):
    """A message is not parsed: its parts are too many, unknown or no parts at all."""

    def __init__(self, kind: Descriptor, why: str) -> None:
        super().__init__(f"a {kind.name} that is not read: {why}")


class _Field(NamedTuple):
    """Return what follows the tag of a field.

    Attributes:
        name: of the field.
        width: bytes of a number of fixed size; 0 for a varint, and for a length and bytes.
        has_length: whether a length and bytes follow.
        numbers: of a repeated field that the tag stands for, or a byte after the length.
        inside: fields of the nested message in these bytes, by their tags.
        most: times that the field may stand in the outermost message.
    """

    name: str
    width: int = 0
    has_length: bool = False
    numbers: float = 0
    inside: "_Fields | None" = None
    most: int = MAX_MESSAGES


_Fields = Mapping[int, _Field]


class _RefusedError(Exception):
    """Why a message is not parsed."""


def check_parts(kind: Descriptor, payload: bytes) -> None:
    """Check that `payload` may be parsed as a message of that kind.

    Raises:
        MalformedMessageError: it may not.
    """
    try:
        _walk(_fields(kind), payload)
    except IndexError:
        raise MalformedMessageError(kind, "it is cut off") from None
    except _RefusedError as error:
        raise MalformedMessageError(kind, str(error)) from None


def _walk(fields: _Fields, payload: bytes) -> None:
    position, end, messages, numbers = 0, len(payload), 0, 0.0
    around: list[tuple[_Fields, int]] = []
    outermost: Counter[str] = Counter()
    while True:
        position, passed, nested, length = _next_nested(fields, payload, position, end)
        numbers += passed
        if numbers > MAX_NUMBERS:
            raise _RefusedError(f"more than {MAX_NUMBERS} numbers in it")
        if nested is None or nested.inside is None:
            if not around:
                return
            fields, end = around.pop()
            continue
        messages += 1
        if messages > MAX_MESSAGES:
            raise _RefusedError(f"more than {MAX_MESSAGES} messages in it")
        if not around:
            outermost[nested.name] += 1
            if outermost[nested.name] > nested.most:
                raise _RefusedError(f"more than {nested.most} {nested.name} in it")
        around.append((fields, end))
        fields, end = nested.inside, position + length


def _next_nested(
    fields: _Fields, payload: bytes, position: int, end: int
) -> tuple[int, float, _Field | None, int]:
    """Return the next nested message's start, numbers before it, its field, and its length.

    Every tag is looked at once; what takes one byte is read in place, since a call takes as
    long. At the end of the message that is walked there is no field.
    """
    numbers = 0.0
    while position < end:
        tag = payload[position]
        position += 1
        if tag >= _MORE:
            tag, position = _varint(payload, position - 1)
        field = fields.get(tag)
        if field is None:
            raise _RefusedError("a field in it is unknown here")
        _, width, has_length, many, inside, _ = field
        if not has_length:
            numbers += many
            if not width and payload[position] >= _MORE:
                _, position = _varint(payload, position)
            else:
                position += width or 1
            continue
        length = payload[position]
        position += 1
        if length >= _MORE:
            length, position = _varint(payload, position - 1)
        if length > end - position:
            raise _RefusedError("it is cut off")
        if inside is not None:
            return position, numbers, field, length
        numbers += many * length
        position += length
    if position > end:
        raise _RefusedError("it is cut off")
    return position, numbers, None, 0


def _varint(payload: bytes, start: int) -> tuple[int, int]:
    """The number that begins at `start`, and the position after it."""
    number = 0
    for index in range(_VARINT_BYTES):
        byte = payload[start + index]
        number |= (byte & ~_MORE) << (7 * index)
        if byte < _MORE:
            return number, start + index + 1
    raise _RefusedError("a number in it is longer than any")


@cache
def _fields(kind: Descriptor) -> _Fields:
    """The fields of a message by their tags: number and wire type. None nests in itself."""
    found: dict[int, _Field] = {}
    for field in kind.fields:
        name, tag = field.name, field.number << 3
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            most = MOST.get(field.full_name, MAX_MESSAGES)
            inside = _fields(field.message_type)
            found[tag | _LENGTH] = _Field(name, has_length=True, inside=inside, most=most)
        elif field.type in _BYTES:
            found[tag | _LENGTH] = _Field(name, has_length=True)
        else:
            width, wire_type = _FIXED.get(field.type, (0, _VARINT))
            found[tag | wire_type] = _Field(name, width, numbers=int(field.is_repeated))
            if field.is_repeated:  # packed: of a varint a byte is a number at most
                found[tag | _LENGTH] = _Field(name, has_length=True, numbers=1 / (width or 1))
    return found
