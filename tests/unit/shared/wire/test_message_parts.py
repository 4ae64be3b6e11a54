"""Tests of the check before parsing: valid messages pass, others raise one clear error."""

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import MAX_ARRAYS, MAX_REHEARSAL_ROWS, SyntheticRow, TrainRequest
from fedperf_shared.model.architecture import ARRAY_SHAPES
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_shared.releases.release import ModelUpdate, ReleaseKind, SlotKey
from fedperf_shared.wire import codec, exchange_pb2, release_pb2, workflow_pb2
from fedperf_shared.wire.message_parts import (
    MAX_MESSAGES,
    MAX_NUMBERS,
    MOST,
    MalformedMessageError,
    check_parts,
)
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.plans import ONE_CORE, plans

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

SLOT = SlotKey(ReleaseKind.MODEL_UPDATE, 2, 0)
KINDS: list[type[Message]] = [
    getattr(module, name)
    for module in (exchange_pb2, release_pb2, workflow_pb2)
    for name in module.DESCRIPTOR.message_types_by_name
]
Batch = exchange_pb2.SyntheticBatch

ROWS = st.builds(
    SyntheticRow, plans(), st.just(ONE_CORE), st.floats(-20, 20), st.sampled_from(Platform)
)
ARRAYS = st.lists(st.integers(0, 300).map(lambda size: np.ones(size, np.float32)), max_size=5)


def check(kind: type[Message], payload: bytes) -> None:
    check_parts(cast("Descriptor", kind.DESCRIPTOR), payload)


@given(st.lists(ROWS, max_size=5), ARRAYS)
def test_check_parts_accepts_valid_requests_rows_and_updates(
    rows: list[SyntheticRow], arrays: list[np.ndarray]
) -> None:
    request = TrainRequest(SLOT, 1, 4, tuple(arrays))
    check(exchange_pb2.TrainRequest, codec.encode_train_request(request))
    check(Batch, codec.encode_synthetic_rows(tuple(rows)))
    update = ModelUpdate(SLOT, 1, 4, tuple(arrays))
    check(release_pb2.Release, codec.encode_release(update))


@given(plans())
def test_check_parts_accepts_every_valid_plan(plan: Plan) -> None:
    check(workflow_pb2.Plan, codec.encode_plan(plan))


def filled(message: Message, numbers: st.DataObject) -> None:
    """Set every field, and up to three items of repeated ones."""
    for field in message.DESCRIPTOR.fields:
        many = range(numbers.draw(st.integers(0, 3))) if field.is_repeated else range(1)
        if field.message_type is not None and field.is_repeated:
            for _ in many:
                filled(getattr(message, field.name).add(), numbers)
        elif field.message_type is not None:
            filled(getattr(message, field.name), numbers)
        else:
            kind = {field.CPPTYPE_DOUBLE: 0.5, field.CPPTYPE_STRING: b"\x80" * 200}
            value = kind.get(field.cpp_type, numbers.draw(st.sampled_from([0, 1, 2])))
            if field.type == field.TYPE_STRING:
                value = "text" * 50
            if field.is_repeated:
                getattr(message, field.name).extend([value] * len(many))
            else:
                setattr(message, field.name, value)


@given(st.sampled_from(KINDS), st.data())
def test_check_parts_accepts_every_message_type_with_all_fields_set(
    kind: type[Message], data: st.DataObject
) -> None:
    message = kind()
    filled(message, data)
    check(kind, message.SerializeToString())


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_check_parts_of_random_bytes_passes_or_raises_malformed_message_error(
    kind: type[Message], payload: bytes
) -> None:
    try:
        check(kind, payload)
    except MalformedMessageError as error:
        assert str(error).startswith(f"a {kind.DESCRIPTOR.name} that is not read: ")  # noqa: PT017


@given(st.data())
def test_check_parts_of_truncated_message_agrees_with_the_protobuf_parser(
    data: st.DataObject,
) -> None:
    arrays = (np.arange(6, dtype=np.float32).reshape(2, 3),)
    whole = codec.encode_train_request(TrainRequest(SLOT, 1, 4, arrays))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        exchange_pb2.TrainRequest.FromString(cut)
    except DecodeError:
        with pytest.raises(MalformedMessageError, match="cut off"):
            check(exchange_pb2.TrainRequest, cut)
    else:
        check(exchange_pb2.TrainRequest, cut)


@pytest.mark.parametrize(
    ("kind", "payload", "why"),
    [
        (exchange_pb2.TrainRequest, b"\x7a\x00", "unknown"),
        (exchange_pb2.TrainRequest, b"\x0a\x02\x78\x01", "unknown"),
        (exchange_pb2.TrainRequest, b"\x80" * 9 + b"\x01", "unknown"),
        (exchange_pb2.TrainRequest, b"\x09" + bytes(8), "unknown"),  # a number instead of a message
        (exchange_pb2.TrainRequest, b"\x0b\x0c", "unknown"),  # a group
        (exchange_pb2.TrainRequest, b"\x0b" * 100_000, "unknown"),
        (exchange_pb2.TrainRequest, b"\x10" + b"\xff" * 10 + b"\x01", "longer than any"),
        (exchange_pb2.TrainRequest, b"\xff" * 11, "longer than any"),
        (exchange_pb2.TrainRequest, b"\x0a" + b"\xff" * 10 + b"\x01", "longer than any"),
        (exchange_pb2.TrainRequest, b"\x0a" + b"\xff" * 9 + b"\x01", "cut off"),
        (exchange_pb2.TrainRequest, b"\x0a\x02\x08", "cut off"),
        (exchange_pb2.TrainRequest, b"\x0a\x01\x08\x02", "cut off"),  # exceeds the inner message
        (exchange_pb2.TrainRequest, b"\x10", "cut off"),
        (exchange_pb2.TrainRequest, b"\x10\x80", "cut off"),
        (exchange_pb2.Correction, b"\x19" + bytes(7), "cut off"),
        (exchange_pb2.TrainRequest, b"\x22\x00" * (MAX_ARRAYS + 1), "more than 32 arrays"),
        (exchange_pb2.TrainRequest, b"\x32\x00", "unknown"),  # of DP-SGD: reserved
        (Batch, b"\x0a\x00" * (MAX_REHEARSAL_ROWS + 1), "more than 4096 rows"),
        (exchange_pb2.Receipts, b"\x0a\x00" * (MAX_MESSAGES + 1), f"{MAX_MESSAGES} messages"),
        (exchange_pb2.Status, b"\x30\x01" * (MAX_NUMBERS + 1), f"{MAX_NUMBERS} numbers"),
        (
            exchange_pb2.Correction,
            exchange_pb2.Correction(mean=[0.0] * (MAX_NUMBERS + 1)).SerializeToString(),
            f"{MAX_NUMBERS} numbers",
        ),
    ],
)
def test_check_parts_refuses_malformed_or_oversized_messages_with_reason(
    kind: type[Message], payload: bytes, why: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"a {kind.DESCRIPTOR.name} that is not .*{why}"):
        check(kind, payload)


def test_check_parts_accepts_messages_at_their_limits() -> None:
    check(exchange_pb2.TrainRequest, b"\x22\x00" * MAX_ARRAYS)
    check(exchange_pb2.Receipts, b"\x0a\x00" * MAX_MESSAGES)
    numbers = exchange_pb2.Correction(mean=[0.0] * MAX_NUMBERS)
    check(exchange_pb2.Correction, numbers.SerializeToString())


def test_message_limits_match_the_model_and_existing_fields() -> None:
    assert len(ARRAY_SHAPES) == MAX_ARRAYS
    names = {
        field.full_name for kind in KINDS for field in kind.DESCRIPTOR.fields if field.is_repeated
    }
    assert MOST.keys() <= names
    longest = max(len(each.plan.workflow.operators) for each in load_public_plans())
    # A row has itself, plan, cluster, workflow, sources and operators, besides slot and arrays.
    assert MAX_REHEARSAL_ROWS * (5 + longest) + MAX_ARRAYS + 1 <= MAX_MESSAGES
